//! Token trees, the coupled sampler, drafters, the budget and the decode loop.
//!
//! Pure: no tensors, files, threads, tokenizer or clock. Generic over [`target::Target`].

pub mod target;
pub mod tree;

/// A token's id in the target's vocabulary.
pub type TokenId = u32;
