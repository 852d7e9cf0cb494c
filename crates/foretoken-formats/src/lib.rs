//! Model files, tokenizers and chat templates: untrusted bytes end here.
//!
//! Everything this crate reads may be hostile. A count, length, offset or product is checked against the file before
//! anything is allocated or read for it; what does not fit is a [`FormatError`] that names the value and what to do.
//!
//! - [`gguf`]: the model file, its metadata and positioned reads of its tensors
//! - [`tokenizer`]: the byte-level BPE inside the file, and streaming text from token ids
//! - [`chat`]: the file's own chat template
//! - [`deep`]: stacks for what strangers may nest

pub mod chat;
pub mod deep;
mod error;
pub mod gguf;
mod printable;
pub mod tokenizer;

pub use error::FormatError;
pub use printable::printable;

/// A token's number in the vocabulary.
pub type TokenId = u32;
