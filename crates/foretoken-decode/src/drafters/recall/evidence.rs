//! What is remembered about a place in a text: rows that ended alike, runners-up, rejected rows, copies.

use super::judge::{Judge, SOURCES, UNNAMED, Votes};
use crate::TokenId;
use crate::drafters::recycle::{Context, ORDERS, Successors, Table};
use crate::drafters::suffix::{Continuation, Matches, Sources};
use crate::sampler::{Candidate, Draw};
use crate::tree::{NodeId, TokenTree};

/// The sources: rows after the same last one, two and three tokens ...
const ROWS: usize = 0;
/// ... the row at the same position below a guess that was rejected, as in Jacobi decoding ...
const ECHO: usize = ORDERS;
/// ... what else the row before found likely: what was passed over often comes next ...
const RUNNERS_UP: usize = ORDERS + 1;
/// ... and what followed the longest, second and third longest suffix that occurred before.
const MATCHES: usize = ORDERS + 2;

/// Continuations of a match that are looked at; a single token can have been followed by thousands.
const MOST_CONTINUATIONS: usize = 32;
/// Tokens that a source names.
const MOST_NAMED: usize = Successors::MAX;
/// Continuations that a match names.
const MOST_COPIES: usize = 4;

/// A place in a text or below it in a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub context: Context,
    pub matches: Matches,
    /// Guesses since the last decided token.
    pub depth: usize,
    pub runners_up: Option<Successors>,
}

/// A token that may come next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub token: TokenId,
    pub votes: Votes,
    /// Its chance.
    pub p: f32,
}

/// All that is remembered.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub table: &'a Table,
    pub copies: Sources<'a>,
    /// By depth: the rows below the guesses that the last pass rejected.
    pub echo: &'a [Successors],
    /// The request's, or 1 when it takes the likeliest.
    pub temperature: f32,
}

/// What a row found likely beside the token that came.
pub(super) fn runners_up(row: &Successors, token: TokenId) -> Option<Successors> {
    let mut rest = [Candidate { token: 0, logit: 0.0 }; Successors::MAX];
    let others = row.candidates().iter().filter(|c| c.token != token);
    let len = rest.iter_mut().zip(others).map(|(place, &candidate)| *place = candidate).count();
    (len > 0).then(|| Successors::new(&rest[..len]))
}

impl Evidence<'_> {
    /// The place one token further.
    pub fn after(&self, place: Place, token: TokenId) -> Place {
        let row = (1..=ORDERS).rev().find_map(|order| self.table.get(&place.context, order));
        Place {
            context: place.context.after(token),
            matches: self.copies.advance(place.matches, token),
            depth: place.depth + 1,
            runners_up: row.and_then(|row| runners_up(row, token)),
        }
    }

    /// The tokens that are named at a place, the likeliest first, into `ear.named`. Every source ranks its own as the target
    /// would draw among them after `node`, which is the place.
    pub fn hear(
        &self,
        place: &Place,
        judge: &Judge,
        draw: &mut Draw<'_>,
        (tree, node): (&TokenTree, NodeId),
        ear: &mut Ear,
    ) {
        ear.named.clear();
        let mut draw = |candidates: &mut Vec<Candidate>| draw.draw_few(tree, node, MOST_NAMED, candidates);
        let mut knows = [false; SOURCES];
        for order in (1..=ORDERS).rev() {
            knows[ROWS + order - 1] = ear.row(self.table.get(&place.context, order), ROWS + order - 1, &mut draw);
        }
        knows[ECHO] = ear.row(self.echo.get(place.depth), ECHO, &mut draw);
        knows[RUNNERS_UP] = ear.row(place.runners_up.as_ref(), RUNNERS_UP, &mut draw);
        let mut open = place.matches;
        for (source, knows) in knows.iter_mut().enumerate().skip(MATCHES) {
            let Some((text, matched)) = self.copies.longest(&mut open) else { break };
            ear.followers.clear();
            ear.followers.extend(text.continuations(matched, MOST_CONTINUATIONS));
            *knows = ear.copies(matched.len, source, self.temperature, &mut draw);
        }
        for named in &mut ear.named {
            for (vote, &knows) in named.votes.iter_mut().zip(&knows) {
                *vote = vote.or(knows.then_some(UNNAMED));
            }
            named.p = judge.p(&named.votes);
        }
        ear.named.sort_unstable_by(|a, b| b.p.total_cmp(&a.p).then(a.token.cmp(&b.token)));
    }
}

/// Takes down who names what.
#[derive(Debug, Default)]
pub(super) struct Ear {
    pub named: Vec<Named>,
    followers: Vec<Continuation>,
    candidates: Vec<Candidate>,
}

impl Ear {
    fn name(&mut self, token: TokenId, source: usize, kind: u8) {
        let place = self.named.iter().position(|n| n.token == token).unwrap_or_else(|| {
            self.named.push(Named { token, votes: [None; SOURCES], p: 0.0 });
            self.named.len() - 1
        });
        self.named[place].votes[source] = Some(kind);
    }

    /// A row's likeliest tokens, by their order when drawn and how clear it was. False when there is no such row.
    fn row(&mut self, row: Option<&Successors>, source: usize, draw: &mut impl FnMut(&mut Vec<Candidate>)) -> bool {
        let Some(row) = row else { return false };
        self.candidates.clear();
        self.candidates.extend_from_slice(row.candidates());
        draw(&mut self.candidates);
        let total: f32 = self.candidates.iter().map(|c| weight(c, &self.candidates)).sum();
        for rank in 0..self.candidates.len() {
            let candidate = self.candidates[rank];
            let share = weight(&candidate, &self.candidates) / total;
            self.name(candidate.token, source, kinds::of_row(rank, share));
        }
        true
    }

    /// The continuations of a match in `followers`, by their share and whether they are the latest. False when there are
    /// none.
    fn copies(
        &mut self,
        len: u32,
        source: usize,
        temperature: f32,
        draw: &mut impl FnMut(&mut Vec<Candidate>),
    ) -> bool {
        let Some(latest) = self.followers.iter().max_by_key(|f| f.latest).map(|f| f.token) else { return false };
        // The chances are those of drawn tokens: at the request's temperature these scores are their logits.
        let score = |count: u32| temperature * libm::logf(count as f32);
        self.candidates.clear();
        self.candidates.extend(self.followers.iter().map(|f| Candidate { token: f.token, logit: score(f.count) }));
        draw(&mut self.candidates);
        let total: f32 = self.candidates.iter().map(|c| weight(c, &self.candidates)).sum();
        for rank in 0..self.candidates.len().min(MOST_COPIES) {
            let candidate = self.candidates[rank];
            let share = weight(&candidate, &self.candidates) / total;
            self.name(candidate.token, source, kinds::of_match(len, share, candidate.token == latest));
        }
        true
    }
}

/// A candidate's score as a chance, relative to that of the best.
fn weight(candidate: &Candidate, candidates: &[Candidate]) -> f32 {
    libm::expf(candidate.logit - candidates[0].logit)
}

/// Kinds of tokens that a source names, and what is believed of them at first.
pub(super) mod kinds {
    use super::{ECHO, MATCHES, RUNNERS_UP, Successors, UNNAMED};

    const ROW_SHARES: [f32; 6] = [0.03, 0.1, 0.3, 0.6, 0.85, 0.97];
    const MATCH_SHARES: [f32; 3] = [0.34, 0.67, 0.99];
    const LENGTHS: [u32; 7] = [2, 3, 4, 6, 9, 16, 32];

    /// Kind of a row's token by its rank, from 0, and its share of what is kept of the row.
    pub fn of_row(rank: usize, share: f32) -> u8 {
        let share = ROW_SHARES.iter().filter(|&&least| share >= least).count();
        (rank.min(Successors::MAX - 1) * (ROW_SHARES.len() + 1) + share) as u8
    }

    /// Kind of a continuation by the length of the match, the share of its occurrences, and whether it is the latest.
    pub fn of_match(len: u32, share: f32, latest: bool) -> u8 {
        let length = LENGTHS.iter().filter(|&&least| len >= least).count();
        let share = MATCH_SHARES.iter().filter(|&&least| share >= least).count();
        (length * 8 + usize::from(!latest) * 4 + share) as u8
    }

    /// Longer matches and larger shares are likelier to come again.
    pub fn prior(source: usize, kind: u8) -> f32 {
        let kind = usize::from(kind);
        if kind == usize::from(UNNAMED) {
            return 0.02;
        }
        if source >= MATCHES {
            let share = [0.2, 0.4, 0.7, 1.0][kind % 4];
            let age = 1 + kind / 4 % 2;
            return share * (1.0 - 0.75 / (1.0 + 0.8 * (kind / 8) as f32)) / age as f32;
        }
        let share = [0.01, 0.04, 0.12, 0.3, 0.5, 0.65, 0.8][kind % (ROW_SHARES.len() + 1)];
        let rank = kind / (ROW_SHARES.len() + 1);
        let trust = match source {
            ECHO => 0.3,
            RUNNERS_UP => 0.2,
            _ => 1.0,
        };
        trust * share / (1.0 + 0.5 * rank as f32)
    }
}
