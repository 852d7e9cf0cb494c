//! The walk of an acceptor down a verified tree: what it sees, and the steps it takes.

use super::{Rows, Verdict};
use crate::TokenId;
use crate::sampler::{Sample, SampleError, Sampler, Scratch, TokenLogprobs};
use crate::tree::{NodeId, TokenTree};

/// What the target makes of a token that may not be its own: how a lenient acceptor's change is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// The token's log-probability under the target, before temperature, penalties and filters.
    pub logprob: f32,
    /// Whether it is the token of the coupled acceptor after the same text.
    pub agrees: bool,
}

/// One sequence's tree with its rows. The sampler stands after the last token taken; at first this is the anchor.
pub struct Walk<'a> {
    /// What was run.
    pub tree: &'a TokenTree,
    /// The target's results.
    pub rows: Rows<'a>,
    /// What drafters sampled for this pass.
    pub samples: &'a [Sample],
    /// Moved on by every token taken.
    pub sampler: &'a mut Sampler,
    /// Buffers for draws.
    pub scratch: &'a mut Scratch,
    /// Where it leads.
    pub verdict: &'a mut Verdict,
}

impl<'a> Walk<'a> {
    /// What a drafter sampled for the next position after the tokens taken so far.
    pub fn sample(&self) -> Option<&'a Sample> {
        self.samples.iter().find(|sample| sample.path == self.verdict.tokens)
    }

    /// Takes the next token, from its row of logits.
    pub fn take(&mut self, logits: &[f32], token: TokenId) {
        self.verdict.logprobs.extend(self.sampler.logprobs(logits, token, self.scratch));
        self.verdict.tokens.push(token);
        self.sampler.push(token);
    }

    /// Takes a token that may not be what the target would draw, and measures the change.
    pub fn take_changed(&mut self, logits: &[f32], token: TokenId) {
        let agrees = self.sampler.draw(logits, self.scratch) == Ok(token);
        let logprob = TokenLogprobs::new(logits, token, 0, self.scratch).logprob;
        self.verdict.judgements.push(Judgement { logprob, agrees });
        self.take(logits, token);
    }

    /// Goes on to the guess that holds the token taken last.
    pub fn follow(&mut self, child: NodeId) -> NodeId {
        self.verdict.path.push(child);
        child
    }

    /// Ends with a row from which nothing can be drawn.
    pub fn fail(&mut self, error: SampleError) {
        self.verdict.error = Some(error);
    }
}
