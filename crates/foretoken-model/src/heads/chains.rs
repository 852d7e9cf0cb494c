//! Heads that are a module each, every one reading what the module before it made and the token between: `sequential`.
//!
//! What head `k` makes of the row before token `t` and of `t` itself is its row *of* `t`: it depends on the tokens up to `t`
//! alone, so its K/V row stands at `t`'s place in the cache, is committed and shared with the model's, and holds whatever comes
//! after. Nobody pays for rows that nobody asks for: a module reads a text when it is asked, from where it stopped, out of the
//! hidden states that every pass leaves in the cache. The rows of guesses lie behind the text and are dropped.

use std::ops::Range;

use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, SequenceId};
use foretoken_decode::tree::TokenTree;
use foretoken_kernels::matmul::{self, Activations, Matrix, Product};
use foretoken_kernels::ops;

use super::Asking;
use crate::block::Block;
use crate::cache::{PagedCache, Reading};
use crate::error::ModelError;
use crate::forward::{Buffers, Run};
use crate::hyper::Hyper;
use crate::load::Loader;
use crate::plan::Plan;

/// Rows of a module that are run at once.
const MOST_ROWS: usize = 256;

/// The modules, and the memory to run them.
pub(super) struct Chains {
    /// One for each head, or one for all.
    modules: Vec<Module>,
    plan: Plan,
    buffers: Buffers,
    activations: Activations,
    /// `[rows][2 hidden]`: the tokens' embeddings and the states before them, behind their norms.
    both: Vec<f32>,
    /// `[rows][hidden]`
    projected: Vec<f32>,
}

struct Module {
    embedding_norm: Vec<f32>,
    hidden_norm: Vec<f32>,
    /// From the two side by side.
    projection: Matrix,
    block: Block,
    /// In front of the unembedding.
    norm: Vec<f32>,
}

impl Module {
    fn load(loader: &mut Loader<'_>, hyper: &Hyper, k: usize) -> Result<Self, ModelError> {
        let (hidden, name) = (hyper.hidden, |part: &str| format!("head.{k}.{part}.weight"));
        Ok(Self {
            embedding_norm: loader.vector(&name("enorm"), hidden)?,
            hidden_norm: loader.vector(&name("hnorm"), hidden)?,
            projection: loader.matrix(&name("eh_proj"), 2 * hidden, hidden)?,
            block: Block::load(loader, hyper, &format!("head.{k}"))?,
            norm: loader.vector(&name("shared_head_norm"), hidden)?,
        })
    }
}

/// A text that heads are asked about.
pub(super) struct Text {
    /// Its place among those that were asked about.
    pub index: usize,
    sequence: SequenceId,
    /// The text's, and the guesses behind it.
    pub tokens: Vec<TokenId>,
    /// Rows of the text that are in the cache: all but the last token's.
    committed: usize,
    /// By depth.
    made: Vec<Made>,
}

/// What a module made of rows, from row `first` on: `[rows][hidden]`.
#[derive(Default)]
struct Made {
    first: usize,
    states: Vec<f32>,
}

impl Text {
    /// Texts with room in the cache for the rows of `n - 1` guesses. Their last token must be the only one without a row.
    pub fn open(cache: &mut PagedCache, n: usize, texts: &[(SequenceId, &[TokenId])]) -> Vec<Self> {
        let mut open = Vec::new();
        for (index, &(sequence, tokens)) in texts.iter().enumerate() {
            let committed = cache.committed(sequence);
            assert!(committed > 0 && committed + 1 == tokens.len(), "every token but the last has a row");
            if cache.stage(sequence, &TokenTree::new(&vec![0; n])).is_ok() {
                open.push(Self { index, sequence, tokens: tokens.to_vec(), committed, made: Vec::new() });
            }
        }
        open
    }

    /// Where the modules up to `depth` have to begin for that one to go on, the deepest first: one that has read less than
    /// those before it makes them begin earlier too.
    fn starts(&self, cache: &PagedCache, depth: usize) -> Vec<usize> {
        // Module `d` has no row of the first `d + 1` tokens: they have nothing so far before them.
        let mut starts = vec![cache.reading(self.sequence, depth).rows.max(depth + 1)];
        for before in (0..depth).rev() {
            let needed = starts[starts.len() - 1] - 1;
            if self.made[before].first <= needed {
                break;
            }
            starts.push(needed);
        }
        starts
    }

    /// The state before a row, as the module of this depth reads it.
    fn before<'a>(&'a self, cache: &'a PagedCache, depth: usize, row: usize) -> &'a [f32] {
        let Some(module) = depth.checked_sub(1) else { return cache.state(self.sequence, row - 1) };
        let Made { first, states } = &self.made[module];
        let width = cache.shape().state;
        &states[(row - 1 - first) * width..][..width]
    }
}

impl Chains {
    /// Loads the modules of heads 2 on: as many as are `distinct`.
    pub fn load(loader: &mut Loader<'_>, hyper: &Hyper, distinct: usize, threads: usize) -> Result<Self, ModelError> {
        Ok(Self {
            modules: (2..distinct + 2).map(|k| Module::load(loader, hyper, k)).collect::<Result<_, _>>()?,
            plan: Plan::default(),
            buffers: Buffers::new(threads),
            activations: Activations::new(),
            both: Vec::new(),
            projected: Vec::new(),
        })
    }

    /// What the unembedding of this depth's head multiplies, `[texts][hidden]`, for the token behind each text. The depths
    /// before it have been run.
    pub fn features(
        &mut self,
        asking: &Asking<'_>,
        cache: &mut PagedCache,
        depth: usize,
        texts: &mut [Text],
        features: &mut Vec<f32>,
    ) {
        let mut lines: Vec<Vec<(usize, Range<usize>)>> = vec![Vec::new(); depth + 1];
        for (index, text) in texts.iter_mut().enumerate() {
            text.made.resize_with(depth + 1, Made::default);
            for (back, start) in text.starts(cache, depth).into_iter().enumerate() {
                let depth = depth - back;
                lines[depth].push((index, start..text.committed + 1 + depth));
            }
        }
        for (depth, lines) in lines.iter().enumerate() {
            self.read(asking, cache, depth, texts, lines);
        }
        let &Hyper { hidden: width, norm_eps, .. } = asking.hyper;
        let norm = &self.module(depth).norm;
        features.resize(texts.len() * width, 0.0);
        for (text, out) in texts.iter().zip(features.chunks_exact_mut(width)) {
            let states = &text.made[depth].states;
            ops::rms_norm(asking.isa, &states[states.len() - width..], norm, norm_eps, out);
        }
    }

    fn module(&self, depth: usize) -> &Module {
        &self.modules[depth.min(self.modules.len() - 1)]
    }

    /// Has a module read these rows of texts, and remembers how far it is.
    fn read(
        &mut self,
        asking: &Asking<'_>,
        cache: &mut PagedCache,
        depth: usize,
        texts: &mut [Text],
        lines: &[(usize, Range<usize>)],
    ) {
        let width = asking.hyper.hidden;
        for (index, rows) in lines {
            let text = &mut texts[*index];
            let Reading { rows: read, last } = cache.reading(text.sequence, depth);
            // What it made of the row before these is part of what the next module reads.
            let first = rows.start - usize::from(read == rows.start && !last.is_empty());
            text.made[depth] = Made { first, states: if first < rows.start { last } else { Vec::new() } };
        }
        let mut piece: Vec<(usize, Range<usize>)> = Vec::new();
        let mut room = MOST_ROWS;
        for (index, rows) in lines {
            for start in rows.clone() {
                match piece.last_mut() {
                    Some((last, line)) if last == index => line.end = start + 1,
                    _ => piece.push((*index, start..start + 1)),
                }
                room -= 1;
                if room == 0 {
                    self.run(asking, cache, depth, texts, &piece);
                    piece.clear();
                    room = MOST_ROWS;
                }
            }
        }
        self.run(asking, cache, depth, texts, &piece);
        for (index, rows) in lines {
            let Text { sequence, committed, made, .. } = &texts[*index];
            if rows.start < *committed {
                let last = (*committed - 1 - made[depth].first) * width;
                let last = made[depth].states[last..last + width].to_vec();
                cache.set_reading(*sequence, depth, Reading { rows: *committed, last });
            }
        }
    }

    /// Runs rows of texts through a module.
    fn run(
        &mut self,
        asking: &Asking<'_>,
        cache: &mut PagedCache,
        depth: usize,
        texts: &mut [Text],
        lines: &[(usize, Range<usize>)],
    ) {
        let &Asking { pool, isa, hyper, ref ends } = asking;
        let &Hyper { hidden: width, norm_eps, .. } = hyper;
        let Self { modules, plan, buffers, activations, both, projected } = self;
        let module = &modules[depth.min(modules.len() - 1)];
        let n_rows: usize = lines.iter().map(|(_, rows)| rows.len()).sum();
        if n_rows == 0 {
            return;
        }
        both.resize(n_rows * 2 * width, 0.0);
        projected.resize(n_rows * width, 0.0);
        let rows = lines.iter().flat_map(|(index, rows)| rows.clone().map(|row| (&texts[*index], row)));
        for ((text, row), both) in rows.zip(both.chunks_exact_mut(2 * width)) {
            let (embedding, state) = both.split_at_mut(width);
            // The other half is free until its turn.
            ends.embedding.row(text.tokens[row] as usize, state);
            ops::rms_norm(isa, state, &module.embedding_norm, norm_eps, embedding);
            ops::rms_norm(isa, text.before(cache, depth, row), &module.hidden_norm, norm_eps, state);
        }
        activations.set(pool, isa, both, n_rows, 2 * width, [module.projection.storage()].into_iter());
        matmul::matmul(pool, isa, activations, &mut [Product { weights: &module.projection, out: projected }]);

        let placed: Vec<_> = lines.iter().map(|(index, rows)| (texts[*index].sequence, rows.clone())).collect();
        plan.lines(&placed, depth + 1);
        let mut run = Run { pool, isa, hyper, plan, cache, buffers, wanted: &[], n_logits: 0, heads: None };
        run.set_rows(projected);
        run.set_positions(ends.rope);
        module.block.run(&mut run, hyper.layers + depth, ends.rope_style);
        let mut states = run.states();
        for (index, rows) in lines {
            let (own, rest) = states.split_at(rows.len() * width);
            texts[*index].made[depth].states.extend_from_slice(own);
            states = rest;
        }
    }
}
