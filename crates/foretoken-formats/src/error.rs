//! The one error type: each message names the value that was found and what would have been right.

use std::path::PathBuf;

/// Why a file, a text or a template was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Any of the others, with the file it is about.
    #[error("{}: {error}", path.display())]
    File {
        /// The model file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<FormatError>,
    },

    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted, as in "cannot open the file".
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },

    /// Not a file whose bytes can be read at any position.
    #[error("this is {found}, not a regular file: give the path of a .gguf file")]
    NotAFile {
        /// "a directory", "a pipe or device".
        found: &'static str,
    },

    /// The first four bytes are wrong or not there.
    #[error("not a GGUF file: it {found}; was the download complete?")]
    NotGguf {
        /// What is the matter, as in "is empty".
        found: String,
    },

    /// The header is in the other byte order.
    #[error("a big-endian GGUF file (its version reads {version:#010x}); convert it to little-endian")]
    BigEndian {
        /// The version field as read in little-endian order.
        version: u32,
    },

    /// A version this reader does not know.
    #[error("GGUF version {version}; versions 2 and 3 are read: convert the model again with a current converter")]
    Version {
        /// The version field.
        version: u32,
    },

    /// Something reaches past the end of the file.
    #[error("{what} needs {needed} bytes at offset {offset}, the file has {file_len}: it is truncated or damaged")]
    Truncated {
        /// What was being read.
        what: String,
        /// Where it starts, in bytes from the start of the file.
        offset: u64,
        /// Its size; `u64::MAX` when the size itself overflows.
        needed: u64,
        /// The file's length in bytes.
        file_len: u64,
    },

    /// The file became shorter after its header was read.
    #[error(
        "the file changed while it was being read: {what} should have {needed} bytes at offset {offset}, and they are gone; is another program writing it?"
    )]
    Shrunk {
        /// What was being read.
        what: String,
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// How many bytes were asked for.
        needed: u64,
    },

    /// A count beyond any real model.
    #[error("{what}: {found}, at most {limit} are accepted; the file is damaged")]
    TooMany {
        /// What is counted.
        what: String,
        /// The count in the file.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },

    /// Text that is not UTF-8.
    #[error("{what} is not UTF-8; the file is damaged")]
    NotUtf8 {
        /// Which text.
        what: String,
    },

    /// A metadata value of a type that GGUF does not have, or an array of arrays.
    #[error(
        "metadata {key:?} has {found}; known are the value types 0 to 12 and arrays of them, but not arrays of arrays"
    )]
    ValueType {
        /// The metadata key.
        key: String,
        /// The type as found.
        found: String,
    },

    /// The same name twice.
    #[error("{what} {name:?} appears twice; the file is damaged")]
    Duplicate {
        /// "metadata" or "tensor".
        what: &'static str,
        /// The name.
        name: String,
    },

    /// A required metadata key is absent.
    #[error("metadata {key:?} is missing (expected {wanted}); the file is incomplete, convert the model again")]
    MissingKey {
        /// The metadata key.
        key: String,
        /// The type that was wanted.
        wanted: &'static str,
    },

    /// A metadata value has another type than is needed.
    #[error("metadata {key:?} is {found}, expected {wanted}")]
    WrongType {
        /// The metadata key.
        key: String,
        /// The type and value in the file.
        found: String,
        /// The type that was wanted.
        wanted: &'static str,
    },

    /// A metadata value outside its range.
    #[error("metadata {key:?} is {found}, expected {wanted}")]
    BadValue {
        /// The metadata key.
        key: String,
        /// The value in the file.
        found: String,
        /// What would be right.
        wanted: String,
    },

    /// A tensor's description makes no sense.
    #[error("tensor {tensor:?}: {found}; expected {wanted}")]
    BadTensor {
        /// The tensor's name.
        tensor: String,
        /// The offending value.
        found: String,
        /// What would be right.
        wanted: String,
    },

    /// The file lacks a tensor that is needed.
    #[error("tensor {tensor:?} is missing; the file is incomplete or of another architecture")]
    MissingTensor {
        /// The tensor's name.
        tensor: String,
    },

    /// The vocabulary contradicts itself, or is of a kind that is not read.
    #[error("tokenizer: {found}; expected {wanted}")]
    Tokenizer {
        /// The offending value.
        found: String,
        /// What would be right.
        wanted: String,
    },

    /// A text that cannot be tokenised.
    #[error("cannot tokenise: {reason}")]
    Encode {
        /// Why.
        reason: String,
    },

    /// The chat template cannot be compiled, or failed on these messages.
    #[error("chat template: {reason}")]
    Template {
        /// Why, with the line in the template where it is known.
        reason: String,
    },
}

impl FormatError {
    /// The same error with the name of the file it is about.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        match self {
            Self::File { .. } => self,
            error => Self::File { path: path.to_owned(), error: Box::new(error) },
        }
    }

    /// The error itself, without the file's name around it.
    pub fn bare(&self) -> &FormatError {
        match self {
            Self::File { error, .. } => error.bare(),
            error => error,
        }
    }
}
