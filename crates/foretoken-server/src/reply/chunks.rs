//! An answer as it comes: what every pass brought is a chunk.

use foretoken_decode::sampler::TokenLogprobs;
use foretoken_engine::Outcome;
use serde_json::{Value, json};

use super::whole::{call, called, scored, text};
use super::{Head, Kind, Shape, call_id, finish_reason, logprobs, pass_trace, stop_reason, timings, usage};
use crate::app::App;
use crate::error::ApiError;
use crate::speech::{Part, Speech};
use crate::worker::Piece;

/// Makes the chunks of one answer.
pub struct Chunks {
    head: Head,
    shape: Shape,
    choices: Vec<Choice>,
    outcomes: Vec<Option<Outcome>>,
}

struct Choice {
    speech: Option<Speech>,
    /// Characters so far, for the places of tokens.
    offset: usize,
    n_calls: usize,
}

impl Chunks {
    /// For an answer with `n` choices.
    pub fn new(head: Head, shape: Shape, n: usize) -> Self {
        let speech = match &shape.kind {
            Kind::Chat { form, start, .. } => Some(Speech::new(form.clone(), *start)),
            Kind::Completion { .. } => None,
        };
        let choices = (0..n).map(|_| Choice { speech: speech.clone(), offset: 0, n_calls: 0 }).collect();
        Self { head, shape, choices, outcomes: vec![None; n] }
    }

    /// What is sent before the first token: the role, or the prompt.
    pub fn first(&mut self, scores: &[Vec<TokenLogprobs>], app: &App) -> Vec<Value> {
        let mut chunks = Vec::new();
        match self.shape.kind.clone() {
            Kind::Chat { .. } => {
                for index in 0..self.choices.len() {
                    let delta = json!({ "role": "assistant", "content": "", "refusal": null });
                    chunks.push(self.chunk(json!({ "index": index, "delta": delta, "finish_reason": null }), app));
                }
            }
            Kind::Completion { echoed: Some(prompts), .. } => {
                // Without choices there is nothing to come but the prompts.
                let (n, last) =
                    if self.choices.is_empty() { (1, json!("length")) } else { (self.shape.n, Value::Null) };
                for (index, prompt) in prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, n)).enumerate() {
                    let text = text(prompt, app);
                    let list = scores.get(index / n).map(|scores| scored(prompt, scores, app).value());
                    if let Some(choice) = self.choices.get_mut(index) {
                        choice.offset = text.chars().count();
                    }
                    let value = json!({ "index": index, "text": text, "logprobs": list, "finish_reason": last });
                    chunks.push(self.chunk(value, app));
                }
            }
            Kind::Completion { echoed: None, .. } => {}
        }
        chunks
    }

    /// What a pass brought for a choice.
    pub fn piece(&mut self, index: usize, piece: &Piece, app: &App) -> Vec<Value> {
        let shown = piece.tokens.len() - usize::from(piece.ends && !piece.tokens.is_empty());
        let tokens = &piece.tokens[..shown];
        let mut choices = match &self.shape.kind {
            Kind::Completion { logprobs, .. } => {
                let offset = &mut self.choices[index].offset;
                let list = logprobs.map(|_| {
                    let mut list = logprobs::Completion::default();
                    for (&token, logprobs) in tokens.iter().zip(&piece.logprobs) {
                        list.push(token, Some(logprobs), offset, app);
                    }
                    list.value()
                });
                vec![json!({ "index": index, "text": piece.text, "logprobs": list, "finish_reason": null })]
            }
            Kind::Chat { logprobs, .. } => {
                let list = logprobs.map(|_| logprobs::chat(tokens, &piece.logprobs, app));
                let deltas = self.deltas(index, |speech, parts| speech.push(&piece.text, parts));
                with_logprobs(deltas, list, index)
            }
        };
        if self.shape.trace {
            if choices.is_empty() {
                choices.push(json!({ "index": index, "delta": {}, "finish_reason": null }));
            }
            choices[0]["foretoken"] = pass_trace(piece, app);
        } else if piece.text.is_empty() && !self.has_logprobs() {
            return Vec::new();
        }
        choices.into_iter().map(|choice| self.chunk(choice, app)).collect()
    }

    /// The end of a choice.
    pub fn end(&mut self, index: usize, outcome: Outcome, app: &App) -> Result<Vec<Value>, ApiError> {
        let mut finish_reason = finish_reason(&outcome)?;
        let mut choices = match self.shape.is_chat() {
            true => with_logprobs(self.deltas(index, Speech::finish), None, index),
            false => Vec::new(),
        };
        if self.choices[index].n_calls > 0 {
            finish_reason = called(finish_reason);
        }
        let mut last = match self.shape.is_chat() {
            true => json!({ "index": index, "delta": {}, "logprobs": null }),
            false => json!({ "index": index, "text": "", "logprobs": null }),
        };
        last["finish_reason"] = json!(finish_reason);
        last["stop_reason"] = stop_reason(&outcome);
        choices.push(last);
        let mut chunks: Vec<Value> = choices.into_iter().map(|choice| self.chunk(choice, app)).collect();
        if let Some(last) = chunks.last_mut() {
            last["timings"] = timings(std::slice::from_ref(&outcome), &self.shape);
        }
        self.outcomes[index] = Some(outcome);
        Ok(chunks)
    }

    /// The usage, when it was asked for.
    pub fn last(&mut self, app: &App) -> Option<Value> {
        if !self.shape.include_usage {
            return None;
        }
        let outcomes: Vec<Outcome> = self.outcomes.drain(..).flatten().collect();
        let mut chunk = self.head.value(self.object(), &self.shape, app);
        chunk["choices"] = json!([]);
        chunk["usage"] = usage(&outcomes, &self.shape);
        chunk["timings"] = timings(&outcomes, &self.shape);
        Some(chunk)
    }

    fn has_logprobs(&self) -> bool {
        match &self.shape.kind {
            Kind::Completion { logprobs, .. } | Kind::Chat { logprobs, .. } => logprobs.is_some(),
        }
    }

    fn object(&self) -> &'static str {
        if self.shape.is_chat() { "chat.completion.chunk" } else { "text_completion" }
    }

    fn chunk(&self, choice: Value, app: &App) -> Value {
        let mut chunk = self.head.value(self.object(), &self.shape, app);
        chunk["choices"] = Value::Array(vec![choice]);
        if self.shape.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// What a choice's message gains.
    fn deltas(&mut self, index: usize, read: impl FnOnce(&mut Speech, &mut Vec<Part>)) -> Vec<Value> {
        let choice = &mut self.choices[index];
        let mut parts = Vec::new();
        if let Some(speech) = &mut choice.speech {
            read(speech, &mut parts);
        }
        let Kind::Chat { form, .. } = &self.shape.kind else { return Vec::new() };
        let delta = |part| match part {
            Part::Content(text) => json!({ "content": text }),
            Part::Thought(text) => json!({ "reasoning_content": text }),
            Part::Call(name) => {
                let mut value = call(&call_id(form, &self.head.id, index, choice.n_calls), &name, "");
                value["index"] = json!(choice.n_calls);
                choice.n_calls += 1;
                json!({ "tool_calls": [value] })
            }
            Part::Arguments(text) => {
                json!({ "tool_calls": [{ "index": choice.n_calls - 1, "function": { "arguments": text } }] })
            }
        };
        parts.into_iter().map(delta).collect()
    }
}

/// Choices of chunks with these deltas; log-probabilities go with the first.
fn with_logprobs(deltas: Vec<Value>, list: Option<Value>, index: usize) -> Vec<Value> {
    let deltas = if deltas.is_empty() && list.is_some() { vec![json!({})] } else { deltas };
    let mut list = list;
    let choice =
        |delta: Value| json!({ "index": index, "delta": delta, "logprobs": list.take(), "finish_reason": null });
    deltas.into_iter().map(choice).collect()
}
