//! Multi-token prediction (Gloeckle et al. 2024, arXiv 2404.19737; Cai et al. 2024, Medusa, arXiv 2401.10774): the target's
//! own heads guess the tokens after the next one, from the hidden state that the last pass left behind, and the tree of
//! what they find likely is verified. How much of it is run is for the budget to say. Heads that each read the guess before
//! (DeepSeek-AI 2024, arXiv 2412.19437) draft a chain, one after another.

use super::foresight::Foresight;
use super::{Draft, Drafter, Observation};
use crate::budget::DraftCost;
use crate::target::{Heads, SequenceId};

/// Drafts what the target's own heads predict.
#[derive(Default)]
pub struct Mtp {
    cost: DraftCost,
    foresight: Foresight,
}

impl Mtp {
    /// A drafter whose first guess of what the heads take is `cost`.
    pub fn new(cost: DraftCost) -> Self {
        Self { cost, foresight: Foresight::default() }
    }
}

impl<T: Heads> Drafter<T> for Mtp {
    fn name(&self) -> &'static str {
        "mtp"
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
        self.foresight.propose(drafts, target, cache, |_| usize::MAX);
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        seen.iter_mut().for_each(|seen| self.foresight.observe(seen));
    }

    fn bytes(&self) -> usize {
        self.foresight.bytes()
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.foresight.forget(sequence);
    }
}
