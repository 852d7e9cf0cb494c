//! A server over the toy target: the whole of it but the sockets, and no model files.

// Every test file uses a part of this.
#![allow(dead_code)]

pub mod real;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::constraint::Constraint;
use foretoken_decode::{Decoder, drafters};
use foretoken_engine::{EngineError, Grammar, Infill, Scheduler, TokenId, WallClock};
use foretoken_formats::chat::Conversation;
use foretoken_server::{App, Habits, Keys, Limits, Metrics, PassLog, READERS, TextModel, router, worker};
use foretoken_testkit::{Script, ToyCache, ToyModel, ToyTarget, ToyText};
use serde_json::Value;
use tower::ServiceExt;

pub const VOCAB_SIZE: usize = 38;
pub const CONTEXT_SIZE: usize = 512;
/// The token without text ends a text.
pub const END: TokenId = 8;

/// Letters, spaces and line breaks.
pub struct Toy {
    pub habits: Habits,
    /// Whoever compiles the regular expression [`HELD`] waits for it.
    pub hold: Arc<Mutex<()>>,
}

pub const HELD: &str = "held";

impl TextModel for Toy {
    fn id(&self) -> &str {
        "toy"
    }

    fn vocab_size(&self) -> usize {
        VOCAB_SIZE
    }

    fn context_size(&self) -> usize {
        CONTEXT_SIZE
    }

    fn encode(&self, text: &str, _special: bool) -> Result<Vec<TokenId>, EngineError> {
        let token = |c: char| match c {
            ' ' => 4,
            '\n' => 10,
            'é' => 5,
            c => (12..38).find(|&id| ToyText::bytes(id) == [c as u8]).unwrap_or(0),
        };
        Ok(text.chars().map(token).collect())
    }

    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, EngineError> {
        let lines = conversation.messages.iter().map(|m| format!("{} {}\n", m.role, m.content));
        self.encode(&lines.collect::<String>(), false)
    }

    fn encode_infill(&self, before: &str, after: &str) -> Result<Option<Infill>, EngineError> {
        let prompt = self.encode(&format!("{after}\n{before}"), false)?;
        Ok(Some(Infill { prompt, end_tokens: vec![10] }))
    }

    fn constraint(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, EngineError> {
        match grammar {
            Grammar::Regex(regex) if regex == HELD => {
                drop(self.hold.lock().expect("nobody panics"));
                Ok(Box::new(Script::new(1, VOCAB_SIZE)))
            }
            Grammar::Regex(regex) => Ok(Box::new(Script::new(regex.len() as u64, VOCAB_SIZE))),
            _ => Err(EngineError::Grammar { what: "JSON schema", why: "toys know no JSON".into() }),
        }
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        ToyText::bytes(token)
    }

    fn is_control(&self, token: TokenId) -> bool {
        token == END
    }

    fn is_end(&self, token: TokenId) -> bool {
        token == END
    }

    fn habits(&self) -> Habits {
        self.habits
    }
}

pub type ToyScheduler = Scheduler<ToyTarget, ToyText>;

/// How the server under test is set up.
pub struct Setup {
    pub pages: usize,
    pub keys: &'static str,
    pub limits: Limits,
    pub habits: Habits,
    pub shadows: f64,
    pub hold: Arc<Mutex<()>>,
}

impl Default for Setup {
    fn default() -> Self {
        let (limits, habits, hold) = Default::default();
        Self { pages: 1000, keys: "", limits, habits, shadows: 0.0, hold }
    }
}

/// A server whose engine thread is joined, and whose pages are counted, at the end.
pub struct Server {
    pub app: Arc<App>,
    pub router: Router,
    thread: Option<JoinHandle<ToyScheduler>>,
}

impl Server {
    pub fn new(setup: Setup) -> Self {
        let clock = WallClock::start();
        let target =
            ToyTarget::new(ToyModel { vocab_size: VOCAB_SIZE, context_size: CONTEXT_SIZE, ..ToyModel::default() });
        let cost = CostModel::fixed(CostTable::linear(1.0, 0.05));
        let passes = PassLog::default();
        let mut decoder = Decoder::new(target, ToyCache::new(8, setup.pages, 3), ToyText, clock, cost);
        for name in ["suffix", "recycle", "grammar"] {
            decoder = decoder.with_drafter(drafters::by_name(name).expect("it is a drafter's name"));
        }
        let scheduler = Scheduler::new(decoder.with_recorder(passes.recorder()), clock, Arc::new([END]));
        let drafters = scheduler.drafters();
        let metrics = Arc::new(Metrics::new("toy", drafters.clone()));
        let (engine, thread) = worker::spawn(scheduler, passes, metrics.clone(), setup.shadows).expect("a thread");
        let text = Box::new(Toy { habits: setup.habits, hold: setup.hold });
        let keys = Keys::from_lines(setup.keys);
        let app = Arc::new(App::new(text, engine, metrics, keys, setup.limits, drafters, "fp".into()));
        Self { router: router(app.clone()), app, thread: Some(thread) }
    }

    pub async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.expect("routers do not fail")
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response<Body> {
        self.send(post(path, body.to_string())).await
    }

    /// The JSON of an answer that has to be a good one.
    pub async fn ask(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body).await;
        let status = response.status();
        let value = json(response).await;
        assert_eq!(status, StatusCode::OK, "{body} -> {value}");
        value
    }

    /// The chunks of a streamed answer.
    pub async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let response = self.post(path, &body).await;
        assert_eq!(response.status(), StatusCode::OK);
        chunks(&text(response).await)
    }

    pub async fn get(&self, path: &str) -> Response<Body> {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// A counter's value, by its line's beginning.
    pub async fn metric(&self, line: &str) -> f64 {
        let text = text(self.get("/metrics").await).await;
        let found = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Ends the engine: nothing is left in its cache.
    pub fn end(mut self) -> ToyScheduler {
        self.app.engine.stop();
        let thread = self.thread.take().expect("it ends once");
        let mut scheduler = thread.join().expect("the engine's thread does not panic");
        assert!(scheduler.is_idle());
        scheduler.forget_cached();
        assert_eq!(scheduler.cache().pages_in_use(), 0, "every page is given back");
        assert_eq!(self.app.gate.under_way(), 0, "every permit is given back");
        scheduler
    }
}

pub fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("content-type", "application/json").body(body.into()).expect("a sound request")
}

pub async fn text(response: Response<Body>) -> String {
    let bytes = to_bytes(response.into_body(), 64 << 20).await.expect("the body is whole");
    String::from_utf8(bytes.to_vec()).expect("answers are UTF-8")
}

pub async fn json(response: Response<Body>) -> Value {
    serde_json::from_str(&text(response).await).expect("answers are JSON")
}

/// The values of server-sent events; the last has to be `[DONE]`.
pub fn chunks(text: &str) -> Vec<Value> {
    let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    data.into_iter().map(|line| serde_json::from_str(line).expect("events are JSON")).collect()
}

/// Runs a test on one thread, as the server runs.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(READERS).build().expect("a runtime").block_on(future)
}
