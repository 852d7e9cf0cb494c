//! The parts of a step around the pass: which rows, which guesses, what to report.

use std::time::Duration;

use super::{Decoder, Event};
use crate::budget::PassShape;
use crate::clock::Clock;
use crate::generation::Detokenize;
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

    /// What the pass runs as planned so far.
    pub(super) fn shape(&self) -> PassShape {
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
        let predicted = self.budget.cost.table().seconds(shape) + self.seats.iter().map(|s| s.predicted).sum::<f64>();
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
                draft_by: self.seats.iter().map(|seat| seat.spent).collect(),
                verify,
                rest,
                predicted: Duration::from_secs_f64(predicted),
                why: self.why.clone(),
                sequences,
            });
        }
    }

    /// One event for each sequence of the pass; sequences that ended leave.
    pub(super) fn deliver(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        for &index in &self.batch {
            let sequence = &self.sequences[index];
            sink(sequence.event(self.cache.committed(sequence.sequence), self.why.as_deref()));
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
            sink(sequence.event(self.cache.committed(sequence.sequence), None));
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
    fn event<'a>(&'a self, cached: usize, why: Option<&'a str>) -> Event<'a> {
        Event {
            request: self.id,
            tokens: &self.verdict.tokens,
            sources: &self.sources,
            text: &self.generation.text,
            logprobs: &self.verdict.logprobs,
            stats: &self.stats,
            cached,
            finish: self.finish.as_ref(),
            why,
            kept: (self.finish.is_some() && self.keep_cache).then_some(self.sequence),
        }
    }

    /// Delivers what was held back, and nothing new.
    fn end_without_pass(&mut self) {
        self.generation.flush();
        self.verdict.clear();
        self.sources.clear();
    }
}
