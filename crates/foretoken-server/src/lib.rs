//! OpenAI's interface over HTTP, for one model. The only crate that knows HTTP and JSON schemas: it converts and never
//! decides.
//!
//! Two threads: the engine's ([`worker`]), which owns the scheduler, and the one that runs connections ([`listen`]).
//! A request is read ([`ask`]), handed to the engine, and its answer put into words ([`reply`]).

pub mod app;
pub mod ask;
pub mod error;
pub mod fields;
pub mod gate;
mod generate;
pub mod keys;
pub mod listen;
pub mod metrics;
mod openapi;
mod page;
pub mod passes;
pub mod reply;
mod route;
mod score;
mod shadow;
pub mod speech;
pub mod text;
pub mod worker;

pub use app::{App, Limits, READERS};
pub use keys::Keys;
pub use listen::serve;
pub use metrics::Metrics;
pub use passes::PassLog;
pub use route::router;
pub use text::{FileText, Habits, TextModel, TokenizerInfo};
