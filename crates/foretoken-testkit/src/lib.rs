//! Seeded generators, a toy target that reads only its cache, tiny checkpoints: for tests.

pub mod models;
pub mod rng;
pub mod toy;
pub mod toy_cache;

pub use rng::Rng;
pub use toy::{ToyModel, ToyTarget};
pub use toy_cache::ToyCache;
