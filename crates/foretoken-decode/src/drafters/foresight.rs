//! A tree of what a target's own prediction heads foresee.
//!
//! Each head names its tokens without knowing what the heads before it will be taken to say; siblings are the next in the
//! order in which the target would draw from the head's scores, with the request's own processors and noise. How far a guess
//! can be trusted is learned: by head, rank and share of the head's scores, and apart for guesses below one that was not a
//! head's first choice. Heads that do read the guesses before them are asked in another way ([`HeadChains`]).

use super::best_first::{Growth, Guess, grow};
use super::chains::HeadChains;
use super::heads::HeadReader;
use super::rates::HitRates;
use super::{Draft, Observation};
use crate::TokenId;
use crate::sampler::{Candidate, Draw};
use crate::target::{Heads, SequenceId};
use crate::tree::{NodeId, TokenTree};

/// Guesses below one node.
const MOST_GUESSES: usize = 6;

/// Drafts with the heads alone.
pub(super) struct Foresight {
    reader: HeadReader,
    chains: HeadChains,
    rates: HitRates,
    growth: Growth<Place>,
    drawn: Vec<Candidate>,
}

/// A place in the tree.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    /// Whether some guess above was not a head's first choice.
    strayed: bool,
}

impl Place {
    fn after(self, rank: usize) -> Self {
        Self { depth: self.depth + 1, strayed: self.strayed || rank > 0 }
    }
}

const START: Place = Place { depth: 0, strayed: false };

impl Default for Foresight {
    fn default() -> Self {
        let rates = HitRates::new((0..kinds::N).map(kinds::prior));
        let (reader, chains) = Default::default();
        Self { reader, chains, rates, growth: Growth::default(), drawn: Vec::new() }
    }
}

impl Foresight {
    /// Adds guesses to every draft whose text has had a pass, no deeper than `depth` says.
    pub fn propose<T: Heads>(
        &mut self,
        drafts: &mut [Draft<'_>],
        target: &mut T,
        cache: &mut T::Cache,
        depth: impl Fn(&Draft<'_>) -> usize,
    ) {
        if target.are_sequential() {
            return self.chains.propose(drafts, target, cache, depth);
        }
        let Self { reader, rates, growth, drawn, .. } = self;
        reader.ask(drafts, target, cache, depth);
        for draft in drafts {
            let said = reader.said(draft.sequence, draft.tokens.len());
            let guesses = |draft: &mut Draft<'_>, node: NodeId, place: Place, out: &mut Vec<Guess>| {
                let named = named(said, place, &mut draft.draw, (draft.tree, node), drawn);
                out.extend(named.map(|(token, kind)| Guess { token, p: rates.p(kind) }));
            };
            if !said.is_empty() {
                grow(draft, growth, START, guesses, |place, _, rank| place.after(rank));
            }
        }
    }

    /// Learns from every token that a head was asked about while those before it came true.
    pub fn observe(&mut self, seen: &mut Observation<'_>) {
        let Self { reader, rates, drawn, .. } = self;
        let new = &seen.verdict.tokens;
        let said = reader.said(seen.sequence, seen.tokens.len() - new.len());
        let mut place = START;
        for (i, &token) in new.iter().enumerate().take(said.len()) {
            let node = seen.verdict.path[seen.tree.anchor() + i];
            let mut rank_of_token = MOST_GUESSES;
            for (rank, (named, kind)) in named(said, place, &mut seen.draw, (seen.tree, node), drawn).enumerate() {
                rates.observe(kind, named == token);
                rank_of_token = if named == token { rank } else { rank_of_token };
            }
            place = place.after(rank_of_token);
        }
        reader.keep(seen);
    }

    /// Tokens of a text that the heads would have to read before they can guess.
    pub fn lag(&self, sequence: SequenceId, n_tokens: usize) -> usize {
        self.chains.lag(sequence, n_tokens)
    }

    /// The sequence is over.
    pub fn forget(&mut self, sequence: SequenceId) {
        self.reader.forget(sequence);
        self.chains.forget(sequence);
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.reader.bytes()
    }
}

/// The tokens that a place's head names, in the order in which the target would draw them after `node`, and their kinds.
fn named<'a>(
    said: &[Vec<Candidate>],
    place: Place,
    draw: &mut Draw<'_>,
    (tree, node): (&TokenTree, NodeId),
    drawn: &'a mut Vec<Candidate>,
) -> impl Iterator<Item = (TokenId, usize)> + use<'a> {
    drawn.clear();
    if let Some(likeliest) = said.get(place.depth) {
        drawn.extend_from_slice(likeliest);
        draw.draw_few(tree, node, MOST_GUESSES, drawn);
    }
    let best = drawn.first().map_or(0.0, |first| first.logit);
    let weight = move |candidate: &Candidate| libm::expf(candidate.logit - best);
    let total: f32 = drawn.iter().map(weight).sum();
    let kind = move |rank: usize, share: f32| kinds::of(place.depth, place.strayed, rank, share);
    drawn.iter().enumerate().map(move |(rank, c)| (c.token, kind(rank, weight(c) / total)))
}

/// Kinds of guesses: few enough to be known after some dozen passes.
mod kinds {
    /// Heads from which on a class begins.
    const HEADS: [usize; 3] = [1, 2, 4];
    const RANKS: usize = 3;
    const SHARES: [f32; 8] = [0.03, 0.1, 0.25, 0.45, 0.65, 0.8, 0.92, 0.98];

    pub const N: usize = (HEADS.len() + 1) * 2 * RANKS * (SHARES.len() + 1);

    pub fn of(head: usize, strayed: bool, rank: usize, share: f32) -> usize {
        let class = HEADS.iter().filter(|&&first| head >= first).count();
        let share = SHARES.iter().filter(|&&least| share >= least).count();
        ((class * 2 + usize::from(strayed)) * RANKS + rank.min(RANKS - 1)) * (SHARES.len() + 1) + share
    }

    /// A head is about as often right as it says, the less often the further it looks.
    pub fn prior(kind: usize) -> f32 {
        let share = [0.02, 0.06, 0.17, 0.34, 0.53, 0.7, 0.83, 0.92, 0.97][kind % (SHARES.len() + 1)];
        let strayed = kind / (SHARES.len() + 1) / RANKS % 2;
        let class = kind / (SHARES.len() + 1) / RANKS / 2;
        share / (1.0 + 0.15 * class as f32) / (1 + strayed) as f32
    }
}
