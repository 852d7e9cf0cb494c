//! A server elsewhere, asked over plain HTTP.

use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::Answer;

/// How often a busy server is asked again, and the longest pause in between.
const MAX_TRIES: u32 = 10;
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Where a server is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    base: String,
    key: Option<HeaderValue>,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            || format!("{text:?} is not a server's address, such as http://127.0.0.1:8080 (https is not spoken)");
        let base = text.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let uri: Uri = base.parse().map_err(|_| wanted())?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() || uri.query().is_some() {
            return Err(wanted());
        }
        let key = match std::env::var("FORETOKEN_API_KEY") {
            Ok(key) if !key.is_empty() => {
                let value = HeaderValue::from_str(&format!("Bearer {key}"));
                let mut value = value.map_err(|_| "$FORETOKEN_API_KEY cannot be sent in a header".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
            _ => None,
        };
        Ok(Self { base: base.to_owned(), key })
    }
}

impl Endpoint {
    /// Asks, and asks again when the server is busy.
    pub async fn ask(&self, url: &str, body: &Value) -> Answer {
        let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
        let mut pause = Duration::from_secs(1);
        for _ in 1..MAX_TRIES {
            let tried = self.ask_once(&client, url, body).await;
            let wait = match &tried {
                Ok((StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _, retry_after)) => *retry_after,
                Err(_) => None,
                _ => return tried.map(|(status, body, _)| (status, body)),
            };
            tokio::time::sleep(wait.unwrap_or(pause).min(MAX_PAUSE)).await;
            pause *= 2;
        }
        self.ask_once(&client, url, body).await.map(|(status, body, _)| (status, body))
    }

    async fn ask_once(
        &self,
        client: &Client<HttpConnector, Body>,
        url: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value, Option<Duration>), String> {
        let mut request = Request::post(format!("{}{url}", self.base)).header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, key);
        }
        let request = request.body(Body::from(body.to_string())).map_err(|error| error.to_string())?;
        let response = client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let bytes = to_bytes(Body::new(response.into_body()), usize::MAX).await.map_err(|error| error.to_string())?;
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()), retry_after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_http() {
        let base = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.base);
        assert_eq!(base("http://localhost:8080/v1/").unwrap(), "http://localhost:8080");
        for wrong in ["localhost:8080", "https://example.com", "http://", "ftp://x"] {
            assert!(base(wrong).unwrap_err().contains("http://127.0.0.1"), "{wrong}");
        }
    }
}
