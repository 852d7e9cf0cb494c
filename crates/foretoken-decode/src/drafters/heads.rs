//! Asks a target's prediction heads about the texts that are drafted for.
//!
//! The heads start from the hidden state of the last row kept, which the pass that decided the text has left behind: so the
//! guesses for a pass come from the pass before, and drafting costs the heads alone.

use std::collections::HashMap;

use super::{Draft, Observation};
use crate::sampler::Candidate;
use crate::target::{Cache, Heads, SequenceId};

/// Tokens of a head that are looked at: at any usual temperature the draw is hardly ever outside of them.
const CANDIDATES: usize = 16;

/// By head: its likeliest tokens, best first.
pub(super) type Said = Vec<Vec<Candidate>>;

/// What the heads start from, and what they said last.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    texts: HashMap<SequenceId, Text>,
    /// `[rows][hidden_size]`, what heads are asked about.
    hidden: Vec<f32>,
}

#[derive(Debug, Default)]
struct Text {
    /// Of the last row kept.
    hidden: Vec<f32>,
    /// Tokens of the text when the heads were asked.
    asked_at: usize,
    said: Said,
}

impl HeadReader {
    /// Asks as many heads about every text that has had a pass as `depth` says and the limits allow. Where the request's
    /// acceptor judges samples, the draft becomes a chain of samples, one of each head. Texts whose rows are gone, all but
    /// the last token's, are left out.
    pub fn ask<T: Heads>(
        &mut self,
        drafts: &mut [Draft<'_>],
        target: &mut T,
        cache: &mut T::Cache,
        depth: impl Fn(&Draft<'_>) -> usize,
    ) {
        let Self { texts, hidden } = self;
        hidden.clear();
        let (mut rows, mut sequences) = (Vec::new(), Vec::new());
        for (index, draft) in drafts.iter().enumerate() {
            let most = draft.limits.max_depth.min(draft.limits.max_nodes).min(target.n_heads());
            let depth = depth(draft).min(most);
            if depth > 0
                && cache.committed(draft.sequence) + 1 == draft.tokens.len()
                && let Some(text) = texts.get(&draft.sequence)
            {
                hidden.extend_from_slice(&text.hidden);
                sequences.push(draft.sequence);
                rows.push((index, depth));
            }
        }
        let Some(n_heads) = rows.iter().map(|&(_, depth)| depth).max() else { return };
        let scores = target.score(cache, n_heads, &sequences, hidden);
        for (row, &(index, depth)) in rows.iter().enumerate() {
            let draft = &mut drafts[index];
            let n = draft.limits.vocab_size;
            let heads = (0..depth).map(|head| &scores[(head * rows.len() + row) * n..][..n]);
            if draft.takes_samples() {
                chain(heads, draft);
                continue;
            }
            let text = texts.get_mut(&draft.sequence).expect("it was found above");
            text.asked_at = draft.tokens.len();
            text.said.resize_with(depth, Vec::new);
            for (likeliest, scores) in text.said.iter_mut().zip(heads) {
                draft.draw.likeliest(scores, CANDIDATES, likeliest);
            }
        }
    }

    /// What the heads said when the text had `n_tokens`, by how far they look; nothing if they were not asked then.
    pub fn said(&self, sequence: SequenceId, n_tokens: usize) -> &[Vec<Candidate>] {
        let text = self.texts.get(&sequence).filter(|text| text.asked_at == n_tokens);
        text.map_or(&[], |text| &text.said)
    }

    /// Keeps the hidden state that the next guesses start from. Passes that decided nothing are of no use.
    pub fn keep(&mut self, seen: &Observation<'_>) {
        let n_new = seen.verdict.tokens.len();
        if n_new == 0 {
            return;
        }
        let path = &seen.verdict.path;
        let last = path[path.len().min(seen.tree.anchor() + n_new) - 1];
        let text = self.texts.entry(seen.sequence).or_default();
        text.hidden.clear();
        text.hidden.extend_from_slice(seen.rows.hidden(last));
    }

    /// The sequence is over.
    pub fn forget(&mut self, sequence: SequenceId) {
        self.texts.remove(&sequence);
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        let of = |text: &Text| text.hidden.len() * 4 + text.said.len() * CANDIDATES * size_of::<Candidate>();
        self.texts.values().map(of).sum()
    }
}

/// One guess for each head, sampled from the head's own distribution.
fn chain<'a>(heads: impl Iterator<Item = &'a [f32]>, draft: &mut Draft<'_>) {
    let mut node = draft.tree.anchor();
    for scores in heads {
        let Ok(token) = draft.sample(node, scores) else { return };
        node = draft.push(node, token, 0.5);
    }
}
