//! Language models on the kernels: architectures, weights, the paged K/V cache, and the forward pass over the rows of
//! many token trees. Implements [`foretoken_decode::target::Target`].
//!
//! A row's logits depend on the tokens of its path alone, bit for bit: not on the number of rows, the tree's shape,
//! prompt chunking, pages, other sequences, prefix reuse or the thread count.

mod arch;
mod attend;
mod block;
mod cache;
mod error;
mod forward;
mod heads;
mod hyper;
mod load;
mod model;
mod plan;
mod rope;
mod threads;

pub use cache::{KvShape, PagedCache};
pub use error::ModelError;
pub use heads::{HeadKind, HeadsInfo};
pub use hyper::Hyper;
pub use load::{LoadOptions, Weights};
pub use model::{Model, Results, check};
pub use rope::{Rope, RopeScaling};
pub use threads::Threads;

pub use arch::architectures;
pub use foretoken_kernels::attention::KvType;
