//! A sequence's text as something to copy from: its own automaton, and how far its end matches past outputs.

use super::automaton::{Automaton, Match};
use super::store::Store;
use crate::TokenId;

/// One sequence's automaton, and where its end stands in the store.
#[derive(Debug, Default)]
pub(in crate::drafters) struct Text {
    /// Whose outputs it copies from and adds to.
    pub scope: u64,
    automaton: Automaton,
    stored: [Match; 2],
    /// Of the store, when `stored` was right.
    turns: usize,
    /// What the target decided, for the store.
    pub output: Vec<TokenId>,
}

/// Matches of one text: in itself, in the younger and in the older outputs.
pub(in crate::drafters) type Matches = [Match; 3];

impl Text {
    /// Tokens before the end that have to be followed through the store to find the longest match there.
    const FOLLOWED: usize = 64;

    /// A text of a scope, of which nothing has been seen.
    pub fn new(scope: u64) -> Self {
        Self { scope, ..Self::default() }
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.automaton.bytes() + self.output.capacity() * size_of::<TokenId>()
    }

    /// Takes in the tokens that it has not seen.
    pub fn grow(&mut self, tokens: &[TokenId], store: &Store) {
        match store.turns().checked_sub(self.turns) {
            Some(0) => {}
            Some(1) => self.stored = [Match::default(), self.stored[0]],
            // The store is another: the scope was forgotten meanwhile.
            _ => self.stored = Default::default(),
        }
        self.turns = store.turns();
        for (i, &token) in tokens.iter().enumerate().skip(self.automaton.n_tokens()) {
            self.automaton.push(token);
            if i + Self::FOLLOWED >= tokens.len() {
                let outputs = store.automata().into_iter();
                self.stored.iter_mut().zip(outputs).for_each(|(m, output)| *m = output.advance(*m, token));
            }
        }
    }

    pub fn matches(&self) -> Matches {
        [self.automaton.repeated(), self.stored[0], self.stored[1]]
    }
}

/// What a sequence can copy from: itself, the younger and the older outputs.
#[derive(Clone, Copy)]
pub(in crate::drafters) struct Sources<'a>([&'a Automaton; 3]);

impl<'a> Sources<'a> {
    pub fn new(text: &'a Text, store: &'a Store) -> Self {
        let [young, old] = store.automata();
        Self([&text.automaton, young, old])
    }

    pub fn advance(&self, matches: Matches, token: TokenId) -> Matches {
        std::array::from_fn(|i| self.0[i].advance(matches[i], token))
    }

    /// The longest of some matches, wherever it is, and of equal ones the text's own; a shorter one takes its place. `None`
    /// when none is left.
    pub fn longest(&self, open: &mut Matches) -> Option<(&'a Automaton, Match)> {
        let source = (0..open.len()).rev().max_by_key(|&source| open[source].len)?;
        let matched = open[source];
        open[source] = self.0[source].shorter(matched);
        (matched.len > 0).then_some((self.0[source], matched))
    }
}
