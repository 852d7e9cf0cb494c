//! Which path does what. Reading a request (tokens, templates, grammars) happens on a thread of its own, so that a long
//! prompt does not keep others from being answered.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{self, Next};
use axum::routing::{get, post};
use foretoken_engine::draw_seed;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::app::App;
use crate::ask::{Ask, chat, completion, tokens};
use crate::error::{ApiError, json_response};
use crate::{generate, openapi, page};

type Shared = State<Arc<App>>;

/// Reads a request's body for a scope.
type Read = fn(&[u8], &App, u64) -> Result<Ask, ApiError>;

/// The server's routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chats))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/tokenizer_info", get(tokenizer_info))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/openapi.json", get(document))
        .route("/", get(page::index))
        .route("/page/{file}", get(page::file))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(middleware::from_fn_with_state(app.clone(), watch))
        .with_state(app)
}

/// Checks who asks, counts and logs the answer.
async fn watch(State(app): Shared, request: Request, next: Next) -> Response<Body> {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let id = format!("{:014x}", draw_seed());
    let open = matches!(path.as_str(), "/" | "/health" | "/ready") || path.starts_with("/page/");
    let scope = if open { Ok(0) } else { app.keys.scope(request.headers()) };
    let mut response = match scope {
        Ok(scope) => {
            let mut request = request;
            request.extensions_mut().insert(Caller { scope, id: id.clone() });
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    let status = response.status();
    app.metrics.answered(known_path(&path, status), status.as_u16());
    let (code, ms) = (status.as_u16(), started.elapsed().as_millis() as u64);
    if is_polled(&path) && status.is_success() {
        tracing::debug!(id, %method, path, status = code, ms, "answered");
    } else {
        tracing::info!(id, %method, path, status = code, ms, "answered");
    }
    response.headers_mut().insert("x-request-id", HeaderValue::from_str(&id).expect("it is hexadecimal"));
    response
}

/// What programs ask for every second, so that logs would hold little else.
fn is_polled(path: &str) -> bool {
    matches!(path, "/health" | "/ready" | "/metrics" | "/stats")
}

/// Who asks.
#[derive(Clone, Debug)]
struct Caller {
    scope: u64,
    id: String,
}

/// The path as a label: what strangers ask for must not make labels without end.
fn known_path(path: &str, status: StatusCode) -> &str {
    match path {
        _ if status == StatusCode::NOT_FOUND => "other",
        _ if path.starts_with("/v1/models/") => "/v1/models",
        _ if path.starts_with("/page/") => "/page",
        _ => path,
    }
}

async fn completions(State(app): Shared, request: Request) -> Response<Body> {
    answer(app, request, completion::read, "cmpl").await.unwrap_or_else(ApiError::into_response)
}

async fn chats(State(app): Shared, request: Request) -> Response<Body> {
    answer(app, request, chat::read, "chatcmpl").await.unwrap_or_else(ApiError::into_response)
}

async fn answer(app: Arc<App>, request: Request, read: Read, prefix: &str) -> Result<Response<Body>, ApiError> {
    if app.is_draining() {
        return Err(ApiError::draining());
    }
    let caller = request.extensions().get::<Caller>().cloned().expect("the middleware has put it there");
    let body = read_body(&app, request).await?;
    let (reader, scope) = (app.clone(), caller.scope);
    let mut ask = off_thread(move || read(&body, &reader, scope)).await?;
    if ask.structure.is_some() {
        let _leave = app.compiling.acquire().await;
        let compiler = app.clone();
        ask = off_thread(move || ask.with_constraint(&compiler)).await?;
    }
    generate::answer(app, ask, caller.scope, format!("{prefix}-{}", caller.id)).await
}

async fn tokenize(State(app): Shared, request: Request) -> Response<Body> {
    convert(app, request, tokens::tokenize).await
}

async fn detokenize(State(app): Shared, request: Request) -> Response<Body> {
    convert(app, request, tokens::detokenize).await
}

async fn tokenizer_info(State(app): Shared) -> Response<Body> {
    json_response(StatusCode::OK, &tokens::info(&app))
}

async fn convert(app: Arc<App>, request: Request, how: fn(&[u8], &App) -> Result<Value, ApiError>) -> Response<Body> {
    let converted = async {
        let body = read_body(&app, request).await?;
        let app = app.clone();
        off_thread(move || how(&body, &app)).await
    };
    match converted.await {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(error) => error.into_response(),
    }
}

/// Runs what may take longer than a moment, on one of the [`crate::app::READERS`].
async fn off_thread<V: Send + 'static>(
    work: impl FnOnce() -> Result<V, ApiError> + Send + 'static,
) -> Result<V, ApiError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ApiError::server("the request could not be read")))
}

async fn read_body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    check_content_type(request.headers())?;
    let limit = app.limits.body_bytes;
    match timeout(app.limits.read, to_bytes(request.into_body(), limit)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => {
            let too_long =
                std::error::Error::source(&error).is_some_and(|e| e.is::<http_body_util::LengthLimitError>());
            Err(match too_long {
                true => {
                    let message = format!("the body has more than {limit} bytes");
                    ApiError::invalid(None, "body_too_large", message).with_status(StatusCode::PAYLOAD_TOO_LARGE)
                }
                false => ApiError::invalid(None, "invalid_body", "the body broke off"),
            })
        }
        Err(_) => {
            let message = format!("the body took longer than {} s", app.limits.read.as_secs());
            Err(ApiError::invalid(None, "body_too_slow", message).with_status(StatusCode::REQUEST_TIMEOUT))
        }
    }
}

/// Browsers send other types to anybody's server without asking; this one they ask for first, and are refused.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the header Content-Type must be application/json";
    Err(ApiError::invalid(None, "wrong_content_type", message).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

fn model_value(app: &App) -> Value {
    json!({
        "id": app.text.id(), "object": "model", "created": app.created, "owned_by": "foretoken",
        "max_model_len": app.text.context_size(), "vocab_size": app.text.vocab_size(), "drafters": app.drafters,
        "system_fingerprint": app.fingerprint,
    })
}

async fn models(State(app): Shared) -> Response<Body> {
    json_response(StatusCode::OK, &json!({ "object": "list", "data": [model_value(&app)] }))
}

async fn model(State(app): Shared, axum::extract::Path(id): axum::extract::Path<String>) -> Response<Body> {
    match app.check_model(&id) {
        Ok(()) => json_response(StatusCode::OK, &model_value(&app)),
        Err(error) => error.into_response(),
    }
}

/// Whether the process is alive.
async fn health(State(app): Shared) -> Response<Body> {
    match app.engine.is_alive() {
        true => json_response(StatusCode::OK, &json!({ "status": "ok" })),
        false => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "the engine has stopped" })),
    }
}

/// Whether requests are taken in.
async fn ready(State(app): Shared) -> Response<Body> {
    match app.engine.is_alive() && !app.is_draining() {
        true => json_response(StatusCode::OK, &json!({ "status": "ready" })),
        false => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "shutting down" })),
    }
}

async fn metrics(State(app): Shared) -> Response<Body> {
    let mut response = Response::new(Body::from(app.metrics.text()));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn stats(State(app): Shared) -> Response<Body> {
    json_response(StatusCode::OK, &app.metrics.totals())
}

async fn document(State(app): Shared) -> Response<Body> {
    json_response(StatusCode::OK, &openapi::document(app.text.id()))
}

async fn unknown_path(request: Request) -> Response<Body> {
    let path: String = request.uri().path().chars().take(80).collect();
    let message = match path.as_str() {
        "/v1/embeddings" => "embeddings are not supported: this server continues texts".to_owned(),
        path if path.starts_with("/v1/images") || path.starts_with("/v1/audio") => {
            format!("{path} is not supported: this server reads and writes text")
        }
        "/v1/responses" => "/v1/responses is not supported: use /v1/chat/completions".to_owned(),
        path if path.contains("lora") => format!("{path} is not supported: there are no adapters here"),
        path => format!("there is nothing at {path}; /openapi.json lists what there is"),
    };
    ApiError::invalid(None, "not_found", message).with_status(StatusCode::NOT_FOUND).into_response()
}

async fn unknown_method(method: Method, request: Request) -> Response<Body> {
    let path: String = request.uri().path().chars().take(80).collect();
    let message = format!("{path} does not answer to {method}");
    let error = ApiError::invalid(None, "method_not_allowed", message);
    error.with_status(StatusCode::METHOD_NOT_ALLOWED).into_response()
}
