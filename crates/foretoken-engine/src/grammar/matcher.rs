//! A compiled grammar as the sampler's constraint.

use std::fmt;

use foretoken_decode::TokenId;
use foretoken_decode::constraint::{Constraint, TokenMask};
use llguidance::Matcher;

use super::in_words;

/// A matcher and the tokens it has taken. Its errors are final; ours must not outlast the guess that ran into them, so it
/// is made anew when it is led back.
pub(super) struct GrammarMatcher {
    start: Matcher,
    matcher: Matcher,
    taken: Vec<TokenId>,
    vocab_size: usize,
}

impl GrammarMatcher {
    /// From a matcher in its initial state.
    pub fn new(start: Matcher, vocab_size: usize) -> Self {
        Self { matcher: start.clone(), start, taken: Vec::new(), vocab_size }
    }

    fn make_anew(&mut self) {
        self.matcher = self.start.clone();
        // What fails here fails in the next mask too, and is reported there.
        let _ = self.matcher.consume_tokens(&self.taken);
    }

    /// Whether nothing can follow.
    fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}

impl Constraint for GrammarMatcher {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<(), String> {
        if !self.is_complete() {
            let allowed = self.matcher.compute_mask().map_err(|error| in_words(&error.to_string()))?;
            mask.allow_words(allowed.as_slice());
        }
        Ok(())
    }

    fn allows(&mut self, token: TokenId) -> bool {
        if token as usize >= self.vocab_size || self.matcher.is_stopped() {
            return false;
        }
        match self.matcher.validate_tokens(&[token]) {
            Ok(n_valid) => n_valid == 1,
            Err(_) => {
                self.make_anew();
                false
            }
        }
    }

    fn advance(&mut self, token: TokenId) {
        self.taken.push(token);
        // An error stays with the matcher until the next mask or step back.
        let _ = self.matcher.consume_token(token);
    }

    fn rollback(&mut self, n: usize) {
        self.taken.truncate(self.taken.len() - n);
        if self.matcher.is_error() || self.matcher.rollback(n).is_err() {
            self.make_anew();
        }
    }

    fn may_end(&mut self) -> bool {
        self.is_complete() || self.matcher.is_accepting().unwrap_or(false)
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        if !self.matcher.is_stopped() {
            tokens.extend(self.matcher.compute_ff_tokens());
        }
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            start: self.start.clone(),
            matcher: self.matcher.clone(),
            taken: self.taken.clone(),
            vocab_size: self.vocab_size,
        })
    }
}

impl fmt::Debug for GrammarMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarMatcher").field("taken", &self.taken).finish_non_exhaustive()
    }
}
