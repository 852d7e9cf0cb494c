//! Reads the header: every count and length is compared with what is left of the file before it is believed.
//!
//! Memory stays below the header's size plus a constant: strings and arrays keep at most their bytes in the file, and
//! the number of keys and tensors, whose bookkeeping is larger than their bytes, is capped.

use std::fmt::Display;

use super::metadata::{Metadata, Numbers, Strings, Value, ValueType};
use super::source::Source;
use super::types::{GgmlType, describe_unknown};
use super::{DEFAULT_ALIGNMENT, TensorInfo};
use crate::FormatError;

/// No model comes near: the largest have a few thousand tensors and some hundred keys.
const MAX_KEYS: u64 = 65_536;
const MAX_TENSORS: u64 = 65_536;
/// The specification's limits.
const MAX_KEY_BYTES: u64 = 65_535;
const MAX_TENSOR_NAME_BYTES: u64 = 64;
const MAX_DIMS: u32 = 4;
const MAX_ALIGNMENT: u32 = 1 << 20;

/// What the header says, with tensor offsets made absolute and checked against the file.
pub(super) struct Header {
    pub version: u32,
    pub alignment: u32,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
}

/// Reads and checks the header of a source of `len` bytes.
pub(super) fn read(source: &Source, len: u64) -> Result<Header, FormatError> {
    let mut cursor = Cursor::new(source, len);
    let version = read_version(&mut cursor)?;
    let n_tensors = cursor.count("the number of tensors", MAX_TENSORS)?;
    let n_keys = cursor.count("the number of metadata keys", MAX_KEYS)?;

    let mut metadata = Metadata::default();
    for index in 0..n_keys {
        let key = cursor.string(MAX_KEY_BYTES, || format!("the name of metadata key {index}"))?;
        let value = read_value(&mut cursor, &key)?;
        if metadata.contains(&key) {
            return Err(FormatError::Duplicate { what: "metadata", name: key });
        }
        metadata.insert(key, value);
    }
    let alignment = read_alignment(&metadata)?;

    let mut tensors = Vec::new();
    for index in 0..n_tensors {
        tensors.push(read_tensor_info(&mut cursor, index)?);
    }
    place_tensors(&mut tensors, cursor.at, alignment, len)?;
    Ok(Header { version, alignment, metadata, tensors })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, FormatError> {
    match cursor.len {
        0 => return Err(FormatError::NotGguf { found: "is empty".to_owned() }),
        len @ 1..4 => return Err(FormatError::NotGguf { found: format!("has {len} of the 4 bytes of \"GGUF\"") }),
        _ => {}
    }
    let magic: [u8; 4] = cursor.array(|| "the magic".into())?;
    if &magic != b"GGUF" {
        let found = format!("starts with {:?} where \"GGUF\" is expected", String::from_utf8_lossy(&magic));
        return Err(FormatError::NotGguf { found });
    }
    let version = cursor.u32(|| "the version".into())?;
    match version {
        2 | 3 => Ok(version),
        _ if (1..=0xffff).contains(&version.swap_bytes()) => Err(FormatError::BigEndian { version }),
        _ => Err(FormatError::Version { version }),
    }
}

fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, FormatError> {
    let what = || format!("metadata {key:?}");
    let ty = read_value_type(cursor, key)?;
    match ty {
        ValueType::String => Ok(Value::String(cursor.string(u64::MAX, what)?)),
        ValueType::Array => read_array(cursor, key),
        number => {
            let bytes = cursor.small(number.bytes().expect("strings and arrays are above"), what)?;
            Value::scalar(number, bytes).ok_or_else(|| bad_value(key, bytes[0], "0 or 1 for a bool"))
        }
    }
}

fn read_value_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, FormatError> {
    let id = cursor.u32(|| format!("the type of metadata {key:?}"))?;
    ValueType::from_id(id)
        .ok_or_else(|| FormatError::ValueType { key: key.to_owned(), found: format!("value type {id}") })
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, FormatError> {
    let what = || format!("metadata {key:?}");
    let ty = read_value_type(cursor, key)?;
    let n = cursor.u64(what)?;
    match ty {
        ValueType::Array => Err(FormatError::ValueType { key: key.to_owned(), found: "an array of arrays".to_owned() }),
        ValueType::String => Ok(Value::Strings(cursor.strings(n, what)?)),
        number => {
            let size = number.bytes().expect("strings and arrays are above") as u64;
            let bytes = cursor.bytes(n.saturating_mul(size), what)?;
            let numbers = Numbers::from_le_bytes(number, bytes);
            numbers.map(Value::Numbers).ok_or_else(|| bad_value(key, "an array with another byte", "0 or 1 for a bool"))
        }
    }
}

fn bad_value(key: &str, found: impl Display, wanted: &str) -> FormatError {
    FormatError::BadValue { key: key.to_owned(), found: found.to_string(), wanted: wanted.to_owned() }
}

fn read_alignment(metadata: &Metadata) -> Result<u32, FormatError> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.get_u32_or(KEY, DEFAULT_ALIGNMENT)?;
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(bad_value(KEY, alignment, &format!("a power of two up to {MAX_ALIGNMENT}")));
    }
    Ok(alignment)
}

/// Reads one tensor's description; its offset is still relative to the data section.
fn read_tensor_info(cursor: &mut Cursor<'_>, index: u64) -> Result<TensorInfo, FormatError> {
    let name = cursor.string(MAX_TENSOR_NAME_BYTES, || format!("the name of tensor {index}"))?;
    let what = || format!("the description of tensor {name:?}");
    let bad =
        |found: String, wanted: &str| FormatError::BadTensor { tensor: name.clone(), found, wanted: wanted.to_owned() };

    let n_dims = cursor.u32(what)?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(bad(format!("{n_dims} dimensions"), "1 to 4"));
    }
    let mut shape = Vec::with_capacity(n_dims as usize);
    for _ in 0..n_dims {
        shape.push(cursor.u64(what)?);
    }
    let id = cursor.u32(what)?;
    let ty = GgmlType::from_id(id).ok_or_else(|| bad(describe_unknown(id), &GgmlType::supported_names()))?;
    let offset = cursor.u64(what)?;

    if shape.contains(&0) {
        return Err(bad(format!("shape {shape:?}"), "dimensions of at least 1"));
    }
    if !shape[0].is_multiple_of(ty.block_len() as u64) {
        return Err(bad(format!("rows of {} in {ty}", shape[0]), &format!("a multiple of {}", ty.block_len())));
    }
    // Dividing first keeps every product of a real tensor far from the limit.
    let blocks = shape[1..].iter().try_fold(shape[0] / ty.block_len() as u64, |n, dim| n.checked_mul(*dim));
    let n_bytes = blocks.and_then(|n| n.checked_mul(ty.block_bytes() as u64));
    let fits = |n: &u64| isize::try_from(*n).is_ok();
    let elements = shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim)).filter(fits);
    let (Some(n_bytes), Some(_)) = (n_bytes.filter(fits), elements) else {
        return Err(bad(format!("shape {shape:?}"), "a size that fits the address space"));
    };
    let shape = shape.iter().map(|dim| *dim as usize).collect();
    Ok(TensorInfo { name, shape, ty, offset, n_bytes: n_bytes as usize })
}

/// Makes offsets absolute and checks that names differ and that no tensor leaves the file or touches another.
fn place_tensors(
    tensors: &mut [TensorInfo],
    header_end: u64,
    alignment: u32,
    file_len: u64,
) -> Result<(), FormatError> {
    let alignment = u64::from(alignment);
    let data = header_end.next_multiple_of(alignment);
    for tensor in tensors.iter_mut() {
        if !tensor.offset.is_multiple_of(alignment) {
            return Err(FormatError::BadTensor {
                tensor: tensor.name.clone(),
                found: format!("offset {}", tensor.offset),
                wanted: format!("a multiple of the alignment {alignment}"),
            });
        }
        let start = data.checked_add(tensor.offset);
        let end = start.and_then(|start| start.checked_add(tensor.n_bytes as u64));
        if end.is_none_or(|end| end > file_len) {
            return Err(FormatError::Truncated {
                what: format!("tensor {:?} ({} {:?})", tensor.name, tensor.ty, tensor.shape),
                offset: start.unwrap_or(u64::MAX),
                needed: tensor.n_bytes as u64,
                file_len,
            });
        }
        tensor.offset = start.expect("the end exists");
    }

    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_unstable_by_key(|tensor| &tensor.name);
    if let Some(pair) = order.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(FormatError::Duplicate { what: "tensor", name: pair[0].name.clone() });
    }
    order.sort_unstable_by_key(|tensor| tensor.offset);
    let overlap = |pair: &&[&TensorInfo]| pair[0].offset + pair[0].n_bytes as u64 > pair[1].offset;
    if let Some(pair) = order.windows(2).find(overlap) {
        return Err(FormatError::BadTensor {
            tensor: pair[1].name.clone(),
            found: format!("starts at byte {} inside tensor {:?}", pair[1].offset, pair[0].name),
            wanted: "tensors that do not overlap".to_owned(),
        });
    }
    Ok(())
}

/// Reads forward through a window; asks the source for nothing beyond the file's length.
struct Cursor<'a> {
    source: &'a Source,
    len: u64,
    /// Position of the next byte.
    at: u64,
    window: Vec<u8>,
    window_start: u64,
}

const WINDOW: usize = 256 << 10;

impl<'a> Cursor<'a> {
    fn new(source: &'a Source, len: u64) -> Self {
        Self { source, len, at: 0, window: Vec::new(), window_start: 0 }
    }

    fn check(&self, needed: u64, what: impl Fn() -> String) -> Result<(), FormatError> {
        if needed <= self.len - self.at {
            return Ok(());
        }
        Err(FormatError::Truncated { what: what(), offset: self.at, needed, file_len: self.len })
    }

    /// The next `n` bytes; `n` is at most the window's size.
    fn small(&mut self, n: usize, what: impl Fn() -> String) -> Result<&[u8], FormatError> {
        self.check(n as u64, &what)?;
        let inside = self.at.checked_sub(self.window_start);
        if inside.is_none_or(|inside| inside + n as u64 > self.window.len() as u64) {
            let size = (self.len - self.at).min(WINDOW as u64) as usize;
            self.window.resize(size, 0);
            self.source.read_at(self.at, &mut self.window, &what)?;
            self.window_start = self.at;
        }
        let start = (self.at - self.window_start) as usize;
        self.at += n as u64;
        Ok(&self.window[start..start + n])
    }

    fn array<const N: usize>(&mut self, what: impl Fn() -> String) -> Result<[u8; N], FormatError> {
        Ok(self.small(N, what)?.try_into().expect("N bytes were read"))
    }

    fn u32(&mut self, what: impl Fn() -> String) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: impl Fn() -> String) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn count(&mut self, what: &str, limit: u64) -> Result<u64, FormatError> {
        let found = self.u64(|| what.to_owned())?;
        if found > limit {
            return Err(FormatError::TooMany { what: what.to_owned(), found, limit });
        }
        Ok(found)
    }

    /// The next `n` bytes, appended to `out`, which has room for them.
    fn append(&mut self, n: u64, out: &mut Vec<u8>, what: impl Fn() -> String) -> Result<(), FormatError> {
        self.check(n, &what)?;
        let n = n as usize;
        if n <= WINDOW {
            let bytes = self.small(n, what)?;
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let start = out.len();
        out.resize(start + n, 0);
        self.source.read_at(self.at, &mut out[start..], what)?;
        self.at += n as u64;
        Ok(())
    }

    /// The next `n` bytes.
    fn bytes(&mut self, n: u64, what: impl Fn() -> String) -> Result<Vec<u8>, FormatError> {
        self.check(n, &what)?;
        let mut out = Vec::with_capacity(n as usize);
        self.append(n, &mut out, what)?;
        Ok(out)
    }

    fn string(&mut self, limit: u64, what: impl Fn() -> String) -> Result<String, FormatError> {
        let n = self.u64(&what)?;
        if n > limit {
            return Err(FormatError::TooMany { what: format!("the bytes of {}", what()), found: n, limit });
        }
        let bytes = self.bytes(n, &what)?;
        String::from_utf8(bytes).map_err(|_| FormatError::NotUtf8 { what: what() })
    }

    /// `n` strings. Their lengths are walked first, so that the text is allocated once and exactly.
    fn strings(&mut self, n: u64, what: impl Fn() -> String) -> Result<Strings, FormatError> {
        self.check(n.saturating_mul(8), &what)?;
        let start = self.at;
        let mut total = 0;
        for _ in 0..n {
            let len = self.u64(&what)?;
            self.check(len, &what)?;
            self.at += len;
            total += len;
        }
        self.at = start;

        let mut text = Vec::with_capacity(total as usize);
        let mut ends = Vec::with_capacity(n as usize);
        for _ in 0..n {
            let len = self.u64(&what)?;
            // Another process may have rewritten the length between the two walks.
            if len > total - text.len() as u64 {
                return Err(FormatError::Shrunk { what: what(), offset: self.at, needed: len });
            }
            self.append(len, &mut text, &what)?;
            ends.push(text.len());
        }
        let text = String::from_utf8(text).ok();
        text.and_then(|text| Strings::new(text, ends)).ok_or_else(|| FormatError::NotUtf8 { what: what() })
    }
}
