//! Jacobi decoding (Santilli et al. 2023, arXiv 2305.10427): a window of guesses at the next positions is run every pass,
//! and what the target draws after each becomes the next guess, until the window is a fixed point.
//!
//! A position's draw is right as soon as all before it are, so the n-th position settles within n iterations; the target's
//! own noise is part of the iteration, without which sampled text has no fixed point. Fu et al. 2024 found that plain
//! Jacobi gains little on models that were not trained for it, which `lookahead` mends.

use std::collections::{HashMap, VecDeque};

use super::rates::HitRates;
use super::{Count, Draft, Drafter, Observation};
use crate::TokenId;
use crate::target::{SequenceId, Target};
use crate::tree::NodeId;

/// Drafts a window that carries its guesses from pass to pass.
#[derive(Debug)]
pub struct Jacobi {
    max_window: usize,
    windows: HashMap<SequenceId, VecDeque<Slot>>,
    rates: HitRates,
    /// `[iteration]`: positions whose token was guessed from this iteration on; 0 for the first guess of all.
    settled: Vec<u64>,
}

/// A position of the window.
#[derive(Clone, Copy, Debug)]
struct Slot {
    guess: TokenId,
    /// Passes in which a new guess was drawn for it.
    iterations: usize,
    /// The first of these that gave the present guess.
    since: usize,
}

impl Default for Jacobi {
    fn default() -> Self {
        Self::new(16)
    }
}

impl Jacobi {
    /// A drafter with windows of up to `max_window` positions.
    pub fn new(max_window: usize) -> Self {
        let rates = HitRates::new((0..kinds::N).map(kinds::prior));
        Self { max_window, windows: HashMap::new(), rates, settled: Vec::new() }
    }
}

/// Kinds of guesses: by depth, and by how many iterations have confirmed them.
mod kinds {
    const DEPTHS: usize = 8;
    const CONFIRMED: usize = 4;

    pub const N: usize = DEPTHS * CONFIRMED;

    pub fn of(depth: usize, confirmed: usize) -> usize {
        depth.min(DEPTHS - 1) * CONFIRMED + confirmed.min(CONFIRMED - 1)
    }

    pub fn prior(kind: usize) -> f32 {
        [0.05, 0.3, 0.5, 0.6][kind % CONFIRMED]
    }
}

impl Slot {
    fn new(guess: TokenId) -> Self {
        Self { guess, iterations: 0, since: 0 }
    }

    fn kind(&self, depth: usize) -> usize {
        // A guess of no iteration was not drawn from anything.
        kinds::of(depth, if self.iterations == 0 { 0 } else { self.iterations - self.since + 1 })
    }

    fn draw(&mut self, token: TokenId) {
        self.iterations += 1;
        if self.guess != token {
            (self.guess, self.since) = (token, self.iterations);
        }
    }
}

/// Draws every position anew, as far as its row was run: those decided are what the target says.
fn iterate(window: &mut VecDeque<Slot>, seen: &mut Observation<'_>) {
    let Observation { tree, rows, verdict, draw, .. } = seen;
    let mut row: Option<NodeId> = Some(tree.anchor());
    for (depth, slot) in window.iter_mut().enumerate() {
        let drawn = match (verdict.tokens.get(depth), row) {
            (Some(&token), _) => Some(token),
            (None, Some(node)) => draw.draw(tree, node, rows.logits(node)).ok(),
            (None, None) => return,
        };
        row = row.and_then(|node| tree.child(node, slot.guess));
        if let Some(token) = drawn {
            slot.draw(token);
        }
    }
}

impl<T: Target> Drafter<T> for Jacobi {
    fn name(&self) -> &'static str {
        "jacobi"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        for draft in drafts {
            let len = self.max_window.min(draft.limits.max_nodes).min(draft.limits.max_depth);
            let window = self.windows.entry(draft.sequence).or_default();
            // Any first guess will do; tokens of the text are at least plausible.
            let text = draft.tokens;
            let first = |depth: usize| text[(text.len() + depth).wrapping_mul(0x9e37_79b1) % text.len()];
            (window.len()..len).for_each(|depth| window.push_back(Slot::new(first(depth))));
            let mut parent = draft.tree.anchor();
            for (depth, slot) in window.iter().take(len).enumerate() {
                parent = draft.push(parent, slot.guess, self.rates.p(slot.kind(depth)));
            }
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        for seen in seen.iter_mut().filter(|seen| !seen.verdict.tokens.is_empty()) {
            let Some(window) = self.windows.get_mut(&seen.sequence) else { continue };
            let tokens = &seen.verdict.tokens;
            for (depth, (slot, &token)) in window.iter().zip(tokens).enumerate() {
                self.rates.observe(slot.kind(depth), slot.guess == token);
                if slot.guess != token {
                    break;
                }
            }
            iterate(window, seen);
            let decided = window.drain(..tokens.len().min(window.len()));
            for slot in decided {
                let settled = &mut self.settled;
                settled.resize(settled.len().max(slot.since + 1), 0);
                settled[slot.since] += 1;
            }
        }
    }

    fn counts(&self) -> Vec<Count> {
        let settled = self.settled.iter().enumerate();
        settled.map(|(at, &n)| Count { of: "positions settled at iteration", at, n }).collect()
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.windows.remove(&sequence);
    }

    fn unlearn(&mut self) {
        *self = Self::new(self.max_window);
    }
}
