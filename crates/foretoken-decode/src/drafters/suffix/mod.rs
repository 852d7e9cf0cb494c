//! Copies what followed the same words before: in the text itself, and in past outputs.
//!
//! An automaton of all substrings finds the longest suffix that occurred earlier and counts what followed it, as suffix
//! trees do in SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975). Where continuations differ, the draft is a tree;
//! shorter suffixes add what the longest has not seen. The chance of a guess is how often guesses of its kind came true.

mod automaton;
mod store;
mod text;

use std::collections::HashMap;

use super::best_first::{Growth, Guess, as_drawn, grow};
use super::rates::HitRates;
use super::scopes::Scopes;
use super::{Draft, Drafter, Observation};
use crate::TokenId;
use crate::sampler::Candidate;
use crate::target::{SequenceId, Target};
use crate::tree::NodeId;
pub(super) use automaton::Continuation;
pub(super) use store::Store;
pub(super) use text::{Matches, Sources, Text};

/// Drafts by copying.
#[derive(Debug)]
pub struct Suffix {
    texts: HashMap<SequenceId, Text>,
    stores: Scopes<Store>,
    rates: HitRates,
    growth: Growth<Matches>,
    buffers: Buffers,
}

#[derive(Debug, Default)]
struct Buffers {
    followers: Vec<Continuation>,
    candidates: Vec<Candidate>,
    known: Vec<Known>,
}

/// A continuation and what kind of guess it is.
#[derive(Clone, Copy, Debug)]
struct Known {
    token: TokenId,
    kind: usize,
    p: f32,
}

impl Default for Suffix {
    fn default() -> Self {
        Self {
            texts: HashMap::new(),
            stores: Scopes::default(),
            rates: HitRates::new((0..kinds::N).map(kinds::prior)),
            growth: Growth::default(),
            buffers: Buffers::default(),
        }
    }
}

/// Kinds of guesses: by length of the match, its rank among the matches, share of the occurrences and place.
mod kinds {
    const LENGTHS: [u32; 7] = [2, 3, 4, 6, 9, 16, 32];
    const SHARES: [f32; 3] = [0.34, 0.67, 0.99];
    const RANKS: usize = 3;
    const PLACES: usize = 3;

    pub const N: usize = (LENGTHS.len() + 1) * RANKS * PLACES * (SHARES.len() + 1);

    pub fn of(len: u32, rank: usize, place: usize, share: f32) -> usize {
        let length = LENGTHS.iter().filter(|&&least| len >= least).count();
        let share = SHARES.iter().filter(|&&least| share >= least).count();
        ((length * RANKS + rank.min(RANKS - 1)) * PLACES + place.min(PLACES - 1)) * (SHARES.len() + 1) + share
    }

    /// Longer matches and larger shares are likelier to come again.
    pub fn prior(kind: usize) -> f32 {
        let share = [0.2, 0.4, 0.7, 1.0][kind % (SHARES.len() + 1)];
        let place = kind / (SHARES.len() + 1) % PLACES;
        let rank = kind / (SHARES.len() + 1) / PLACES % RANKS;
        let length = kind / (SHARES.len() + 1) / PLACES / RANKS;
        share * (1.0 - 0.75 / (1.0 + 0.8 * length as f32)) / (1 + place + 2 * rank) as f32
    }
}

/// Continuations looked at in one place; a single token can have been followed by thousands.
const MOST_CONTINUATIONS: usize = 32;
/// Matches of decreasing length asked for what followed them.
const MOST_MATCHES: usize = 3;
/// Guesses below one node.
const MOST_GUESSES: usize = 4;

impl Sources<'_> {
    /// What may follow a text that ends with these matches, the likeliest first, into `buffers.known`.
    fn known(&self, matches: Matches, rates: &HitRates, buffers: &mut Buffers) {
        let Buffers { followers, known, .. } = buffers;
        known.clear();
        let mut open = matches;
        for rank in 0..MOST_MATCHES {
            let Some((source, matched)) = self.longest(&mut open) else { break };
            followers.clear();
            followers.extend(source.continuations(matched, MOST_CONTINUATIONS));
            let total: u32 = followers.iter().map(|c| c.count).sum();
            followers.sort_unstable_by_key(|c| std::cmp::Reverse((c.count, c.latest)));
            for (place, follower) in followers.iter().take(MOST_GUESSES).enumerate() {
                if known.iter().all(|k| k.token != follower.token) {
                    let kind = kinds::of(matched.len, rank, place, follower.count as f32 / total as f32);
                    known.push(Known { token: follower.token, kind, p: rates.p(kind) });
                }
            }
        }
        known.sort_by(|a, b| b.p.total_cmp(&a.p));
        known.truncate(MOST_GUESSES);
    }
}

impl<T: Target> Drafter<T> for Suffix {
    fn name(&self) -> &'static str {
        "suffix"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let Self { texts, stores, rates, growth, buffers } = self;
        for draft in drafts {
            let store = stores.of(draft.scope);
            let text = texts.entry(draft.sequence).or_insert_with(|| Text::new(draft.scope));
            text.grow(draft.tokens, store);
            let sources = Sources::new(text, store);
            let guesses = |draft: &mut Draft<'_>, node: NodeId, matches: Matches, out: &mut Vec<Guess>| {
                sources.known(matches, rates, buffers);
                let Buffers { known, candidates, .. } = &mut *buffers;
                let likely = known.iter().map(|k| Guess { token: k.token, p: k.p });
                as_drawn(&mut draft.draw, draft.tree, node, likely, candidates, out);
            };
            grow(draft, growth, text.matches(), guesses, |matches, token, _| sources.advance(matches, token));
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        let Self { texts, stores, rates, buffers, .. } = self;
        for seen in seen.iter().filter(|seen| !seen.verdict.tokens.is_empty()) {
            let store = stores.of(seen.scope);
            let text = texts.entry(seen.sequence).or_insert_with(|| Text::new(seen.scope));
            let output = &seen.verdict.tokens;
            let decided = seen.tokens.len() - output.len();
            for (i, &token) in output.iter().enumerate() {
                text.grow(&seen.tokens[..decided + i], store);
                Sources::new(text, store).known(text.matches(), rates, buffers);
                buffers.known.iter().for_each(|k| rates.observe(k.kind, k.token == token));
            }
            text.output.extend_from_slice(output);
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        if let Some(text) = self.texts.remove(&sequence) {
            self.stores.of(text.scope).add(&text.output);
        }
    }

    fn bytes(&self) -> usize {
        let stored = self.stores.iter().map(Store::bytes).sum::<usize>();
        stored + self.texts.values().map(Text::bytes).sum::<usize>()
    }

    fn unlearn(&mut self) {
        (self.stores, self.texts) = Default::default();
    }
}
