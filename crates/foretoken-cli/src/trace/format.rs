//! The lines of a trace file. Times are in milliseconds; a token stands with its text.

use std::time::Duration;

use foretoken_decode::budget::{CostTable, PassShape};
use foretoken_decode::{Drafting, Fate, GuessTrace, PassTrace, SequenceTrace, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;

/// The format's version: raised when a reader of the old one would misread the new one.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The format's version.
    pub foretoken_trace: u32,
    /// The model's name.
    pub model: String,
    /// `--draft`.
    pub draft: String,
    /// `--draft-width`.
    pub draft_width: Option<usize>,
    /// Names of the drafters: `by` in the lines below counts them from 1, and 0 is the model itself.
    pub drafters: Vec<String>,
    /// How tokens are drawn.
    pub settings: Value,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// What passes were believed to cost at the start.
    pub cost_table: CostTable,
    /// Where it ran.
    pub machine: Machine,
}

/// The text of a token: a string, or its bytes where it is only a part of a character.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

impl Piece {
    fn of(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_owned()),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// One pass.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassLine {
    rows: usize,
    logits_rows: usize,
    /// Sum of the rows' context lengths.
    context: usize,
    draft_ms: f64,
    #[serde(default)]
    draft_by_ms: Vec<f64>,
    verify_ms: f64,
    rest_ms: f64,
    #[serde(default)]
    predicted_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    sequences: Vec<SequenceLine>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SequenceLine {
    request: u64,
    /// Tokens before the first row.
    start: usize,
    /// Rows of decided tokens.
    given: usize,
    tokens: Vec<TokenLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guesses: Vec<GuessLine>,
    /// Guesses beside these that a grammar forbids, cut before the pass.
    #[serde(default, skip_serializing_if = "is_zero")]
    forbidden: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct TokenLine {
    id: TokenId,
    text: Piece,
    /// Who guessed it; 0 for the token that every pass gives.
    by: u8,
}

#[derive(Debug, Serialize, Deserialize)]
struct GuessLine {
    id: TokenId,
    text: Piece,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<usize>,
    by: u8,
    p: f32,
    fate: Fate,
}

impl PassLine {
    /// The line for a pass.
    pub fn of<'a>(pass: &PassTrace, text: impl Fn(TokenId) -> &'a [u8]) -> Self {
        let PassShape { rows, logits_rows, context } = pass.shape;
        Self {
            rows,
            logits_rows,
            context,
            draft_ms: ms(pass.draft),
            draft_by_ms: pass.draft_by.iter().map(|spent| ms(spent.time)).collect(),
            verify_ms: ms(pass.verify),
            rest_ms: ms(pass.rest),
            predicted_ms: ms(pass.predicted),
            why: pass.why.clone(),
            sequences: pass.sequences.iter().map(|sequence| SequenceLine::of(sequence, &text)).collect(),
        }
    }

    /// The pass of a line; `learn` is told the text of every token in it. Fails with what is wrong.
    pub fn into_pass(self, drafters: usize, mut learn: impl FnMut(TokenId, Vec<u8>)) -> Result<PassTrace, String> {
        let shape = PassShape { rows: self.rows, logits_rows: self.logits_rows, context: self.context };
        let sequences = self.sequences.into_iter().map(|line| line.into_trace(drafters, &mut learn));
        let sequences = sequences.collect::<Result<Vec<SequenceTrace>, String>>()?;
        let spent = |ms| duration("draft_by_ms", ms).map(|time| Drafting { time, ..Drafting::default() });
        let draft_by = self.draft_by_ms.into_iter().map(spent);
        Ok(PassTrace {
            shape,
            drafted: sequences.iter().flat_map(|s| &s.proposed).filter(|guess| guess.run).count(),
            accepted: sequences.iter().map(|s| s.tokens.len().saturating_sub(1)).sum(),
            draft: duration("draft_ms", self.draft_ms)?,
            draft_by: draft_by.collect::<Result<_, _>>()?,
            verify: duration("verify_ms", self.verify_ms)?,
            rest: duration("rest_ms", self.rest_ms)?,
            predicted: duration("predicted_ms", self.predicted_ms)?,
            why: self.why,
            sequences,
        })
    }
}

impl SequenceLine {
    fn of<'a>(trace: &SequenceTrace, text: &impl Fn(TokenId) -> &'a [u8]) -> Self {
        let path = trace.path();
        let by = |index: usize| path.get(index).map_or(0, |&guess| trace.proposed[guess].source);
        let tokens = trace.tokens.iter().enumerate();
        let guesses = trace.proposed.iter().zip(trace.fates());
        Self {
            request: trace.request,
            start: trace.start,
            given: trace.given,
            tokens: tokens.map(|(i, &id)| TokenLine { id, text: Piece::of(text(id)), by: by(i) }).collect(),
            guesses: guesses.map(|(guess, fate)| GuessLine::of(guess, fate, text(guess.token))).collect(),
            forbidden: trace.forbidden,
        }
    }

    fn into_trace(self, drafters: usize, learn: &mut impl FnMut(TokenId, Vec<u8>)) -> Result<SequenceTrace, String> {
        let mut proposed = Vec::with_capacity(self.guesses.len());
        for (index, guess) in self.guesses.into_iter().enumerate() {
            if let Some(parent) = guess.parent.filter(|&parent| parent >= index) {
                return Err(format!("guess {index} hangs below guess {parent}, which does not come before it"));
            }
            if guess.by == 0 || usize::from(guess.by) > drafters {
                return Err(format!("guess {index} is by drafter {}, and the header names {drafters}", guess.by));
            }
            if !(0.0..=1.0).contains(&guess.p) {
                return Err(format!("the p of guess {index} is {}, and must be between 0 and 1", guess.p));
            }
            learn(guess.id, guess.text.into_bytes());
            let run = !matches!(guess.fate, Fate::Trimmed | Fate::Missed);
            proposed.push(GuessTrace { token: guess.id, parent: guess.parent, source: guess.by, p: guess.p, run });
        }
        let tokens = self.tokens.into_iter().map(|token| {
            learn(token.id, token.text.into_bytes());
            token.id
        });
        let tokens = tokens.collect();
        let Self { request, start, given, forbidden, .. } = self;
        let trace = SequenceTrace { request, start, given, proposed, forbidden, tokens };
        match trace.path().len() == trace.tokens.len().saturating_sub(1) {
            true => Ok(trace),
            false => Err("a token before the last of its pass is none of the guesses".into()),
        }
    }
}

impl GuessLine {
    fn of(guess: &GuessTrace, fate: Fate, text: &[u8]) -> Self {
        let GuessTrace { token, parent, source, p, .. } = *guess;
        Self { id: token, text: Piece::of(text), parent, by: source, p, fate }
    }
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn duration(what: &str, ms: f64) -> Result<Duration, String> {
    let wrong = |_| format!("{what} is {ms}, and must be a time of 0 or more");
    Duration::try_from_secs_f64(ms / 1e3).map_err(wrong)
}
