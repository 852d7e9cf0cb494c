//! Answers: from what the engine wrote to OpenAI's JSON, whole or as it comes.

mod chunks;
mod logprobs;
mod usage;
mod whole;

pub use chunks::Chunks;
pub use usage::{timings, usage};
pub use whole::{Ended, whole};

use foretoken_engine::{Finish, Outcome, TokenId};
use serde_json::{Value, json};

use crate::app::App;
use crate::ask::settings::Settings;
use crate::error::ApiError;
use crate::speech::{CallForm, Form, Start};
use crate::text::fnv;
use crate::worker::Piece;

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Texts.
    Completion {
        /// The prompts, when they are part of the texts.
        echoed: Option<Vec<Vec<TokenId>>>,
        /// Number of likeliest tokens to tell for each token.
        logprobs: Option<usize>,
    },
    /// Messages.
    Chat {
        /// What is told apart in them.
        form: Form,
        /// What the prompt ends inside of.
        start: Start,
        /// Number of likeliest tokens to tell for each token.
        logprobs: Option<usize>,
    },
}

/// How an answer is put.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What is asked for.
    pub kind: Kind,
    /// Answers for each prompt.
    pub n: usize,
    /// Send the usage at the end of a stream.
    pub include_usage: bool,
    /// Tell who guessed what.
    pub trace: bool,
    /// Given or drawn.
    pub seed: u64,
    /// The method, as it was asked for.
    pub draft: String,
    /// Tokens of each prompt.
    pub prompt_lens: Vec<usize>,
}

impl Shape {
    /// With what `settings` say.
    pub fn new(kind: Kind, settings: &Settings, prompt_lens: Vec<usize>) -> Self {
        let Settings { n, include_usage, trace, seed, .. } = *settings;
        Self { kind, n, include_usage, trace, seed, draft: settings.draft.to_string(), prompt_lens }
    }

    fn is_chat(&self) -> bool {
        matches!(self.kind, Kind::Chat { .. })
    }
}

/// What every answer and every chunk begins with.
#[derive(Clone, Debug)]
pub struct Head {
    /// Names the answer.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
}

impl Head {
    /// An object of this kind, without choices.
    fn value(&self, object: &str, shape: &Shape, app: &App) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": app.text.id(),
            "system_fingerprint": app.fingerprint, "seed": shape.seed,
        })
    }
}

/// The id of a choice's call, which names the answer too, so that ids of different answers differ.
fn call_id(form: &Form, answer: &str, choice: usize, index: usize) -> String {
    let unique = answer.rsplit('-').next().unwrap_or(answer);
    let id = format!("call_{unique}_{choice}_{index}");
    match form.calls {
        // Their templates take ids of nine letters and digits, and no others.
        Some(CallForm::Listed | CallForm::Marked) => {
            format!("{:09x}", fnv(&id) >> 28)
        }
        _ => id,
    }
}

/// Why a text ended, in OpenAI's words, or the error that it ended with.
pub fn finish_reason(outcome: &Outcome) -> Result<&'static str, ApiError> {
    match outcome.finish_reason {
        Finish::EndToken | Finish::StopString => Ok("stop"),
        Finish::Length | Finish::ContextFull | Finish::Deadline => Ok("length"),
        Finish::Cancelled => Err(ApiError::draining()),
        Finish::Failed => {
            let why = outcome.error.as_deref().unwrap_or("the text could not be continued");
            // What a request's own grammar or bias leaves open is its own to mend.
            let own =
                [("no token is allowed", "no_token_allowed"), ("the grammar gives no answer", "grammar_too_complex")];
            Err(match own.into_iter().find(|(words, _)| why.starts_with(words)) {
                Some((_, code)) => ApiError::invalid(None, code, why),
                None => ApiError { code: "generation_failed", ..ApiError::server(why) },
            })
        }
    }
}

/// What ended a text, where OpenAI's word for it says less.
fn stop_reason(outcome: &Outcome) -> Value {
    match outcome.finish_reason {
        Finish::Deadline => json!("timeout"),
        Finish::ContextFull => json!("context"),
        _ => json!(outcome.stop_string),
    }
}

/// The tokens of a pass, who guessed each, and all guesses.
fn pass_trace(piece: &Piece, app: &App) -> Value {
    let text = |token: TokenId| String::from_utf8_lossy(app.text.token_bytes(token)).into_owned();
    let source = |source: u8| match usize::from(source).checked_sub(1) {
        Some(index) => app.drafters.get(index).copied(),
        None => None,
    };
    let tokens = piece.tokens.iter().zip(&piece.sources);
    let tokens = tokens.map(|(&id, &by)| json!({ "id": id, "text": text(id), "source": source(by) }));
    let mut value = json!({ "tokens": tokens.collect::<Vec<_>>() });
    if let Some(trace) = &piece.trace {
        let path = trace.path();
        let guess = |(index, guess): (usize, &foretoken_decode::GuessTrace)| {
            json!({
                "id": guess.token, "text": text(guess.token), "parent": guess.parent, "source": source(guess.source),
                "p": guess.p, "run": guess.run, "accepted": path.contains(&index),
            })
        };
        value["guesses"] = trace.proposed.iter().enumerate().map(guess).collect();
        value["forbidden"] = json!(trace.forbidden);
    }
    value
}
