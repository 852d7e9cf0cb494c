//! A drafter with a distribution of its own, which it samples: what rejection sampling is about.

use foretoken_decode::drafters::{Draft, Drafter};
use foretoken_decode::tree::NodeId;

use crate::toy::{ToyModel, ToyTarget};
use crate::toy_cache::ToyCache;

/// Samples a chain from another model. Its confidence depends on the token, to tempt the budget to trim by it.
#[derive(Clone, Debug)]
pub struct SamplingDrafter {
    /// What it samples from.
    pub model: ToyModel,
    /// Guesses of the chain.
    pub depth: usize,
    /// Further guesses beside each, the likeliest by the target's noise.
    pub siblings: usize,
}

impl ToyModel {
    /// This model's logits after the text up to a node of a draft.
    pub fn scores(&self, draft: &Draft<'_>, node: NodeId) -> Vec<f32> {
        let mut text = draft.tokens.to_vec();
        text.extend(draft.tree.path(node)[draft.tree.given()..].iter().map(|&n| draft.tree.nodes()[n].token));
        let position = text.len();
        text.reverse();
        let mut scores = Vec::new();
        self.logits(&text, position, &mut scores);
        scores
    }
}

impl Drafter<ToyTarget> for SamplingDrafter {
    fn name(&self) -> &'static str {
        "sampling"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut ToyTarget, _cache: &mut ToyCache) {
        for draft in drafts {
            let mut node = draft.tree.anchor();
            for _ in 0..self.depth.min(draft.limits.max_depth) {
                let scores = self.model.scores(draft, node);
                let mut beside = Vec::new();
                if self.siblings > 0
                    && draft.draw.draw_top(draft.tree, node, &scores, self.siblings, &mut beside).is_err()
                {
                    break;
                }
                for token in beside {
                    draft.push(node, token, 0.3);
                }
                let Ok(token) = draft.sample(node, &scores) else { break };
                let p = if token % 2 == 0 { 0.9 } else { 0.01 };
                node = draft.push(node, token, p);
            }
        }
    }
}
