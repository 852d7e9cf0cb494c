//! GGUF model files, versions 2 and 3, little-endian: metadata, tensor descriptions and positioned reads.
//!
//! Written from the specification in ggml's `docs/gguf.md`.

mod fingerprint;
mod header;
mod metadata;
mod source;
mod summary;
mod types;
mod write;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use metadata::{Metadata, Numbers, Strings, Value, ValueType};
pub use summary::{Summary, TypeUse};
pub use types::GgmlType;
pub use write::GgufWriter;

use crate::FormatError;
use source::Source;

/// Alignment of tensor data when the file does not say another.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// Where a tensor is and how to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Its name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Dimensions in the file's order: `shape[0]` is the fastest, the row length. 1 to 4, none is 0.
    pub shape: Vec<usize>,
    /// Element type.
    pub ty: GgmlType,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Size in the file.
    pub n_bytes: usize,
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of rows: the product of all dimensions but the first.
    pub fn n_rows(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Bytes of one row of `shape[0]` elements.
    pub fn row_bytes(&self) -> usize {
        self.shape[0] / self.ty.block_len() * self.ty.block_bytes()
    }
}

/// An open model file whose header has been read and checked; tensor data is read on demand and never mapped.
#[derive(Debug)]
pub struct Gguf {
    path: Option<PathBuf>,
    source: Source,
    file_len: u64,
    version: u32,
    alignment: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, by name.
    by_name: Vec<u32>,
}

impl Gguf {
    /// Opens a file, reads its header and checks all of it: after this, every tensor lies inside the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FormatError> {
        let path = path.as_ref();
        let opened = Source::open(path).and_then(|(source, len)| Self::read_header(source, len));
        let mut gguf = opened.map_err(|error| error.in_file(path))?;
        gguf.path = Some(path.to_owned());
        Ok(gguf)
    }

    /// The same for a file in memory, or one that is part of the program.
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, FormatError> {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        Self::read_header(Source::Bytes(bytes), len)
    }

    fn read_header(source: Source, file_len: u64) -> Result<Self, FormatError> {
        let header::Header { version, alignment, metadata, tensors } = header::read(&source, file_len)?;
        let mut by_name: Vec<u32> = (0..tensors.len() as u32).collect();
        by_name.sort_unstable_by_key(|&index| &tensors[index as usize].name);
        Ok(Self { path: None, source, file_len, version, alignment, metadata, tensors, by_name })
    }

    /// The file's path; `None` for a file in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file's length in bytes when it was opened.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The format's version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The key-value part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name, if there is one.
    pub fn find(&self, name: &str) -> Option<&TensorInfo> {
        let tensor = |index: &u32| &self.tensors[*index as usize];
        let found = self.by_name.binary_search_by(|index| tensor(index).name.as_str().cmp(name)).ok()?;
        Some(tensor(&self.by_name[found]))
    }

    /// The tensor of this name; its absence is an error.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, FormatError> {
        let missing = || FormatError::MissingTensor { tensor: name.to_owned() };
        self.find(name).ok_or_else(|| self.about(missing()))
    }

    /// Fills `out` with the tensor's bytes from `byte_offset` inside it.
    ///
    /// Errors when the range leaves the tensor, and when another process has cut the file short meanwhile.
    pub fn read_at(&self, tensor: &TensorInfo, byte_offset: usize, out: &mut [u8]) -> Result<(), FormatError> {
        let what = || format!("tensor {:?}", tensor.name);
        let inside = byte_offset.checked_add(out.len()).is_some_and(|end| end <= tensor.n_bytes);
        if !inside {
            return Err(self.about(FormatError::BadTensor {
                tensor: tensor.name.clone(),
                found: format!("a read of {} bytes at byte {byte_offset}", out.len()),
                wanted: format!("a range inside its {} bytes", tensor.n_bytes),
            }));
        }
        let offset = tensor.offset.saturating_add(byte_offset as u64);
        self.source.read_at(offset, out, what).map_err(|error| self.about(error))
    }

    /// All bytes of a tensor.
    pub fn read(&self, tensor: &TensorInfo) -> Result<Vec<u8>, FormatError> {
        let mut bytes = vec![0; tensor.n_bytes];
        self.read_at(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// What the file holds, for people.
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }

    /// Adds the file's name to an error.
    pub(crate) fn about(&self, error: FormatError) -> FormatError {
        match &self.path {
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests;
