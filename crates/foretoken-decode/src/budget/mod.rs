//! How many rows to spend on guesses: the next row goes where it is likeliest to be right for its cost, over the whole
//! batch, as long as the expected tokens per second rise.

mod acceptance;
mod cost;
mod merge;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(crate) use acceptance::source_of;
pub use acceptance::{SequenceAcceptance, SharedAcceptance};
pub use cost::{CostModel, CostTable, PassShape, Prior};
pub(crate) use merge::merge;

use crate::request::DraftPolicy;
use crate::tree::{NodeId, TokenTree};

/// One sequence's proposal, to be trimmed.
pub(crate) struct Bid<'a> {
    /// Anchor and guesses.
    pub proposal: &'a TokenTree,
    /// What is known about its drafters' guesses on this text.
    pub acceptance: &'a SequenceAcceptance,
    /// How the request wants to be drafted for.
    pub policy: DraftPolicy,
    /// Tokens up to the anchor.
    pub context: usize,
}

/// A guess that could be the next row.
#[derive(Clone, Copy, Debug)]
struct Offer {
    value: f64,
    p: f64,
    bid: usize,
    node: NodeId,
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Offer {}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Offer {
    /// The greatest value first, then the older sequence, then the earlier guess.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_value = self.value.total_cmp(&other.value);
        by_value.then(other.bid.cmp(&self.bid)).then(other.node.cmp(&self.node))
    }
}

/// Chooses rows and remembers why.
#[derive(Debug)]
pub struct Budget {
    /// What passes cost.
    pub cost: CostModel,
    /// Acceptance over all sequences.
    pub shared: SharedAcceptance,
    offers: BinaryHeap<Offer>,
    chosen: Vec<(usize, NodeId)>,
}

impl Budget {
    /// More guesses have to promise at least this many times the rate of fewer: estimates are not that exact.
    const MARGIN: f64 = 1.01;

    /// A budget over a cost model.
    pub fn new(cost: CostModel) -> Self {
        Self { cost, shared: SharedAcceptance::default(), offers: BinaryHeap::new(), chosen: Vec::new() }
    }

    /// The guesses to run, `(bid, node)` with parents first, beside a pass of shape `base` that yields `base_tokens`
    /// tokens without any guess; at most `max_rows`.
    pub(crate) fn choose(
        &mut self,
        bids: &[Bid<'_>],
        base: PassShape,
        base_tokens: usize,
        max_rows: usize,
    ) -> &[(usize, NodeId)] {
        self.chosen.clear();
        self.choose_fixed_widths(bids, max_rows);
        let fixed = self.chosen.len();
        let context = self.chosen.iter().map(|&(bid, _)| bids[bid].context).sum::<usize>();
        let mut shape = base;
        shape.rows += fixed;
        shape.logits_rows += fixed;
        shape.context += context;

        self.offers.clear();
        for (index, bid) in bids.iter().enumerate().filter(|(_, bid)| bid.policy == DraftPolicy::Budget) {
            self.offer_children(bid, index, bid.proposal.anchor(), 1.0);
        }
        let mut expected = base_tokens as f64;
        let mut best_rate = expected / self.cost.table().seconds(shape);
        let mut best_len = fixed;
        let mut likely = fixed;
        // The table may rise in steps, so a row that does not pay may be followed by some that do: look at every number
        // of rows and keep the best.
        while self.chosen.len() < max_rows
            && let Some(offer) = self.offers.pop()
        {
            let bid = &bids[offer.bid];
            self.chosen.push((offer.bid, offer.node));
            expected += offer.p;
            shape.rows += 1;
            shape.logits_rows += 1;
            shape.context += bid.context;
            let rate = expected / self.cost.table().seconds(shape);
            if rate > best_rate * Self::MARGIN {
                (best_rate, best_len) = (rate, self.chosen.len());
            }
            likely = if offer.p >= 0.25 { self.chosen.len() } else { likely };
            self.offer_children(bid, offer.bid, offer.node, offer.p);
        }
        // The costs of no guess and of more guesses may be mere belief.
        let untried = [fixed].into_iter().chain(best_len + 1..=likely);
        let probe = untried.into_iter().find(|len| self.cost.wants_probe(base.rows + len));
        self.chosen.truncate(probe.unwrap_or(best_len));
        &self.chosen
    }

    /// Requests with a width of their own get it, whatever it costs.
    fn choose_fixed_widths(&mut self, bids: &[Bid<'_>], max_rows: usize) {
        for (index, bid) in bids.iter().enumerate() {
            let DraftPolicy::Width(width) = bid.policy else { continue };
            self.offers.clear();
            self.offer_children(bid, index, bid.proposal.anchor(), 1.0);
            let end = (self.chosen.len() + width).min(max_rows);
            while self.chosen.len() < end
                && let Some(offer) = self.offers.pop()
            {
                self.chosen.push((offer.bid, offer.node));
                self.offer_children(bid, index, offer.node, offer.p);
            }
        }
    }

    fn offer_children(&mut self, bid: &Bid<'_>, index: usize, parent: NodeId, p_parent: f64) {
        let table = self.cost.table();
        let row_cost = table.rows[0] / 8.0 + table.logits_row + table.context * bid.context as f64;
        let anchor_depth = bid.proposal.nodes()[bid.proposal.anchor()].depth;
        for node in bid.proposal.children(parent) {
            let guess = &bid.proposal.nodes()[node];
            let depth = (guess.depth - anchor_depth) as usize;
            let p = p_parent * f64::from(bid.acceptance.estimate(guess, depth, &self.shared));
            self.offers.push(Offer { value: p / row_cost, p, bid: index, node });
        }
    }
}
