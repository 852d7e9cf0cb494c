//! The model whose text must not change, and the cache that remembers what it read.

use crate::TokenId;
use crate::tree::{NodeId, TokenTree};

/// A sequence's place in a [`Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u32);

/// What a row is run for. Ordered: a later value includes the earlier ones' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Only its K/V rows.
    Nothing,
    /// The trunk's last hidden state too.
    Hidden,
    /// The logits too.
    Logits,
}

/// The rows of one sequence in one pass.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Whose rows.
    pub sequence: SequenceId,
    /// Given tokens follow the sequence's committed tokens directly.
    pub tree: &'a TokenTree,
    /// One per node.
    pub wants: &'a [Want],
}

/// Why a pass could not be run. Nothing was committed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The cache has too few free pages for the rows.
    #[error("the cache has {free} free pages and the pass needs {needed}")]
    CacheFull {
        /// Pages needed beyond those the sequences hold.
        needed: usize,
        /// Pages free.
        free: usize,
    },
    /// A sequence would grow past the context size.
    #[error("the sequence would reach {needed} tokens and the context holds {limit}")]
    ContextFull {
        /// Tokens after the pass.
        needed: usize,
        /// The context size.
        limit: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        token: TokenId,
        /// The vocabulary's size.
        vocab_size: usize,
    },
}

/// The results of one pass, by index into its work and node.
pub trait Pass {
    /// Logits `[vocab_size]` of a row that asked for [`Want::Logits`]; panics for any other row.
    fn logits(&self, work: usize, node: NodeId) -> &[f32];

    /// What the target's heads start from, `[hidden_size]`, of a row that asked for at least [`Want::Hidden`]: as a rule the
    /// last hidden state, after the final norm.
    fn hidden(&self, work: usize, node: NodeId) -> &[f32];
}

/// Committed rows of many sequences, and the tentative rows of the last pass.
pub trait Cache {
    /// Starts an empty sequence.
    fn open(&mut self) -> SequenceId;

    /// Forgets a sequence.
    fn close(&mut self, sequence: SequenceId);

    /// Gives the empty sequence `to` the first `len` committed rows of `from`, which keeps them.
    fn share(&mut self, from: SequenceId, len: usize, to: SequenceId);

    /// Tokens that there is room for beside what all sequences hold, in whole pages.
    fn free_tokens(&self) -> usize;

    /// Tokens committed.
    fn committed(&self, sequence: SequenceId) -> usize;

    /// Keeps the tentative rows on `path` (node ids of the sequence's tree in the last pass, from node 0 on, each the
    /// parent of the next) and drops the sequence's others. An empty path drops all.
    fn commit(&mut self, sequence: SequenceId, path: &[NodeId]);

    /// Forgets committed rows from `len` on; no effect when there are no more than `len`.
    fn truncate(&mut self, sequence: SequenceId, len: usize);
}

/// A target that can stop after some of its layers: a worse model for less time, in the same cache.
pub trait EarlyExit: Target {
    /// Layers in all.
    fn layers(&self) -> usize;

    /// [`Target::verify`] through the first `n_layers` layers (1 to [`EarlyExit::layers`]) and the head. The rows are only
    /// good to be read by other such passes: they have to be truncated away before the next whole one.
    fn verify_first(
        &mut self,
        n_layers: usize,
        cache: &mut Self::Cache,
        work: &[Work<'_>],
    ) -> Result<&Self::Pass, TargetError>;
}

/// A language model. A row's results depend on the tokens of its path alone, bit for bit: never on the other rows,
/// sequences, pages or threads of the pass.
pub trait Target {
    /// Where it keeps K/V rows.
    type Cache: Cache;
    /// Its results.
    type Pass: Pass;

    /// Number of logits.
    fn vocab_size(&self) -> usize;

    /// Most tokens a sequence may hold.
    fn context_size(&self) -> usize;

    /// Runs every row of every tree in one forward pass. The rows are tentative until committed; uncommitted rows of
    /// an earlier pass are dropped. On an error nothing has changed.
    fn verify(&mut self, cache: &mut Self::Cache, work: &[Work<'_>]) -> Result<&Self::Pass, TargetError>;
}

/// A target with prediction heads: from the hidden state of one row, each scores a token further ahead. They all depend on
/// that row alone, or each on the tokens that those before it are taken to say.
pub trait Heads: Target {
    /// Number of heads, the one that the row's own logits come from left out.
    fn n_heads(&self) -> usize;

    /// Scores `[n][rows][vocab_size]` of the first `n` heads for the last committed row of each sequence, whose hidden states
    /// are `hidden` `[rows][hidden_size]`: head `k`, from 0, scores the token `k + 2` positions after its row, the next one
    /// being what the row's own logits are for. As in [`Target::verify`], one row's scores do not depend on the others.
    /// Panics when there are fewer heads, and when a sequence has no committed row.
    fn score(&mut self, cache: &mut Self::Cache, n: usize, sequences: &[SequenceId], hidden: &[f32]) -> &[f32];

    /// Whether each head reads the token before the one that it scores: such heads are asked with [`Heads::follow`], others
    /// with [`Heads::score`].
    fn are_sequential(&self) -> bool;

    /// Asks the first `n` heads, one after another, about texts whose last token alone has no committed row:
    /// `each(i, scores)` is given a head's scores `[vocab_size]` for the token behind text `i`, and says which token the next
    /// head is to take as standing there, or ends the text. Texts that the cache has no room for are left out, tentative rows
    /// are dropped. Panics when there are fewer heads, and when a text has no committed row.
    fn follow(
        &mut self,
        cache: &mut Self::Cache,
        n: usize,
        texts: &[(SequenceId, &[TokenId])],
        each: &mut dyn FnMut(usize, &[f32]) -> Option<TokenId>,
    );
}
