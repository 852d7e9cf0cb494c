//! Seeded generators, a toy target that reads only its cache, tiny checkpoints: for tests.

pub mod adversaries;
pub mod generate;
pub mod models;
pub mod rng;
pub mod sampling;
pub mod script;
pub mod tiny;
pub mod toy;
pub mod toy_cache;
pub mod toy_text;

pub use generate::{Output, Setup, ToyDecoder, answer, generate};
pub use rng::Rng;
pub use sampling::SamplingDrafter;
pub use script::Script;
pub use toy::{ToyClock, ToyHeads, ToyModel, ToyTarget};
pub use toy_cache::ToyCache;
pub use toy_text::ToyText;
