//! What went wrong, in the form that OpenAI's clients read.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use foretoken_engine::{EngineError, RequestError};
use serde_json::{Value, json};

/// A refusal or failure, with everything that its answer says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// A word for programs.
    pub code: &'static str,
    /// The field that is to blame.
    pub param: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// Seconds to wait before another try.
    pub retry_after: Option<u64>,
}

impl ApiError {
    /// A request that cannot be served as it stands.
    pub fn invalid(param: Option<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code,
            param,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The same with another status.
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Too much at once.
    pub fn too_many(message: String, retry_after: u64) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            code: "rate_limit_exceeded",
            param: None,
            message,
            retry_after: Some(retry_after),
        }
    }

    /// Something failed on our side.
    pub fn server(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "server_error",
            code: "internal_error",
            param: None,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The server is going away.
    pub fn draining() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "shutting_down",
            retry_after: Some(5),
            ..Self::server("the server is shutting down")
        }
    }

    /// What the engine said of a field of the request.
    pub fn engine(error: EngineError, param: &str) -> Self {
        match error {
            EngineError::Request(error) => error.into(),
            EngineError::Grammar { .. } => Self::invalid(Some(param.to_owned()), "invalid_grammar", error.to_string()),
            EngineError::NoChatTemplate { .. } => {
                let help = "use /v1/completions for it";
                Self::invalid(Some(param.to_owned()), "no_chat_template", format!("{error}; {help}"))
            }
            EngineError::Format(_) | EngineError::Option { .. } => {
                Self::invalid(Some(param.to_owned()), "invalid_value", error.to_string())
            }
            EngineError::Model(_) | EngineError::Draft { .. } | EngineError::Target(_) => {
                Self::server(error.to_string())
            }
        }
    }

    /// The error's JSON.
    pub fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code } })
    }

    /// The error as an answer.
    pub fn into_response(self) -> Response<Body> {
        let mut response = json_response(self.status, &self.body());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A JSON answer.
pub fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let (param, code) = match &error {
            RequestError::EmptyPrompt => ("prompt", "empty_prompt"),
            RequestError::PromptTooLong { .. } => ("prompt", "context_length_exceeded"),
            RequestError::UnknownToken { .. } => ("prompt", "unknown_token"),
            RequestError::NoTokens => ("max_tokens", "out_of_range"),
            RequestError::MinAboveMax { .. } => ("min_tokens", "out_of_range"),
            RequestError::EmptyStop => ("stop", "invalid_value"),
            RequestError::UnknownDrafter { .. } => ("draft", "unknown_drafter"),
            RequestError::ConstraintWithoutEnd => ("ignore_eos", "invalid_value"),
            RequestError::Acceptor(_) => ("acceptor", "invalid_value"),
            RequestError::NotFixed { .. } => ("acceptor", "invalid_value"),
            RequestError::Settings(settings) => return Self::settings(settings),
        };
        Self::invalid(Some(param.to_owned()), code, error.to_string())
    }
}

impl ApiError {
    fn settings(error: &foretoken_decode::sampler::SettingsError) -> Self {
        use foretoken_decode::sampler::SettingsError;
        let param = match error {
            SettingsError::OutOfRange { name, .. } => name,
            SettingsError::UnknownToken { .. } | SettingsError::Bias { .. } => "logit_bias",
        };
        Self::invalid(Some(param.to_owned()), "out_of_range", error.to_string())
    }
}
