//! Judges drafting by a recorded trace and one cost table, where the clock is too noisy: gains of a few per cent.

use crate::budget::{CostTable, PassShape};
use crate::trace::{Drafting, PassTrace};

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

    /// Adds up passes under a cost table, drafting too where it says what that takes: for the others of these drafters what
    /// the clock said. Passes without tokens, which only run prompts, count in neither.
    pub fn of<'a>(passes: impl IntoIterator<Item = &'a PassTrace>, table: &CostTable, drafters: &[&str]) -> Self {
        let mut replay = Self::default();
        for pass in passes {
            let longest = pass.sequences.iter().map(|s| s.tokens.len()).max().unwrap_or(0);
            if longest == 0 {
                continue;
            }
            replay.tokens += pass.sequences.iter().map(|s| s.tokens.len()).sum::<usize>();
            replay.drafted += table.seconds(pass.shape) + drafting(pass, table, drafters);
            replay.plain += (0..longest).map(|depth| table.seconds(plain_shape(pass, depth))).sum::<f64>();
        }
        replay
    }
}

fn drafting(pass: &PassTrace, table: &CostTable, drafters: &[&str]) -> f64 {
    let mut seconds = pass.draft.as_secs_f64();
    for (name, spent) in drafters.iter().zip(&pass.draft_by).filter(|(_, spent)| **spent != Drafting::default()) {
        if let Some(cost) = table.draft.get(*name) {
            seconds += cost.seconds(spent.depth, spent.lag) - spent.time.as_secs_f64();
        }
    }
    seconds.max(0.0)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::budget::DraftCost;
    use crate::trace::SequenceTrace;

    #[test]
    fn drafting_is_counted_by_the_table_where_it_knows() {
        let sequence = SequenceTrace { given: 1, tokens: vec![1, 2, 3], ..SequenceTrace::default() };
        let spent = |ms| Drafting { time: Duration::from_millis(ms), depth: 2, lag: 10 };
        let pass = PassTrace {
            shape: PassShape { rows: 3, logits_rows: 3, context: 0 },
            draft: Duration::from_millis(801),
            draft_by: vec![spent(300), spent(500)],
            sequences: vec![sequence],
            ..PassTrace::default()
        };
        let mut table = CostTable::linear(1.0, 0.0);
        let drafted = |table: &CostTable| Replay::of([&pass], table, &["quick", "model"]).drafted;
        assert!((drafted(&table) - 1.801).abs() < 1e-9, "the clock's, where the table says nothing");
        table.draft.insert("model".into(), DraftCost { call: 0.01, depth: 0.02, lag: 0.003 });
        assert!((drafted(&table) - (1.301 + 0.08)).abs() < 1e-9);
    }
}
