//! Heads that are a layer each, beside the model's last: `transformer`.
//!
//! Their K/V rows are in the cache behind those of the model's layers and are stored for every row of every pass, so they
//! are committed, shared and given up together with the model's. The layer itself is run when the head is asked, for one row
//! a text, which reads the keys of the whole text before it.

use foretoken_decode::target::SequenceId;

use super::Asking;
use crate::block::Block;
use crate::cache::PagedCache;
use crate::error::ModelError;
use crate::forward::{Buffers, Run};
use crate::hyper::Hyper;
use crate::load::Loader;
use crate::plan::Plan;

/// Their weights.
pub(super) struct Layers {
    pub blocks: Vec<Block>,
    plan: Plan,
    buffers: Buffers,
}

impl Layers {
    /// Loads the layers of heads 2 to `count + 1`.
    pub fn load(loader: &mut Loader<'_>, hyper: &Hyper, count: usize, threads: usize) -> Result<Self, ModelError> {
        let block = |k: usize| Block::load(loader, hyper, &format!("head.{k}"));
        let blocks = (2..count + 2).map(block).collect::<Result<_, _>>()?;
        Ok(Self { blocks, plan: Plan::default(), buffers: Buffers::new(threads) })
    }

    /// What the unembeddings of the first `n` heads multiply, `[n][rows][hidden]`, from what went into the last layer at the
    /// last committed row of each sequence, `x` `[rows][hidden]`.
    pub fn features(
        &mut self,
        asking: &Asking<'_>,
        cache: &mut PagedCache,
        n: usize,
        sequences: &[SequenceId],
        x: &[f32],
        features: &mut [f32],
    ) {
        let Self { blocks, plan, buffers } = self;
        plan.last_rows(cache, sequences);
        let Asking { pool, isa, hyper, ends } = asking;
        let (pool, isa, hyper) = (*pool, *isa, *hyper);
        let mut run = Run { pool, isa, hyper, plan, cache, buffers, wanted: &[], n_logits: 0, heads: None };
        run.set_positions(ends.rope);
        for ((index, block), out) in blocks.iter().take(n).enumerate().zip(features.chunks_exact_mut(x.len())) {
            run.set_rows(x);
            block.run_stored(&mut run, hyper.layers + index, ends.rope_style);
            out.copy_from_slice(run.normed(ends.norm));
        }
    }
}
