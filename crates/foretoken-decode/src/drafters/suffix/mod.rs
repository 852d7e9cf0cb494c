//! Copies what followed the same words before: in the text itself, and in past outputs.
//!
//! An automaton of all substrings finds the longest suffix that occurred earlier and counts what followed it, as suffix
//! trees do in SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975). Where continuations differ, the draft is a tree;
//! shorter suffixes add what the longest has not seen. The chance of a guess is how often guesses of its kind came true.

mod automaton;
mod store;

use std::collections::HashMap;

use super::best_first::{Guess, grow};
use super::rates::HitRates;
use super::{Draft, Drafter, Observation};
use crate::TokenId;
use crate::sampler::{Candidate, Draw};
use crate::target::{SequenceId, Target};
use crate::tree::{NodeId, TokenTree};
use automaton::{Automaton, Continuation, Match};
use store::Store;

/// Drafts by copying.
#[derive(Debug)]
pub struct Suffix {
    texts: HashMap<SequenceId, Text>,
    store: Store,
    rates: HitRates,
    buffers: Buffers,
}

/// One sequence's automaton, and where its end stands in the store.
#[derive(Debug, Default)]
struct Text {
    automaton: Automaton,
    stored: [Match; 2],
    turns: usize,
    /// What the target decided, for the store.
    output: Vec<TokenId>,
}

/// Matches of one text: in itself, in the younger and in the older outputs.
type Matches = [Match; 3];

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
            store: Store::default(),
            rates: HitRates::new((0..kinds::N).map(kinds::prior)),
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

impl Suffix {
    /// The seam for scopes: the outputs that a sequence may copy from and adds to.
    fn store_of(stores: &mut Store, _sequence: SequenceId) -> &mut Store {
        stores
    }
}

impl Text {
    /// Tokens before the end that have to be followed through the store to find the longest match there.
    const FOLLOWED: usize = 64;

    /// Takes in the tokens that it has not seen.
    fn grow(&mut self, tokens: &[TokenId], store: &Store) {
        match store.turns() - self.turns {
            0 => {}
            1 => self.stored = [Match::default(), self.stored[0]],
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

    fn matches(&self) -> Matches {
        [self.automaton.repeated(), self.stored[0], self.stored[1]]
    }
}

/// What a sequence can copy from: itself, the younger and the older outputs.
#[derive(Clone, Copy)]
struct Sources<'a>([&'a Automaton; 3]);

impl<'a> Sources<'a> {
    fn new(text: &'a Text, store: &'a Store) -> Self {
        let [young, old] = store.automata();
        Self([&text.automaton, young, old])
    }

    fn advance(&self, matches: Matches, token: TokenId) -> Matches {
        std::array::from_fn(|i| self.0[i].advance(matches[i], token))
    }

    /// What may follow a text that ends with these matches, the likeliest first, into `buffers.known`.
    fn known(&self, matches: Matches, rates: &HitRates, buffers: &mut Buffers) {
        let Buffers { followers, known, .. } = buffers;
        known.clear();
        let mut open = matches;
        for rank in 0..MOST_MATCHES {
            // The longest match left, wherever it is; of equal ones the text's own.
            let source = (0..open.len()).rev().max_by_key(|&i| open[i].len).expect("three sources");
            let matched = open[source];
            if matched.len == 0 {
                break;
            }
            open[source] = self.0[source].shorter(matched);
            followers.clear();
            followers.extend(self.0[source].continuations(matched, MOST_CONTINUATIONS));
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

/// Guesses from continuations, in the order in which the target would draw among them: what its processors forbid is
/// left out, and its noise decides between those that are close.
fn guesses(draw: &mut Draw<'_>, tree: &TokenTree, node: NodeId, buffers: &mut Buffers, out: &mut Vec<Guess>) {
    let Buffers { known, candidates, .. } = buffers;
    let scale = if draw.is_greedy() { 1.0 } else { draw.temperature() };
    candidates.clear();
    candidates.extend(known.iter().map(|k| Candidate { token: k.token, logit: scale * libm::logf(k.p) }));
    draw.draw_few(tree, node, MOST_GUESSES, candidates);
    out.extend(candidates.iter().zip(&*known).map(|(c, k)| Guess { token: c.token, p: k.p }));
}

impl<T: Target> Drafter<T> for Suffix {
    fn name(&self) -> &'static str {
        "suffix"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let Self { texts, store, rates, buffers } = self;
        for draft in drafts {
            let store = Self::store_of(store, draft.sequence);
            let text = texts.entry(draft.sequence).or_default();
            text.grow(draft.tokens, store);
            let sources = Sources::new(text, store);
            let guesses = |draft: &mut Draft<'_>, node: NodeId, matches: Matches, out: &mut Vec<Guess>| {
                sources.known(matches, rates, buffers);
                guesses(&mut draft.draw, draft.tree, node, buffers, out);
            };
            grow(draft, text.matches(), guesses, |matches, token| sources.advance(matches, token));
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        let Self { texts, store, rates, buffers } = self;
        for seen in seen.iter().filter(|seen| !seen.verdict.tokens.is_empty()) {
            let store = Self::store_of(store, seen.sequence);
            let text = texts.entry(seen.sequence).or_default();
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
            Self::store_of(&mut self.store, sequence).add(&text.output);
        }
    }

    fn bytes(&self) -> usize {
        let texts = self.texts.values().map(|text| &text.automaton);
        texts.chain(self.store.automata()).map(Automaton::bytes).sum()
    }

    fn unlearn(&mut self) {
        *self = Self::default();
    }
}
