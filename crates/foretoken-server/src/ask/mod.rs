//! Requests: from JSON to what the engine is asked for. Nothing in a request is ignored that would change its answer.

pub mod chat;
pub mod completion;
pub mod settings;
pub mod structure;
pub mod tokens;
pub mod tools;

use foretoken_engine::Request;

use crate::reply::Shape;

/// A request that is ready for the engine.
#[derive(Debug)]
pub struct Ask {
    /// One per choice.
    pub requests: Vec<Request>,
    /// One per prompt whose own tokens are to be scored.
    pub scoring: Vec<Request>,
    /// How the answer is put.
    pub shape: Shape,
    /// Send what there is as it comes.
    pub stream: bool,
}
