//! What a text has to look like: a grammar, seen as masks over the vocabulary.
//!
//! A mask is one more processor of the sampler, applied before all others, so coupled sampling and every acceptor keep
//! what they promise: the token at a position is still a function of (logits, settings, seed, position), where the
//! settings now include the grammar's state after the text before it.

mod follower;
mod mask;

pub(crate) use follower::{Follower, Masked};
pub use mask::TokenMask;

use std::fmt;

use crate::TokenId;

/// A matcher that walks along a text token by token, and back.
///
/// Everything it says is a function of the tokens taken, whatever it was asked or took back in between. End tokens are
/// not its business: where [`Constraint::may_end`] they are allowed, and nowhere else.
pub trait Constraint: Send + fmt::Debug {
    /// Allows in `mask`, which comes empty, the tokens that may come next. The error says in words why that cannot be
    /// known, such as a grammar that has become too large.
    fn mask(&mut self, mask: &mut TokenMask) -> Result<(), String>;

    /// Whether the grammar can take `token`, which may be outside the vocabulary, next: true for every token of the mask and perhaps for more, for a fraction
    /// of the cost.
    fn allows(&mut self, token: TokenId) -> bool;

    /// Takes a token that it allows.
    fn advance(&mut self, token: TokenId);

    /// Takes back the last `n` tokens.
    fn rollback(&mut self, n: usize);

    /// Whether the text may end here.
    fn may_end(&mut self) -> bool;

    /// Appends tokens that are likely to come next because no others can: guesses, to be drafted.
    fn forced(&mut self, tokens: &mut Vec<TokenId>);

    /// A copy in the same state.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
