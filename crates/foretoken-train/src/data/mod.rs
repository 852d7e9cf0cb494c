//! Texts to token files, and token files to batches.

mod corpus;
mod duplicates;
mod prepare;
mod tokens;
mod windows;

pub use corpus::{Document, Source, documents};
pub use duplicates::Shingles;
pub use prepare::{DataConfig, Prepared, Recipe, prepare};
pub use tokens::{END_OF_TEXT, TokenFile, TokenWriter};
pub use windows::Windows;
