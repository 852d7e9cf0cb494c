//! A constraint that follows the sampler's walk over a tree, only when it is asked something.

use std::sync::Arc;

use super::{Constraint, TokenMask};
use crate::TokenId;

/// A constraint and the part of the output that it has taken. Walks go back and forth between siblings, and most of their
/// nodes ask for nothing, so it moves when a mask is wanted: back to the last token in common, then ahead.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    constraint: Box<dyn Constraint>,
    end_tokens: Arc<[TokenId]>,
    taken: Vec<TokenId>,
    mask: Option<TokenMask>,
    /// Whether `mask` is that after `taken`, and with which answer.
    known: Option<Result<Masked, String>>,
}

/// What a mask leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masked {
    /// Tokens of the grammar, perhaps end tokens too.
    Open,
    /// Nothing but end tokens.
    Ended,
}

impl Follower {
    /// `end_tokens` are allowed where the text may end.
    pub fn new(constraint: Box<dyn Constraint>, end_tokens: Arc<[TokenId]>) -> Self {
        Self { constraint, end_tokens, taken: Vec::new(), mask: None, known: None }
    }

    /// The tokens of a vocabulary that may come after `output`; none after an output that the grammar cannot take.
    pub fn mask(&mut self, output: &[TokenId], vocab_size: usize) -> Result<(Masked, &TokenMask), String> {
        let follows = self.follow(output);
        let mut mask = self.mask.take().unwrap_or_else(|| TokenMask::none(vocab_size));
        let masked = match (&self.known, follows) {
            (_, false) => {
                mask.clear();
                self.known = None;
                Ok(Masked::Open)
            }
            (Some(known), true) => known.clone(),
            (None, true) => {
                mask.clear();
                let computed = self.compute(&mut mask);
                self.known.insert(computed).clone()
            }
        };
        let mask = self.mask.insert(mask);
        masked.map(|masked| (masked, &*mask))
    }

    /// Whether `token` may come after `output`, as far as the grammar can say cheaply.
    pub fn allows(&mut self, output: &[TokenId], token: TokenId) -> bool {
        self.follow(output)
            && match self.end_tokens.contains(&token) {
                true => self.constraint.may_end(),
                false => self.constraint.allows(token),
            }
    }

    /// Appends guesses at what has to come after `output`.
    pub fn forced(&mut self, output: &[TokenId], tokens: &mut Vec<TokenId>) {
        if self.follow(output) {
            self.constraint.forced(tokens);
        }
    }

    fn compute(&mut self, mask: &mut TokenMask) -> Result<Masked, String> {
        self.constraint.mask(mask)?;
        self.end_tokens.iter().for_each(|&token| mask.forbid(token));
        let masked = if mask.is_empty() { Masked::Ended } else { Masked::Open };
        if self.constraint.may_end() {
            self.end_tokens.iter().for_each(|&token| mask.allow(token));
        }
        Ok(masked)
    }

    /// Moves to the end of `output`; false when the grammar cannot take it, and then it stands before the token that it
    /// cannot.
    fn follow(&mut self, output: &[TokenId]) -> bool {
        let common = self.taken.iter().zip(output).take_while(|(a, b)| a == b).count();
        if common < self.taken.len() {
            self.constraint.rollback(self.taken.len() - common);
            self.taken.truncate(common);
            self.known = None;
        }
        for &token in &output[common..] {
            if self.end_tokens.contains(&token) || !self.constraint.allows(token) {
                return false;
            }
            self.constraint.advance(token);
            self.taken.push(token);
            self.known = None;
        }
        true
    }
}
