//! A server over a real model, one thread, a cache of the size that a test wants.

use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use foretoken_engine::{Engine, EngineOptions, Scheduler, TokenText};
use foretoken_model::Model;
use foretoken_server::{App, FileText, Keys, Limits, Metrics, PassLog, TextModel, router, worker};
use foretoken_testkit::models;
use serde_json::Value;
use tower::ServiceExt;

use super::{json, post};

/// A server whose engine thread is joined, and whose pages are counted, at the end.
pub struct RealServer {
    pub app: Arc<App>,
    pub router: Router,
    thread: JoinHandle<Scheduler<Model, TokenText>>,
}

impl RealServer {
    /// A server of the model of this name; nothing when the model is not there.
    pub fn new(name: &str, context: usize, cache_tokens: usize) -> Option<Self> {
        let path = models::find(name)?;
        let passes = PassLog::default();
        let options = EngineOptions {
            threads: Some(1),
            context: Some(context),
            cache_tokens: Some(cache_tokens),
            recorder: Some(passes.recorder()),
            ..EngineOptions::default()
        };
        let engine = Engine::open(&path, options).expect("a sound model file");
        let (context, drafters) = (engine.context_size(), engine.drafters());
        let (file, scheduler) = engine.into_parts();
        let fingerprint = FileText::fingerprint(&file, "test").expect("the file can be read");
        let model = FileText::new(Arc::new(file), None, context);
        let metrics = Arc::new(Metrics::new(model.id(), drafters.clone()));
        let (handle, thread) = worker::spawn(scheduler, passes, metrics.clone(), 0.0).expect("a thread");
        let (keys, limits) = (Keys::default(), Limits { requests: 1000, requests_of_key: 1000, ..Limits::default() });
        let app = Arc::new(App::new(Box::new(model), handle, metrics, keys, limits, drafters, fingerprint));
        Some(Self { router: router(app.clone()), app, thread })
    }

    /// The JSON of an answer.
    pub async fn ask(&self, path: &str, body: &Value) -> Value {
        let response = self.router.clone().oneshot(post(path, body.to_string())).await.expect("routers do not fail");
        json(response).await
    }

    /// Ends the engine: nothing is left in its cache.
    pub fn end(self) {
        self.app.engine.stop();
        let mut scheduler = self.thread.join().expect("the engine's thread does not panic");
        assert!(scheduler.is_idle());
        scheduler.forget_cached();
        assert_eq!(scheduler.cache().free_pages(), scheduler.cache().n_pages(), "every page is given back");
        assert_eq!(self.app.gate.under_way(), 0, "every permit is given back");
    }
}
