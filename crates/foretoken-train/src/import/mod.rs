//! Models of other trainers as GGUF files of ours, and GGUF files of ours as the start of a run.

mod meta;
mod start;

pub use meta::{MetaOptions, from_meta};
pub use start::start_from;

#[cfg(test)]
mod tests;
