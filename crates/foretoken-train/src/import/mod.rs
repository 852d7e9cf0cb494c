//! Models of other trainers as GGUF files of ours.

mod meta;

pub use meta::{MetaOptions, from_meta};

#[cfg(test)]
mod tests;
