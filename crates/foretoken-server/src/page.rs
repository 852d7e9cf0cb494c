//! The page at `/`: it lies in the binary and loads nothing from elsewhere.

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderValue, Response, StatusCode, header};

use crate::error::ApiError;

const FILES: &[(&str, &str, &str)] = &[];

/// Scripts and styles from here alone, and nobody puts the page into a frame.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The page.
pub async fn index() -> Response<Body> {
    asset("text/html; charset=utf-8", "<!doctype html><title>foretoken</title>")
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
