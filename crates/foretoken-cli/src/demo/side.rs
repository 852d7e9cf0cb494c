//! One of the two: an engine with one request, and what came of it so far.

use std::time::Instant;

use foretoken_engine::{Engine, EngineError, Event, Outcome, Request, TokenId};

use crate::error::CliError;
use crate::report;

/// A way to decode, under way.
pub struct Side {
    name: String,
    engine: Engine,
    text: String,
    /// `(bytes, who guessed them)` of the tokens whose text has come.
    pieces: Vec<(usize, u8)>,
    ids: Vec<TokenId>,
    passes: usize,
    /// Of the passes after the first that brought tokens.
    seconds: f64,
    /// Tokens of these passes.
    timed_tokens: usize,
    outcome: Option<Outcome>,
}

impl Side {
    /// Submits the request; nothing has run yet.
    pub fn new(name: String, mut engine: Engine, request: Request) -> Result<Self, CliError> {
        engine.scheduler().submit(request).map_err(|error| CliError::Request { error })?;
        Ok(Self {
            name: if name == "none" { "plain".into() } else { name },
            engine,
            text: String::new(),
            pieces: Vec::new(),
            ids: Vec::new(),
            passes: 0,
            seconds: 0.0,
            timed_tokens: 0,
            outcome: None,
        })
    }

    /// Runs a pass; returns the seconds that it took.
    pub fn step(&mut self) -> Result<f64, CliError> {
        let Self { engine, text, pieces, ids, outcome, .. } = self;
        let tokenizer = engine.file().tokenizer().clone();
        let (before, begun) = (ids.len(), Instant::now());
        let run = engine.scheduler().step(&mut |event| match event {
            Event::Progress { tokens, sources, text: new, .. } => {
                text.push_str(new);
                ids.extend_from_slice(tokens);
                let len =
                    |&token: &TokenId| if tokenizer.is_special(token) { 0 } else { tokenizer.token_bytes(token).len() };
                pieces.extend(tokens.iter().zip(sources).map(|(token, source)| (len(token), source.0)));
            }
            Event::Finished { outcome: ended, .. } => *outcome = Some(*ended),
        });
        run.map_err(EngineError::from)?;
        let spent = begun.elapsed().as_secs_f64();
        let new = self.ids.len() - before;
        if new > 0 {
            self.passes += 1;
        }
        if before > 0 {
            (self.seconds, self.timed_tokens) = (self.seconds + spent, self.timed_tokens + new);
        }
        match &self.outcome {
            Some(outcome) => report::check(outcome).map(|()| spent),
            None => Ok(spent),
        }
    }

    /// How it decodes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its text is complete.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// Seconds spent on passes after the first.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Seconds for each token after the first pass's; 0 before there is one.
    pub fn seconds_per_token(&self) -> f64 {
        self.seconds / self.timed_tokens.max(1) as f64
    }

    /// Tokens so far.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Ids of all tokens.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text's bytes by who guessed them, `(bytes, source)` in order; 0 is the model itself.
    pub fn pieces(&self) -> &[(usize, u8)] {
        &self.pieces
    }

    /// Names of the drafters, by source less one.
    pub fn drafters(&self) -> Vec<&'static str> {
        self.engine.drafters()
    }

    /// Tokens for each pass.
    pub fn per_pass(&self) -> f64 {
        self.ids.len() as f64 / self.passes.max(1) as f64
    }

    /// Counts and speed in one line.
    pub fn summary(&self) -> String {
        let rate = self.per_pass();
        let speed = if self.seconds > 0.0 { self.timed_tokens as f64 / self.seconds } else { 0.0 };
        format!("{} tokens, {} passes, {rate:.2} tokens a pass, {speed:.0} tokens/s", self.ids.len(), self.passes)
    }
}
