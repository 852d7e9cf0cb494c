//! The parts of a step after the pass: what it cost, what to report, what is kept.

use std::time::Duration;

use super::{Decoder, Event};
use crate::budget::PassShape;
use crate::clock::Clock;
use crate::generation::Detokenize;
use crate::request::FinishReason;
use crate::sequence::Sequence;
use crate::target::{Cache, Target, Want};
use crate::trace::PassTrace;

impl<T: Target, D: Detokenize, C: Clock> Decoder<T, D, C> {
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
                why: (!self.why.is_empty()).then(|| self.why.clone()),
                sequences,
            });
        }
    }

    /// One event for each sequence of the pass; sequences that ended leave.
    pub(super) fn deliver(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        let why = (!self.why.is_empty()).then_some(self.why.as_str());
        for &index in &self.batch {
            sink(self.sequences[index].event(why));
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
            sink(sequence.event(None));
        }
        self.remove_finished();
    }

    fn remove_finished(&mut self) {
        let Self { sequences, seats, budget, cache, kept, options, last_end, .. } = self;
        sequences.retain(|sequence| {
            let ended = sequence.finish.is_some();
            if ended {
                use FinishReason::{ContextFull, EndToken, Length, StopString};
                if let Some(EndToken(_) | StopString(_) | Length | ContextFull) = sequence.finish {
                    budget.lengths.observe(sequence.generation.written());
                }
                seats.iter_mut().for_each(|seat| seat.drafter.forget(sequence.sequence));
                match cache.committed(sequence.sequence) {
                    cached @ 1.. if sequence.reuse => {
                        let tokens = &sequence.tokens[..cached];
                        kept.keep(cache, sequence.scope, sequence.sequence, tokens, options.max_kept);
                    }
                    _ => cache.close(sequence.sequence),
                }
            }
            !ended
        });
        if sequences.is_empty() {
            // Until the next request comes nobody works, so that time is no pass's.
            *last_end = None;
        }
    }
}

impl Sequence {
    fn event<'a>(&'a self, why: Option<&'a str>) -> Event<'a> {
        Event {
            request: self.id,
            tokens: &self.verdict.tokens,
            sources: &self.sources,
            text: &self.generation.text,
            logprobs: &self.verdict.logprobs,
            stats: &self.stats,
            finish: self.finish.as_ref(),
            why,
        }
    }

    /// Delivers what was held back, and nothing new.
    fn end_without_pass(&mut self) {
        self.generation.flush();
        self.verdict.clear();
        self.sources.clear();
    }
}
