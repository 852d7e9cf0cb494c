//! Prompt lookup: copies what followed the latest earlier occurrence of the text's last tokens (Saxena 2023).
//!
//! An index per n-gram length maps a hash of the n-gram to the position after its latest occurrence. It grows with the
//! text, so a proposal costs a few look-ups however long the text is.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::{Draft, Drafter};
use crate::TokenId;
use crate::sampler::TokenHasher;
use crate::target::{SequenceId, Target};

/// Lengths to try and how far to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLookupOptions {
    /// Longest n-gram that is looked up, at least `min_ngram`.
    pub max_ngram: usize,
    /// Shortest, at least 1.
    pub min_ngram: usize,
    /// Most tokens copied.
    pub max_len: usize,
}

impl Default for PromptLookupOptions {
    fn default() -> Self {
        Self { max_ngram: 8, min_ngram: 1, max_len: 16 }
    }
}

/// Drafts by copying from the text itself.
#[derive(Debug, Default)]
pub struct PromptLookup {
    options: PromptLookupOptions,
    indices: HashMap<SequenceId, Index>,
}

impl PromptLookup {
    /// A drafter with these options.
    pub fn new(options: PromptLookupOptions) -> Self {
        assert!(1 <= options.min_ngram && options.min_ngram <= options.max_ngram, "n-gram lengths are a range");
        Self { options, indices: HashMap::new() }
    }
}

impl<T: Target> Drafter<T> for PromptLookup {
    fn name(&self) -> &'static str {
        "prompt_lookup"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        for draft in drafts {
            let index = self.indices.entry(draft.sequence).or_insert_with(|| Index::new(self.options));
            let Some((start, matched)) = index.find(draft.tokens) else { continue };
            let len = self.options.max_len.min(draft.limits.max_nodes).min(draft.limits.max_depth);
            let p = confidence(matched);
            let mut parent = draft.tree.anchor();
            // A copy may run into itself: what follows the end of the text is what was just copied.
            let period = draft.tokens.len() - start;
            for i in 0..len {
                parent = draft.push(parent, draft.tokens[start + i % period], p);
            }
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.indices.remove(&sequence);
    }
}

/// First estimate of a copied token's chance after a match of this length; the budget learns the true one.
fn confidence(matched: usize) -> f32 {
    1.0 - 0.7 / (1.0 + 0.6 * matched as f32)
}

/// Latest occurrences of every n-gram of one text.
#[derive(Debug)]
struct Index {
    min_ngram: usize,
    /// `latest[n - min_ngram]`: hash of an n-gram to the position after it. Hashes may collide; the text decides.
    latest: Vec<HashMap<u64, u32, BuildHasherDefault<TokenHasher>>>,
    /// n-grams that end before this position are indexed.
    indexed: usize,
}

impl Index {
    fn new(options: PromptLookupOptions) -> Self {
        let lengths = options.max_ngram - options.min_ngram + 1;
        Self { min_ngram: options.min_ngram, latest: vec![HashMap::default(); lengths], indexed: 0 }
    }

    /// Position after the latest earlier occurrence of the longest n-gram that ends the text, and its length.
    fn find(&mut self, tokens: &[TokenId]) -> Option<(usize, usize)> {
        self.grow(tokens);
        self.latest.iter().enumerate().rev().find_map(|(i, latest)| {
            let n = self.min_ngram + i;
            let ngram = &tokens[tokens.len().checked_sub(n)?..];
            let &after = latest.get(&hash(ngram))?;
            let after = after as usize;
            (tokens[after - n..after] == *ngram).then_some((after, n))
        })
    }

    /// Indexes every n-gram that ends before the last token; the one that ends with it is what is looked up.
    fn grow(&mut self, tokens: &[TokenId]) {
        let known = tokens.len() - 1;
        for end in self.indexed + 1..=known {
            for (i, latest) in self.latest.iter_mut().enumerate() {
                if let Some(start) = end.checked_sub(self.min_ngram + i) {
                    latest.insert(hash(&tokens[start..end]), end as u32);
                }
            }
        }
        self.indexed = self.indexed.max(known);
    }
}

fn hash(ngram: &[TokenId]) -> u64 {
    ngram.iter().fold(ngram.len() as u64, |h, &token| {
        let mixed = (h ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_longest_then_latest_match() {
        let mut rng = 3u64;
        let mut text: Vec<TokenId> = Vec::new();
        let options = PromptLookupOptions { max_ngram: 5, min_ngram: 2, max_len: 4 };
        let mut index = Index::new(options);
        for _ in 0..600 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push((rng >> 33) as u32 % 3);
            if rng >> 60 == 0 {
                continue; // several tokens at once
            }
            let searched = (2..=5).rev().find_map(|n| {
                let suffix = &text[text.len().checked_sub(n)?..];
                let start = text[..text.len() - 1].windows(n).rposition(|w| w == suffix)?;
                Some((start + n, n))
            });
            assert_eq!(index.find(&text), searched);
        }
    }
}
