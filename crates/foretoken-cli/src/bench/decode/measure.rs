//! Answers every prompt in every way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use foretoken_decode::{PassTrace, Recorder};
use foretoken_engine::{Engine, Outcome, TokenId};

use super::cells::{Cell, interleaved, one_after_the_other};
use super::{Args, Question};
use crate::answer::answer;
use crate::error::CliError;
use crate::machine::{cpu_seconds, median};
use crate::progress;
use crate::report;

/// One prompt in one way.
#[derive(Debug)]
pub struct Run {
    pub id: String,
    pub category: String,
    /// Index of the cell.
    pub cell: usize,
    /// Of the last repeat; texts of all repeats are compared.
    pub outcome: Outcome,
    /// Median over the repeats, of the answer after its first pass.
    pub seconds: f64,
    /// The same of all threads together, on a CPU.
    pub cpu_seconds: Option<f64>,
    /// The passes after the first that drew tokens, of the last repeat.
    pub passes: Vec<PassTrace>,
    /// How its tokens differ from plain decoding's.
    pub difference: Option<String>,
}

/// What came of all of it.
pub struct Measured {
    /// By prompt, then by cell.
    pub runs: Vec<Run>,
    /// Most bytes that each drafter held after an answer, by name.
    pub memory: BTreeMap<&'static str, usize>,
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// One answer.
struct Try {
    outcome: Outcome,
    cpu_seconds: Option<f64>,
    passes: Vec<PassTrace>,
}

/// Answers every prompt in every way. Prompts not answered in all of them are left out after Ctrl-C.
pub fn measure(
    args: &Args,
    engine: &mut Engine,
    questions: &[Question],
    cells: &[Cell],
    passes: &Passes,
) -> Result<Measured, CliError> {
    let steps = match args.remember {
        true => one_after_the_other(questions.len(), cells.len()),
        false => interleaved(questions.len(), cells.len(), args.repeats as usize),
    };
    let bar = progress::items(steps.len(), "answers");
    let mut tries: Vec<Vec<Try>> = (0..questions.len() * cells.len()).map(|_| Vec::new()).collect();
    let mut memory = BTreeMap::new();
    let mut interrupted = false;
    let mut last = None;
    for (prompt, cell) in steps {
        if last.is_some_and(|(last, _)| last != prompt) {
            engine.scheduler().forget_cached();
        }
        if !args.remember || last.is_none_or(|(_, last)| last != cell) {
            engine.scheduler().unlearn();
        }
        last = Some((prompt, cell));
        passes.clear();
        let mut begun = None;
        let outcome = answer(engine, cells[cell].apply(&questions[prompt].request), |piece| {
            if begun.is_none() && !piece.tokens.is_empty() {
                begun = cpu_seconds();
            }
            Ok(())
        })?;
        let spent = begun.zip(cpu_seconds()).map(|(begun, ended)| ended - begun);
        report::check(&outcome)?;
        if outcome.was_cancelled() {
            interrupted = true;
            break;
        }
        for (name, bytes) in engine.scheduler().drafter_bytes() {
            let most = memory.entry(name).or_insert(0);
            *most = bytes.max(*most);
        }
        tries[prompt * cells.len() + cell].push(Try { outcome, cpu_seconds: spent, passes: passes.take() });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Measured { runs: runs(questions, cells, tries), memory, interrupted })
}

/// Puts the tries of each prompt and way together.
fn runs(questions: &[Question], cells: &[Cell], tries: Vec<Vec<Try>>) -> Vec<Run> {
    let mut runs = Vec::with_capacity(tries.len());
    let mut tries = tries.into_iter();
    for question in questions {
        let of_prompt: Vec<Vec<Try>> = tries.by_ref().take(cells.len()).collect();
        if of_prompt.iter().any(Vec::is_empty) {
            continue;
        }
        let plain: Vec<Vec<TokenId>> =
            cells.iter().map(|cell| of_prompt[cell.plain][0].outcome.token_ids.clone()).collect();
        for (cell, tries) in of_prompt.into_iter().enumerate() {
            let wrong = tries.iter().find_map(|one| difference(&plain[cell], &one.outcome.token_ids));
            let name = &cells[cell].method;
            let difference = wrong.map(|at| format!("{}: {name} differs from plain decoding {at}", question.prompt.id));
            let seconds = median(&tries.iter().map(|one| one.outcome.decode_seconds).collect::<Vec<_>>());
            let cpu: Option<Vec<f64>> = tries.iter().map(|one| one.cpu_seconds).collect();
            let Try { outcome, passes, .. } = tries.into_iter().next_back().expect("at least one try");
            let (id, category) = (question.prompt.id.clone(), question.prompt.category.clone());
            let cpu_seconds = cpu.map(|cpu| median(&cpu));
            runs.push(Run { id, category, cell, outcome, seconds, cpu_seconds, passes, difference });
        }
    }
    runs
}

/// Where two texts part, in words.
fn difference(plain: &[TokenId], other: &[TokenId]) -> Option<String> {
    let same = plain.iter().zip(other).take_while(|(a, b)| a == b).count();
    match (plain.get(same), other.get(same)) {
        (None, None) => None,
        (Some(a), Some(b)) => Some(format!("at token {same}: {b} where it has {a}")),
        (Some(_), None) => Some(format!("by ending after {same} of {} tokens", plain.len())),
        (None, Some(_)) => Some(format!("by going on after its {same} tokens")),
    }
}

/// Collects the passes of the answer at hand.
#[derive(Clone, Debug, Default)]
pub struct Passes(Arc<Mutex<Vec<PassTrace>>>);

impl Passes {
    /// Begins anew.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The passes that drew tokens, but for the first, which is the prompt's.
    pub fn take(&self) -> Vec<PassTrace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).skip(1).collect()
    }
}

impl Recorder for Passes {
    fn pass(&mut self, trace: &PassTrace) {
        if trace.sequences.iter().any(|sequence| !sequence.tokens.is_empty()) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(trace.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(difference(&[1, 2, 3], &[1, 7, 3]).unwrap(), "at token 1: 7 where it has 2");
        assert_eq!(difference(&[1, 2], &[1]).unwrap(), "by ending after 1 of 2 tokens");
        assert_eq!(difference(&[1], &[1, 2]).unwrap(), "by going on after its 1 tokens");
    }
}
