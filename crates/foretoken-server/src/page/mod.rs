//! The page at `/`: it lies in the binary and loads nothing from elsewhere.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, Response, StatusCode, header};

use crate::error::ApiError;

/// Name, type and text.
const FILES: &[(&str, &str, &str)] = &[
    ("style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("server.js", SCRIPT, include_str!("server.js")),
    ("tokens.js", SCRIPT, include_str!("tokens.js")),
    ("write.js", SCRIPT, include_str!("write.js")),
    ("passes.js", SCRIPT, include_str!("passes.js")),
    ("chart.js", SCRIPT, include_str!("chart.js")),
    ("load.js", SCRIPT, include_str!("load.js")),
    ("play.js", SCRIPT, include_str!("play.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Scripts and styles from here alone, and nobody puts the page into a frame.
const POLICY: &str =
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The page.
pub async fn index() -> Response<Body> {
    asset("text/html; charset=utf-8", include_str!("index.html"))
}

/// Its scripts and styles.
pub async fn file(Path(name): Path<String>) -> Response<Body> {
    match FILES.iter().find(|(file, _, _)| *file == name) {
        Some((_, kind, text)) => asset(kind, text),
        None => {
            let error = ApiError::invalid(None, "not_found", "the page has no such file");
            error.with_status(StatusCode::NOT_FOUND).into_response()
        }
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
