//! Decide which drafted path survives. One file per acceptor; to add one, list it here.

mod coupled;
mod kind;
mod rejection;
mod top_k;
mod typical;
mod walk;

pub use coupled::Coupled;
pub use kind::AcceptorKind;
pub use rejection::Rejection;
pub use top_k::TopK;
pub use typical::Typical;
pub use walk::{Judgement, Walk};

use crate::TokenId;
use crate::sampler::{SampleError, TokenLogprobs};
use crate::target::Pass;
use crate::tree::{NodeId, TokenTree};

/// Walks a verified tree with the sampler and stops at the first disagreement.
pub trait Acceptor: Send {
    /// The name that flags and statistics use.
    fn name(&self) -> &'static str;

    /// Whether the text is the same whatever was drafted.
    fn reproducible(&self) -> bool;

    /// Whether drafters shall sample from their own distributions, which it judges, instead of guessing the target's draw.
    fn takes_samples(&self) -> bool {
        false
    }

    /// Draws from the anchor on. The verdict has been reset to the tree's given nodes. A row that cannot be drawn ends the
    /// walk as [`Verdict::error`].
    fn decide(&mut self, walk: Walk<'_>);
}

/// Handles on one sequence's rows of a pass.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pass: &'a dyn Pass,
    work: usize,
}

impl<'a> Rows<'a> {
    /// The rows of entry `work` of the pass.
    pub fn new(pass: &'a dyn Pass, work: usize) -> Self {
        Self { pass, work }
    }

    /// Logits `[vocab_size]` of a row that asked for them.
    pub fn logits(self, node: NodeId) -> &'a [f32] {
        self.pass.logits(self.work, node)
    }

    /// The last hidden state of a row that asked for it.
    pub fn hidden(self, node: NodeId) -> &'a [f32] {
        self.pass.hidden(self.work, node)
    }
}

/// What a pass decided for one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Nodes to keep in the cache, from node 0 on: the given ones, then the accepted guesses.
    pub path: Vec<NodeId>,
    /// Tokens drawn, in order: those of the accepted guesses, then one that no guess holds.
    pub tokens: Vec<TokenId>,
    /// One per token when the request asks for log-probabilities.
    pub logprobs: Vec<TokenLogprobs>,
    /// One per token under an acceptor that changes the distribution.
    pub judgements: Vec<Judgement>,
    /// Why the walk could not go on after `tokens`.
    pub error: Option<SampleError>,
}

impl Verdict {
    /// A verdict that keeps the given nodes of a tree and has drawn nothing.
    pub fn reset(&mut self, tree: &TokenTree) {
        self.clear();
        self.path.extend(0..tree.given());
    }

    /// Keeps and draws nothing.
    pub fn clear(&mut self) {
        self.path.clear();
        self.tokens.clear();
        self.logprobs.clear();
        self.judgements.clear();
        self.error = None;
    }

    /// Keeps the first `n` tokens, and of the path no more than their guesses.
    pub fn truncate(&mut self, tree: &TokenTree, n: usize) {
        if n < self.tokens.len() {
            self.tokens.truncate(n);
            self.logprobs.truncate(n);
            self.judgements.truncate(n);
            self.path.truncate(tree.given() + n);
            self.error = None;
        }
    }
}
