//! A smaller model of the same vocabulary guesses what the target will say (Leviathan et al. 2023, arXiv 2211.17192;
//! Chen et al. 2023, arXiv 2302.01318).
//!
//! It writes a chain, drawn with the target's own processors and noise over its own logits, and hangs the runner-up beside a
//! guess where that is likely too: a sibling costs a row of the target and none of the draft model. All sequences are
//! drafted for together, in one pass for each depth.

use foretoken_kernels::{Isa, ops};

use super::{Companion, Draft, Drafter, Retired};
use crate::TokenId;
use crate::target::{SequenceId, Target};
use crate::tree::NodeId;

/// How far to draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftModelOptions {
    /// Most guesses on a path.
    pub max_depth: usize,
    /// A path less likely than this, by the draft model's own word, is not drafted on.
    pub min_path_p: f32,
    /// A runner-up whose path is at least this likely becomes a sibling.
    pub min_sibling_p: f32,
}

impl Default for DraftModelOptions {
    fn default() -> Self {
        Self { max_depth: 8, min_path_p: 0.1, min_sibling_p: 0.1 }
    }
}

/// Drafts with a second model, whose token ids mean what the target's mean.
pub struct DraftModel<M: Target> {
    name: &'static str,
    companion: Companion<M>,
    options: DraftModelOptions,
    scorer: Scorer,
}

impl<M: Target> DraftModel<M> {
    /// A drafter of this name.
    pub fn new(name: &'static str, companion: Companion<M>, options: DraftModelOptions) -> Self {
        let scorer = Scorer { isa: Isa::best(), scores: Vec::new(), z: Vec::new(), best: Vec::new() };
        Self { name, companion, options, scorer }
    }

    /// The model and its cache.
    pub fn companion(&self) -> &Companion<M> {
        &self.companion
    }
}

/// The end of a draft that may go on.
struct Tip {
    /// Which draft.
    draft: usize,
    node: NodeId,
    /// Of the whole path.
    p: f32,
    /// The guess at `node`.
    token: TokenId,
}

impl<T: Target, M: Target + Send> Drafter<T> for DraftModel<M>
where
    M::Cache: Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let Self { companion, options, scorer, .. } = self;
        let wanted = |draft: &Draft<'_>| draft.limits.max_nodes.min(draft.limits.max_depth) > 0;
        let mut tips: Vec<Tip> = Vec::new();
        for (index, draft) in drafts.iter().enumerate().filter(|(_, draft)| wanted(draft)) {
            if companion.set_text(draft.sequence, draft.tokens) {
                tips.push(Tip { draft: index, node: draft.tree.anchor(), p: 1.0, token: 0 });
            }
        }
        for depth in 1..=options.max_depth {
            let sequences: Vec<SequenceId> = tips.iter().map(|tip| drafts[tip.draft].sequence).collect();
            let mut next = Vec::new();
            companion.run(&sequences, |i, logits| {
                next.extend(scorer.guess(&mut drafts[tips[i].draft], &tips[i], logits, options))
            });
            next.retain(|tip| {
                let draft = &drafts[tip.draft];
                let room =
                    depth < draft.limits.max_depth && draft.tree.len() - draft.tree.given() < draft.limits.max_nodes;
                room && tip.p >= options.min_path_p && companion.append(draft.sequence, tip.token)
            });
            tips = next;
        }
    }

    fn retired(&self) -> &[Retired] {
        self.companion.retired()
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.companion.forget(sequence);
    }
}

/// Turns a draft model's logits into guesses; its buffers.
struct Scorer {
    isa: Isa,
    scores: Vec<f32>,
    z: Vec<f32>,
    best: Vec<TokenId>,
}

impl Scorer {
    /// Adds the guesses below a tip; the best of them is where to go on. None from a row that nothing can be drawn from.
    fn guess(&mut self, draft: &mut Draft<'_>, tip: &Tip, logits: &[f32], options: &DraftModelOptions) -> Option<Tip> {
        let Self { isa, scores, z, best } = self;
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
        draft.draw.draw_top(draft.tree, tip.node, logits, 2, best).ok()?;
        z.resize(logits.len(), 0.0);
        let max = ops::scan(*isa, logits).max;
        ops::scale_logits(*isa, logits, max, 1.0, z);
        let sum = ops::exp_sum(*isa, z);
        let p = |token: TokenId| (f64::from(ops::exp(z[token as usize])) / sum) as f32;
        let (&first, rest) = best.split_first()?;
        let node = draft.push(tip.node, first, p(first));
        for &token in rest {
            let has_room = draft.tree.len() - draft.tree.given() < draft.limits.max_nodes;
            if has_room && tip.p * p(token) >= options.min_sibling_p {
                draft.push(tip.node, token, p(token));
            }
        }
        Some(Tip { draft: tip.draft, node, p: tip.p * p(first), token: first })
    }
}
