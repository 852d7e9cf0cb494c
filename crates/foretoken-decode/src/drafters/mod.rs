//! Propose what may come next. One file per drafter.
//!
//! To add one: write `drafters/<name>.rs`, list it in [`NAMES`] and [`by_name`], add it to `tests/lossless.rs`. A drafter
//! cannot change the text, so it may be adaptive, timed and even wrong.

mod best_first;
mod blockwise;
mod chains;
mod companion;
mod draft_model;
mod early_exit;
mod foresight;
mod grammar;
mod heads;
mod jacobi;
mod lookahead;
mod mtp;
mod none;
mod prompt_lookup;
mod rates;
mod recall;
mod recycle;
mod scopes;
mod suffix;
mod writer;

pub use blockwise::Blockwise;
pub use companion::Companion;
pub use draft_model::DraftModel;
pub use early_exit::ExitEarly;
pub use grammar::Grammar;
pub use jacobi::Jacobi;
pub use lookahead::{Lookahead, LookaheadOptions};
pub use mtp::Mtp;
pub use none::NoDraft;
pub use prompt_lookup::{PromptLookup, PromptLookupOptions};
pub use recall::Recall;
pub use recycle::Recycle;
pub use suffix::Suffix;
pub use writer::WriterOptions;

use crate::TokenId;
use crate::acceptors::{Rows, Verdict};
use crate::budget::{DraftCost, Trust};
use crate::sampler::{Draw, Sample, SampleError};
use crate::target::{SequenceId, Target};
use crate::tree::{NodeId, Source, TokenTree};

/// Drafters that need nothing but the text, by the name that `--draft` takes.
pub const NAMES: &[&str] = &["none", "prompt_lookup", "suffix", "recycle", "recall", "jacobi", "lookahead", "grammar"];

/// A drafter with its default options; `None` for a name not in [`NAMES`].
pub fn by_name<T: Target>(name: &str) -> Option<Box<dyn Drafter<T>>> {
    match name {
        "none" => Some(Box::new(NoDraft)),
        "prompt_lookup" => Some(Box::new(PromptLookup::default())),
        "suffix" => Some(Box::new(Suffix::default())),
        "recycle" => Some(Box::new(Recycle::default())),
        "grammar" => Some(Box::new(Grammar)),
        "recall" => Some(Box::new(Recall::default())),
        "jacobi" => Some(Box::new(Jacobi::default())),
        "lookahead" => Some(Box::new(Lookahead::default())),
        _ => None,
    }
}

/// Guesses continuations of many sequences at once and learns from every pass.
pub trait Drafter<T: Target>: Send {
    /// The name that flags and statistics use.
    fn name(&self) -> &'static str;

    /// Adds guesses below each draft's anchor. It may run rows of its own on the target; they must not stay in the
    /// sequences' cache. What breaks the limits is left out and counted.
    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut T, cache: &mut T::Cache);

    /// What drafting takes, as far as it can be told before it was measured. Nothing for what is too fast to matter.
    fn cost(&self) -> DraftCost {
        DraftCost::default()
    }

    /// Whether it asks [`Limits::goes_on`] after every guess. One that does not takes the time for as many guesses as
    /// it may make.
    fn stops_early(&self, _target: &T) -> bool {
        true
    }

    /// Tokens of a text of `n_tokens` that it would have to catch up with before it can draft.
    fn lag(&self, _sequence: SequenceId, _n_tokens: usize) -> usize {
        0
    }

    /// Sees every pass: prompt rows and other drafters' rows too.
    fn observe(&mut self, _seen: &mut [Observation<'_>]) {}

    /// Sequences that it will not draft for any more, by reason, since it was made.
    fn retired(&self) -> &[Retired] {
        &[]
    }

    /// Bytes of memory that its tables and models hold.
    fn bytes(&self) -> usize {
        0
    }

    /// What it counted since it was made, for reports; the meaning is its own.
    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }

    /// The sequence is over.
    fn forget(&mut self, _sequence: SequenceId) {}

    /// Drops what it remembers of sequences that are over, between requests: a measurement must not profit from having
    /// answered the same prompt before. How reliable its guesses are it may still know.
    fn unlearn(&mut self) {}
}

/// One of a drafter's own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// What is counted.
    pub of: &'static str,
    /// At which size, depth or iteration.
    pub at: usize,
    /// How often.
    pub n: u64,
}

/// Sequences that a drafter gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Why.
    pub reason: &'static str,
    /// How many.
    pub sequences: usize,
}

/// One sequence to draft for.
pub struct Draft<'a> {
    /// Whose text.
    pub sequence: SequenceId,
    /// What was learned from sequences of other scopes must not show.
    pub scope: u64,
    /// Prompt and output so far, all of it decided; the last token is the anchor.
    pub tokens: &'a [TokenId],
    /// Only the anchor at first.
    pub tree: &'a mut TokenTree,
    /// What drafters asked before have proposed for this pass, merged; the same anchor.
    pub proposed: &'a TokenTree,
    /// To put on every guess.
    pub source: Source,
    /// What can be used.
    pub limits: Limits,
    /// Draws with the target's own processors and noise.
    pub draw: Draw<'a>,
    /// How often guesses of this confidence have come true.
    pub trust: Trust<'a>,
    /// Where samples go, when the request's acceptor takes some.
    pub(crate) samples: Option<&'a mut Vec<Sample>>,
}

impl Draft<'_> {
    /// The token for a drafter with a distribution of its own to push below `node`, from its logits `scores`
    /// `[vocab_size]`: the target's draw if these were its logits or, when the request's acceptor judges samples, one from
    /// the drafter's distribution. A sample is judged even where the guess is not pushed, so to stay unbiased a drafter
    /// decides *before* it samples whether it drafts this far; after this, it pushes the token. Further guesses beside it,
    /// from [`Draw::draw_top`] or elsewhere, are allowed.
    ///
    /// The error is that of a row from which nothing can be drawn.
    pub fn sample(&mut self, node: NodeId, scores: &[f32]) -> Result<TokenId, SampleError> {
        let Some(samples) = &mut self.samples else { return self.draw.draw(self.tree, node, scores) };
        let sample = self.draw.sample(self.tree, node, scores)?;
        let token = sample.token;
        samples.push(sample);
        Ok(token)
    }

    /// Whether the request's acceptor judges samples, so that a chain from [`Draft::sample`] is worth more than guesses at
    /// the target's draw.
    pub fn takes_samples(&self) -> bool {
        self.samples.is_some()
    }

    /// Adds a guess below `parent`, which must be the anchor or a guess of this tree.
    pub fn push(&mut self, parent: NodeId, token: TokenId, p: f32) -> NodeId {
        self.tree.push(parent, token, self.source, p)
    }
}

/// What can be used of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most guesses.
    pub max_nodes: usize,
    /// Most guesses on one path: more tokens than that are not wanted or do not fit.
    pub max_depth: usize,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// By guesses on a path, from one: what comes below a path less likely than this is not worth the time to draft it.
    pub min_path_p: [f32; Self::DEPTHS],
}

impl Limits {
    /// Depths with a least likelihood of their own; the last one's is that of all below it, too.
    pub const DEPTHS: usize = 8;

    /// Whether a guess below a path of `depth` guesses, at least one, and this likelihood is wanted.
    pub fn goes_on(&self, depth: usize, path_p: f32) -> bool {
        depth < self.max_depth && path_p >= self.min_path_p[(depth - 1).min(Self::DEPTHS - 1)]
    }
}

/// What a pass was and decided for one sequence.
pub struct Observation<'a> {
    /// Whose rows.
    pub sequence: SequenceId,
    /// Whom it may teach.
    pub scope: u64,
    /// Prompt and output after the pass.
    pub tokens: &'a [TokenId],
    /// Number of `tokens` that stood before the tree's first node.
    pub start: usize,
    /// The rows that were run.
    pub tree: &'a TokenTree,
    /// Their results.
    pub rows: Rows<'a>,
    /// What was kept; without tokens when the pass ran only a part of the prompt.
    pub verdict: &'a Verdict,
    /// Draws at any node of the tree, accepted or not.
    pub draw: Draw<'a>,
}
