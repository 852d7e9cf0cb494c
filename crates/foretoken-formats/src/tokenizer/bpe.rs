//! Byte-pair merges over token ids (Sennrich et al. 2016, on bytes as in GPT-2).
//!
//! Two flat tables made straight from the file's strings, because loading is part of the time to the first token: the
//! vocabulary and merges of 152k tokens are ready in a fraction of the time that string-keyed tables take.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ahash::RandomState;

use super::bytes::ALPHABET;
use crate::gguf::Strings;
use crate::{FormatError, TokenId};

/// Tokens by text, while loading. The hash is seeded at random, so that a hostile file cannot choose collisions.
pub(super) type ByText<'a> = HashMap<&'a str, TokenId, RandomState>;

/// The merges, in ids.
#[derive(Debug)]
pub(super) struct Bpe {
    /// Token of each single byte. Some vocabularies lack bytes; those vanish from the text, as in the reference.
    byte_tokens: [Option<TokenId>; 256],
    /// Left and right token to rank (lower merges first) and merged token.
    merges: HashMap<(TokenId, TokenId), (u32, TokenId), RandomState>,
}

/// Memory for [`Bpe::encode`], kept from word to word.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Merge>>,
}

/// A piece of the word in a doubly linked list; merging extends the left piece and unlinks the right one.
#[derive(Clone, Copy)]
struct Symbol {
    token: TokenId,
    before: u32,
    after: u32,
}

const NONE: u32 = u32::MAX;

/// A candidate: lowest rank first, then leftmost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    rank: u32,
    at: u32,
    merged: TokenId,
}

impl Bpe {
    /// From merges written as "left right"; both parts and their union must be tokens.
    pub(super) fn new(merges: &Strings, by_text: &ByText<'_>) -> Result<Self, FormatError> {
        let mut buffer = [0; 4];
        let byte_tokens = ALPHABET.map(|c| by_text.get(&*c.encode_utf8(&mut buffer)).copied());

        let mut table = HashMap::with_capacity_and_hasher(merges.len(), RandomState::new());
        let mut joined = String::new();
        for (rank, merge) in merges.iter().enumerate() {
            let bad = |found: String| FormatError::Tokenizer {
                found: format!("merge {rank} {merge:?} (tokenizer.ggml.merges) {found}"),
                wanted: "two tokens of the vocabulary with one space between, whose union is a token".to_owned(),
            };
            let (left, right) = merge.split_once(' ').ok_or_else(|| bad("has no space".into()))?;
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let token = |text: &str| {
                by_text.get(text).copied().ok_or_else(|| bad(format!("needs {text:?}, which is not in the vocabulary")))
            };
            table.insert((token(left)?, token(right)?), (rank as u32, token(&joined)?));
        }
        Ok(Self { byte_tokens, merges: table })
    }

    /// Appends the tokens of one word, given as bytes.
    pub(super) fn encode(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<TokenId>) {
        let Scratch { symbols, queue } = scratch;
        symbols.clear();
        queue.clear();
        for token in word.iter().filter_map(|byte| self.byte_tokens[usize::from(*byte)]) {
            let at = symbols.len() as u32;
            symbols.push(Symbol { token, before: at.wrapping_sub(1), after: at + 1 });
        }
        let Some(last) = symbols.last_mut() else { return };
        last.after = NONE;
        for at in 0..symbols.len() as u32 {
            queue.extend(self.candidate(symbols, at));
        }

        while let Some(Reverse(Merge { at, merged, .. })) = queue.pop() {
            // An entry is stale when its pair has changed since: then the pair does not give this token any more.
            if self.candidate(symbols, at).is_none_or(|Reverse(now)| now.merged != merged) {
                continue;
            }
            let Symbol { before, after: right, .. } = symbols[at as usize];
            let after = symbols[right as usize].after;
            symbols[right as usize] = Symbol { token: NONE, before: NONE, after: NONE };
            symbols[at as usize] = Symbol { token: merged, before, after };
            if after != NONE {
                symbols[after as usize].before = at;
            }
            if before != NONE {
                queue.extend(self.candidate(symbols, before));
            }
            queue.extend(self.candidate(symbols, at));
        }

        let mut at = 0;
        while at != NONE {
            out.push(symbols[at as usize].token);
            at = symbols[at as usize].after;
        }
    }

    /// The merge of the piece at `at` with the one after it, if there is such a merge.
    fn candidate(&self, symbols: &[Symbol], at: u32) -> Option<Reverse<Merge>> {
        let left = symbols[at as usize];
        let right = symbols.get(left.after as usize)?;
        let (rank, merged) = *self.merges.get(&(left.token, right.token))?;
        Some(Reverse(Merge { rank, at, merged }))
    }
}
