//! Blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115): prediction heads guess a block of tokens, the target
//! verifies it, and the size of the block follows what it accepts.
//!
//! The heads' scores are drawn from with the request's own processors and noise, so at any temperature a block is right as
//! often as the heads are.

use std::collections::HashMap;

use super::rates::HitRates;
use super::{Count, Draft, Drafter, Observation};
use crate::TokenId;
use crate::target::{Heads, SequenceId};

/// Smallest and largest block.
const SIZES: std::ops::RangeInclusive<usize> = 4..=16;
/// Size of a sequence's first block.
const FIRST_SIZE: usize = 8;

/// Drafts what the target's own heads predict.
#[derive(Debug)]
pub struct Blockwise {
    blocks: HashMap<SequenceId, Block>,
    /// `[head]`: how often its guess comes true when those of the heads before it have.
    rates: HitRates,
    /// `[size]`: blocks of this size verified.
    verified: [u64; *SIZES.end() + 1],
    grown: u64,
    shrunk: u64,
}

/// One sequence's block.
#[derive(Debug)]
struct Block {
    size: usize,
    /// Of the last row kept: what the heads start from.
    hidden: Vec<f32>,
    guesses: Vec<TokenId>,
}

impl Default for Blockwise {
    fn default() -> Self {
        let rates = HitRates::new((0..*SIZES.end()).map(|head| 0.7 / (1.0 + 0.2 * head as f32)));
        Self { blocks: HashMap::new(), rates, verified: [0; _], grown: 0, shrunk: 0 }
    }
}

impl Blockwise {
    /// Sets the next size by how much of a block was accepted: all of it asks for more, less than half for less.
    fn adapt(&mut self, sequence: SequenceId, run: usize, accepted: usize) {
        let Some(block) = self.blocks.get_mut(&sequence) else { return };
        if run == block.size && accepted == run && block.size < *SIZES.end() {
            block.size += 2;
            self.grown += 1;
        } else if 2 * accepted < run && block.size > *SIZES.start() {
            block.size -= 1;
            self.shrunk += 1;
        }
    }
}

impl<T: Heads> Drafter<T> for Blockwise {
    fn name(&self) -> &'static str {
        "blockwise"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut T, _cache: &mut T::Cache) {
        for draft in drafts {
            let Some(block) = self.blocks.get_mut(&draft.sequence) else { continue };
            block.guesses.clear();
            let limits = draft.limits;
            let size = block.size.min(target.n_heads()).min(limits.max_nodes).min(limits.max_depth);
            let mut node = draft.tree.anchor();
            for head in 0..size {
                let scores = target.head(head, &block.hidden);
                let Ok(token) = draft.sample(node, scores) else { break };
                block.guesses.push(token);
                node = draft.push(node, token, self.rates.p(head));
            }
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        for Observation { sequence, tree, rows, verdict, .. } in seen.iter().filter(|o| !o.verdict.tokens.is_empty()) {
            let new = || Block { size: FIRST_SIZE, hidden: Vec::new(), guesses: Vec::new() };
            let block = self.blocks.entry(*sequence).or_insert_with(new);
            block.hidden.clear();
            let last = verdict.path[verdict.path.len().min(tree.anchor() + verdict.tokens.len()) - 1];
            block.hidden.extend_from_slice(rows.hidden(last));
            let guesses = std::mem::take(&mut block.guesses);
            let (mut run, mut node) = (0, tree.anchor());
            while let Some(child) = guesses.get(run).and_then(|&token| tree.child(node, token)) {
                (run, node) = (run + 1, child);
            }
            let accepted = guesses.iter().zip(&verdict.tokens).take_while(|(guess, token)| guess == token).count();
            for head in 0..guesses.len().min(accepted + 1).min(verdict.tokens.len()) {
                self.rates.observe(head, head < accepted);
            }
            if run > 0 {
                self.verified[run.min(*SIZES.end())] += 1;
                self.adapt(*sequence, run, accepted.min(run));
            }
        }
    }

    fn counts(&self) -> Vec<Count> {
        let verified = self.verified.iter().enumerate().filter(|&(_, &n)| n > 0);
        let mut counts: Vec<_> = verified.map(|(at, &n)| Count { of: "blocks verified of size", at, n }).collect();
        counts.push(Count { of: "blocks grown by", at: 2, n: self.grown });
        counts.push(Count { of: "blocks shrunk by", at: 1, n: self.shrunk });
        counts
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.blocks.remove(&sequence);
    }

    fn unlearn(&mut self) {
        *self = Self::default();
    }
}
