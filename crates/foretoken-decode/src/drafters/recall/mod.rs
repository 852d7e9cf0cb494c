//! Everything that is remembered, weighed together: what followed the same words in the text and in past outputs (as in
//! `suffix`), what past rows found likely (as in `recycle`), what the row before found likely beside its token, and what
//! the rows below rejected guesses say about their positions (as in Jacobi decoding).
//!
//! Each alone is a drafter; together they are more than their best, since their agreement is what tells a good guess from
//! a bad one. A small online model, see [`judge`], learns how far.

mod evidence;
mod judge;

use std::collections::HashMap;

use super::best_first::{Growth, Guess, grow};
use super::recycle::{Context, RowReader, Successors, Table};
use super::scopes::Scopes;
use super::suffix::{Sources, Store, Text};
use super::{Draft, Drafter, Observation};
use crate::TokenId;
use crate::sampler::Draw;
use crate::target::{SequenceId, Target};
use crate::tree::NodeId;
use evidence::{Ear, Evidence, Place, kinds, runners_up};
use judge::Judge;

/// Drafts what is remembered.
#[derive(Debug)]
pub struct Recall {
    /// Whether it copies: else it knows rows alone.
    copies: bool,
    memories: Scopes<Memory>,
    texts: HashMap<SequenceId, Current>,
    judge: Judge,
    buffers: Buffers,
}

/// What past requests of a scope taught.
#[derive(Debug, Default)]
struct Memory {
    table: Table,
    store: Store,
}

/// A text in progress, and what its last pass left behind.
#[derive(Debug, Default)]
struct Current {
    text: Text,
    copies: bool,
    runners_up: Option<Successors>,
    echo: Vec<Successors>,
}

#[derive(Debug, Default)]
struct Buffers {
    growth: Growth<Place>,
    ear: Ear,
    reader: RowReader,
}

impl Default for Recall {
    fn default() -> Self {
        Self::new(true)
    }
}

impl Recall {
    fn new(copies: bool) -> Self {
        Self {
            copies,
            memories: Scopes::default(),
            texts: HashMap::new(),
            judge: Judge::new(kinds::prior),
            buffers: Buffers::default(),
        }
    }

    /// Without what followed the same words.
    pub(super) fn of_rows() -> Self {
        Self::new(false)
    }
}

/// Guesses below one node.
const MOST_GUESSES: usize = 8;

impl<T: Target> Drafter<T> for Recall {
    fn name(&self) -> &'static str {
        "recall"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let Self { copies, memories, texts, judge, buffers: Buffers { growth, ear, .. } } = self;
        for draft in drafts {
            let Memory { table, store } = memories.of(draft.scope);
            let current = texts.entry(draft.sequence).or_insert_with(|| Current::new(draft.scope, *copies));
            current.grow(draft.tokens, store);
            let evidence = current.evidence(table, store, &draft.draw);
            let guesses = |draft: &mut Draft<'_>, node: NodeId, place: Place, out: &mut Vec<Guess>| {
                evidence.hear(&place, judge, &mut draft.draw, (draft.tree, node), ear);
                out.extend(ear.named.iter().take(MOST_GUESSES).map(|n| Guess { token: n.token, p: n.p }));
            };
            grow(draft, growth, current.end(draft.tokens), guesses, |place, token, _| evidence.after(place, token));
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        for seen in seen.iter_mut().filter(|seen| !seen.verdict.tokens.is_empty()) {
            let Memory { table, store } = self.memories.of(seen.scope);
            let current = self.texts.entry(seen.sequence).or_insert_with(|| Current::new(seen.scope, self.copies));
            current.judge(seen, table, store, &mut self.judge, &mut self.buffers.ear);
            self.buffers.reader.read(seen, table);
            current.keep(seen, &self.buffers.reader.rows);
        }
    }

    fn bytes(&self) -> usize {
        let stored = self.memories.iter().map(|memory| memory.table.bytes() + memory.store.bytes()).sum::<usize>();
        stored + self.texts.values().map(|current| current.text.bytes()).sum::<usize>()
    }

    fn forget(&mut self, sequence: SequenceId) {
        if let Some(Current { text, .. }) = self.texts.remove(&sequence) {
            self.memories.of(text.scope).store.add(&text.output);
        }
    }

    fn unlearn(&mut self) {
        (self.memories, self.texts) = Default::default();
    }
}

impl Current {
    fn new(scope: u64, copies: bool) -> Self {
        Self { text: Text::new(scope), copies, ..Self::default() }
    }

    /// Takes in the tokens to copy from. A text that has not grown matches nothing.
    fn grow(&mut self, tokens: &[TokenId], store: &Store) {
        if self.copies {
            self.text.grow(tokens, store);
        }
    }

    fn evidence<'a>(&'a self, table: &'a Table, store: &'a Store, draw: &Draw<'_>) -> Evidence<'a> {
        let temperature = if draw.is_greedy() { 1.0 } else { draw.temperature() };
        Evidence { table, copies: Sources::new(&self.text, store), echo: &self.echo, temperature }
    }

    /// The end of the text, which is `tokens`.
    fn end(&self, tokens: &[TokenId]) -> Place {
        let matches = self.text.matches();
        Place { context: Context::of(tokens), matches, depth: 0, runners_up: self.runners_up }
    }

    /// Lets the judge learn from every token drawn, before anything else does.
    fn judge(&mut self, seen: &mut Observation<'_>, table: &Table, store: &Store, judge: &mut Judge, ear: &mut Ear) {
        let decided = seen.tokens.len() - seen.verdict.tokens.len();
        let mut place = None;
        for (i, &token) in seen.verdict.tokens.iter().enumerate() {
            let text = &seen.tokens[..decided + i];
            self.grow(text, store);
            let evidence = self.evidence(table, store, &seen.draw);
            let here = Place { matches: self.text.matches(), ..place.unwrap_or_else(|| self.end(text)) };
            let node = seen.verdict.path[seen.tree.anchor() + i];
            evidence.hear(&here, judge, &mut seen.draw, (seen.tree, node), ear);
            ear.named.iter().for_each(|n| judge.observe(&n.votes, n.token == token));
            place = Some(evidence.after(here, token));
        }
        if self.copies {
            self.text.output.extend_from_slice(&seen.verdict.tokens);
        }
    }

    /// Keeps what the rows of a pass say about what comes after it: `rows` by node from the anchor on.
    fn keep(&mut self, seen: &Observation<'_>, rows: &[Option<Successors>]) {
        let Observation { tree, verdict, .. } = seen;
        let anchor = tree.anchor();
        let output = &verdict.tokens;
        let mut node = verdict.path[(anchor + output.len()).min(verdict.path.len()) - 1];
        self.runners_up = rows[node - anchor].and_then(|row| runners_up(&row, output[output.len() - 1]));
        // The likeliest of the guesses that did not come true, and those below it.
        self.echo.clear();
        let likelier = |&a: &NodeId, &b: &NodeId| tree.nodes()[a].p.total_cmp(&tree.nodes()[b].p);
        while let Some(child) = tree.children(node).max_by(likelier)
            && let Some(row) = rows[child - anchor]
        {
            self.echo.push(row);
            node = child;
        }
    }
}
