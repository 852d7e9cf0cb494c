//! Log-probabilities in OpenAI's two forms.

use foretoken_decode::sampler::TokenLogprobs;
use foretoken_engine::TokenId;
use serde_json::{Map, Value, json};

use crate::app::App;

/// What stands for minus infinity, which JSON has no number for.
const LEAST: f32 = -9999.0;

/// The form of chats: a list of tokens.
pub fn chat(tokens: &[TokenId], logprobs: &[TokenLogprobs], app: &App) -> Value {
    let entry = |token: TokenId, logprob: f32| {
        let bytes = app.text.token_bytes(token);
        json!({ "token": String::from_utf8_lossy(bytes), "logprob": logprob.max(LEAST), "bytes": bytes })
    };
    let content = tokens.iter().zip(logprobs).map(|(&token, logprobs)| {
        let mut value = entry(token, logprobs.logprob);
        value["top_logprobs"] = logprobs.top.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
        value
    });
    json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
}

/// The form of completions: lists side by side.
#[derive(Debug, Default)]
pub struct Completion {
    tokens: Vec<String>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
}

impl Completion {
    /// Adds a token at a place in the text, in characters, which it moves on.
    pub fn push(&mut self, token: TokenId, logprobs: Option<&TokenLogprobs>, offset: &mut usize, app: &App) {
        self.tokens.push(name(token, app));
        self.text_offset.push(*offset);
        let bytes = app.text.token_bytes(token).iter();
        *offset += bytes.filter(|&&byte| byte & 0xc0 != 0x80).count();
        self.token_logprobs.push(logprobs.map_or(Value::Null, |l| json!(l.logprob.max(LEAST))));
        self.top_logprobs.push(match logprobs {
            Some(logprobs) if !logprobs.top.is_empty() => {
                let top = logprobs.top.iter().map(|&(token, logprob)| (name(token, app), json!(logprob.max(LEAST))));
                Value::Object(top.collect::<Map<_, _>>())
            }
            _ => Value::Null,
        });
    }

    /// The JSON.
    pub fn value(self) -> Value {
        json!({
            "tokens": self.tokens, "token_logprobs": self.token_logprobs, "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

/// A token's text, or its bytes when these are a part of a character only: tokens must not share a name.
fn name(token: TokenId, app: &App) -> String {
    let bytes = app.text.token_bytes(token);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}")),
    }
}
