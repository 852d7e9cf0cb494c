//! Why the engine could not do what it was asked.

use std::path::PathBuf;

use foretoken_decode::RequestError;
use foretoken_decode::target::TargetError;
use foretoken_formats::FormatError;
use foretoken_model::ModelError;

/// Why the engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model file, its tokenizer or its chat template.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An option outside its range.
    #[error("{name} is {value}, and must be {wanted}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        wanted: String,
    },
    /// A model that cannot draft for the model that was opened.
    #[error("{} cannot draft for this model: {reason}", model.display())]
    Draft {
        /// The file of the model that was to draft.
        model: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The file has no chat template, or it refuses these messages.
    #[error("{model} has no chat template: it was not made for conversations")]
    NoChatTemplate {
        /// The model's name.
        model: String,
    },
    /// A schema or grammar cannot be used.
    #[error("the {what} cannot be used: {why}")]
    Grammar {
        /// "JSON schema", "regular expression", "grammar".
        what: &'static str,
        /// What is wrong, and where.
        why: String,
    },
    /// A request was refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A pass could not be run: the target broke a promise. No text was lost.
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl EngineError {
    /// An option outside its range.
    pub(crate) fn option(name: &'static str, value: impl ToString, wanted: &str) -> Self {
        Self::Option { name, value: value.to_string(), wanted: wanted.to_owned() }
    }
}
