//! Cached rows of finished requests, for later prompts that begin with the same tokens.

use std::collections::VecDeque;

use crate::target::{Cache, SequenceId};
use crate::{TokenId, common};

/// A finished request's rows in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    /// Where they are.
    sequence: SequenceId,
    /// The tokens they are of.
    tokens: Vec<TokenId>,
    /// Who may start from them.
    scope: u64,
}

/// The sequences kept, the one to give up first in front. Rows that two of them share are in the cache once.
#[derive(Debug, Default)]
pub(super) struct KeptRows {
    kept: VecDeque<Kept>,
}

impl KeptRows {
    /// Keeps a sequence whose rows are of `tokens`, and gives up those that it makes superfluous: what it goes on from,
    /// and the least recently used beyond `most`.
    pub fn keep<C: Cache>(&mut self, cache: &mut C, scope: u64, sequence: SequenceId, tokens: &[TokenId], most: usize) {
        self.kept.retain(|kept| {
            let superfluous = kept.scope == scope && tokens.starts_with(&kept.tokens);
            if superfluous {
                cache.close(kept.sequence);
            }
            !superfluous
        });
        self.kept.push_back(Kept { sequence, tokens: tokens.to_vec(), scope });
        while self.kept.len() > most && self.give_up(cache) {}
    }

    /// The sequence that shares the longest prefix with `tokens`, now the most recently used, and how long the prefix is.
    /// `None`: no token is shared.
    pub fn find(&mut self, scope: u64, tokens: &[TokenId]) -> Option<(SequenceId, usize)> {
        let shared = |kept: &Kept| common(&kept.tokens, tokens);
        let ours = (0..self.kept.len()).filter(|&i| self.kept[i].scope == scope);
        let best = ours.max_by_key(|&i| shared(&self.kept[i]))?;
        let len = shared(&self.kept[best]);
        if len == 0 {
            return None;
        }
        let kept = self.kept.remove(best).expect("it was found there");
        let sequence = kept.sequence;
        self.kept.push_back(kept);
        Some((sequence, len))
    }

    /// Gives up the least recently used sequence; false when there is none.
    pub fn give_up<C: Cache>(&mut self, cache: &mut C) -> bool {
        self.kept.pop_front().map(|kept| cache.close(kept.sequence)).is_some()
    }

    /// Sequences kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }
}
