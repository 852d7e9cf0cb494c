//! How many rows to spend on guesses: the next row goes where it is likeliest to be right for its cost, over the whole
//! batch, as long as the expected tokens per second rise.

mod acceptance;
mod cost;
mod drafting;
mod lengths;
mod merge;
mod promises;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(crate) use acceptance::source_of;
pub use acceptance::{AcceptanceTable, SequenceAcceptance, SharedAcceptance, Trust};
pub use cost::{CostModel, CostTable, PassShape, Prior};
pub use drafting::{DraftCost, DraftCostModel};
pub(crate) use lengths::AnswerLengths;
pub(crate) use merge::merge;
pub(crate) use promises::Promises;

use crate::drafters::Limits;
use crate::request::DraftPolicy;
use crate::tree::{NodeId, Source, TokenTree};

/// One sequence's proposal, to be trimmed.
pub(crate) struct Bid<'a> {
    /// Anchor and guesses, each with the chance that it comes true given its parent.
    pub proposal: &'a TokenTree,
    /// How the request wants to be drafted for.
    pub policy: DraftPolicy,
    /// Tokens up to the anchor.
    pub context: usize,
}

/// One sequence that a drafter could be asked for.
pub(crate) struct Candidate<'a> {
    pub acceptance: &'a SequenceAcceptance,
    /// Tokens up to the anchor.
    pub context: usize,
    /// Tokens that the drafter would have to catch up with.
    pub lag: usize,
    /// Tokens that may still come.
    pub left: usize,
    /// Tokens that are expected to.
    pub to_come: f64,
    /// Share of passes in which the drafter pays, once it has caught up.
    pub pays: f32,
}

/// How far drafting pays where it takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Worth {
    /// Guesses on a path at most; 0: not worth asking.
    pub depth: usize,
    /// By guesses on a path so far: only below one as likely as this is one more worth its time.
    pub min_path_p: [f32; Limits::DEPTHS],
    /// Whether asking would pay if nothing were left to catch up with.
    pub pays: bool,
}

impl Candidate<'_> {
    /// Tokens that catching up with the text is spread over: those to come, without what others guess for no time.
    fn spread(&self) -> f64 {
        (self.to_come.min(self.left as f64) * f64::from(self.pays)).max(1.0)
    }
}

/// What a pass runs and brings without any guess.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    /// Its rows.
    pub shape: PassShape,
    /// Its tokens, one for each sequence that draws.
    pub tokens: usize,
    /// Seconds that rows of prompts add. They are spent in any case, so guesses are weighed without them: beside a long
    /// prompt any guess would look cheap.
    pub prompts: f64,
}

/// What a pass is expected to bring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Promise {
    /// Guesses run.
    pub guesses: usize,
    /// Tokens, with the one of each sequence that no guess brings.
    pub tokens: f64,
    /// Seconds of the pass, without drafting and prompts.
    pub seconds: f64,
}

impl Promise {
    fn rate(&self) -> f64 {
        self.tokens / self.seconds
    }

    /// The same guesses in the same time, for fewer tokens.
    pub(crate) fn without(self, tokens: f64) -> Self {
        Self { tokens: self.tokens - tokens, ..self }
    }

    /// The better one.
    pub(crate) fn or_better(self, other: Self) -> Self {
        if other.rate() > self.rate() { other } else { self }
    }
}

/// What was weighed for a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weighed {
    /// Without guesses that are a matter of choice.
    pub plain: Promise,
    /// What was chosen.
    pub best: Promise,
    /// With every guess proposed, or as many as were looked at.
    pub all: Promise,
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
    /// Answers that have ended.
    pub(crate) lengths: AnswerLengths,
    offers: BinaryHeap<Offer>,
    chosen: Vec<(usize, NodeId)>,
}

impl Budget {
    /// More guesses have to promise at least this many times the rate of fewer: estimates are not that exact.
    const MARGIN: f64 = 1.01;
    /// Depths looked at for a drafter whose drafting takes time.
    const DRAFT_DEPTH: usize = Limits::DEPTHS;

    /// A budget over a cost model.
    pub fn new(cost: CostModel) -> Self {
        let (shared, lengths) = Default::default();
        Self { cost, shared, lengths, offers: BinaryHeap::new(), chosen: Vec::new() }
    }

    /// Chooses the guesses to run beside what is run in any case; at most `max_rows`.
    pub(crate) fn choose(&mut self, bids: &[Bid<'_>], base: Base, max_rows: usize) -> Weighed {
        let (weighed, likely) = self.weigh(bids, base, max_rows);
        // The costs of no guess and of more guesses may be mere belief.
        let untried = [weighed.plain.guesses].into_iter().chain(weighed.best.guesses + 1..=likely);
        let probe = untried.into_iter().find(|len| self.cost.wants_probe(base.shape.rows + len));
        self.chosen.truncate(probe.unwrap_or(weighed.best.guesses));
        weighed
    }

    /// The guesses chosen, `(bid, node)` with parents first.
    pub(crate) fn chosen(&self) -> &[(usize, NodeId)] {
        &self.chosen
    }

    /// What the proposals so far promise; leaves every guess looked at in `chosen`, the likeliest first. Also how many of
    /// them are not unlikely.
    pub(crate) fn weigh(&mut self, bids: &[Bid<'_>], base: Base, max_rows: usize) -> (Weighed, usize) {
        self.chosen.clear();
        self.choose_fixed_widths(bids, max_rows);
        let fixed = self.chosen.len();
        let context = self.chosen.iter().map(|&(bid, _)| bids[bid].context).sum::<usize>();
        let mut shape = base.shape.with_guesses(fixed, context);

        self.offers.clear();
        for (index, bid) in bids.iter().enumerate().filter(|(_, bid)| bid.policy == DraftPolicy::Budget) {
            self.offer_children(bid, index, bid.proposal.anchor(), 1.0);
        }
        let tokens = base.tokens as f64;
        let plain = Promise { guesses: fixed, tokens, seconds: self.cost.table().seconds(shape) - base.prompts };
        let mut weighed = Weighed { plain, best: plain, all: plain };
        let mut likely = fixed;
        // The table may rise in steps, so a row that does not pay may be followed by some that do: look at every number
        // of rows and keep the best.
        while self.chosen.len() < max_rows
            && let Some(offer) = self.offers.pop()
        {
            let bid = &bids[offer.bid];
            self.chosen.push((offer.bid, offer.node));
            shape = shape.with_guesses(1, bid.context);
            weighed.all = Promise {
                guesses: self.chosen.len(),
                tokens: weighed.all.tokens + offer.p,
                seconds: self.cost.table().seconds(shape) - base.prompts,
            };
            if weighed.all.rate() > weighed.best.rate() * Self::MARGIN {
                weighed.best = weighed.all;
            }
            likely = if offer.p >= 0.25 { self.chosen.len() } else { likely };
            self.offer_children(bid, offer.bid, offer.node, offer.p);
        }
        (weighed, likely)
    }

    /// Whether a drafter whose drafting takes time should be asked for these sequences, when the pass promises `so_far`
    /// without it, and how far it should draft.
    ///
    /// It is asked when drafting to some fixed depth promises more tokens per second, and that deep. If it `stops` where it is
    /// told to, it drafts as deep as it is sure instead: time is worth the tokens per second that can be had, so the next
    /// guess, which only counts if its path and itself come true, has to be likely enough to bring more than that in the
    /// time it takes.
    pub(crate) fn worth(
        &self,
        candidates: &[Candidate<'_>],
        source: Source,
        (cost, stops): (DraftCost, bool),
        base: Base,
        so_far: Promise,
    ) -> Worth {
        let bar = so_far.rate() * Self::MARGIN;
        let (mut best, mut pays) = ((bar, 0), false);
        for depth in 1..=Self::DRAFT_DEPTH {
            let mut promise = Promise { guesses: 0, tokens: base.tokens as f64, seconds: -base.prompts };
            let (mut shape, mut catching_up) = (base.shape, 0.0);
            for candidate in candidates {
                let depth = depth.min(candidate.left.saturating_sub(1));
                let gain = candidate.acceptance.expected(source, depth, &self.shared);
                let share = (1.0 + gain) / candidate.spread();
                promise.tokens += gain;
                catching_up += cost.lag * candidate.lag as f64 * share.min(1.0);
                shape = shape.with_guesses(depth, candidate.context * depth);
            }
            promise.seconds += self.cost.table().seconds(shape) + cost.seconds(depth, 0);
            pays |= promise.rate() > bar;
            promise.seconds += catching_up;
            if promise.rate() > best.0 {
                best = (promise.rate(), depth);
            }
        }
        let (rate, depth) = best;
        if depth == 0 || !stops {
            return Worth { depth, pays, ..Worth::default() };
        }
        let chances = candidates.iter().map(|candidate| candidate.acceptance.expected(source, 1, &self.shared));
        let chance = (chances.sum::<f64>() / candidates.len() as f64).max(f64::MIN_POSITIVE);
        let seconds = std::array::from_fn::<_, { Self::DRAFT_DEPTH + 1 }, _>(|depth| {
            let guesses = depth * candidates.len();
            let contexts = candidates.iter().map(|candidate| candidate.context * depth).sum();
            self.cost.table().seconds(base.shape.with_guesses(guesses, contexts)) + cost.seconds(depth, 0)
        });
        let min_path_p = std::array::from_fn(|before| {
            let done = before + 1;
            let per_guess = |depth: usize| (seconds[depth] - seconds[done]) / (depth - done) as f64;
            // A row that is dear may be followed by some that are not.
            let ahead = (done + 1..=Self::DRAFT_DEPTH).map(per_guess);
            let one_more = ahead.fold(f64::INFINITY, f64::min) / candidates.len() as f64;
            (rate * one_more / chance).clamp(0.0, 1.0) as f32
        });
        Worth { depth: Self::DRAFT_DEPTH, min_path_p, pays }
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
        for node in bid.proposal.children(parent) {
            let p = p_parent * f64::from(bid.proposal.nodes()[node].p);
            self.offers.push(Offer { value: p / row_cost, p, bid: index, node });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What a drafter that takes 5 ms a guess and 1.5 ms for a token it is behind is worth, where a pass takes 25 ms whatever
    /// its rows.
    fn worth(lag: usize, written: usize, pays: f32, stops: bool) -> Worth {
        worth_by(vec![0.025; 16], lag, written, pays, stops)
    }

    /// The same where passes of one row and more take these seconds.
    fn worth_by(rows: Vec<f64>, lag: usize, written: usize, pays: f32, stops: bool) -> Worth {
        let table = CostTable { rows, logits_row: 0.0, context: 0.0, overhead: 0.0, draft: BTreeMap::new() };
        let budget = Budget::new(CostModel::fixed(table));
        let acceptance = SequenceAcceptance::default();
        let to_come = budget.lengths.to_come(written);
        let candidate = Candidate { acceptance: &acceptance, context: 300, lag, left: 1000, to_come, pays };
        let shape = PassShape { rows: 1, logits_rows: 1, context: 300 };
        let base = Base { shape, tokens: 1, prompts: 0.0 };
        let so_far = Promise { guesses: 0, tokens: 1.0, seconds: 0.025 };
        let cost = DraftCost { call: 0.0, depth: 0.005, lag: 0.0015 };
        budget.worth(&[candidate], Source(1), (cost, stops), base, so_far)
    }

    /// How deep it drafts, at most.
    fn depth(lag: usize, written: usize, pays: f32) -> usize {
        worth(lag, written, pays, true).depth
    }

    #[test]
    fn who_cannot_stop_is_asked_for_as_much_as_pays_for_certain() {
        // 1 + .75 + .75^2 + ... tokens in 25 ms and 5 ms a guess: most a second with three.
        assert_eq!(worth(0, 0, 1.0, false), Worth { depth: 3, pays: true, ..Worth::default() });
        let stops = worth(0, 0, 1.0, true);
        assert!(stops.depth > 3 && stops.min_path_p[0] > 0.1, "{stops:?}");
    }

    #[test]
    fn the_more_the_next_row_takes_the_surer_its_guess_has_to_be() {
        // Guesses share the first four rows' time; each one after them takes 2 ms more, but the last two are free.
        let rows = [0.025, 0.025, 0.025, 0.025, 0.027, 0.029, 0.031, 0.031, 0.031];
        let Worth { min_path_p, .. } = worth_by(rows.to_vec(), 0, 0, 1.0, true);
        // Seconds a guess from there on, at best.
        let seconds = [0.005, 0.005, 0.031 / 5.0, 0.024 / 4.0, 0.017 / 3.0, 0.005, 0.005];
        for (p, seconds) in min_path_p.iter().zip(seconds) {
            assert!((p / min_path_p[0] - seconds / 0.005).abs() < 0.01, "{min_path_p:?}");
        }
        assert_eq!(min_path_p[Limits::DEPTHS - 1], 1.0);
    }

    #[test]
    fn catching_up_pays_for_answers_that_will_be_long_enough() {
        assert!(depth(0, 0, 1.0) > 0, "nothing to catch up with");
        assert_eq!(depth(1000, 10, 1.0), 0, "the answer may end soon");
        assert!(depth(1000, 500, 1.0) > 0, "it has gone on for long");
        assert_eq!(depth(1000, 500, 0.2), 0, "others guess most of it without taking time");
        assert!(depth(0, 500, 0.2) > 0, "where they do not, it pays");
    }
}
