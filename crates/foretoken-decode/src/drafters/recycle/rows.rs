//! What the rows of a pass found likely, for the table.

use super::table::{Context, Successors, Table};
use crate::drafters::Observation;
use crate::sampler::Candidate;

/// Reads rows; one scan each.
#[derive(Debug, Default)]
pub(in crate::drafters) struct RowReader {
    best: Vec<Candidate>,
    contexts: Vec<Context>,
    /// By node from the anchor on: the likeliest tokens of its row, if it has any.
    pub rows: Vec<Option<Successors>>,
}

impl RowReader {
    /// Takes every row with logits into the table: those of guesses that did not come true too. The pass decided something,
    /// so the anchor's row and those of the guesses have logits.
    pub fn read(&mut self, seen: &mut Observation<'_>, table: &mut Table) {
        let Self { best, contexts, rows } = self;
        rows.clear();
        contexts.clear();
        let anchor = seen.tree.anchor();
        let decided = seen.tokens.len() - seen.verdict.tokens.len();
        for (node, guess) in seen.tree.nodes().iter().enumerate().skip(anchor) {
            contexts.push(match node == anchor {
                true => Context::of(&seen.tokens[..decided]),
                false => contexts[guess.parent - anchor].after(guess.token),
            });
            seen.draw.likeliest(seen.rows.logits(node), Successors::MAX, best);
            let successors = (!best.is_empty()).then(|| Successors::new(best));
            if let Some(successors) = successors {
                table.put(&contexts[node - anchor], successors);
            }
            rows.push(successors);
        }
    }
}
