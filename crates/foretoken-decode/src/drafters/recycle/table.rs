//! Successors by context: for the last tokens of a text, what the latest row after them found likeliest.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::TokenId;
use crate::sampler::{Candidate, TokenHasher};

/// Most tokens of a context.
pub(in crate::drafters) const ORDERS: usize = 3;

/// The last tokens of a text, latest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drafters) struct Context {
    tokens: [TokenId; ORDERS],
    len: usize,
}

impl Context {
    /// The context at the end of a text.
    pub fn of(text: &[TokenId]) -> Self {
        let mut context = Self { tokens: [0; ORDERS], len: 0 };
        let latest = text.iter().rev().take(ORDERS);
        latest.enumerate().for_each(|(i, &token)| {
            context.tokens[i] = token;
            context.len = i + 1;
        });
        context
    }

    /// The context one token further.
    pub fn after(mut self, token: TokenId) -> Self {
        self.tokens.copy_within(..ORDERS - 1, 1);
        self.tokens[0] = token;
        self.len = (self.len + 1).min(ORDERS);
        self
    }

    /// The key of its last `order` tokens; `None` when it is shorter.
    fn key(&self, order: usize) -> Option<u64> {
        let tokens = (order <= self.len).then(|| &self.tokens[..order])?;
        Some(tokens.iter().fold(order as u64, |key, &token| {
            let mixed = (key ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 32)
        }))
    }
}

/// The likeliest successors of a context, best first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::drafters) struct Successors {
    candidates: [Candidate; Successors::MAX],
    len: u8,
}

impl Successors {
    /// Most successors that are kept.
    pub const MAX: usize = 8;

    /// Of a row's likeliest tokens, best first.
    pub fn new(best: &[Candidate]) -> Self {
        let len = best.len().min(Self::MAX);
        let mut candidates = [Candidate { token: 0, logit: 0.0 }; Self::MAX];
        candidates[..len].copy_from_slice(&best[..len]);
        Self { candidates, len: len as u8 }
    }

    /// Best first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates[..usize::from(self.len)]
    }
}

/// Successors by context. Two generations bound it: when the younger is full, the older is dropped, and with it what was
/// not written again since.
#[derive(Debug, Default)]
pub(in crate::drafters) struct Table {
    young: Map,
    old: Map,
}

type Map = HashMap<u64, Successors, BuildHasherDefault<TokenHasher>>;

impl Table {
    /// Contexts per generation, as many as a map of 65,536 places takes: some 5 MB.
    const CAPACITY: usize = 7 << 13;
    /// Contexts after which a generation gets all its memory: a server that has run for a while does not grow any more.
    const SMALL: usize = 1 << 12;

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        (self.young.capacity() + self.old.capacity()) * size_of::<(u64, Successors)>()
    }

    /// What follows the last `order` tokens of a context, if anything is known.
    pub fn get(&self, context: &Context, order: usize) -> Option<&Successors> {
        let key = context.key(order)?;
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    /// Replaces what follows a context, under each of its orders.
    pub fn put(&mut self, context: &Context, successors: Successors) {
        if self.young.len() + ORDERS > Self::CAPACITY {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        if self.young.len() >= Self::SMALL {
            self.young.reserve(Self::CAPACITY - self.young.len());
        }
        for key in (1..=ORDERS).filter_map(|order| context.key(order)) {
            self.young.insert(key, successors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn successors(token: TokenId) -> Successors {
        Successors::new(&[Candidate { token, logit: 1.0 }])
    }

    #[test]
    fn a_longer_context_tells_apart_what_a_shorter_one_cannot() {
        let mut table = Table::default();
        table.put(&Context::of(&[1, 2, 3]), successors(7));
        table.put(&Context::of(&[9, 2, 3]), successors(8));
        let context = Context::of(&[4, 1, 2]).after(3);
        assert_eq!(context, Context::of(&[0, 1, 2, 3]));
        let token = |order| table.get(&context, order).map(|s| s.candidates()[0].token);
        assert_eq!([token(1), token(2), token(3)], [Some(8), Some(8), Some(7)]);
        assert_eq!(table.get(&Context::of(&[3]), 1).unwrap().candidates()[0].token, 8);
        assert_eq!(table.get(&Context::of(&[3]), 2), None);
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest() {
        let mut table = Table::default();
        for token in 0..3 * Table::CAPACITY as u32 {
            table.put(&Context::of(&[token]), successors(token));
        }
        assert!(table.young.len() <= Table::CAPACITY && table.old.len() <= Table::CAPACITY);
        assert!(table.get(&Context::of(&[5]), 1).is_none());
        let last = 3 * Table::CAPACITY as u32 - 1;
        assert!(table.get(&Context::of(&[last]), 1).is_some());
        let full = table.bytes();
        assert!(full < 11 << 20, "{full} bytes");
        for token in last..last + 2 * Table::CAPACITY as u32 {
            table.put(&Context::of(&[token]), successors(token));
            assert_eq!(table.bytes(), full);
        }
    }
}
