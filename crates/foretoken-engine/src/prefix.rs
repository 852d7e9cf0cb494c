//! Cached sequences of finished requests, for later prompts that begin with the same tokens.

use std::collections::VecDeque;

use foretoken_decode::TokenId;
use foretoken_decode::target::SequenceId;

/// A finished request's rows in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where they are.
    pub sequence: SequenceId,
    /// The tokens they are of.
    pub tokens: Vec<TokenId>,
}

/// The sequences kept, the one to give up first in front.
#[derive(Debug, Default)]
pub struct Prefixes {
    kept: VecDeque<Kept>,
}

impl Prefixes {
    /// Fewer common tokens are not worth taking a sequence for.
    const LEAST: usize = 8;

    /// Keeps a sequence.
    pub fn keep(&mut self, kept: Kept) {
        self.kept.push_back(kept);
    }

    /// Takes out the sequence that shares the longest prefix with `prompt`, and says how long it is.
    pub fn take(&mut self, prompt: &[TokenId]) -> Option<(Kept, usize)> {
        let shared = |kept: &Kept| kept.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let best = self.kept.iter().enumerate().max_by_key(|(_, kept)| shared(kept))?;
        let (index, len) = (best.0, shared(best.1));
        if len < Self::LEAST {
            return None;
        }
        self.kept.remove(index).map(|kept| (kept, len))
    }

    /// Gives up the sequence that was kept the longest.
    pub fn give_up(&mut self) -> Option<Kept> {
        self.kept.pop_front()
    }

    /// Sequences kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(id: u32, tokens: &[TokenId]) -> Kept {
        Kept { sequence: SequenceId(id), tokens: tokens.to_vec() }
    }

    #[test]
    fn the_longest_common_prefix_wins_and_leaves_the_store() {
        let long: Vec<TokenId> = (0..40).collect();
        let mut other = long.clone();
        other[20] = 99;
        let mut prefixes = Prefixes::default();
        prefixes.keep(kept(0, &other));
        prefixes.keep(kept(1, &long[..30]));
        assert_eq!(prefixes.take(&long), Some((kept(1, &long[..30]), 30)));
        assert_eq!(prefixes.take(&long), Some((kept(0, &other), 20)));
        assert_eq!(prefixes.take(&long), None);
    }

    #[test]
    fn short_prefixes_are_left_and_the_oldest_goes_first() {
        let mut prefixes = Prefixes::default();
        prefixes.keep(kept(0, &[1, 2, 3]));
        prefixes.keep(kept(1, &[4; 20]));
        assert_eq!(prefixes.take(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), None);
        assert_eq!(prefixes.give_up().map(|k| k.sequence), Some(SequenceId(0)));
        assert_eq!(prefixes.len(), 1);
    }
}
