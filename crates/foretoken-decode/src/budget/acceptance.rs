//! How often guesses come true: by drafter, depth and the confidence that the drafter gave, with forgetting.
//!
//! Every proposal is scored against the text that came, whether its rows were run or not. That costs nothing, so an
//! estimate stays fresh while nothing is drafted, and drafting returns by itself when it would pay again.

use crate::TokenId;
use crate::tree::{Node, NodeId, Source, TokenTree};

const DEPTHS: usize = 8;
const BUCKETS: usize = 4;

/// Decaying counts of guesses whose parent came true.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    hits: f32,
    trials: f32,
}

impl Cell {
    /// What is believed at first counts as this many trials, and is forgotten like any other.
    const PRIOR_TRIALS: f32 = 2.0;

    fn observe(&mut self, hit: bool, keep: f32, prior: f32) {
        if self.trials == 0.0 {
            *self = Self { hits: prior * Self::PRIOR_TRIALS, trials: Self::PRIOR_TRIALS };
        }
        self.hits = self.hits * keep + f32::from(u8::from(hit));
        self.trials = self.trials * keep + 1.0;
    }

    fn mean_or(&self, prior: f32) -> f32 {
        if self.trials == 0.0 { prior } else { self.hits / self.trials }
    }
}

/// One table of estimates.
#[derive(Clone, Debug, Default)]
pub struct Acceptance {
    cells: Vec<[[Cell; BUCKETS]; DEPTHS]>,
}

impl Acceptance {
    fn cell(&self, node: &Node, depth: usize) -> Cell {
        let index = (depth.max(1) - 1).min(DEPTHS - 1);
        self.cells.get(node.source.0 as usize).map_or(Cell::default(), |table| table[index][bucket(node.p)])
    }

    fn observe(&mut self, node: &Node, depth: usize, hit: bool, keep: f32, prior: f32) {
        let source = node.source.0 as usize;
        if self.cells.len() <= source {
            self.cells.resize(source + 1, Default::default());
        }
        let index = (depth.max(1) - 1).min(DEPTHS - 1);
        self.cells[source][index][bucket(node.p)].observe(hit, keep, prior);
    }
}

/// Quarters of the confidence.
fn bucket(p: f32) -> usize {
    ((p.clamp(0.0, 1.0) * BUCKETS as f32) as usize).min(BUCKETS - 1)
}

/// Estimates over all sequences: where a new sequence starts.
#[derive(Clone, Debug, Default)]
pub struct SharedAcceptance(Acceptance);

impl SharedAcceptance {
    /// About the last 100 trials count.
    const KEEP: f32 = 0.99;

    fn estimate(&self, node: &Node, depth: usize) -> f32 {
        self.0.cell(node, depth).mean_or(node.p)
    }
}

/// Estimates of one sequence, and the guess whose truth is not yet known to its end.
#[derive(Clone, Debug)]
pub struct SequenceAcceptance {
    own: Acceptance,
    /// A proposal that has come true down to `open`.
    tree: TokenTree,
    open: Option<NodeId>,
}

impl Default for SequenceAcceptance {
    fn default() -> Self {
        Self { own: Acceptance::default(), tree: TokenTree::new(&[0]), open: None }
    }
}

impl SequenceAcceptance {
    /// About the last 8 trials count: after 32 misses hardly any belief is left, and after a few hits it is back.
    const KEEP: f32 = 0.87;

    /// Estimated chance that `node`, `depth` below the anchor, comes true given its parent.
    pub fn estimate(&self, node: &Node, depth: usize, shared: &SharedAcceptance) -> f32 {
        self.own.cell(node, depth).mean_or(shared.estimate(node, depth))
    }

    /// Scores a proposal, made before these tokens came, and the open one from earlier passes.
    pub fn score(&mut self, proposal: &TokenTree, tokens: &[TokenId], shared: &mut SharedAcceptance) {
        let end = self.own.walk(proposal, proposal.anchor(), tokens, shared);
        match self.open {
            Some(node) => self.open = self.own.walk(&self.tree, node, tokens, shared),
            None if end.is_some() => {
                self.tree.copy_from(proposal);
                self.open = end;
            }
            None => {}
        }
    }
}

impl Acceptance {
    /// Follows the tokens down the tree; returns the node where they end while guesses hang below it.
    fn walk(
        &mut self,
        tree: &TokenTree,
        mut node: NodeId,
        tokens: &[TokenId],
        shared: &mut SharedAcceptance,
    ) -> Option<NodeId> {
        let anchor_depth = tree.nodes()[tree.anchor()].depth;
        for &token in tokens {
            let mut next = None;
            for child in tree.children(node) {
                let guess = &tree.nodes()[child];
                let depth = (guess.depth - anchor_depth) as usize;
                let hit = guess.token == token;
                self.observe(guess, depth, hit, SequenceAcceptance::KEEP, shared.estimate(guess, depth));
                shared.0.observe(guess, depth, hit, SharedAcceptance::KEEP, guess.p);
                next = if hit { Some(child) } else { next };
            }
            node = next?;
        }
        tree.children(node).next().map(|_| node)
    }
}

/// The drafter's index in a source.
pub fn source_of(drafter: usize) -> Source {
    Source(u8::try_from(drafter + 1).expect("fewer than 255 drafters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_scored_while_their_parents_come_true_over_several_passes() {
        // 1 - 2 - 3 - 4 below the anchor; 1 and 2 come true, 3 does not, and nothing is known of 4.
        let mut tree = TokenTree::new(&[0]);
        let mut node = 0;
        for token in 1..=4 {
            node = tree.push(node, token, source_of(0), 0.6);
        }
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        own.score(&tree, &[1], &mut shared);
        let empty = TokenTree::new(&[1]);
        own.score(&empty, &[2, 9], &mut shared);
        own.score(&empty, &[4], &mut shared);
        let estimate = |depth| own.estimate(&tree.nodes()[depth], depth, &shared);
        assert!(estimate(1) > 0.6 && estimate(2) > 0.6, "{} {}", estimate(1), estimate(2));
        assert!(estimate(3) < 0.6);
        assert_eq!(estimate(4), 0.6, "the drafter's own word");
        // Another sequence starts from what this one taught.
        let other = SequenceAcceptance::default();
        assert!(other.estimate(&tree.nodes()[1], 1, &shared) > 0.6);
    }

    #[test]
    fn belief_is_gone_after_32_misses_and_back_after_a_few_hits() {
        let mut tree = TokenTree::new(&[0]);
        tree.push(0, 1, source_of(0), 0.9);
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        (0..50).for_each(|_| own.score(&tree, &[1], &mut shared));
        let estimate = |own: &SequenceAcceptance, shared: &_| own.estimate(&tree.nodes()[1], 1, shared);
        assert!(estimate(&own, &shared) > 0.95);
        (0..32).for_each(|_| own.score(&tree, &[2], &mut shared));
        assert!(estimate(&own, &shared) < 0.03);
        (0..5).for_each(|_| own.score(&tree, &[1], &mut shared));
        assert!(estimate(&own, &shared) > 0.4);
    }
}
