//! Blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115): prediction heads guess a block of tokens, the target
//! verifies it, and the size of the block follows what it accepts.
//!
//! Beyond the paper: a block is as deep as its size, and as wide as the limits allow, since what is likely beside a head's
//! first choice is as good a guess as a far one.

use std::collections::HashMap;

use super::foresight::Foresight;
use super::{Count, Draft, Drafter, Observation};
use crate::budget::DraftCost;
use crate::target::{Heads, SequenceId};

/// Smallest and largest block.
const SIZES: std::ops::RangeInclusive<usize> = 4..=16;
/// Size of a sequence's first block.
const FIRST_SIZE: usize = 8;
/// Blocks in a row of which less than half was accepted, before one is smaller: in sampled text, short runs come between long ones.
const PATIENCE: u8 = 6;

/// A sequence's next block.
#[derive(Clone, Copy)]
struct Block {
    size: usize,
    /// Blocks in a row of which less than half was accepted.
    poor: u8,
}

impl Default for Block {
    fn default() -> Self {
        Self { size: FIRST_SIZE, poor: 0 }
    }
}

/// Drafts what the target's own heads predict, in blocks.
#[derive(Default)]
pub struct Blockwise {
    cost: DraftCost,
    foresight: Foresight,
    blocks: HashMap<SequenceId, Block>,
    /// `[size]`: blocks of this size verified.
    verified: [u64; *SIZES.end() + 1],
    grown: u64,
    shrunk: u64,
}

impl Blockwise {
    /// A drafter whose first guess of what the heads take is `cost`.
    pub fn new(cost: DraftCost) -> Self {
        Self { cost, ..Self::default() }
    }

    /// Sets the next size by how much of a block of depth `run` was accepted: all of it asks for more, less than half time and
    /// again for less.
    fn adapt(&mut self, sequence: SequenceId, run: usize, accepted: usize) {
        self.verified[run.min(*SIZES.end())] += 1;
        let Block { size, poor } = self.blocks.entry(sequence).or_default();
        *poor = if 2 * accepted < run { *poor + 1 } else { 0 };
        if run == *size && accepted == run && *size < *SIZES.end() {
            *size += 2;
            self.grown += 1;
        } else if *poor == PATIENCE {
            *poor = 0;
            if *size > *SIZES.start() {
                *size -= 1;
                self.shrunk += 1;
            }
        }
    }
}

impl<T: Heads> Drafter<T> for Blockwise {
    fn name(&self) -> &'static str {
        "blockwise"
    }

    fn cost(&self) -> DraftCost {
        self.cost
    }

    fn stops_early(&self, target: &T) -> bool {
        target.are_sequential()
    }

    fn lag(&self, sequence: SequenceId, n_tokens: usize) -> usize {
        self.foresight.lag(sequence, n_tokens)
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut T, cache: &mut T::Cache) {
        let Self { foresight, blocks, .. } = self;
        let size = |draft: &Draft<'_>| blocks.get(&draft.sequence).copied().unwrap_or_default().size;
        foresight.propose(drafts, target, cache, size);
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        for seen in seen.iter_mut().filter(|seen| !seen.verdict.tokens.is_empty()) {
            self.foresight.observe(seen);
            let depth = |node: usize| seen.tree.nodes()[node].depth as usize;
            let anchor = depth(seen.tree.anchor());
            let run = (seen.tree.given()..seen.tree.len()).map(|node| depth(node) - anchor).max();
            if let Some(run) = run {
                self.adapt(seen.sequence, run, seen.verdict.path.len() - seen.tree.given());
            }
        }
    }

    fn bytes(&self) -> usize {
        self.foresight.bytes()
    }

    fn counts(&self) -> Vec<Count> {
        let verified = self.verified.iter().enumerate().filter(|&(_, &n)| n > 0);
        let mut counts: Vec<_> = verified.map(|(at, &n)| Count { of: "blocks verified of size", at, n }).collect();
        counts.push(Count { of: "blocks grown by", at: 2, n: self.grown });
        counts.push(Count { of: "blocks shrunk by", at: 1, n: self.shrunk });
        counts
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.foresight.forget(sequence);
        self.blocks.remove(&sequence);
    }

    fn unlearn(&mut self) {
        (self.verified, self.grown, self.shrunk) = Default::default();
    }
}
