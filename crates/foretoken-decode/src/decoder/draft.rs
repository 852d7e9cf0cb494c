//! Who is asked for guesses, and which guesses are run.

use std::mem;

use super::Decoder;
use super::buffers::emptied;
use crate::budget::{Base, Bid, Budget, Candidate, PassShape, Weighed, Worth, merge, source_of};
use crate::clock::Clock;
use crate::drafters::{Draft, Limits};
use crate::generation::Detokenize;
use crate::request::DraftPolicy;
use crate::sequence::Sequence;
use crate::target::Target;
use crate::trace::Drafting;

impl<T: Target, D: Detokenize, C: Clock> Decoder<T, D, C> {
    /// Asks the drafters and merges what can be used into each sequence's proposal: first those whose drafting takes next
    /// to no time, then each other one if what it is expected to add is worth its time.
    pub(super) fn draft(&mut self) {
        let quick = self.budget.cost.table().trunk(1) * Self::QUICK;
        for seat in &mut self.seats {
            (seat.spent, seat.predicted) = (Drafting::default(), 0.0);
            seat.quick = seat.cost.cost().seconds(1, 0) <= quick;
        }
        for index in 0..self.seats.len() {
            if self.seats[index].quick && self.wanted(index) {
                self.ask(index, None);
            }
        }
        if (0..self.seats.len()).any(|index| !self.seats[index].quick && self.wanted(index)) {
            self.remember_promises();
            for index in 0..self.seats.len() {
                if !self.seats[index].quick && self.wanted(index) {
                    self.ask_if_worth_it(index);
                }
            }
        }
    }

    /// Notes what the guesses so far promise each sequence, to see later how much of it was kept.
    fn remember_promises(&mut self) {
        let base = self.base();
        let best = self.with_bids(base, Budget::weigh).0.best.guesses;
        let Self { sequences, budget, buffers, .. } = self;
        for &(bid, node) in &budget.chosen()[..best] {
            let Sequence { promises, proposal, .. } = &mut sequences[buffers.bidders[bid]];
            promises.note(proposal, node);
        }
    }

    fn wanted(&self, drafter: usize) -> bool {
        self.sequences.iter().any(|s| s.drafts_wanted(drafter))
    }

    /// Share of a pass of one row that drafting may take without being weighed.
    const QUICK: f64 = 0.01;
    /// Share of the time spent on passes that goes into asking drafters which do not seem to pay.
    const PROBING: f64 = 0.005;

    /// Asks a drafter whose drafting takes time, no deeper than pays. Requests of a fixed width get it in any case.
    fn ask_if_worth_it(&mut self, index: usize) {
        let by_budget = |s: &&Sequence| s.policy == DraftPolicy::Budget && s.drafts_wanted(index) && s.has_begun();
        let base = self.base();
        let weighed = self.with_bids(base, Budget::weigh).0;
        let doubted = self.sequences.iter().filter(by_budget).map(|s| s.promises.doubted()).sum();
        let so_far = weighed.best.without(doubted).or_better(weighed.plain);
        let Self { seats, sequences, budget, target, buffers, .. } = self;
        let seat = &mut seats[index];
        let mut candidates: Vec<Candidate<'_>> = emptied(mem::take(&mut buffers.candidates));
        candidates.extend(sequences.iter().filter(by_budget).map(|s| Candidate {
            acceptance: &s.acceptance,
            context: s.tokens.len(),
            lag: seat.drafter.lag(s.sequence, s.tokens.len()),
            left: s.generation.left(),
            to_come: budget.lengths.to_come(s.generation.written()),
            pays: s.paid[index].mean(),
        }));
        let cost = seat.cost.cost();
        let what = (cost, seat.drafter.stops_early(target));
        let mut worth = budget.worth(&candidates, source_of(index), what, base, so_far);
        if worth.depth == 0 && !candidates.is_empty() {
            let lag = candidates.iter().map(|c| c.lag).sum();
            seat.probing += so_far.seconds * Self::PROBING;
            if seat.probing >= cost.seconds(2, lag) {
                (seat.probing, worth.depth) = (0.0, 2);
            }
        }
        buffers.candidates = emptied(candidates);
        sequences
            .iter_mut()
            .filter(|s| by_budget(&&**s))
            .for_each(|s| s.paid[index].observe(worth.pays, Sequence::KEEP_PAID));
        self.ask(index, Some(worth));
    }

    /// Asks one drafter; for sequences under the budget only as far as it is worth it.
    fn ask(&mut self, index: usize, worth: Option<Worth>) {
        let vocab_size = self.target.vocab_size();
        let max_draft = self.options.max_draft;
        let limits = |s: &Sequence| {
            let limits = s.limits(max_draft, vocab_size);
            match (s.policy, worth) {
                // Catching up with a prompt must not keep its first token waiting.
                (DraftPolicy::Budget, Some(_)) if !s.has_begun() => Limits { max_depth: 0, ..limits },
                (DraftPolicy::Budget, Some(Worth { depth, min_path_p, .. })) => {
                    Limits { max_depth: limits.max_depth.min(depth), min_path_p, ..limits }
                }
                _ => limits,
            }
        };
        let asked = |s: &Sequence| s.drafts_wanted(index) && limits(s).max_depth > 0;
        let Self { seats, sequences, budget, target, cache, scratch, clock, map, buffers, .. } = self;
        let seat = &mut seats[index];
        let mut lag = 0;
        let mut drafts: Vec<Draft<'_>> = emptied(mem::take(&mut buffers.drafts));
        drafts.extend((sequences.iter_mut()).filter(|s| asked(s)).map(|s| {
            lag += seat.drafter.lag(s.sequence, s.tokens.len());
            let limits = limits(s);
            s.draft(index, limits, &budget.shared, scratch)
        }));
        if drafts.is_empty() {
            buffers.drafts = emptied(drafts);
            return;
        }
        let begun = clock.now();
        seat.drafter.propose(&mut drafts, target, cache);
        let time = clock.now().saturating_sub(begun);
        let depth = drafts.iter().map(|draft| deepest(draft)).max().unwrap_or(0);
        buffers.drafts = emptied(drafts);
        seat.spent = Drafting { time, depth, lag };
        seat.predicted = seat.cost.cost().seconds(depth, lag);
        seat.cost.observe(depth, lag, time.as_secs_f64());
        let stats = &mut seat.stats;
        stats.retired.clear();
        stats.retired.extend_from_slice(seat.drafter.retired());
        for sequence in sequences.iter_mut().filter(|s| asked(s)) {
            let limits = limits(sequence);
            stats.proposed += sequence.drafts[index].len() - 1;
            let forbidden = sequence.cut_forbidden(index);
            stats.forbidden += forbidden;
            sequence.forbidden += forbidden;
            let Sequence { drafts, proposal, generation, acceptance, policy, .. } = sequence;
            // A width of one's own is filled in the order that the drafters themselves give.
            let by_budget = *policy == DraftPolicy::Budget;
            let estimate = |guess: &_, depth| match by_budget {
                true => acceptance.estimate(guess, depth, &budget.shared),
                false => guess.p,
            };
            let cuts = merge(proposal, &drafts[index], limits, |t| generation.ends(t), estimate, map);
            stats.nonsense += cuts.nonsense;
            stats.over_limit += cuts.over_limit;
        }
    }

    /// Lets the budget choose which guesses are run.
    pub(super) fn choose(&mut self) -> Weighed {
        let base = self.base();
        let weighed = self.with_bids(base, Budget::choose);
        let Self { sequences, budget, buffers, .. } = self;
        for &(bid, node) in budget.chosen() {
            sequences[buffers.bidders[bid]].run_guess(node);
        }
        weighed
    }

    /// Shows the budget the bids of all sequences of the batch that have guesses to choose from, in the order of
    /// `buffers.bidders`, and the most guesses of the pass.
    fn with_bids<R>(&mut self, base: Base, ask: impl FnOnce(&mut Budget, &[Bid<'_>], Base, usize) -> R) -> R {
        let Self { batch, sequences, budget, buffers, options, .. } = self;
        let bidding = |s: &Sequence| s.proposal.len() > 1 && s.more_wanted();
        buffers.bidders.clear();
        buffers.bidders.extend(batch.iter().copied().filter(|&i| bidding(&sequences[i])));
        let mut bids: Vec<Bid<'_>> = mem::take(&mut buffers.bids);
        bids.extend(buffers.bidders.iter().map(|&i| sequences[i].bid()));
        let room = (options.max_rows - base.shape.rows).min(options.max_draft * bids.len());
        let said = ask(budget, &bids, base, room);
        buffers.bids = emptied(bids);
        said
    }

    /// What the pass runs and brings without guesses.
    fn base(&self) -> Base {
        let shape = self.shape();
        let mut drawing = PassShape::default();
        for sequence in self.batch.iter().map(|&i| &self.sequences[i]).filter(|s| s.decides()) {
            drawing = drawing.with_guesses(1, sequence.tokens.len());
        }
        let table = self.budget.cost.table();
        let prompts = match drawing.rows {
            0 => 0.0,
            _ => (table.seconds(shape) - table.seconds(drawing)).max(0.0),
        };
        Base { shape, tokens: drawing.rows, prompts }
    }
}

/// Depth of a draft's deepest guess.
fn deepest(draft: &Draft<'_>) -> usize {
    let anchor = draft.tree.nodes()[draft.tree.anchor()].depth;
    let deepest = draft.tree.nodes().iter().map(|node| node.depth).max().unwrap_or(anchor);
    (deepest - anchor) as usize
}

impl Sequence {
    /// Whether guesses can be used: its last token is in this pass, and more than one token may still come.
    fn more_wanted(&self) -> bool {
        self.policy != DraftPolicy::Off && self.decides() && self.generation.left() > 1
    }

    /// Whether a token has come.
    fn has_begun(&self) -> bool {
        self.generation.written() > 0
    }

    /// Whether this drafter is asked.
    fn drafts_wanted(&self, drafter: usize) -> bool {
        self.asks[drafter] && self.more_wanted()
    }

    fn bid(&self) -> Bid<'_> {
        Bid { proposal: &self.proposal, policy: self.policy, context: self.tokens.len() }
    }
}
