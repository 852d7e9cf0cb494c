//! Lets a drafter draw as the target will: with the sequence's own processors and noise, at any node of its tree.

use std::cell::RefCell;

use super::{Candidate, Purpose, Sample, SampleError, Sampler, Scratch};
use crate::TokenId;
use crate::tree::{NodeId, TokenTree};

/// A handle on one sequence's sampler.
pub struct Draw<'a> {
    sampler: &'a mut Sampler,
    scratch: &'a RefCell<Scratch>,
    /// Prompt and output; the sampler stands after the last.
    tokens: &'a [TokenId],
    /// Tokens before the tree's first node.
    start: usize,
}

impl<'a> Draw<'a> {
    pub(crate) fn new(
        sampler: &'a mut Sampler,
        scratch: &'a RefCell<Scratch>,
        tokens: &'a [TokenId],
        start: usize,
    ) -> Self {
        Self { sampler, scratch, tokens, start }
    }

    /// The token after `node` if `scores` `[vocab_size]` were the target's logits.
    pub fn draw(&mut self, tree: &TokenTree, node: NodeId, scores: &[f32]) -> Result<TokenId, SampleError> {
        self.at(tree, node, |sampler, scratch| sampler.draw(scores, scratch))
    }

    /// The `k` best siblings below `node`, best first, into `out`: a Gumbel top-k (Kool et al. 2019).
    pub fn draw_top(
        &mut self,
        tree: &TokenTree,
        node: NodeId,
        scores: &[f32],
        k: usize,
        out: &mut Vec<TokenId>,
    ) -> Result<(), SampleError> {
        self.at(tree, node, |sampler, scratch| sampler.draw_top(scores, k, scratch, out))
    }

    /// A sample of the distribution that the target would draw from after `node` if `scores` `[vocab_size]` were its
    /// logits. Its noise is its own, so it tells nothing of the target's draw.
    pub(crate) fn sample(&mut self, tree: &TokenTree, node: NodeId, scores: &[f32]) -> Result<Sample, SampleError> {
        let path = tree.path(node)[tree.anchor() + 1..].iter().map(|&node| tree.nodes()[node].token).collect();
        self.at(tree, node, |sampler, scratch| {
            let q = sampler.distribution(scores, scratch)?;
            Ok(Sample { path, token: q.pick(sampler.noise(Purpose::Draft).uniform()), q })
        })
    }

    /// The same when the scores of only some tokens are known: `candidates`, each token once, becomes the `k` best of
    /// them, best first. Costs a fraction of a microsecond for each candidate.
    pub fn draw_few(&mut self, tree: &TokenTree, node: NodeId, k: usize, candidates: &mut Vec<Candidate>) {
        self.at(tree, node, |sampler, scratch| sampler.draw_few(k, candidates, scratch));
    }

    /// The `k` tokens of a row `[vocab_size]` with the highest logits before any processor or noise, best first, into
    /// `out`. NaNs are passed over; a row with an infinity has none. Costs one scan.
    pub fn likeliest(&self, logits: &[f32], k: usize, out: &mut Vec<Candidate>) {
        self.scratch.borrow_mut().likeliest(logits, k, out);
    }

    /// Whether the request has a constraint.
    pub fn is_constrained(&self) -> bool {
        self.sampler.is_constrained()
    }

    /// Appends the tokens that the request's constraint makes come after `node`: guesses, not all of them certain.
    pub fn forced(&mut self, tree: &TokenTree, node: NodeId, tokens: &mut Vec<TokenId>) {
        self.at(tree, node, |sampler, _| sampler.forced(tokens));
    }

    /// What logits are divided by; 0 takes the likeliest token.
    pub fn temperature(&self) -> f32 {
        self.sampler.settings().temperature
    }

    /// Whether the target takes the likeliest token.
    pub fn is_greedy(&self) -> bool {
        self.sampler.settings().temperature == 0.0
    }

    /// Moves the sampler to the end of a node's path for one draw: back over what was decided after the node, then down
    /// the guesses.
    fn at<R>(&mut self, tree: &TokenTree, node: NodeId, draw: impl FnOnce(&Sampler, &mut Scratch) -> R) -> R {
        let decided = self.start + tree.anchor().min(node) + 1;
        let end = self.sampler.position();
        (decided..end).for_each(|_| self.sampler.pop());
        let depth = push_path(self.sampler, tree, node);
        let result = draw(self.sampler, &mut self.scratch.borrow_mut());
        (0..depth).for_each(|_| self.sampler.pop());
        self.tokens[decided..end].iter().for_each(|&token| self.sampler.push(token));
        result
    }
}

/// Pushes the guesses from below the anchor down to `node`; says how many.
fn push_path(sampler: &mut Sampler, tree: &TokenTree, node: NodeId) -> usize {
    if node <= tree.anchor() {
        return 0;
    }
    let above = push_path(sampler, tree, tree.nodes()[node].parent);
    sampler.push(tree.nodes()[node].token);
    above + 1
}
