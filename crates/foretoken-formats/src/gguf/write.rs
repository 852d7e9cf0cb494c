//! Writes GGUF files: for export and for tests.

use std::io::{self, Write};
use std::path::Path;

use super::metadata::{Metadata, Value};
use super::{DEFAULT_ALIGNMENT, GgmlType};
use crate::FormatError;

/// Collects metadata and tensors, then writes them as one little-endian file.
#[derive(Debug)]
pub struct GgufWriter {
    version: u32,
    metadata: Metadata,
    tensors: Vec<Tensor>,
}

#[derive(Debug)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    ty: GgmlType,
    data: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self { version: 3, metadata: Metadata::default(), tensors: Vec::new() }
    }
}

impl GgufWriter {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes this version instead; the layouts of 2 and 3 are the same.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets a metadata key. `general.alignment` also aligns the tensors.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(key, value.into());
        self
    }

    /// Adds a tensor. `shape[0]` is the row length; `data` holds the blocks in the layout of `ty`.
    ///
    /// Panics when the data's length contradicts shape and type.
    pub fn tensor(mut self, name: impl Into<String>, shape: &[usize], ty: GgmlType, data: Vec<u8>) -> Self {
        let name = name.into();
        let n_bytes = shape.iter().product::<usize>() / ty.block_len() * ty.block_bytes();
        assert_eq!(data.len(), n_bytes, "bytes of tensor {name:?}, {ty} {shape:?}");
        self.tensors.push(Tensor { name, shape: shape.to_vec(), ty, data });
        self
    }

    /// Writes the file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FormatError> {
        let path = path.as_ref();
        let write = || {
            let mut out = io::BufWriter::new(std::fs::File::create(path)?);
            self.write_to(&mut out)?;
            out.flush()
        };
        write().map_err(|source| FormatError::Io { action: "write the file", source }.in_file(path))
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out).expect("memory takes every write");
        out
    }

    /// Writes to anything.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let alignment = self.metadata.get_u32_or("general.alignment", DEFAULT_ALIGNMENT).unwrap_or(DEFAULT_ALIGNMENT);
        let align = |n: usize| n.next_multiple_of(alignment.max(1) as usize);

        let mut header = Vec::new();
        header.extend_from_slice(b"GGUF");
        header.extend_from_slice(&self.version.to_le_bytes());
        header.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            put_str(&mut header, key);
            header.extend_from_slice(&(value.value_type() as u32).to_le_bytes());
            put_value(&mut header, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_str(&mut header, &tensor.name);
            header.extend_from_slice(&(tensor.shape.len() as u32).to_le_bytes());
            for dim in &tensor.shape {
                header.extend_from_slice(&(*dim as u64).to_le_bytes());
            }
            header.extend_from_slice(&tensor.ty.id().to_le_bytes());
            header.extend_from_slice(&(offset as u64).to_le_bytes());
            offset += align(tensor.data.len());
        }
        header.resize(align(header.len()), 0);
        out.write_all(&header)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            out.write_all(&vec![0; align(tensor.data.len()) - tensor.data.len()])?;
        }
        Ok(())
    }
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.push(*v as u8),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::String(v) => put_str(out, v),
        Value::Numbers(numbers) => {
            out.extend_from_slice(&(numbers.element_type() as u32).to_le_bytes());
            out.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
            out.extend_from_slice(numbers.as_le_bytes());
        }
        Value::Strings(strings) => {
            out.extend_from_slice(&(super::ValueType::String as u32).to_le_bytes());
            out.extend_from_slice(&(strings.len() as u64).to_le_bytes());
            strings.iter().for_each(|text| put_str(out, text));
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Value::$variant(value.into())
            }
        })*
    };
}

value_from! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64, bool => Bool, &str => String, String => String,
    super::Numbers => Numbers, super::Strings => Strings,
}
