//! Trained models in the formats that others read: GGUF and Hugging Face's safetensors.
//!
//! Names and layouts of the heads' tensors are in `docs/heads.md`.

mod gguf;
mod huggingface;
mod weights;

use std::path::Path;

use foretoken_formats::gguf::GgufWriter;

use crate::TrainError;
use crate::trainer::replace;

pub(crate) use gguf::{COUNT, KIND, Sizes, Tensors, heads, kind, trunk};
pub use gguf::{Storage, to_gguf};
pub use huggingface::to_huggingface;
pub(crate) use weights::{Place, Weight};

/// Writes a GGUF file, in place of an old one only when it is whole.
pub fn write_gguf(file: &GgufWriter, path: &Path) -> Result<(), TrainError> {
    replace(path, |out| file.write_to(out))
}

#[cfg(test)]
mod tests;
