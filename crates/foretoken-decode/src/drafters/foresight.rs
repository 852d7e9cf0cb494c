//! What a target's own prediction heads say about the tokens after a text's next ones, as a tree of guesses.
//!
//! The heads start from the hidden state of the last row kept, which the pass that decided the text has left behind: so the
//! guesses for a pass come from the pass before, and drafting costs the heads alone. Each head names its tokens without
//! knowing what the heads before it will be taken to say; siblings are the next in the order in which the target would draw
//! from the head's scores, with the request's own processors and noise. How far a guess can be trusted is learned: by head,
//! rank and share of the head's scores, and apart for guesses below one that was not the first choice.

use std::collections::HashMap;

use super::best_first::{Guess, grow};
use super::rates::HitRates;
use super::{Draft, Observation};
use crate::sampler::{Candidate, Draw};
use crate::target::{Heads, SequenceId};
use crate::tree::{NodeId, TokenTree};

/// Tokens of a head that are looked at: at any usual temperature the draw is hardly ever outside of them.
const CANDIDATES: usize = 16;
/// Guesses below one node.
const MOST_GUESSES: usize = 6;

/// Reads the heads.
#[derive(Debug)]
pub(super) struct Foresight {
    rates: HitRates,
    texts: HashMap<SequenceId, Text>,
    /// `[rows][hidden_size]`, what heads are asked about.
    hidden: Vec<f32>,
    drawn: Vec<Candidate>,
}

/// A text in progress.
#[derive(Debug, Default)]
struct Text {
    /// Of the last row kept.
    hidden: Vec<f32>,
    /// Tokens of the text when the heads were asked.
    asked_at: usize,
    /// By head: its likeliest tokens, best first.
    heads: Vec<Vec<Candidate>>,
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

impl Default for Foresight {
    fn default() -> Self {
        let rates = HitRates::new((0..kinds::N).map(kinds::prior));
        Self { rates, texts: HashMap::new(), hidden: Vec::new(), drawn: Vec::new() }
    }
}

impl Foresight {
    /// Adds guesses to every draft whose text has had a pass, no deeper than `depth` says.
    pub fn propose<T: Heads>(&mut self, drafts: &mut [Draft<'_>], target: &mut T, depth: impl Fn(&Draft<'_>) -> usize) {
        let Self { rates, texts, hidden, drawn } = self;
        hidden.clear();
        let mut rows = Vec::new();
        for (index, draft) in drafts.iter().enumerate() {
            let most = draft.limits.max_depth.min(draft.limits.max_nodes).min(target.n_heads());
            let depth = depth(draft).min(most);
            if depth > 0
                && let Some(text) = texts.get(&draft.sequence)
            {
                hidden.extend_from_slice(&text.hidden);
                rows.push((index, depth));
            }
        }
        let Some(n_heads) = rows.iter().map(|&(_, depth)| depth).max() else { return };
        let scores = target.score(n_heads, hidden);
        for (row, &(index, depth)) in rows.iter().enumerate() {
            let draft = &mut drafts[index];
            let n = draft.limits.vocab_size;
            let heads = (0..depth).map(|head| &scores[(head * rows.len() + row) * n..][..n]);
            let text = texts.get_mut(&draft.sequence).expect("it was found above");
            text.look(heads.clone(), draft);
            match draft.takes_samples() {
                true => chain(heads, draft),
                false => text.grow(draft, rates, drawn),
            }
        }
    }

    /// Learns from what came, and keeps the hidden state that the next guesses start from. Passes that decided nothing are
    /// of no use.
    pub fn observe(&mut self, seen: &mut Observation<'_>) {
        let n_new = seen.verdict.tokens.len();
        if n_new == 0 {
            return;
        }
        let Self { rates, texts, drawn, .. } = self;
        let text = texts.entry(seen.sequence).or_default();
        if text.asked_at + n_new == seen.tokens.len() {
            text.learn(seen, rates, drawn);
        }
        let path = &seen.verdict.path;
        let last = path[path.len().min(seen.tree.anchor() + n_new) - 1];
        text.hidden.clear();
        text.hidden.extend_from_slice(seen.rows.hidden(last));
    }

    /// The sequence is over.
    pub fn forget(&mut self, sequence: SequenceId) {
        self.texts.remove(&sequence);
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        let of = |text: &Text| text.hidden.len() * 4 + text.heads.len() * CANDIDATES * size_of::<Candidate>();
        self.texts.values().map(of).sum()
    }
}

/// One guess for each head, sampled from the head's own distribution: for acceptors that judge samples.
fn chain<'a>(heads: impl Iterator<Item = &'a [f32]>, draft: &mut Draft<'_>) {
    let mut node = draft.tree.anchor();
    for scores in heads {
        let Ok(token) = draft.sample(node, scores) else { return };
        node = draft.push(node, token, 0.5);
    }
}

impl Text {
    /// Takes down what the heads find likely.
    fn look<'a>(&mut self, heads: impl ExactSizeIterator<Item = &'a [f32]>, draft: &Draft<'_>) {
        self.asked_at = draft.tokens.len();
        self.heads.resize_with(heads.len(), Vec::new);
        for (likeliest, scores) in self.heads.iter_mut().zip(heads) {
            draft.draw.likeliest(scores, CANDIDATES, likeliest);
        }
    }

    fn grow(&self, draft: &mut Draft<'_>, rates: &HitRates, drawn: &mut Vec<Candidate>) {
        let guesses = |draft: &mut Draft<'_>, node: NodeId, place: Place, out: &mut Vec<Guess>| {
            let named = self.named(place, &mut draft.draw, (draft.tree, node), drawn);
            out.extend(named.map(|(token, kind)| Guess { token, p: rates.p(kind) }));
        };
        grow(draft, Place { depth: 0, strayed: false }, guesses, |place, _, rank| place.after(rank));
    }

    /// The tokens that a place's head names, in the order in which the target would draw them after `node`, and their kinds.
    fn named<'a>(
        &self,
        place: Place,
        draw: &mut Draw<'_>,
        (tree, node): (&TokenTree, NodeId),
        drawn: &'a mut Vec<Candidate>,
    ) -> impl Iterator<Item = (crate::TokenId, usize)> + use<'a> {
        drawn.clear();
        if let Some(likeliest) = self.heads.get(place.depth) {
            drawn.extend_from_slice(likeliest);
            draw.draw_few(tree, node, MOST_GUESSES, drawn);
        }
        let best = drawn.first().map_or(0.0, |first| first.logit);
        let weight = move |candidate: &Candidate| libm::expf(candidate.logit - best);
        let total: f32 = drawn.iter().map(weight).sum();
        let kind = move |rank: usize, share: f32| kinds::of(place.depth, place.strayed, rank, share);
        let ranked = drawn.iter().enumerate();
        ranked.map(move |(rank, c)| (c.token, kind(rank, weight(c) / total)))
    }

    /// Learns from every token that a head was asked about while those before it came true.
    fn learn(&self, seen: &mut Observation<'_>, rates: &mut HitRates, drawn: &mut Vec<Candidate>) {
        let mut place = Place { depth: 0, strayed: false };
        for (i, &token) in seen.verdict.tokens.iter().enumerate().take(self.heads.len()) {
            let node = seen.verdict.path[seen.tree.anchor() + i];
            let mut rank_of_token = MOST_GUESSES;
            let named = self.named(place, &mut seen.draw, (seen.tree, node), drawn);
            for (rank, (named, kind)) in named.enumerate() {
                rates.observe(kind, named == token);
                rank_of_token = if named == token { rank } else { rank_of_token };
            }
            place = place.after(rank_of_token);
        }
    }
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
