//! Unrolls what a drafter knows into a tree, the likeliest path first: whatever is trimmed later was worth less.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Draft;
use crate::TokenId;
use crate::sampler::{Candidate, Draw};
use crate::tree::{NodeId, TokenTree};

/// A possible next token and its chance to be drawn, given that its parent is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Guess {
    pub token: TokenId,
    pub p: f32,
}

/// Paths less likely than this are not followed: hardly any machine could make them pay.
const LEAST: f32 = 0.004;

/// A guess that waits for its place in the tree, and the state of the text before it.
#[derive(Debug)]
struct Waiting<S> {
    path_p: f32,
    parent: NodeId,
    guess: Guess,
    /// Its place among its siblings.
    rank: usize,
    before: S,
}

impl<S> PartialEq for Waiting<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S> Eq for Waiting<S> {}

impl<S> PartialOrd for Waiting<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> Ord for Waiting<S> {
    /// The likeliest path first, then the earlier parent.
    fn cmp(&self, other: &Self) -> Ordering {
        self.path_p.total_cmp(&other.path_p).then(other.parent.cmp(&self.parent))
    }
}

/// Lists that one draft after the other fills, so that none allocates them.
#[derive(Debug)]
pub(super) struct Growth<S> {
    waiting: BinaryHeap<Waiting<S>>,
    found: Vec<Guess>,
}

impl<S> Default for Growth<S> {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new(), found: Vec::new() }
    }
}

/// Fills a draft up to its limits. `guesses` says what may follow a node, given the state of the text that ends with it,
/// each token once; `after` is the state one token further, given the token's place among them.
pub(super) fn grow<S: Copy>(
    draft: &mut Draft<'_>,
    growth: &mut Growth<S>,
    start: S,
    mut guesses: impl FnMut(&mut Draft<'_>, NodeId, S, &mut Vec<Guess>),
    mut after: impl FnMut(S, TokenId, usize) -> S,
) {
    let anchor = draft.tree.anchor();
    let deepest = draft.tree.nodes()[anchor].depth as usize + draft.limits.max_depth;
    let Growth { waiting, found } = growth;
    waiting.clear();
    let mut left = draft.limits.max_nodes;
    let mut open = Some((anchor, 1.0, start));
    loop {
        if let Some((node, path_p, state)) = open
            && (draft.tree.nodes()[node].depth as usize) < deepest
        {
            found.clear();
            guesses(draft, node, state, found);
            let known = found.iter().enumerate().filter(|(_, g)| (g.token as usize) < draft.limits.vocab_size);
            let child = |(rank, &guess): (usize, &Guess)| Waiting {
                path_p: path_p * guess.p,
                parent: node,
                guess,
                rank,
                before: state,
            };
            waiting.extend(known.map(child).filter(|child| child.path_p >= LEAST));
        }
        if left == 0 {
            return;
        }
        let Some(Waiting { path_p, parent, guess, rank, before }) = waiting.pop() else { return };
        let node = draft.push(parent, guess.token, guess.p);
        left -= 1;
        open = (left > 0).then(|| (node, path_p, after(before, guess.token, rank)));
    }
}

/// Adds possible tokens after `node`, given the likeliest first, in the order in which the target would draw among them:
/// what its processors forbid is left out, and its noise decides between those that are close. The first in the order is
/// at least as likely as the likeliest was before the noise was known.
pub(super) fn as_drawn(
    draw: &mut Draw<'_>,
    tree: &TokenTree,
    node: NodeId,
    likely: impl Iterator<Item = Guess>,
    candidates: &mut Vec<Candidate>,
    out: &mut Vec<Guess>,
) {
    // The chances are those of drawn tokens: at the request's temperature these scores are their logits.
    let scale = if draw.is_greedy() { 1.0 } else { draw.temperature() };
    let first = out.len();
    out.extend(likely);
    candidates.clear();
    candidates.extend(out[first..].iter().map(|g| Candidate { token: g.token, logit: scale * libm::logf(g.p) }));
    draw.draw_few(tree, node, candidates.len(), candidates);
    out.truncate(first + candidates.len());
    out[first..].iter_mut().zip(&*candidates).for_each(|(guess, drawn)| guess.token = drawn.token);
}
