//! What is said about an answer.

use std::fmt::Write as _;

use foretoken_engine::{Engine, Finish, Outcome, troubles};

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
    line + &change(outcome)
}

/// What an acceptor other than the default did to the text.
fn change(outcome: &Outcome) -> String {
    if outcome.reproducible {
        return String::new();
    }
    let mut line = format!("; accepted by {}: not reproducible", outcome.acceptor);
    if let (Some(perplexity), Some(agreement)) = (outcome.target_perplexity, outcome.agreement) {
        let agreement = 100.0 * agreement;
        let _ = write!(line, ", perplexity {perplexity:.2}, {agreement:.0} % of the tokens are the model's own choice");
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
        Finish::Deadline => "its time was over".into(),
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
    for stats in engine.drafter_stats() {
        for (reason, times) in troubles(stats) {
            let _ = writeln!(text, "{}: left out {times} times: {reason}", stats.name);
        }
    }
    let costs: Vec<_> = [1, 2, 3, 4, 8, 16].map(|n| format!("{n}: {:.1}", engine.cost_table().trunk(n) * 1e3)).into();
    let _ = writeln!(text, "a pass of n rows takes, without the output head, in ms: {}", costs.join(", "));
    let _ = writeln!(
        text,
        "loaded in {:.2} s; {} threads, {} kernels, context of {} tokens; weights {:.1} MB, drafters {:.1} MB",
        engine.load_seconds(),
        engine.threads(),
        engine.isa(),
        engine.context_size(),
        engine.footprint().packed_bytes as f64 / 1e6,
        engine.drafting_bytes() as f64 / 1e6
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
