//! A smaller model of the same vocabulary guesses what the target will say (Leviathan et al. 2023, arXiv 2211.17192;
//! Chen et al. 2023, arXiv 2302.01318).

use super::writer::{Reader, Writer};
use super::{Companion, Draft, Drafter, Observation, Retired, WriterOptions};
use crate::TokenId;
use crate::budget::DraftCost;
use crate::target::{SequenceId, Target};

/// Drafts with a second model, whose token ids mean what the target's mean.
pub struct DraftModel<M: Target> {
    name: &'static str,
    companion: Companion<M>,
    cost: DraftCost,
    writer: Writer,
}

impl<M: Target> DraftModel<M> {
    /// A drafter of this name; `cost` is a first guess of what it takes.
    pub fn new(name: &'static str, companion: Companion<M>, cost: DraftCost, options: WriterOptions) -> Self {
        Self { name, companion, cost, writer: Writer::new(options) }
    }
}

impl<T: Target, M: Target + Send> Drafter<T> for DraftModel<M>
where
    M::Cache: Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let wanted = drafts.iter().enumerate().filter(|(_, draft)| Writer::wants(draft));
        let followed = wanted.filter(|(_, draft)| self.companion.set_text(draft.sequence, draft.scope, draft.tokens));
        let which = followed.map(|(index, _)| index).collect();
        self.writer.write(drafts, which, &mut self.companion);
    }

    fn cost(&self) -> DraftCost {
        self.cost
    }

    fn lag(&self, sequence: SequenceId, n_tokens: usize) -> usize {
        self.companion.lag(sequence, n_tokens)
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        // Rolls back what did not come, and keeps what did.
        for Observation { sequence, scope, tokens, .. } in seen {
            self.companion.set_text(*sequence, *scope, tokens);
        }
    }

    fn retired(&self) -> &[Retired] {
        self.companion.retired()
    }

    fn bytes(&self) -> usize {
        self.companion.bytes()
    }

    fn unlearn(&mut self) {
        self.companion.unlearn();
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.companion.forget(sequence);
    }
}

impl<M: Target> Reader for Companion<M> {
    fn run(&mut self, sequences: &[SequenceId], each: impl FnMut(usize, &[f32])) {
        self.run(sequences, each);
    }

    fn append(&mut self, sequence: SequenceId, token: TokenId) -> bool {
        self.append(sequence, token)
    }
}
