//! What happened: statistics of a request, and a trace of every pass for those who want one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::TokenId;
use crate::acceptors::Judgement;
use crate::budget::PassShape;
use crate::tree::TokenTree;

/// Counts of one request; nothing past its end is counted. `output_tokens == passes + accepted` always holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many were cached already.
    pub cached_tokens: usize,
    /// Tokens drawn, an end token included.
    pub output_tokens: usize,
    /// Passes that drew tokens.
    pub passes: usize,
    /// Passes over a part of the prompt that drew none.
    pub prompt_passes: usize,
    /// Guesses run.
    pub drafted: usize,
    /// Guesses that gave a token beyond the one that every pass gives.
    pub accepted: usize,
    /// `[d - 1]`: passes that ran a guess at depth d, and of these the passes that accepted one.
    pub by_depth: Vec<DepthCount>,
    /// Times the sequence was sent back to make room, its cache to be computed again.
    pub preempted: usize,
    /// How an acceptor that changes the distribution changed it.
    pub change: Option<Change>,
}

/// How far a text is from what the target would have written. Counts every token of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Tokens.
    pub tokens: usize,
    /// Of these, those that the coupled acceptor would have taken after the same text.
    pub agreed: usize,
    /// Log-probability of the text under the target, before temperature, penalties and filters.
    pub logprob: f64,
}

impl Change {
    /// Perplexity of the text under the target.
    pub fn perplexity(&self) -> f64 {
        libm::exp(-self.logprob / self.tokens as f64)
    }

    /// Share of the tokens that the coupled acceptor would have taken.
    pub fn agreement(&self) -> f64 {
        self.agreed as f64 / self.tokens as f64
    }
}

/// Guesses at one depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthCount {
    /// Passes that ran one.
    pub drafted: usize,
    /// Passes that accepted one.
    pub accepted: usize,
}

impl RequestStats {
    /// Tokens per pass: `1 + accepted / passes`.
    pub fn acceptance_length(&self) -> f64 {
        if self.passes == 0 { 0.0 } else { self.output_tokens as f64 / self.passes as f64 }
    }

    /// Share of the guesses at each depth that were accepted, from depth 1 on.
    pub fn acceptance_by_depth(&self) -> Vec<f64> {
        self.by_depth.iter().map(|d| d.accepted as f64 / d.drafted.max(1) as f64).collect()
    }

    /// Counts a token of an acceptor that changes the distribution.
    pub(crate) fn judge(&mut self, judgement: Judgement) {
        let change = self.change.get_or_insert_default();
        change.tokens += 1;
        change.agreed += usize::from(judgement.agrees);
        change.logprob += f64::from(judgement.logprob);
    }

    /// Counts a pass that ran `tree` and drew `n_tokens`, at least one.
    pub(crate) fn count(&mut self, tree: &TokenTree, n_tokens: usize) {
        let accepted = n_tokens - 1;
        self.passes += 1;
        self.output_tokens += n_tokens;
        self.drafted += tree.len() - tree.given();
        self.accepted += accepted;
        let anchor_depth = tree.nodes()[tree.anchor()].depth;
        let deepest = tree.nodes().iter().map(|node| node.depth - anchor_depth.min(node.depth)).max();
        let deepest = deepest.unwrap_or(0) as usize;
        if self.by_depth.len() < deepest {
            self.by_depth.resize(deepest, DepthCount::default());
        }
        for (depth, count) in self.by_depth.iter_mut().enumerate().take(deepest) {
            count.drafted += 1;
            count.accepted += usize::from(depth < accepted);
        }
    }
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassTrace {
    /// What was run.
    pub shape: PassShape,
    /// Guesses run.
    pub drafted: usize,
    /// Tokens drawn beyond one per sequence.
    pub accepted: usize,
    /// Time to propose and trim.
    pub draft: Duration,
    /// Of this, each drafter's, in the order of their sources.
    pub draft_by: Vec<Duration>,
    /// Time of the target's pass.
    pub verify: Duration,
    /// Time from the end of the pass before to the end of this one, less `draft` and `verify`.
    pub rest: Duration,
    /// What `draft`, `verify` and `rest` together were expected to be, before the pass.
    pub predicted: Duration,
    /// Why these guesses were chosen, when the choice is another kind than the pass before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// One entry per sequence of the pass.
    pub sequences: Vec<SequenceTrace>,
}

/// One sequence's part in a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SequenceTrace {
    /// Whose.
    pub request: u64,
    /// Tokens before the first row.
    pub start: usize,
    /// Rows of decided tokens.
    pub given: usize,
    /// All guesses proposed, whether run or not.
    pub proposed: Vec<GuessTrace>,
    /// Tokens drawn.
    pub tokens: Vec<TokenId>,
}

/// One guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuessTrace {
    /// The token guessed.
    pub token: TokenId,
    /// Index of the guess it hangs below; `None` for the anchor.
    pub parent: Option<usize>,
    /// The drafter, by its place in the decoder's list from 1.
    pub source: u8,
    /// The drafter's own estimate.
    pub p: f32,
    /// Whether its row was run.
    pub run: bool,
}

/// Receives every pass, to be written somewhere.
pub trait Recorder: Send {
    /// A pass is over.
    fn pass(&mut self, trace: &PassTrace);
}
