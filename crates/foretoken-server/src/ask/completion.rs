//! `/v1/completions`: prompts as text or tokens, continued as they stand, or filled in before a suffix.

use foretoken_engine::{EngineError, Infill, Request, RequestError, TokenId};
use serde_json::{Value, json};

use super::settings::{self, Settings};
use super::{Ask, structure, tokens};
use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field, needed, wrong_kind};
use crate::reply::{Kind as ReplyKind, Shape};
use crate::score;

/// The fields beside [`settings::FIELDS`] and [`structure::FIELDS`].
pub const FIELDS: &[Field] = &[
    needed("prompt", Kind::Any(PROMPT), "A text, a list of token ids, or a list of either"),
    field("suffix", Kind::Text, "What stands after the text, for models with tokens to fill in the middle"),
    field("parse_special", Kind::Flag, "Names of special tokens in the prompt are what they mean; else they are text"),
    field("max_tokens", Kind::Whole(0, u64::MAX), "Most tokens to write, by default 16; 0 only with echo"),
    field("echo", Kind::Flag, "Begin the text with the prompt; with logprobs, score its tokens too"),
    field(
        "logprobs",
        Kind::Whole(0, MAX_LOGPROBS as u64),
        "Log-probabilities of each token and of this many of the likeliest: 0 to 20",
    ),
    field("best_of", Kind::Whole(1, super::settings::MAX_CHOICES as u64), "Only the value of n: all answers are given"),
];

const PROMPT: &str = r#"{"anyOf": [{"type": "string", "minLength": 1},
    {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
    {"type": "array", "minItems": 1, "maxItems": 64, "items": {"anyOf": [{"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}]}}]}"#;
const DEFAULT_MAX_TOKENS: usize = 16;
const MAX_PROMPTS: usize = 64;
/// Most log-probabilities beside a token's own.
pub const MAX_LOGPROBS: usize = 20;

/// Reads a request for the caller of this scope.
pub fn read(body: &[u8], app: &App, scope: u64) -> Result<Ask, ApiError> {
    let mut fields = Fields::parse(body, &[settings::FIELDS, structure::FIELDS, FIELDS])?;
    let settings = Settings::read(&mut fields, app)?;
    let structure = structure::read(&mut fields)?;
    let prompt = fields.any("prompt");
    let prompt = fields.required("prompt", prompt)?;
    let suffix = fields.text("suffix")?;
    let special = fields.flag("parse_special")?;
    let echo = fields.flag("echo")?;
    let logprobs = fields.size("logprobs", 0, MAX_LOGPROBS)?;
    let max_tokens = fields.size("max_tokens", 0, usize::MAX)?.unwrap_or(DEFAULT_MAX_TOKENS);
    fields.only("best_of", &[json!(settings.n)], "all answers are given, so it can only be n")?;
    debug_assert!(fields.is_empty(), "{fields:?} was not read");
    if max_tokens == 0 && !echo {
        return Err(fields.wrong("max_tokens", "is 0, and must be at least 1, or echo the prompt"));
    }
    if echo && suffix.is_some() {
        return Err(fields.wrong("echo", "cannot be used together with suffix"));
    }
    if special && suffix.is_some() {
        return Err(fields.wrong("parse_special", "cannot be used together with suffix"));
    }
    let prompts = prompts(prompt, special, suffix.as_deref(), app)?;
    check_lengths(&prompts, app)?;
    let mut requests = Vec::with_capacity(prompts.len() * settings.n);
    for prompt in prompts.iter().filter(|_| max_tokens > 0) {
        for choice in 0..settings.n {
            requests.push(Request {
                max_tokens: Some(max_tokens),
                end_tokens: prompt.end_tokens.clone(),
                logprobs,
                ..settings.request(prompt.prompt.clone(), choice, scope)
            });
        }
    }
    let scoring = match logprobs {
        Some(n) if echo => prompts.iter().map(|p| score::request(&p.prompt, n, scope, app)).collect(),
        _ => Vec::new(),
    };
    let stream = settings.stream;
    let lens = prompts.iter().map(|prompt| prompt.prompt.len()).collect();
    let echoed = echo.then(|| prompts.into_iter().map(|prompt| prompt.prompt).collect());
    let kind = ReplyKind::Completion { echoed, logprobs };
    Ok(Ask { requests, structure, scoring, shape: Shape::new(kind, &settings, lens), stream })
}

/// Every prompt as tokens.
fn prompts(value: Value, special: bool, suffix: Option<&str>, app: &App) -> Result<Vec<Infill>, ApiError> {
    let list = match value {
        Value::String(_) => vec![value],
        Value::Array(list) if list.iter().all(Value::is_number) && !list.is_empty() => vec![Value::Array(list)],
        Value::Array(list) => list,
        other => return Err(wrong_kind("prompt", &other, "a string or a list")),
    };
    if !(1..=MAX_PROMPTS).contains(&list.len()) {
        let message = format!("prompt has {} prompts, and 1 to {MAX_PROMPTS} are accepted", list.len());
        return Err(ApiError::invalid(Some("prompt".into()), "invalid_value", message));
    }
    list.into_iter().map(|value| one_prompt(value, special, suffix, app)).collect()
}

fn one_prompt(value: Value, special: bool, suffix: Option<&str>, app: &App) -> Result<Infill, ApiError> {
    let plain = |prompt: Vec<TokenId>| Infill { prompt, end_tokens: Vec::new() };
    let engine = |error: EngineError| ApiError::engine(error, "prompt");
    match (value, suffix) {
        (Value::String(text), None) => app.text.encode(&text, special).map(plain).map_err(engine),
        (Value::String(text), Some(suffix)) => {
            let infill = app.text.encode_infill(&text, suffix).map_err(engine)?;
            infill.ok_or_else(|| {
                let message = "suffix is not supported: this model has no tokens to fill in the middle".to_owned();
                ApiError::invalid(Some("suffix".into()), "unsupported", message)
            })
        }
        (Value::Array(_), Some(_)) => {
            let message = "suffix needs the prompt as text".to_owned();
            Err(ApiError::invalid(Some("suffix".into()), "invalid_value", message))
        }
        (list @ Value::Array(_), None) => tokens::ids(&list, "prompt", app.text.vocab_size()).map(plain),
        (other, _) => Err(wrong_kind("prompt", &other, "a string or a list")),
    }
}

fn check_lengths(prompts: &[Infill], app: &App) -> Result<(), ApiError> {
    let limit = app.text.context_size();
    match prompts.iter().map(|prompt| prompt.prompt.len()).find(|&len| len == 0 || len >= limit) {
        Some(0) => Err(RequestError::EmptyPrompt.into()),
        Some(len) => Err(RequestError::PromptTooLong { len, limit }.into()),
        None => Ok(()),
    }
}
