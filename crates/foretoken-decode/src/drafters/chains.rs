//! Asks heads that each read the token before the one they score, one after another, and drafts what they say.
//!
//! Unlike heads that know nothing of each other, these give the chance of a token after the guesses before it, so a chain of
//! them does not fall apart where each alone is likely. Every guess costs a head's layer; runners-up cost none. The first
//! question about a text makes the heads read all of it, a later one what has come since.

use std::collections::HashMap;

use super::Draft;
use super::writer::{Tip, Writer};
use crate::TokenId;
use crate::target::{Cache, Heads, SequenceId};

/// Drafts with heads in sequence.
#[derive(Default)]
pub(super) struct HeadChains {
    writer: Writer,
    /// Tokens of each text when the heads were last asked about it.
    asked: HashMap<SequenceId, usize>,
    /// Whether the target has such heads, as far as is known.
    used: bool,
}

impl HeadChains {
    /// Adds guesses to every draft whose rows are there, no deeper than `depth` says.
    pub fn propose<T: Heads>(
        &mut self,
        drafts: &mut [Draft<'_>],
        target: &mut T,
        cache: &mut T::Cache,
        depth: impl Fn(&Draft<'_>) -> usize,
    ) {
        self.used = true;
        let depth = |draft: &Draft<'_>| depth(draft).min(draft.limits.max_depth).min(target.n_heads());
        let (mut tips, mut texts, mut most) = (Vec::new(), Vec::new(), 0);
        for (index, draft) in drafts.iter().enumerate() {
            let committed = cache.committed(draft.sequence);
            let depth = depth(draft);
            if depth > 0 && Writer::wants(draft) && committed > 0 && committed + 1 == draft.tokens.len() {
                tips.push((depth, Tip::start(index, draft)));
                texts.push((draft.sequence, draft.tokens));
                most = most.max(depth);
                self.asked.insert(draft.sequence, draft.tokens.len());
            }
        }
        let mut each = |text: usize, scores: &[f32]| -> Option<TokenId> {
            let (left, tip) = &mut tips[text];
            *left -= 1;
            *tip = self.writer.go_on(&mut drafts[tip.draft], tip, scores)?;
            (*left > 0).then_some(tip.token)
        };
        if !texts.is_empty() {
            target.follow(cache, most, &texts, &mut each);
        }
    }

    /// Tokens of a text that the heads have yet to read.
    pub fn lag(&self, sequence: SequenceId, n_tokens: usize) -> usize {
        let read = self.asked.get(&sequence).copied().unwrap_or(0);
        if self.used { n_tokens.saturating_sub(read) } else { 0 }
    }

    /// The sequence is over.
    pub fn forget(&mut self, sequence: SequenceId) {
        self.asked.remove(&sequence);
    }
}
