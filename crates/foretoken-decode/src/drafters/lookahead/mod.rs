//! Lookahead decoding (Fu et al. 2024, arXiv 2402.02057): a window of Jacobi iterations runs beside the text in every pass;
//! the n-grams that form in it are kept in a pool, and those that begin with the last token are the guesses.
//!
//! Window and guesses are branches of one token tree. The window's draws use the request's own noise at their positions.

mod window;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::rates::HitRates;
use super::{Draft, Drafter, Observation};
use crate::TokenId;
use crate::sampler::TokenHasher;
use crate::target::{SequenceId, Target};
use window::{Window, child};

/// The paper's W, N and G.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookaheadOptions {
    /// Most columns of the window, at least 1. Drafts that may have fewer guesses get a smaller window.
    pub columns: usize,
    /// Length of the n-grams, at least 3: a first token and what is guessed after it.
    pub ngram: usize,
    /// Most n-grams kept for a first token, and most verified in a pass.
    pub guesses: usize,
}

impl Default for LookaheadOptions {
    fn default() -> Self {
        Self { columns: 5, ngram: 4, guesses: 5 }
    }
}

/// Drafts n-grams that formed in its window.
#[derive(Debug)]
pub struct Lookahead {
    options: LookaheadOptions,
    texts: HashMap<SequenceId, Text>,
    rates: HitRates,
}

#[derive(Debug, Default)]
struct Text {
    window: Window,
    pool: Pool,
}

impl Default for Lookahead {
    fn default() -> Self {
        Self::new(LookaheadOptions::default())
    }
}

impl Lookahead {
    /// A row of the window is rarely right, and run for what it will be.
    const WINDOW_P: f32 = 0.01;

    /// A drafter with these options.
    pub fn new(options: LookaheadOptions) -> Self {
        assert!(options.columns > 0 && options.ngram > 2, "there are a window and n-grams of three");
        let kinds = options.guesses * (options.ngram - 1);
        let rates = HitRates::new((0..kinds).map(|kind| 0.3 / (1 + kind / (options.ngram - 1)) as f32));
        Self { options, texts: HashMap::new(), rates }
    }

    /// Columns of a window that leaves at least half of the rows to guesses.
    fn columns(&self, max_nodes: usize) -> usize {
        let LookaheadOptions { columns, ngram, .. } = self.options;
        (1..=columns).rev().find(|&columns| 2 * Window::rows(columns, ngram) <= max_nodes).unwrap_or(1)
    }
}

impl<T: Target> Drafter<T> for Lookahead {
    fn name(&self) -> &'static str {
        "lookahead"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        for draft in drafts {
            let columns = self.columns(draft.limits.max_nodes);
            let Text { window, pool } = self.texts.entry(draft.sequence).or_default();
            let for_guesses = draft.limits.max_nodes.saturating_sub(Window::rows(columns, self.options.ngram));
            let anchor = draft.tree.anchor();
            let last = draft.tokens[draft.tokens.len() - 1];
            let length = self.options.ngram - 1;
            for (rank, guess) in pool.after(last).iter().enumerate() {
                if (rank + 1) * length > for_guesses {
                    break;
                }
                let mut node = anchor;
                for (depth, &token) in guess.iter().take(draft.limits.max_depth).enumerate() {
                    node = child(draft, node, token, self.rates.p(rank * length + depth));
                }
            }
            window.push(draft, columns, Self::WINDOW_P);
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        let LookaheadOptions { ngram, guesses, .. } = self.options;
        for seen in seen.iter_mut().filter(|seen| !seen.verdict.tokens.is_empty()) {
            let Some(Text { window, pool }) = self.texts.get_mut(&seen.sequence) else { continue };
            let last = seen.tree.nodes()[seen.tree.anchor()].token;
            for (rank, guess) in pool.after(last).iter().enumerate() {
                for (depth, (guess, token)) in guess.iter().zip(&seen.verdict.tokens).enumerate() {
                    self.rates.observe(rank * (ngram - 1) + depth, guess == token);
                    if guess != token {
                        break;
                    }
                }
            }
            window.advance(seen, ngram, |gram| pool.add(gram, guesses));
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.texts.remove(&sequence);
    }

    fn unlearn(&mut self) {
        *self = Self::new(self.options);
    }
}

/// What followed a token in past windows, newest first.
#[derive(Debug, Default)]
struct Pool {
    after: HashMap<TokenId, Vec<Box<[TokenId]>>, BuildHasherDefault<TokenHasher>>,
}

impl Pool {
    /// First tokens with n-grams at most; when there are more, all are dropped, and the window soon finds new ones.
    const CAPACITY: usize = 1 << 14;

    fn after(&self, token: TokenId) -> &[Box<[TokenId]>] {
        self.after.get(&token).map_or(&[], Vec::as_slice)
    }

    /// Adds an n-gram in front of the others with its first token, of which `most` are kept.
    fn add(&mut self, gram: &[TokenId], most: usize) {
        if self.after.len() >= Self::CAPACITY {
            self.after.clear();
        }
        let known = self.after.entry(gram[0]).or_default();
        known.retain(|guess| **guess != gram[1..]);
        known.insert(0, gram[1..].into());
        known.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_the_newest_of_each_first_token() {
        let mut pool = Pool::default();
        for gram in [[1, 2, 3], [1, 4, 5], [2, 9, 9], [1, 2, 3], [1, 6, 7], [1, 8, 8]] {
            pool.add(&gram, 3);
        }
        let after: Vec<_> = pool.after(1).iter().map(|guess| guess.to_vec()).collect();
        assert_eq!(after, [[8, 8], [6, 7], [2, 3]]);
        assert_eq!(pool.after(3).len(), 0);
    }

    #[test]
    fn the_window_leaves_half_of_the_rows_to_guesses() {
        let lookahead = Lookahead::default();
        assert_eq!([4, 8, 16, 32].map(|rows| lookahead.columns(rows)), [1, 1, 3, 5]);
        assert_eq!(Window::rows(5, 4), 14);
    }
}
