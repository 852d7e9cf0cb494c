//! Judges drafting by a recorded trace and one cost table, where the clock is too noisy: gains of a few per cent.

use crate::budget::{CostTable, PassShape};
use crate::trace::PassTrace;

/// Seconds that the same tokens take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replay {
    /// Without drafts.
    pub plain: f64,
    /// With the guesses that were run and accepted, drafting time included.
    pub drafted: f64,
    /// Tokens drawn.
    pub tokens: usize,
}

impl Replay {
    /// How many times faster than plain.
    pub fn speedup(&self) -> f64 {
        self.plain / self.drafted
    }

    /// Adds up passes under a cost table. Passes without tokens, which only run prompts, count in neither.
    pub fn of<'a>(passes: impl IntoIterator<Item = &'a PassTrace>, table: &CostTable) -> Self {
        let mut replay = Self::default();
        for pass in passes {
            let longest = pass.sequences.iter().map(|s| s.tokens.len()).max().unwrap_or(0);
            if longest == 0 {
                continue;
            }
            replay.tokens += pass.sequences.iter().map(|s| s.tokens.len()).sum::<usize>();
            replay.drafted += table.seconds(pass.shape) + pass.draft.as_secs_f64();
            replay.plain += (0..longest).map(|depth| table.seconds(plain_shape(pass, depth))).sum::<f64>();
        }
        replay
    }
}

/// The plain pass for the tokens at `depth` of a drafted one: the given rows first, then one row per sequence.
fn plain_shape(pass: &PassTrace, depth: usize) -> PassShape {
    let mut shape = PassShape::default();
    for sequence in &pass.sequences {
        let decides = depth < sequence.tokens.len();
        let rows = if depth == 0 { sequence.given } else { usize::from(decides) };
        let first = sequence.start + if depth == 0 { 0 } else { sequence.given + depth - 1 };
        shape.rows += rows;
        shape.logits_rows += usize::from(decides);
        shape.context += (first + 1..=first + rows).sum::<usize>();
    }
    shape
}
