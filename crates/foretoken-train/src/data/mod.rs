//! Texts to token files, and token files to batches.

mod corpus;
mod duplicates;
mod functions;
mod prepare;
mod repeats;
mod tokens;
mod vocabulary;
mod windows;

pub use corpus::{Document, Source, documents};
pub use duplicates::Shingles;
pub use functions::{FunctionPrompt, function_prompts};
pub use prepare::{DataConfig, Prepared, Recipe, file_hash, prepare};
pub use repeats::{Repeated, Repeats, RepeatsConfig};
pub use tokens::{END_OF_TEXT, TokenFile, TokenWriter};
pub use vocabulary::Vocabulary;
pub use windows::Windows;
