//! Drafters that do their worst. None may change a text or fail a request.

use foretoken_decode::TokenId;
use foretoken_decode::drafters::{Draft, Drafter, Observation};
use foretoken_decode::tree::NodeId;

use crate::rng::Rng;
use crate::toy::{ToyModel, ToyTarget};
use crate::toy_cache::ToyCache;

/// Random trees of random tokens.
#[derive(Clone, Debug)]
pub struct RandomTrees(pub Rng);

/// Tokens outside the vocabulary, and probabilities that are none.
#[derive(Clone, Debug)]
pub struct Nonsense(pub Rng);

/// Far too many guesses, far too deep.
#[derive(Clone, Debug)]
pub struct OverWide(pub Rng);

/// The same few siblings again and again.
#[derive(Clone, Debug)]
pub struct Repeater(pub Rng);

/// A draft model: it draws with the target's noise from the target's own logits, changed at random with this chance.
#[derive(Clone, Debug)]
pub struct Drawer {
    /// The target's model.
    pub model: ToyModel,
    /// Chance that a row is not the target's.
    pub wrong: f32,
    /// Siblings per node.
    pub siblings: usize,
    /// Guesses on a path.
    pub depth: usize,
    /// Its randomness.
    pub rng: Rng,
}

fn random_node(rng: &mut Rng, draft: &Draft<'_>) -> NodeId {
    let anchor = draft.tree.anchor();
    anchor + rng.below(draft.tree.len() - anchor)
}

/// Every row that was run can be drawn from again: at a kept node it gives the token that came.
fn check_draws(seen: &mut [Observation<'_>]) {
    for Observation { tree, rows, verdict, draw, .. } in seen {
        for (i, &token) in verdict.tokens.iter().enumerate() {
            let node = verdict.path[(tree.given() + i - 1).min(verdict.path.len() - 1)];
            if i + tree.given() <= verdict.path.len() {
                assert_eq!(draw.draw(tree, node, rows.logits(node)), Ok(token));
            }
        }
    }
}

macro_rules! drafter {
    ($name:ty, $label:literal, |$self:ident, $draft:ident| $body:block) => {
        impl Drafter<ToyTarget> for $name {
            fn name(&self) -> &'static str {
                $label
            }

            fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut ToyTarget, _cache: &mut ToyCache) {
                let $self = self;
                for $draft in drafts {
                    $body
                }
            }

            fn observe(&mut self, seen: &mut [Observation<'_>]) {
                check_draws(seen);
            }
        }
    };
}

drafter!(RandomTrees, "random_trees", |this, draft| {
    for _ in 0..this.0.below(12) {
        let parent = random_node(&mut this.0, draft);
        let token = this.0.below(draft.limits.vocab_size) as TokenId;
        let p = this.0.uniform();
        draft.push(parent, token, p);
    }
});

drafter!(Nonsense, "nonsense", |this, draft| {
    for _ in 0..this.0.below(12) {
        let parent = random_node(&mut this.0, draft);
        let token = match this.0.below(3) {
            0 => TokenId::MAX,
            1 => draft.limits.vocab_size as TokenId,
            _ => this.0.below(draft.limits.vocab_size) as TokenId,
        };
        let p = *this.0.pick(&[f32::NAN, f32::INFINITY, -1.0, 0.0, 1.0, 2.0]);
        draft.push(parent, token, p);
    }
});

drafter!(OverWide, "over_wide", |this, draft| {
    let mut parent = draft.tree.anchor();
    for i in 0..300 {
        let token = this.0.below(draft.limits.vocab_size) as TokenId;
        let node = draft.push(parent, token, 0.9);
        parent = if i % 5 == 0 { node } else { parent };
    }
});

drafter!(Repeater, "repeater", |this, draft| {
    for _ in 0..10 {
        let parent = random_node(&mut this.0, draft);
        draft.push(parent, this.0.below(2) as TokenId, 0.5);
    }
});

drafter!(Drawer, "drawer", |this, draft| {
    let mut level = vec![draft.tree.anchor()];
    for _ in 0..this.depth.min(draft.limits.max_depth) {
        let mut next = Vec::new();
        for node in level {
            let mut text = draft.tokens.to_vec();
            text.extend(draft.tree.path(node)[draft.tree.given()..].iter().map(|&n| draft.tree.nodes()[n].token));
            let position = text.len();
            text.reverse();
            let mut scores = Vec::new();
            this.model.logits(&text, position, &mut scores);
            if this.rng.chance(this.wrong) {
                scores.reverse();
            }
            let mut tokens = Vec::new();
            if draft.draw.draw_top(draft.tree, node, &scores, this.siblings, &mut tokens).is_ok() {
                let best = draft.draw.draw(draft.tree, node, &scores);
                assert_eq!(Ok(tokens[0]), best, "the best sibling is the draw");
                next.extend(tokens.into_iter().map(|token| draft.push(node, token, 0.8)));
            }
        }
        level = next;
        level.truncate(2);
    }
});
