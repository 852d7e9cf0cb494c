//! `/tokenize`, `/detokenize` and `/tokenizer_info` in vLLM's form, which evaluation harnesses ask; and lists of token ids
//! wherever they come.

use foretoken_engine::TokenId;
use serde_json::{Value, json};

use super::chat;
use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field, needed, whole, wrong_kind};
use crate::text::TokenizerInfo;

/// Fields of `/tokenize`.
pub const TOKENIZE: &[Field] = &[
    field("model", Kind::Text, "The model's id; may be left out"),
    field("prompt", Kind::Text, "The text"),
    field("content", Kind::Text, "The same as prompt"),
    field("messages", Kind::ListOf(chat::MESSAGE), "A conversation instead of a text"),
    field("add_special_tokens", Kind::Flag, "Begin the text as a prompt begins; true when left out"),
    field("parse_special", Kind::Flag, "Names of special tokens in the text are what they mean; true when left out"),
    field("with_pieces", Kind::Flag, "Each token's text too"),
];

/// Fields of `/detokenize`.
pub const DETOKENIZE: &[Field] =
    &[field("model", Kind::Text, "The model's id; may be left out"), needed("tokens", Kind::Any(IDS), "The token ids")];

const IDS: &str = r#"{"type": "array", "items": {"type": "integer", "minimum": 0}}"#;

/// Answers `/tokenize`.
pub fn tokenize(body: &[u8], app: &App) -> Result<Value, ApiError> {
    let mut fields = Fields::parse(body, &[TOKENIZE])?;
    if let Some(model) = fields.text("model")? {
        app.check_model(&model)?;
    }
    let begun = fields.flag_or("add_special_tokens", true)?;
    let special = fields.flag_or("parse_special", true)?;
    let with_pieces = fields.flag("with_pieces")?;
    let texts = [fields.text("prompt")?, fields.text("content")?];
    let messages = fields.list("messages")?;
    debug_assert!(fields.is_empty(), "{fields:?} was not read");
    let ids = match (texts, messages) {
        ([Some(text), None] | [None, Some(text)], None) => {
            let ids = if begun { app.text.encode(&text, special) } else { app.text.encode_part(&text, special) };
            ids.map_err(|error| ApiError::engine(error, "prompt"))?
        }
        ([None, None], Some(messages)) => {
            let conversation = chat::conversation(messages)?;
            app.text.encode_chat(&conversation).map_err(|error| ApiError::engine(error, "messages"))?
        }
        _ => {
            let message = "give one of prompt, content and messages".to_owned();
            return Err(ApiError::invalid(Some("prompt".into()), "missing_field", message));
        }
    };
    let mut answer = json!({ "tokens": ids, "count": ids.len(), "max_model_len": app.text.context_size() });
    if with_pieces {
        let pieces = ids.iter().map(|&id| String::from_utf8_lossy(app.text.token_bytes(id)));
        answer["pieces"] = json!(pieces.collect::<Vec<_>>());
    }
    Ok(answer)
}

/// Answers `/detokenize`.
pub fn detokenize(body: &[u8], app: &App) -> Result<Value, ApiError> {
    let mut fields = Fields::parse(body, &[DETOKENIZE])?;
    if let Some(model) = fields.text("model")? {
        app.check_model(&model)?;
    }
    let tokens = fields.list("tokens")?;
    let tokens = Value::Array(fields.required("tokens", tokens)?);
    let ids = ids(&tokens, "tokens", app.text.vocab_size())?;
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| app.text.token_bytes(id)).copied().collect();
    let text = String::from_utf8_lossy(&bytes);
    Ok(json!({ "prompt": text, "content": text }))
}

/// Answers `/tokenizer_info`. Tokens that a model does not have are left out.
pub fn info(app: &App) -> Value {
    let TokenizerInfo { bos_token, eos_token, add_bos, chat_template } = app.text.tokenizer();
    let mut value = json!({
        "tokenizer_class": "foretoken", "vocab_size": app.text.vocab_size(), "model_max_length": app.text.context_size(),
        "add_bos_token": add_bos,
    });
    for (name, text) in [("bos_token", bos_token), ("eos_token", eos_token), ("chat_template", chat_template)] {
        if let Some(text) = text {
            value[name] = json!(text);
        }
    }
    value
}

/// A list of token ids.
pub fn ids(value: &Value, path: &str, vocab_size: usize) -> Result<Vec<TokenId>, ApiError> {
    let Value::Array(list) = value else { return Err(wrong_kind(path, value, "a list of token ids")) };
    let id = |(index, value): (usize, &Value)| {
        let path = || format!("{path}[{index}]");
        let number = whole(value).ok_or_else(|| wrong_kind(&path(), value, "a token id"))?;
        match TokenId::try_from(number).ok().filter(|&id| (id as usize) < vocab_size) {
            Some(id) => Ok(id),
            None => {
                let message = format!("{} is {number}, and the vocabulary has {vocab_size} tokens", path());
                Err(ApiError::invalid(Some(path()), "unknown_token", message))
            }
        }
    };
    list.iter().enumerate().map(id).collect()
}
