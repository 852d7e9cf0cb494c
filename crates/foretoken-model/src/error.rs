//! Why a model could not be loaded.

use std::path::PathBuf;

use foretoken_formats::FormatError;
use foretoken_formats::gguf::Gguf;
use foretoken_kernels::arena::ArenaError;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Any of the others, with the file it is about.
    #[error("{}: {error}", path.display())]
    File {
        /// The model file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<ModelError>,
    },
    /// The file is broken, or changed while it was read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// Not enough memory for keys and values.
    #[error(
        "a cache of {n_tokens} tokens is too large: {source}; let it hold fewer tokens, or make the context shorter"
    )]
    Cache {
        /// Tokens asked for.
        n_tokens: usize,
        /// What is missing.
        source: ArenaError,
    },
    /// No code for this kind of model.
    #[error("the architecture {found:?} is not known; known are: {known}")]
    Architecture {
        /// `general.architecture`.
        found: String,
        /// All that would do.
        known: String,
    },
    /// A tensor's type has no kernel.
    #[error("tensor {tensor:?} has the type {found}, which has no kernel; convert it to one of {known}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// Its type.
        found: String,
        /// All that would do.
        known: String,
    },
    /// A tensor's shape disagrees with the model's sizes.
    #[error("tensor {tensor:?} has the shape {found:?} and the model's sizes ask for {wanted:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its shape, fastest dimension first.
        found: Vec<usize>,
        /// The shape asked for.
        wanted: Vec<usize>,
    },
    /// A size that no model can have, or that the kernels do not do.
    #[error("{key} is {found}: {wanted}")]
    Size {
        /// The metadata key.
        key: String,
        /// Its value.
        found: String,
        /// What was expected.
        wanted: String,
    },
}

impl ModelError {
    /// The same error with the name of the file it is about, where the file has one and the error does not name it.
    pub(crate) fn about(self, gguf: &Gguf) -> Self {
        match (gguf.path(), &self) {
            (None, _) | (_, Self::Format(_) | Self::File { .. }) => self,
            (Some(path), _) => Self::File { path: path.to_owned(), error: Box::new(self) },
        }
    }
}
