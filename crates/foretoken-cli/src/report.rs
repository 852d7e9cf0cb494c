//! What is said about an answer, and the trace of its passes.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use foretoken_decode::{PassTrace, Recorder};
use foretoken_engine::{Engine, Finish, Outcome};

use crate::error::CliError;

/// The summary's line.
pub fn summary(outcome: &Outcome) -> String {
    format!("{}; {}; seed {}", short(outcome), ended(outcome), outcome.seed)
}

/// How fast it was.
pub fn short(outcome: &Outcome) -> String {
    let Outcome { passes, drafted, accepted, tokens_per_second, .. } = *outcome;
    let tokens = outcome.token_ids.len();
    let mut line = format!("{} in {}", count(tokens, "token", "tokens"), count(passes, "pass", "passes"));
    if passes > 1 {
        let _ = write!(line, " ({:.2} a pass), {tokens_per_second:.1} tokens/s", outcome.acceptance_length);
    }
    if drafted > 0 {
        let _ = write!(line, ", {accepted} of {} accepted", count(drafted, "guess", "guesses"));
    }
    line
}

fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn ended(outcome: &Outcome) -> String {
    match outcome.finish_reason {
        Finish::EndToken => "the model ended the text".into(),
        Finish::StopString => format!("ended at {:?}", outcome.stop_string.as_deref().unwrap_or_default()),
        Finish::Length => "ended at --max-tokens".into(),
        Finish::ContextFull => "the context is full (see --ctx-size)".into(),
        Finish::Cancelled => "interrupted".into(),
        Finish::Failed => "broke off".into(),
    }
}

/// More lines, for `--verbose`.
pub fn details(outcome: &Outcome, engine: &Engine) -> String {
    let mut text = String::new();
    let new = outcome.prompt_tokens - outcome.cached_tokens;
    let speed = new as f64 / outcome.prompt_seconds.max(1e-9);
    let _ = writeln!(
        text,
        "prompt: {} tokens, {} of them cached, {:.3} s, {speed:.1} tokens/s",
        outcome.prompt_tokens, outcome.cached_tokens, outcome.prompt_seconds
    );
    if !outcome.acceptance_by_depth.is_empty() {
        let shares: Vec<_> = outcome.acceptance_by_depth.iter().map(|share| format!("{share:.2}")).collect();
        let _ = writeln!(text, "accepted by depth: {}", shares.join(" "));
    }
    let costs: Vec<_> = [1, 2, 3, 4, 8, 16].map(|n| format!("{n}: {:.1}", engine.cost_table().trunk(n) * 1e3)).into();
    let _ = writeln!(text, "a pass of n rows takes, without the output head, in ms: {}", costs.join(", "));
    let _ = writeln!(
        text,
        "loaded in {:.2} s; {} threads, {} kernels, context of {} tokens",
        engine.load_seconds(),
        engine.threads(),
        engine.isa(),
        engine.context_size()
    );
    text
}

/// Fails when the answer broke off.
pub fn check(outcome: &Outcome) -> Result<(), CliError> {
    match &outcome.error {
        Some(error) => Err(CliError::Failed { error: error.clone() }),
        None => Ok(()),
    }
}

/// A file with one JSON object for every pass, each there as soon as the pass is done, however the program ends.
///
/// Clones write to the same file.
#[derive(Clone)]
pub struct TraceFile {
    path: PathBuf,
    /// The first error ends the trace: one with holes would mislead.
    file: Arc<Mutex<io::Result<File>>>,
}

impl TraceFile {
    /// Creates or empties the file.
    pub fn create(path: &Path) -> Result<Self, CliError> {
        let file = File::create(path).map_err(|error| CliError::File { action: "write", path: path.into(), error })?;
        Ok(Self { path: path.into(), file: Arc::new(Mutex::new(Ok(file))) })
    }

    /// Fails when a pass could not be written.
    pub fn check(&self) -> Result<(), CliError> {
        let error = match &*self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(_) => return Ok(()),
            Err(error) => io::Error::new(error.kind(), error.to_string()),
        };
        Err(CliError::File { action: "write", path: self.path.clone(), error })
    }
}

impl Recorder for TraceFile {
    fn pass(&mut self, trace: &PassTrace) {
        let mut line = serde_json::to_string(trace).expect("a trace has string keys and finite numbers");
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk shall not end the text.
        if let Ok(open) = &mut *file
            && let Err(error) = open.write_all(line.as_bytes())
        {
            *file = Err(error);
        }
    }
}
