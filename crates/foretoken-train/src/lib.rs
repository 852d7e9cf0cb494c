//! Training of models that predict several tokens ahead.
//!
//! A Llama-type trunk carries `n` prediction heads: head 1 predicts the next token, head `k` the `k`-th. The text
//! "the cat sat" -> "on the mat" with three heads and words as tokens:
//!
//! | position | input | head 1 | head 2 | head 3 |
//! | --- | --- | --- | --- | --- |
//! | 0 | the | cat | sat | on |
//! | 1 | cat | sat | on | the |
//! | 2 | sat | on | the | mat |
//! | 3 | on | the | mat | nothing: the text ends |
//! | 4 | the | mat | nothing | nothing |
//!
//! Each head's loss is the mean over the positions where it has something to predict. The heads run forward and backward
//! one after another on the trunk's detached output, so that the logits of one head are alive at a time ([`step`]).

pub mod batch;
pub mod config;
pub mod data;
mod error;
pub mod evaluation;
pub mod export;
pub mod import;
pub mod loss;
pub mod model;
pub mod ops;
pub mod optim;
pub mod params;
pub mod rng;
#[cfg(test)]
mod scratch;
pub mod step;
pub mod trainer;

pub use error::TrainError;
