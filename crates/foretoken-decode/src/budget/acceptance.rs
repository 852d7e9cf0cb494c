//! How often guesses come true: by drafter, depth and the confidence that the drafter gave, with forgetting.
//!
//! Two layers. What all texts have taught is a table of frequencies. What this text adds is a shift of the odds, by drafter
//! and by its confidence, learned by gradient steps on the log loss (online logistic calibration): a few surprises move
//! every estimate of a drafter, also those of depths and confidences that this text has not seen yet.
//!
//! Every proposal is scored against the text that came, whether its rows were run or not. That costs nothing, so an
//! estimate stays fresh while nothing is drafted, and drafting returns by itself when it would pay again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::TokenId;
use crate::hits::Hits;
use crate::tree::{Node, NodeId, Source, TokenTree};

const DEPTHS: usize = 8;
/// Upper ends of the classes of confidence.
const CLASSES: [f32; 10] = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0];

/// Class of a confidence.
fn class(p: f32) -> usize {
    CLASSES.iter().position(|&end| p <= end).unwrap_or(CLASSES.len() - 1)
}

/// Row of the table for a depth below the anchor, from 1.
fn row(depth: usize) -> usize {
    (depth.max(1) - 1).min(DEPTHS - 1)
}

/// How often guesses came true whose parent had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Cell(Hits);

impl Cell {
    /// What is believed at first counts as this many trials, and is forgotten like any other.
    const PRIOR_TRIALS: f32 = 4.0;
    /// About the last 200 trials count.
    const KEEP: f32 = 0.995;

    fn observe(&mut self, hit: bool, prior: f32) {
        if self.0.is_blank() {
            self.0 = Hits::believed(prior, Self::PRIOR_TRIALS);
        }
        self.0.observe(hit, Self::KEEP);
    }

    fn mean_or(&self, prior: f32) -> f32 {
        if self.0.is_blank() { prior } else { self.0.mean() }
    }
}

/// One drafter over all texts, as it is kept from run to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceTable {
    /// `[depth][class]`: a guess of this confidence came true.
    guesses: [[Cell; CLASSES.len()]; DEPTHS],
    /// `[depth]`: one of the siblings came true, whatever their confidence.
    any: [Cell; DEPTHS],
}

/// Estimates over all sequences: where a new sequence starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedAcceptance {
    /// By source.
    tables: Vec<AcceptanceTable>,
}

impl AcceptanceTable {
    /// Checks that a table read from a file can be used.
    pub fn validate(&self) -> Result<(), String> {
        let cells = self.guesses.iter().flatten().chain(&self.any);
        match cells
            .clone()
            .find(|cell| !(0.0 <= cell.0.hits && cell.0.hits <= cell.0.trials && cell.0.trials.is_finite()))
        {
            Some(cell) => Err(format!("{} of {} guesses came true, which cannot be", cell.0.hits, cell.0.trials)),
            None => Ok(()),
        }
    }
}

impl SharedAcceptance {
    /// The table of each drafter of these names, in the order of the decoder's list; those without any trial are left out.
    pub fn by_name(&self, names: &[&str]) -> BTreeMap<String, AcceptanceTable> {
        let tables = names.iter().enumerate().filter_map(|(index, name)| {
            let table = self.tables.get(usize::from(source_of(index).0))?;
            (*table != AcceptanceTable::default()).then(|| ((*name).to_owned(), table.clone()))
        });
        tables.collect()
    }

    /// Tables by name for the drafters of these names; a name that is not there has nothing to say.
    pub fn from_names(tables: &BTreeMap<String, AcceptanceTable>, names: &[&str]) -> Self {
        let mut shared = Self::default();
        for (index, name) in names.iter().enumerate() {
            if let Some(table) = tables.get(*name) {
                *shared.table(source_of(index)) = table.clone();
            }
        }
        shared
    }

    fn table(&mut self, source: Source) -> &mut AcceptanceTable {
        let index = source.0 as usize;
        if self.tables.len() <= index {
            self.tables.resize(index + 1, AcceptanceTable::default());
        }
        &mut self.tables[index]
    }

    fn guess(&self, source: Source, depth: usize, p: f32) -> f32 {
        let cell = self.tables.get(source.0 as usize).map(|table| table.guesses[row(depth)][class(p)]);
        cell.unwrap_or_default().mean_or(p)
    }

    fn any(&self, source: Source, depth: usize) -> f32 {
        let cell = self.tables.get(source.0 as usize).map(|table| table.any[row(depth)]);
        cell.unwrap_or_default().mean_or(ANY_PRIOR)
    }
}

/// Chance that one of a drafter's guesses comes true before anything is known of it: whoever brings a draft model brings a good one.
const ANY_PRIOR: f32 = 0.75;

/// What one text adds to the shared estimates of one drafter: factors on the odds.
#[derive(Clone, Copy, Debug)]
struct Shift {
    /// On every guess.
    all: f32,
    /// On guesses of low and of high confidence.
    halves: [f32; 2],
    /// On the chance that any sibling comes true.
    any: f32,
}

impl Default for Shift {
    fn default() -> Self {
        Self { all: 1.0, halves: [1.0; 2], any: 1.0 }
    }
}

impl Shift {
    /// Steps of the gradient descent: after 32 misses hardly any belief is left, and after a few hits it is back.
    const RATE_ALL: f32 = 0.5;
    const RATE_HALF: f32 = 0.3;
    /// What is left of the logarithm of `any` after a token without a proposal.
    const REST: f32 = 0.95;
    /// Greatest factor.
    const MOST: f32 = 1000.0;

    fn half(p: f32) -> usize {
        usize::from(p > 0.5)
    }

    fn guess(&self, shared: f32, p: f32) -> f32 {
        shifted(shared, self.all * self.halves[Self::half(p)])
    }

    fn observe_guess(&mut self, hit: bool, shared: f32, p: f32) {
        let error = f32::from(u8::from(hit)) - self.guess(shared, p);
        step(&mut self.all, Self::RATE_ALL * error);
        step(&mut self.halves[Self::half(p)], Self::RATE_HALF * error);
    }

    /// So many tokens came while the drafter was not asked, or had nothing to say: what this text has taught of it fades, for
    /// else one that stopped paying would never be asked again.
    fn rest(&mut self, tokens: usize) {
        self.any = libm::powf(self.any, libm::powf(Self::REST, tokens as f32));
    }

    fn observe_any(&mut self, hit: bool, shared: f32) {
        let error = f32::from(u8::from(hit)) - shifted(shared, self.any);
        step(&mut self.any, (Self::RATE_ALL + Self::RATE_HALF) * error);
    }
}

/// `p` with its odds times `factor`.
fn shifted(p: f32, factor: f32) -> f32 {
    let p = p.clamp(0.001, 0.999);
    let odds = p / (1.0 - p) * factor;
    odds / (1.0 + odds)
}

fn step(factor: &mut f32, log: f32) {
    *factor = (*factor * libm::expf(log)).clamp(1.0 / Shift::MOST, Shift::MOST);
}

/// A proposal that has come true down to a node, with guesses below it; none without a node.
#[derive(Clone, Debug)]
struct Open {
    tree: TokenTree,
    node: Option<NodeId>,
}

/// Estimates of one sequence, and the guesses whose truth is not yet known to their end.
#[derive(Clone, Debug, Default)]
pub struct SequenceAcceptance {
    /// By source.
    shifts: Vec<Shift>,
    /// By source.
    open: Vec<Open>,
}

impl SequenceAcceptance {
    /// Estimated chance that `guess`, `depth` below the anchor, comes true given its parent.
    pub fn estimate(&self, guess: &Node, depth: usize, shared: &SharedAcceptance) -> f32 {
        self.estimate_of(guess.source, depth, guess.p, shared)
    }

    fn estimate_of(&self, source: Source, depth: usize, p: f32, shared: &SharedAcceptance) -> f32 {
        let shift = self.shifts.get(source.0 as usize).copied().unwrap_or_default();
        shift.guess(shared.guess(source, depth, p), p)
    }

    /// Tokens that a drafter is expected to add with guesses down to `depth`: `a1 + a1 a2 + ...`, with a_k the chance that
    /// a guess at depth k comes true, given the ones before.
    pub fn expected(&self, source: Source, depth: usize, shared: &SharedAcceptance) -> f64 {
        let shift = self.shifts.get(source.0 as usize).copied().unwrap_or_default();
        let mut path = 1.0;
        (1..=depth)
            .map(|d| {
                path *= f64::from(shifted(shared.any(source, d), shift.any));
                path
            })
            .sum()
    }

    /// Scores one drafter's proposal, made before these tokens came, and its open one from earlier passes.
    pub fn score(&mut self, source: Source, proposal: &TokenTree, tokens: &[TokenId], shared: &mut SharedAcceptance) {
        let index = source.0 as usize;
        if self.shifts.len() <= index {
            self.shifts.resize(index + 1, Shift::default());
            self.open.resize(index + 1, Open { tree: TokenTree::new(&[0]), node: None });
        }
        let shift = &mut self.shifts[index];
        if proposal.len() == 1 {
            shift.rest(tokens.len());
        }
        let end = walk(shift, source, proposal, proposal.anchor(), tokens, shared);
        let open = &mut self.open[index];
        match open.node {
            Some(node) => open.node = walk(shift, source, &open.tree, node, tokens, shared),
            None => {
                open.node = end;
                if end.is_some() {
                    open.tree.copy_from(proposal);
                }
            }
        }
    }
}

/// What a drafter can ask while it drafts for one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    sequence: &'a SequenceAcceptance,
    shared: &'a SharedAcceptance,
}

impl<'a> Trust<'a> {
    pub(crate) fn new(sequence: &'a SequenceAcceptance, shared: &'a SharedAcceptance) -> Self {
        Self { sequence, shared }
    }

    /// Estimated chance that a guess `depth` below the anchor, made with confidence `p`, comes true given its parent.
    pub fn chance(&self, source: Source, depth: usize, p: f32) -> f32 {
        self.sequence.estimate_of(source, depth, p, self.shared)
    }
}

/// Follows the tokens down the tree; returns the node where they end while guesses hang below it.
fn walk(
    shift: &mut Shift,
    source: Source,
    tree: &TokenTree,
    mut node: NodeId,
    tokens: &[TokenId],
    shared: &mut SharedAcceptance,
) -> Option<NodeId> {
    let anchor_depth = tree.nodes()[tree.anchor()].depth;
    for &token in tokens {
        let mut next = None;
        let mut depth = None;
        for child in tree.children(node) {
            let guess = &tree.nodes()[child];
            let below = (guess.depth - anchor_depth) as usize;
            depth = Some(below);
            let hit = guess.token == token;
            shift.observe_guess(hit, shared.guess(source, below, guess.p), guess.p);
            shared.table(source).guesses[row(below)][class(guess.p)].observe(hit, guess.p);
            next = if hit { Some(child) } else { next };
        }
        let depth = depth?;
        shift.observe_any(next.is_some(), shared.any(source, depth));
        shared.table(source).any[row(depth)].observe(next.is_some(), ANY_PRIOR);
        node = next?;
    }
    tree.children(node).next().map(|_| node)
}

/// The drafter's index in a source.
pub fn source_of(drafter: usize) -> Source {
    Source(u8::try_from(drafter + 1).expect("fewer than 255 drafters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_moves_with_the_drafter_s_name() {
        let mut tree = TokenTree::new(&[0]);
        tree.push(0, 1, source_of(0), 0.6);
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        (0..40).for_each(|_| own.score(source_of(0), &tree, &[1], &mut shared));
        let known = shared.by_name(&["a", "b"]);
        assert_eq!(known.keys().collect::<Vec<_>>(), ["a"]);
        let moved = SharedAcceptance::from_names(&known, &["c", "b", "a"]);
        assert_eq!(moved.guess(source_of(2), 1, 0.6), shared.guess(source_of(0), 1, 0.6));
        assert_eq!(moved.guess(source_of(0), 1, 0.6), 0.6);
        let text = serde_json::to_string(&known).unwrap();
        let read: BTreeMap<String, AcceptanceTable> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, known);
        assert!(read["a"].validate().is_ok());
        let wrong = text.replacen("\"hits\":", "\"hits\":9e9,\"x\":", 1);
        let read: BTreeMap<String, AcceptanceTable> = serde_json::from_str(&wrong).unwrap();
        assert!(read["a"].validate().is_err());
    }

    #[test]
    fn guesses_are_scored_while_their_parents_come_true_over_several_passes() {
        // 1 - 2 - 3 - 4 below the anchor; 1 and 2 come true, 3 does not, and nothing is known of 4.
        let mut tree = TokenTree::new(&[0]);
        let mut node = 0;
        for token in 1..=4 {
            node = tree.push(node, token, source_of(0), 0.6);
        }
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        own.score(source_of(0), &tree, &[1], &mut shared);
        let empty = TokenTree::new(&[1]);
        own.score(source_of(0), &empty, &[2, 9], &mut shared);
        own.score(source_of(0), &empty, &[4], &mut shared);
        // Another sequence starts from what this one taught.
        let other = SequenceAcceptance::default();
        let estimate = |depth| other.estimate(&tree.nodes()[depth], depth, &shared);
        assert!(estimate(1) > 0.6 && estimate(2) > 0.6, "{} {}", estimate(1), estimate(2));
        assert!(estimate(3) < 0.6);
        assert_eq!(estimate(4), 0.6, "the drafter's own word");
    }

    #[test]
    fn belief_is_gone_after_32_misses_and_back_after_a_few_hits() {
        let mut tree = TokenTree::new(&[0]);
        tree.push(0, 1, source_of(0), 0.9);
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        (0..50).for_each(|_| own.score(source_of(0), &tree, &[1], &mut shared));
        let estimate = |own: &SequenceAcceptance, shared: &_| own.estimate(&tree.nodes()[1], 1, shared);
        assert!(estimate(&own, &shared) > 0.95);
        assert!(own.expected(source_of(0), 1, &shared) > 0.9);
        (0..32).for_each(|_| own.score(source_of(0), &tree, &[2], &mut shared));
        assert!(estimate(&own, &shared) < 0.06, "{}", estimate(&own, &shared));
        assert!(own.expected(source_of(0), 1, &shared) < 0.06);
        (0..6).for_each(|_| own.score(source_of(0), &tree, &[1], &mut shared));
        assert!(estimate(&own, &shared) > 0.4, "{}", estimate(&own, &shared));
    }

    #[test]
    fn what_a_text_taught_of_a_drafter_that_is_not_asked_fades() {
        let mut tree = TokenTree::new(&[0]);
        tree.push(0, 1, source_of(0), 0.9);
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        (0..4).for_each(|_| own.score(source_of(0), &tree, &[2], &mut shared));
        let missed = own.expected(source_of(0), 1, &shared);
        let empty = TokenTree::new(&[0]);
        (0..40).for_each(|_| own.score(source_of(0), &empty, &[2], &mut shared));
        let rested = own.expected(source_of(0), 1, &shared);
        let other = SequenceAcceptance::default().expected(source_of(0), 1, &shared);
        assert!(missed < 0.5 * other && rested > 0.85 * other, "{missed} {rested} {other}");
    }

    #[test]
    fn a_surprise_moves_other_depths_and_confidences_too() {
        let mut shallow = TokenTree::new(&[0]);
        shallow.push(0, 1, source_of(0), 0.9);
        let mut deep = TokenTree::new(&[0]);
        let first = deep.push(0, 1, source_of(0), 0.9);
        deep.push(first, 2, source_of(0), 0.6);
        let mut shared = SharedAcceptance::default();
        let mut own = SequenceAcceptance::default();
        (0..10).for_each(|_| own.score(source_of(0), &shallow, &[7], &mut shared));
        assert!(own.estimate(&deep.nodes()[2], 2, &shared) < 0.3);
        let other = own.estimate(&Node { source: source_of(1), ..deep.nodes()[2] }, 2, &shared);
        assert!((other - 0.6).abs() < 1e-6, "another drafter's guesses are its own affair");
    }
}
