//! Decide which drafted path survives. One file per acceptor; to add one, list it here.

mod coupled;

pub use coupled::Coupled;

use crate::TokenId;
use crate::sampler::{SampleError, Sampler, Scratch, TokenLogprobs};
use crate::target::Pass;
use crate::tree::{NodeId, TokenTree};

/// Walks a verified tree with the sampler and stops at the first disagreement.
pub trait Acceptor: Send {
    /// The name that flags and statistics use.
    fn name(&self) -> &'static str;

    /// Whether the text is the same whatever was drafted.
    fn reproducible(&self) -> bool;

    /// Draws from the anchor on. `sampler` stands after the anchor and is moved on by every token drawn; `verdict` has
    /// been reset to the tree's given nodes. A row that cannot be drawn ends the walk as [`Verdict::error`].
    fn decide(
        &mut self,
        tree: &TokenTree,
        rows: Rows<'_>,
        sampler: &mut Sampler,
        scratch: &mut Scratch,
        verdict: &mut Verdict,
    );
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
        self.error = None;
    }

    /// Draws the next token from its row and moves the sampler on; `None` after an error.
    pub fn draw(&mut self, logits: &[f32], sampler: &mut Sampler, scratch: &mut Scratch) -> Option<TokenId> {
        match sampler.draw(logits, scratch) {
            Ok(token) => {
                self.logprobs.extend(sampler.logprobs(logits, token, scratch));
                self.tokens.push(token);
                sampler.push(token);
                Some(token)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    /// Keeps the first `n` tokens, and of the path no more than their guesses.
    pub fn truncate(&mut self, tree: &TokenTree, n: usize) {
        if n < self.tokens.len() {
            self.tokens.truncate(n);
            self.logprobs.truncate(n);
            self.path.truncate(tree.given() + n);
            self.error = None;
        }
    }
}
