//! A constraint made up from a seed: an automaton over tokens, with states that leave no choice.

use foretoken_decode::TokenId;
use foretoken_decode::constraint::{Constraint, TokenMask};

use crate::rng::mix;

/// A random automaton. It checks that it is led by its rules.
#[derive(Clone, Debug)]
pub struct Script {
    /// Tells automata apart.
    pub seed: u64,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Number of states.
    pub n_states: u64,
    /// No mask can be had after this many tokens.
    pub fails_at: Option<usize>,
    /// The state after each token taken.
    states: Vec<u64>,
}

impl Script {
    /// The automaton of a seed, in its first state.
    pub fn new(seed: u64, vocab_size: usize) -> Self {
        Self { seed, vocab_size, n_states: 9, fails_at: None, states: Vec::new() }
    }

    fn state(&self) -> u64 {
        self.states.last().copied().unwrap_or(0)
    }

    fn hash(&self, of: u64) -> u64 {
        mix(mix(self.seed ^ self.state() << 40) ^ of)
    }

    /// The only token of a state that leaves no choice.
    fn only(&self) -> Option<TokenId> {
        (self.hash(1).is_multiple_of(3)).then(|| (self.hash(2) % self.vocab_size as u64) as TokenId)
    }

    fn takes(&self, token: TokenId) -> bool {
        match self.only() {
            _ if token as usize >= self.vocab_size => false,
            Some(only) => token == only,
            None => self.hash(100 + u64::from(token)) % 100 < 10 + self.hash(3) % 80,
        }
    }
}

impl Constraint for Script {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<(), String> {
        assert!(mask.is_empty(), "masks come empty");
        if self.fails_at.is_some_and(|len| self.states.len() >= len) {
            return Err("it was told to fail".into());
        }
        (0..self.vocab_size as TokenId).filter(|&token| self.takes(token)).for_each(|token| mask.allow(token));
        Ok(())
    }

    fn allows(&mut self, token: TokenId) -> bool {
        self.takes(token)
    }

    fn advance(&mut self, token: TokenId) {
        assert!(self.takes(token), "only what it allows is taken");
        self.states.push(self.hash(1000 + u64::from(token)) % self.n_states);
    }

    fn rollback(&mut self, n: usize) {
        self.states.truncate(self.states.len().checked_sub(n).expect("no more is taken back than was taken"));
    }

    fn may_end(&mut self) -> bool {
        self.hash(4).is_multiple_of(7) || !(0..self.vocab_size as TokenId).any(|token| self.takes(token))
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        let mut ahead = self.clone();
        // Guesses may also be wrong: it does not look whether the text could end.
        while tokens.len() < 6
            && let Some(token) = ahead.only()
        {
            tokens.push(token);
            ahead.advance(token);
        }
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
