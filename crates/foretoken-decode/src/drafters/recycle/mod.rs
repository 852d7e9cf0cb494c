//! Token Recycling (Luo et al. 2024, arXiv 2408.08696): every row that the target runs says which tokens it found likely
//! next, whatever came; the table of these successors is unrolled to a tree.
//!
//! Beyond the paper: successors are looked up by the last three tokens, else two, else one; siblings are drawn from the
//! remembered logits with the request's own processors and noise; the chance of a guess is how often guesses of its
//! kind came true.

mod rows;
mod table;

use super::best_first::{Guess, grow};
use super::rates::HitRates;
use super::scopes::Scopes;
use super::{Draft, Drafter, Observation};
use crate::TokenId;
use crate::sampler::{Candidate, Draw};
use crate::target::Target;
use crate::tree::{NodeId, TokenTree};
pub(super) use rows::RowReader;
pub(super) use table::{Context, ORDERS, Successors, Table};

/// Drafts what past rows found likely. What it learned from one sequence serves the others.
#[derive(Debug)]
pub struct Recycle {
    tables: Scopes<Table>,
    rates: HitRates,
    reader: RowReader,
    buffers: Buffers,
}

#[derive(Debug, Default)]
struct Buffers {
    drawn: Vec<Candidate>,
    known: Vec<Known>,
}

/// A successor and what kind of guess it is.
#[derive(Clone, Copy, Debug)]
struct Known {
    token: TokenId,
    kind: usize,
}

impl Default for Recycle {
    fn default() -> Self {
        let rates = HitRates::new((0..kinds::N).map(kinds::prior));
        Self { tables: Scopes::default(), rates, reader: RowReader::default(), buffers: Buffers::default() }
    }
}

/// Kinds of guesses: by length of the longest context known, of the context that gave the guess, place and share.
mod kinds {
    use super::ORDERS;

    const PLACES: usize = 8;
    const SHARES: [f32; 6] = [0.03, 0.1, 0.3, 0.6, 0.85, 0.97];

    pub const N: usize = ORDERS * ORDERS * PLACES * (SHARES.len() + 1);

    /// `longest` and `order` from 1, `place` among the siblings from 0, `share` of the softmax over its context's list.
    pub fn of(longest: usize, order: usize, place: usize, share: f32) -> usize {
        let share = SHARES.iter().filter(|&&least| share >= least).count();
        (((longest - 1) * ORDERS + order - 1) * PLACES + place.min(PLACES - 1)) * (SHARES.len() + 1) + share
    }

    /// Longer contexts and larger shares are likelier to come again.
    pub fn prior(kind: usize) -> f32 {
        let share = [0.01, 0.04, 0.12, 0.3, 0.5, 0.65, 0.8][kind % (SHARES.len() + 1)];
        let place = kind / (SHARES.len() + 1) % PLACES;
        share / (1.0 + place as f32 * 0.5)
    }
}

impl Recycle {
    /// What may follow `node`, whose text ends with `context`: the longest context's successors first, then those that
    /// only shorter ones know; each list in the order in which the sequence's own noise would draw it.
    fn known(
        table: &Table,
        context: &Context,
        draw: &mut Draw<'_>,
        tree: &TokenTree,
        node: NodeId,
        buffers: &mut Buffers,
    ) {
        let Buffers { drawn, known, .. } = buffers;
        known.clear();
        let mut longest = 0;
        for order in (1..=ORDERS).rev() {
            let Some(successors) = table.get(context, order) else { continue };
            let candidates = successors.candidates();
            longest = longest.max(order);
            drawn.clear();
            drawn.extend(candidates.iter().filter(|c| known.iter().all(|k| k.token != c.token)));
            if drawn.is_empty() {
                continue;
            }
            draw.draw_few(tree, node, Successors::MAX, drawn);
            let total: f32 = candidates.iter().map(|c| weight(c, candidates)).sum();
            for candidate in &*drawn {
                let original = candidates.iter().find(|c| c.token == candidate.token).expect("drawn from the list");
                let share = weight(original, candidates) / total;
                known.push(Known { token: candidate.token, kind: kinds::of(longest, order, known.len(), share) });
            }
            known.truncate(Successors::MAX);
            if known.len() == Successors::MAX {
                return;
            }
        }
    }

    /// Scores the guesses that the table holds for each token drawn, before it learns from the pass.
    fn score(table: &Table, seen: &mut Observation<'_>, rates: &mut HitRates, buffers: &mut Buffers) {
        let Observation { tokens, tree, verdict, draw, .. } = seen;
        let decided = tokens.len() - verdict.tokens.len();
        for (i, &token) in verdict.tokens.iter().enumerate() {
            let context = Context::of(&tokens[..decided + i]);
            let node = verdict.path[tree.anchor() + i];
            Self::known(table, &context, draw, tree, node, buffers);
            buffers.known.iter().for_each(|known| rates.observe(known.kind, known.token == token));
        }
    }
}

/// Relative to the likeliest.
fn weight(candidate: &Candidate, candidates: &[Candidate]) -> f32 {
    libm::expf(candidate.logit - candidates[0].logit)
}

impl<T: Target> Drafter<T> for Recycle {
    fn name(&self) -> &'static str {
        "recycle"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let Self { tables, rates, buffers, .. } = self;
        for draft in drafts {
            let table = tables.of(draft.scope);
            let guesses = |draft: &mut Draft<'_>, node: NodeId, context: Context, out: &mut Vec<Guess>| {
                Self::known(table, &context, &mut draft.draw, draft.tree, node, buffers);
                out.extend(buffers.known.iter().map(|k| Guess { token: k.token, p: rates.p(k.kind) }));
            };
            grow(draft, Context::of(draft.tokens), guesses, Context::after);
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        for seen in seen.iter_mut().filter(|seen| !seen.verdict.tokens.is_empty()) {
            let table = self.tables.of(seen.scope);
            Self::score(table, seen, &mut self.rates, &mut self.buffers);
            self.reader.read(seen, table);
        }
    }

    fn bytes(&self) -> usize {
        self.tables.iter().map(Table::bytes).sum()
    }

    fn unlearn(&mut self) {
        self.tables = Scopes::default();
    }
}
