//! Past outputs, bounded: two automata, of which the older is dropped whenever the younger is full.

use super::automaton::Automaton;
use crate::TokenId;

/// Outputs of finished sequences, the latest of them for certain.
#[derive(Debug, Default)]
pub(in crate::drafters) struct Store {
    young: Automaton,
    old: Automaton,
    /// How often the younger became the older.
    turns: usize,
}

impl Store {
    /// Tokens per generation, at some 150 bytes a token: 20 MB for both.
    const CAPACITY: usize = 1 << 16;

    /// Takes an output in; of one that is too long, the end.
    pub fn add(&mut self, output: &[TokenId]) {
        let output = &output[output.len().saturating_sub(Self::CAPACITY)..];
        if self.young.n_tokens() + output.len() > Self::CAPACITY {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
            self.turns += 1;
        }
        self.young.separate();
        output.iter().for_each(|&token| self.young.push(token));
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.young.bytes() + self.old.bytes()
    }

    /// The younger, then the older.
    pub fn automata(&self) -> [&Automaton; 2] {
        [&self.young, &self.old]
    }

    /// Changes when matches in the automata are no longer theirs.
    pub fn turns(&self) -> usize {
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_outputs_stay_and_the_oldest_go() {
        let mut store = Store::default();
        let known = |store: &Store, token| store.automata().map(|a| a.advance(Default::default(), token).len);
        for i in 0..3 {
            store.add(&vec![i; Store::CAPACITY / 2 + 1]);
            assert!(store.automata().iter().all(|a| a.n_tokens() <= Store::CAPACITY));
        }
        assert_eq!([0, 1, 2].map(|token| known(&store, token)), [[0, 0], [0, 1], [1, 0]]);
        assert_eq!(store.turns(), 2);
        store.add(&vec![9; 3 * Store::CAPACITY]);
        assert_eq!(store.young.n_tokens(), Store::CAPACITY);
    }

    #[test]
    fn once_full_it_grows_no_more() {
        let mut store = Store::default();
        let output = |i: u32| (0..4096).map(|j| (i * 4096 + j).wrapping_mul(0x9e37_79b9) % 5000).collect::<Vec<_>>();
        let mut sizes = (0..80).map(|i| {
            store.add(&output(i));
            store.bytes()
        });
        let full = sizes.nth(40);
        assert!(sizes.all(|bytes| Some(bytes) == full));
    }
}
