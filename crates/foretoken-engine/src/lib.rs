//! Requests over one model: the one place that owns the clock.
//!
//! [`Engine`] opens a model file and turns prompts into streams of text. Its [`Scheduler`] is generic over the target
//! and runs many requests at once. Cached rows of finished requests serve later prompts that begin alike.

mod by_text;
mod drafters;
mod engine;
mod error;
mod file;
mod footprint;
mod grammar;
mod infill;
mod load;
mod method;
mod pair;
mod request;
mod scheduler;
mod seed;
mod trouble;

pub use engine::{Engine, EngineOptions, TokenText};
pub use error::EngineError;
pub use file::ModelFile;
pub use footprint::Footprint;
pub use grammar::Grammar;
pub use infill::Infill;
pub use load::{DEFAULT_CONTEXT, Loaded, PROMPT_ROWS};
pub use method::Method;
pub use request::{Event, Finish, Outcome, Request};
pub use scheduler::{Scheduler, WallClock};
pub use seed::draw as draw_seed;
pub use trouble::troubles;

pub use foretoken_decode::acceptors::AcceptorKind;
pub use foretoken_decode::{DraftPolicy, Load, RequestError, RequestId, TokenId};
pub use foretoken_kernels::Isa;
pub use foretoken_model::{KvType, Weights};
