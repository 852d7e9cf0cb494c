//! The parts of a step around the pass: which rows, which guesses, what to report.

use std::time::Duration;

use super::{Decoder, Event};
use crate::budget::{Bid, PassShape, merge};
use crate::clock::Clock;
use crate::drafters::Draft;
use crate::generation::Detokenize;
use crate::request::DraftPolicy;
use crate::sequence::Sequence;
use crate::target::{Cache, Target, Want};
use crate::trace::PassTrace;

impl<T: Target, D: Detokenize, C: Clock> Decoder<T, D, C> {
    /// Fills the batch: sequences with one token to run first, then prompts as far as rows are left. False when there is
    /// nothing to run.
    pub(super) fn plan(&mut self) -> bool {
        if self.sequences.iter().all(|s| s.waiting)
            && let Some(oldest) = self.sequences.first_mut()
        {
            oldest.waiting = false;
        }
        self.batch.clear();
        self.sequences.iter_mut().for_each(Sequence::sit_out);
        let mut rows = self.options.max_rows;
        for prompts in [false, true] {
            for (index, sequence) in self.sequences.iter_mut().enumerate() {
                let cached = self.cache.committed(sequence.sequence);
                let is_prompt = sequence.tokens.len() - cached > 1;
                if sequence.waiting || is_prompt != prompts || rows == 0 {
                    continue;
                }
                sequence.plan(self.batch.len(), cached, rows);
                rows -= sequence.tree.len();
                self.batch.push(index);
            }
        }
        if self.batch.is_empty() {
            self.last_end = None;
        }
        !self.batch.is_empty()
    }

    /// Asks every drafter and merges what can be used into each sequence's proposal.
    pub(super) fn draft(&mut self) {
        let vocab_size = self.target.vocab_size();
        let max_draft = self.options.max_draft;
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let scratch = &self.scratch;
            let mut drafts: Vec<Draft<'_>> = (self.sequences.iter_mut())
                .filter(|s| s.drafts_wanted(index))
                .map(|s| s.draft(index, max_draft, vocab_size, scratch))
                .collect();
            if drafts.is_empty() {
                continue;
            }
            seat.drafter.propose(&mut drafts, &mut self.target, &mut self.cache);
            drop(drafts);
            let stats = &mut seat.stats;
            stats.retired.clear();
            stats.retired.extend_from_slice(seat.drafter.retired());
            for sequence in self.sequences.iter_mut().filter(|s| s.drafts_wanted(index)) {
                let limits = sequence.limits(max_draft, vocab_size);
                let Sequence { drafts, proposal, generation, .. } = sequence;
                let cuts = merge(proposal, &drafts[index], limits, |t| generation.ends(t), &mut self.map);
                stats.proposed += drafts[index].len() - 1;
                stats.nonsense += cuts.nonsense;
                stats.over_limit += cuts.over_limit;
            }
        }
    }

    /// Lets the budget choose which guesses are run.
    pub(super) fn choose(&mut self) {
        let base = self.shape();
        let bidding = |s: &Sequence| s.proposal.len() > 1 && s.more_wanted();
        let bidders: Vec<usize> = self.batch.iter().copied().filter(|&i| bidding(&self.sequences[i])).collect();
        if bidders.is_empty() {
            return;
        }
        let bids: Vec<Bid<'_>> = bidders.iter().map(|&i| self.sequences[i].bid()).collect();
        let base_tokens = self.batch.iter().filter(|&&i| self.sequences[i].decides()).count();
        let room = (self.options.max_rows - base.rows).min(self.options.max_draft * bids.len());
        let chosen = self.budget.choose(&bids, base, base_tokens, room);
        for &(bid, node) in chosen {
            self.sequences[bidders[bid]].run_guess(node);
        }
    }

    /// What the pass runs as planned so far.
    fn shape(&self) -> PassShape {
        let mut shape = PassShape::default();
        for sequence in self.batch.iter().map(|&i| &self.sequences[i]) {
            shape.rows += sequence.tree.len();
            shape.logits_rows += sequence.wants.iter().filter(|&&w| w == Want::Logits).count();
            shape.context += sequence.tree.nodes().iter().map(|n| sequence.start + n.depth as usize + 1).sum::<usize>();
        }
        shape
    }

    /// Learns what the pass cost and records it.
    pub(super) fn account(&mut self, begun: Duration, drafted: Duration, verified: Duration) {
        let shape = self.shape();
        let ended = self.clock.now();
        let verify = verified.saturating_sub(drafted);
        let draft = drafted.saturating_sub(begun);
        let whole = ended.saturating_sub(self.last_end.unwrap_or(begun));
        let rest = whole.saturating_sub(verify + draft);
        self.last_end = Some(ended);
        self.budget.cost.observe(shape, verify.as_secs_f64(), rest.as_secs_f64());
        if let Some(recorder) = &mut self.recorder {
            let sequences: Vec<_> = self.batch.iter().map(|&i| self.sequences[i].trace()).collect();
            recorder.pass(&PassTrace {
                shape,
                drafted: self
                    .batch
                    .iter()
                    .map(|&i| self.sequences[i].tree.len() - self.sequences[i].tree.given())
                    .sum(),
                accepted: sequences.iter().map(|s| s.tokens.len().saturating_sub(1)).sum(),
                draft,
                verify,
                rest,
                sequences,
            });
        }
    }

    /// One event for each sequence of the pass; sequences that ended leave.
    pub(super) fn deliver(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        for &index in &self.batch {
            let sequence = &self.sequences[index];
            sink(sequence.event(self.cache.committed(sequence.sequence)));
        }
        self.remove_finished();
    }

    /// Ends what was cancelled since the last step.
    pub(super) fn end_cancelled(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        if self.sequences.iter().any(|s| s.finish.is_some()) {
            self.sequences.iter_mut().filter(|s| s.finish.is_some()).for_each(Sequence::end_without_pass);
            self.deliver_finished(sink);
        }
    }

    /// Events of sequences that ended outside a pass.
    pub(super) fn deliver_finished(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        for sequence in self.sequences.iter().filter(|s| s.finish.is_some()) {
            sink(sequence.event(self.cache.committed(sequence.sequence)));
        }
        self.remove_finished();
    }

    fn remove_finished(&mut self) {
        let before = self.sequences.len();
        let Self { sequences, seats, cache, .. } = self;
        sequences.retain(|sequence| {
            let ended = sequence.finish.is_some();
            if ended {
                seats.iter_mut().for_each(|seat| seat.drafter.forget(sequence.sequence));
                if !sequence.keep_cache {
                    cache.close(sequence.sequence);
                }
            }
            !ended
        });
        // Its pages are free: let the oldest of those sent back try again.
        if sequences.len() < before
            && let Some(waiting) = sequences.iter_mut().find(|s| s.waiting)
        {
            waiting.waiting = false;
        }
    }
}

impl Sequence {
    /// Whether guesses can be used: its last token is in this pass, and more than one token may still come.
    fn more_wanted(&self) -> bool {
        self.policy != DraftPolicy::Off && self.decides() && self.generation.left() > 1
    }

    /// Whether this drafter is asked.
    fn drafts_wanted(&self, drafter: usize) -> bool {
        self.asks[drafter] && self.more_wanted()
    }

    fn bid(&self) -> Bid<'_> {
        Bid { proposal: &self.proposal, acceptance: &self.acceptance, policy: self.policy, context: self.tokens.len() }
    }

    fn event(&self, cached: usize) -> Event<'_> {
        Event {
            request: self.id,
            tokens: &self.verdict.tokens,
            text: &self.generation.text,
            logprobs: &self.verdict.logprobs,
            stats: &self.stats,
            cached,
            finish: self.finish.as_ref(),
            kept: (self.finish.is_some() && self.keep_cache).then_some(self.sequence),
        }
    }

    /// Delivers what was held back, and nothing new.
    fn end_without_pass(&mut self) {
        self.generation.flush();
        self.verdict.clear();
    }
}
