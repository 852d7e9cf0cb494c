//! Requests: from JSON to what the engine is asked for. Nothing in a request is ignored that would change its answer.

pub mod chat;
pub mod completion;
pub mod settings;
pub mod structure;
pub mod tokens;
pub mod tools;

use foretoken_engine::{Grammar, Request};

use crate::app::App;
use crate::error::ApiError;
use crate::reply::Shape;

/// A request that is ready for the engine.
#[derive(Debug)]
pub struct Ask {
    /// One per choice.
    pub requests: Vec<Request>,
    /// What all of them have to look like, and the field that says so. Compiled by [`Ask::with_constraint`].
    pub structure: Option<(Grammar, &'static str)>,
    /// One per prompt whose own tokens are to be scored.
    pub scoring: Vec<Request>,
    /// How the answer is put.
    pub shape: Shape,
    /// Send what there is as it comes.
    pub stream: bool,
}

impl Ask {
    /// Compiles the grammar, if there is one, which may take a while.
    pub fn with_constraint(mut self, app: &App) -> Result<Self, ApiError> {
        if let Some((grammar, field)) = self.structure.take() {
            let constraint = app.text.constraint(&grammar).map_err(|error| ApiError::engine(error, field))?;
            self.requests.iter_mut().for_each(|request| request.constraint = Some(constraint.clone()));
        }
        Ok(self)
    }
}
