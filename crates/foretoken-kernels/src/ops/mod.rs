//! Element-wise operations, norms, and what a sampler needs of a row of logits.
//!
//! Each takes an [`Isa`](crate::Isa) and gives the same bits on every one.

pub mod noise;
