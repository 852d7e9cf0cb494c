//! An answer in one piece.

use foretoken_decode::sampler::TokenLogprobs;
use foretoken_engine::{Finish, Outcome, TokenId};
use serde_json::{Value, json};

use super::{Head, Kind, Shape, call_id, finish_reason, logprobs, pass_trace, stop_reason, timings, usage};
use crate::app::App;
use crate::error::ApiError;
use crate::speech::{Form, Part, Speech, Start};
use crate::worker::Piece;

/// One choice's end, and how it came to it when that is to be told.
#[derive(Debug)]
pub struct Ended {
    /// The end.
    pub outcome: Outcome,
    /// Every pass.
    pub pieces: Vec<Piece>,
}

/// The answer's JSON. `scores` are those of the prompts' tokens from the second on, when they were asked for.
pub fn whole(
    head: &Head,
    shape: &Shape,
    ended: Vec<Ended>,
    scores: &[Vec<TokenLogprobs>],
    app: &App,
) -> Result<Value, ApiError> {
    let object = if shape.is_chat() { "chat.completion" } else { "text_completion" };
    let mut answer = head.value(object, shape, app);
    let mut choices = Vec::new();
    for (index, Ended { outcome, pieces }) in ended.iter().enumerate() {
        let mut choice = match &shape.kind {
            Kind::Completion { echoed, logprobs } => {
                let prompt = echoed.as_ref().map(|prompts| prompts[index / shape.n].as_slice());
                let scores = scores.get(index / shape.n).map_or(&[][..], Vec::as_slice);
                completion(outcome, prompt, *logprobs, scores, app)?
            }
            Kind::Chat { form, start, logprobs } => {
                let id = |call| call_id(form, &head.id, index, call);
                message(outcome, form, *start, &id, *logprobs, app)?
            }
        };
        choice["index"] = json!(index);
        choice["stop_reason"] = stop_reason(outcome);
        if ended.len() > 1 {
            choice["timings"] = timings(std::slice::from_ref(outcome), shape);
        }
        if shape.trace {
            choice["foretoken"] = json!({ "passes": pieces.iter().map(|p| pass_trace(p, app)).collect::<Vec<_>>() });
        }
        choices.push(choice);
    }
    let outcomes: Vec<Outcome> = ended.into_iter().map(|ended| ended.outcome).collect();
    if let Kind::Completion { echoed: Some(prompts), .. } = &shape.kind
        && outcomes.is_empty()
    {
        let only_echo = |(index, prompt): (usize, &Vec<TokenId>)| {
            json!({
                "index": index, "text": text(prompt, app), "finish_reason": "length", "stop_reason": null,
                "logprobs": scores.get(index).map(|scores| scored(prompt, scores, app).value()),
            })
        };
        choices = prompts.iter().enumerate().map(only_echo).collect();
    }
    answer["choices"] = Value::Array(choices);
    answer["usage"] = usage(&outcomes, shape);
    answer["timings"] = timings(&outcomes, shape);
    Ok(answer)
}

/// A prompt's text, as it is repeated.
pub fn text(tokens: &[TokenId], app: &App) -> String {
    let shown = tokens.iter().filter(|&&token| !app.text.is_control(token));
    let bytes: Vec<u8> = shown.flat_map(|&token| app.text.token_bytes(token)).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The log-probabilities of a prompt's tokens; the first has none.
pub fn scored(prompt: &[TokenId], scores: &[TokenLogprobs], app: &App) -> logprobs::Completion {
    let mut list = logprobs::Completion::default();
    let mut offset = 0;
    for (index, &token) in prompt.iter().enumerate() {
        let scores = index.checked_sub(1).and_then(|index| scores.get(index));
        list.push(token, scores, &mut offset, app);
    }
    list
}

fn completion(
    outcome: &Outcome,
    prompt: Option<&[TokenId]>,
    logprobs: Option<usize>,
    scores: &[TokenLogprobs],
    app: &App,
) -> Result<Value, ApiError> {
    let finish_reason = finish_reason(outcome)?;
    let echoed = prompt.map_or(String::new(), |prompt| text(prompt, app));
    let list = logprobs.map(|_| {
        let mut list = prompt.map_or_else(logprobs::Completion::default, |prompt| scored(prompt, scores, app));
        let mut offset = echoed.chars().count();
        for (&token, logprobs) in shown_tokens(outcome).iter().zip(&outcome.logprobs) {
            list.push(token, Some(logprobs), &mut offset, app);
        }
        list.value()
    });
    Ok(json!({ "text": echoed + &outcome.text, "finish_reason": finish_reason, "logprobs": list }))
}

/// The tokens without the one that ended the text.
fn shown_tokens(outcome: &Outcome) -> &[TokenId] {
    match (outcome.finish_reason, outcome.token_ids.split_last()) {
        (Finish::EndToken, Some((_, shown))) => shown,
        _ => &outcome.token_ids,
    }
}

fn message(
    outcome: &Outcome,
    form: &Form,
    start: Start,
    id: &dyn Fn(usize) -> String,
    logprobs: Option<usize>,
    app: &App,
) -> Result<Value, ApiError> {
    let mut finish_reason = finish_reason(outcome)?;
    let mut speech = Speech::new(form.clone(), start);
    let mut parts = Vec::new();
    speech.push(&outcome.text, &mut parts);
    speech.finish(&mut parts);
    let (mut content, mut thought) = (String::new(), String::new());
    let mut calls: Vec<(String, String)> = Vec::new();
    for part in parts {
        match part {
            Part::Content(text) => content.push_str(&text),
            Part::Thought(text) => thought.push_str(&text),
            Part::Call(name) => calls.push((name, String::new())),
            Part::Arguments(text) => calls.last_mut().expect("a call has begun").1.push_str(&text),
        }
    }
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if form.thinks {
        message["reasoning_content"] = json!(thought);
    }
    if !calls.is_empty() {
        finish_reason = called(finish_reason);
        if content.is_empty() {
            message["content"] = Value::Null;
        }
        let calls = calls.iter().enumerate();
        message["tool_calls"] = calls.map(|(index, (name, arguments))| call(&id(index), name, arguments)).collect();
    }
    let list = logprobs.map(|_| logprobs::chat(shown_tokens(outcome), &outcome.logprobs, app));
    Ok(json!({ "message": message, "finish_reason": finish_reason, "logprobs": list }))
}

/// Why a text with calls ended: one that broke off may have broken off in a call.
pub fn called(finish_reason: &'static str) -> &'static str {
    if finish_reason == "stop" { "tool_calls" } else { finish_reason }
}

/// A call of a tool.
pub fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}
