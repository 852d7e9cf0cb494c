//! Everything that answers share: the model's texts, the engine's thread, keys, limits, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use foretoken_engine::{Method, TokenId};
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::gate::Gate;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::text::TextModel;
use crate::worker::{Handle, SubmitError};

/// Requests that are read at the same time: long texts take a while to become tokens, and grammars to be compiled. It is
/// more than one so that nobody has to wait for another's.
pub const READERS: usize = 4;
/// Of these, how many may compile grammars.
const MOST_COMPILED: usize = 2;

/// How much is accepted.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Choices under way at most, those that wait included.
    pub requests: usize,
    /// The same for one API key.
    pub requests_of_key: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Connections.
    pub connections: usize,
    /// To read the head of a request, and its body.
    pub read: Duration,
    /// For a client to take what is sent.
    pub write: Duration,
    /// For requests under way when the server shall end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 64,
            requests_of_key: 64,
            body_bytes: 8 << 20,
            connections: 256,
            read: Duration::from_secs(30),
            write: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}

/// What a server is made of.
pub struct App {
    /// The model's texts.
    pub text: Box<dyn TextModel>,
    /// The engine's thread.
    pub engine: Handle,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Who may ask.
    pub keys: Keys,
    /// How much.
    pub limits: Limits,
    /// Names of the drafters, by their sources less one.
    pub drafters: Vec<&'static str>,
    /// Who drafts for requests that do not say.
    pub draft: Method,
    /// How much, likewise.
    pub draft_width: Option<usize>,
    /// Changes when an answer to the same request with the same seed could.
    pub fingerprint: String,
    /// The choices under way.
    pub gate: Gate,
    /// When the server was started, in seconds since 1970.
    pub created: u64,
    /// Leave to compile a grammar, for fewer than may be read at a time: plain requests do not wait for others' grammars.
    pub compiling: Semaphore,
    think: Vec<TokenId>,
    draining: AtomicBool,
}

impl App {
    /// A server for a model.
    pub fn new(
        text: Box<dyn TextModel>,
        engine: Handle,
        metrics: Arc<Metrics>,
        keys: Keys,
        limits: Limits,
        drafters: Vec<&'static str>,
        fingerprint: String,
    ) -> Self {
        let gate = Gate::new(limits.requests, limits.requests_of_key);
        let think = text.encode_part("<think>", true).unwrap_or_default();
        Self {
            text,
            engine,
            metrics,
            keys,
            limits,
            drafters,
            draft: Method::Auto,
            draft_width: None,
            fingerprint,
            gate,
            created: now(),
            compiling: Semaphore::new(MOST_COMPILED),
            think,
            draining: AtomicBool::new(false),
        }
    }

    /// Whether a request may ask for this model.
    pub fn check_model(&self, name: &str) -> Result<(), ApiError> {
        if name == self.text.id() || self.text.aliases().iter().any(|alias| alias == name) {
            return Ok(());
        }
        let name: String = name.chars().take(80).collect();
        let message = format!("there is no model {name:?} here; there is {:?}", self.text.id());
        let error = ApiError::invalid(Some("model".into()), "model_not_found", message);
        Err(error.with_status(StatusCode::NOT_FOUND))
    }

    /// Whether there is a drafter of this name.
    pub fn has_drafter(&self, name: &str) -> bool {
        self.drafters.contains(&name)
    }

    /// Whether a prompt ends with `<think>`, so that the answer begins with a thought.
    pub fn ends_with_think(&self, prompt: &[TokenId]) -> bool {
        let white = |token: &TokenId| self.text.token_bytes(*token).iter().all(u8::is_ascii_whitespace);
        let end = prompt.iter().rposition(|token| !white(token)).map_or(0, |last| last + 1);
        !self.think.is_empty() && prompt[..end].ends_with(&self.think)
    }

    /// From now on nothing new is taken in.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether nothing new is taken in.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(error) => error.into(),
            SubmitError::Stopped => stopped(),
        }
    }
}

/// The engine's thread has ended.
pub fn stopped() -> ApiError {
    ApiError { status: StatusCode::SERVICE_UNAVAILABLE, ..ApiError::server("the engine has stopped") }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
