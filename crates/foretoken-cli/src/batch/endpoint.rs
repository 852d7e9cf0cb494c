//! A server elsewhere, asked over HTTP or HTTPS.

use std::error::Error;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;

use super::files::Line;
use super::trust;
use crate::error::CliError;
use crate::output;

/// How often a server that is busy or away is asked again, and the longest pause in between.
const MAX_TRIES: u32 = 10;
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// To reach a server, and between two looks at one that says nothing for long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    base: String,
    is_secure: bool,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is not a server's address, such as http://127.0.0.1:8080 or https://HOST/v1");
        let base = text.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let uri: Uri = base.parse().map_err(|_| wanted())?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wanted()),
        };
        if uri.host().is_none() || uri.query().is_some() {
            return Err(wanted());
        }
        Ok(Self { base: base.to_owned(), is_secure })
    }
}

/// Asks one server, over connections that are kept.
pub struct Caller {
    base: String,
    key: Option<HeaderValue>,
    client: Client<HttpsConnector<HttpConnector>, Body>,
    /// It was told that the server is busy or away, and has not answered since.
    told: AtomicBool,
}

/// Why there is no answer.
#[derive(Debug)]
struct Failure {
    why: String,
    /// Another try would fail too.
    is_final: bool,
}

impl Caller {
    /// A caller of a server. `ca_file` has the certificates to trust instead of the system's; `$FORETOKEN_API_KEY` is sent.
    pub fn new(endpoint: &Endpoint, ca_file: Option<&Path>) -> Result<Self, CliError> {
        let key = match std::env::var("FORETOKEN_API_KEY") {
            Ok(key) if !key.is_empty() => Some(bearer(&key)?),
            _ => None,
        };
        let tls = if endpoint.is_secure { trust::config(ca_file)? } else { trust::nobody() };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(PATIENCE));
        tcp.set_keepalive(Some(PATIENCE));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let mut client = Client::builder(TokioExecutor::new());
        let client = client.pool_timer(TokioTimer::new()).build(connector.wrap_connector(tcp));
        Ok(Self { base: endpoint.base.clone(), key, client, told: AtomicBool::new(false) })
    }

    /// Asks, and asks again when the server is busy or away. The error says why it cannot be reached.
    pub async fn ask(&self, line: &Line) -> Result<(StatusCode, Value), String> {
        let mut pause = Duration::from_secs(1);
        for _ in 1..MAX_TRIES {
            let (wait, why) = match self.ask_once(line).await {
                Ok((status, _, retry_after)) if is_away(status) => (retry_after, format!("it answers {status}")),
                // It would refuse every line, none of which is to blame.
                Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, body, _)) => {
                    return Err(format!("it does not know $FORETOKEN_API_KEY: {}", message(&body)));
                }
                Ok((status @ (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED), body, _))
                    if !names_model(&body) =>
                {
                    return Err(format!("it answers {status} at {}{}: {}", self.base, line.url, message(&body)));
                }
                Ok((status, body, _)) => {
                    self.told.store(false, Ordering::Relaxed);
                    return Ok((status, body));
                }
                Err(failure) if failure.is_final => return Err(failure.why),
                Err(failure) => (None, failure.why),
            };
            if !self.told.swap(true, Ordering::Relaxed) {
                output::note(format_args!("{} is busy or away, and is asked again for some minutes: {why}", self.base));
            }
            tokio::time::sleep(wait.unwrap_or(pause).min(MAX_PAUSE)).await;
            pause *= 2;
        }
        let answer = self.ask_once(line).await;
        answer.map(|(status, body, _)| (status, body)).map_err(|failure| failure.why)
    }

    async fn ask_once(&self, line: &Line) -> Result<(StatusCode, Value, Option<Duration>), Failure> {
        let mut request = Request::post(format!("{}{}", self.base, line.url));
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, key);
        }
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(line.body.to_string())).map_err(|error| Failure::of(&error))?;
        let response = self.client.request(request).await.map_err(|error| Failure::of(&error))?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let bytes = to_bytes(Body::new(response.into_body()), usize::MAX).await.map_err(|error| Failure::of(&error))?;
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()), retry_after))
    }
}

/// Whether an error is about the request's model and not about the path.
fn names_model(body: &Value) -> bool {
    body["error"]["param"] == "model" || body["error"]["code"] == "model_not_found"
}

/// What an error says, or the beginning of what is no error of ours.
fn message(body: &Value) -> String {
    let text = body["error"]["message"].as_str().map_or_else(|| body.to_string(), str::to_owned);
    text.chars().take(200).collect()
}

/// What servers, and the proxies before them, say when another try may do.
fn is_away(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

impl Failure {
    /// The error with its causes, each of which says a part of it.
    fn of(error: &(dyn Error + 'static)) -> Self {
        let causes = std::iter::successors(Some(error), |error| (*error).source());
        let is_final = causes.clone().any(is_tls);
        let mut parts: Vec<String> = causes.map(ToString::to_string).collect();
        parts.dedup();
        Self { why: parts.join(": "), is_final }
    }
}

/// Whether both sides could not agree on whom to believe, or how to talk. An I/O error may be wrapped in others.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || inner.is_some_and(|inner| is_tls(inner))
}

fn bearer(key: &str) -> Result<HeaderValue, CliError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| CliError::Argument {
        found: "$FORETOKEN_API_KEY cannot be sent in a header".into(),
        wanted: "give the key as it is, without line breaks".into(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_and_a_host() {
        let parse = |text: &str| text.parse::<Endpoint>();
        let endpoint = |base: &str, is_secure| Ok(Endpoint { base: base.to_owned(), is_secure });
        assert_eq!(parse("http://localhost:8080/v1/"), endpoint("http://localhost:8080", false));
        assert_eq!(parse("https://example.com/v1"), endpoint("https://example.com", true));
        for wrong in ["localhost:8080", "http://", "ftp://x", "https://x?key=1"] {
            assert!(parse(wrong).unwrap_err().contains("http://127.0.0.1"), "{wrong}");
        }
    }
}
