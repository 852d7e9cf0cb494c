//! Trained models in the formats that others read: GGUF and Hugging Face's safetensors.
//!
//! Names and layouts of the heads' tensors are in `docs/heads.md`.

mod gguf;
mod huggingface;
mod weights;

pub(crate) use gguf::{Sizes, Tensors};
pub use gguf::{Storage, to_gguf};
pub use huggingface::to_huggingface;
pub(crate) use weights::Weight;

#[cfg(test)]
pub(crate) mod tests;
