//! Writes drafts with a model: chains for many sequences at once, one pass of the model for each depth.
//!
//! A guess is drawn with the target's own processors and noise over the model's logits. The runner-up hangs beside it where
//! that is likely too: a sibling costs a row of the target and none of the model.

use foretoken_kernels::{Isa, ops};

use super::Draft;
use crate::TokenId;
use crate::target::SequenceId;
use crate::tree::NodeId;

/// How far to draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriterOptions {
    /// Most guesses on a path.
    pub max_depth: usize,
    /// A path less likely than this, by the model's own word, is not drafted on.
    pub min_path_p: f32,
    /// A runner-up whose path is at least this likely becomes a sibling.
    pub min_sibling_p: f32,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { max_depth: 8, min_path_p: 0.1, min_sibling_p: 0.1 }
    }
}

/// A model that stands at the end of several texts.
pub(super) trait Reader {
    /// Calls `each(i, logits)` for what follows the text of `sequences[i]`; not for those that cannot be run.
    fn run(&mut self, sequences: &[SequenceId], each: impl FnMut(usize, &[f32]));

    /// Reads on in one text; false when the token cannot be run.
    fn append(&mut self, sequence: SequenceId, token: TokenId) -> bool;
}

/// The end of a draft that may go on.
pub(super) struct Tip {
    /// Which draft.
    pub draft: usize,
    node: NodeId,
    /// Guesses before it.
    depth: usize,
    /// Of the whole path, by the model's own word.
    p: f32,
    /// Of the whole path, by what that word has been worth.
    chance: f32,
    /// The guess at `node`.
    pub token: TokenId,
}

impl Tip {
    /// The end of a text.
    pub fn start(index: usize, draft: &Draft<'_>) -> Self {
        Self { draft: index, node: draft.tree.anchor(), depth: 0, p: 1.0, chance: 1.0, token: 0 }
    }
}

/// Turns logits into guesses; its buffers.
pub(super) struct Writer {
    pub options: WriterOptions,
    isa: Isa,
    scores: Vec<f32>,
    z: Vec<f32>,
    best: Vec<TokenId>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new(WriterOptions::default())
    }
}

impl Writer {
    pub fn new(options: WriterOptions) -> Self {
        Self { options, isa: Isa::best(), scores: Vec::new(), z: Vec::new(), best: Vec::new() }
    }

    /// Whether anything may be drafted.
    pub fn wants(draft: &Draft<'_>) -> bool {
        draft.limits.max_nodes.min(draft.limits.max_depth) > 0
    }

    /// Drafts for those of `drafts` that `reader` stands at the end of.
    pub fn write(&mut self, drafts: &mut [Draft<'_>], which: Vec<usize>, reader: &mut impl Reader) {
        let mut tips: Vec<Tip> = which.into_iter().map(|draft| Tip::start(draft, &drafts[draft])).collect();
        for _ in 0..self.options.max_depth {
            let sequences: Vec<SequenceId> = tips.iter().map(|tip| drafts[tip.draft].sequence).collect();
            let mut next = Vec::new();
            reader.run(&sequences, |i, logits| next.extend(self.go_on(&mut drafts[tips[i].draft], &tips[i], logits)));
            next.retain(|tip| reader.append(drafts[tip.draft].sequence, tip.token));
            tips = next;
        }
    }

    /// Adds the guesses below a tip; where to go on, if that is worth it.
    pub fn go_on(&mut self, draft: &mut Draft<'_>, tip: &Tip, logits: &[f32]) -> Option<Tip> {
        let next = self.guess(draft, tip, logits)?;
        let is_likely = next.p >= self.options.min_path_p && draft.limits.goes_on(next.depth, next.chance);
        (is_likely && has_room(draft)).then_some(next)
    }

    /// Adds the guesses below a tip; the best of them is where to go on. None from a row that nothing can be drawn from.
    fn guess(&mut self, draft: &mut Draft<'_>, tip: &Tip, logits: &[f32]) -> Option<Tip> {
        let Self { options, isa, scores, z, best } = self;
        let vocab_size = draft.limits.vocab_size;
        // A smaller vocabulary never guesses the rest, a larger one is cut.
        let logits = if logits.len() == vocab_size {
            logits
        } else {
            scores.clear();
            scores.extend_from_slice(&logits[..logits.len().min(vocab_size)]);
            scores.resize(vocab_size, f32::NEG_INFINITY);
            scores
        };
        let first = draft.sample(tip.node, logits).ok()?;
        z.resize(logits.len(), 0.0);
        let max = ops::scan(*isa, logits).max;
        ops::scale_logits(*isa, logits, max, 1.0, z);
        let sum = ops::exp_sum(*isa, z);
        let p = |token: TokenId| (f64::from(ops::exp(z[token as usize])) / sum) as f32;
        let node = draft.push(tip.node, first, p(first));
        let is_open = tip.p * (1.0 - p(first)) >= options.min_sibling_p && has_room(draft);
        if is_open && draft.draw.draw_top(draft.tree, tip.node, logits, 2, best).is_ok() {
            let second = best.iter().copied().find(|&token| token != first);
            if let Some(token) = second.filter(|&token| tip.p * p(token) >= options.min_sibling_p) {
                draft.push(tip.node, token, p(token));
            }
        }
        let depth = tip.depth + 1;
        let chance = tip.chance * draft.trust.chance(draft.source, depth, p(first));
        Some(Tip { draft: tip.draft, node, depth, p: tip.p * p(first), chance, token: first })
    }
}

fn has_room(draft: &Draft<'_>) -> bool {
    draft.tree.len() - draft.tree.given() < draft.limits.max_nodes
}
