//! Attention over pages: every row reads its keys at logical positions, in the same chunks, whatever its company.
//!
//! Chunks of [`SPLIT`] are folded in ascending order, and so are splits; which worker does a split changes nothing.

use std::sync::Mutex;

use foretoken_kernels::Isa;
use foretoken_kernels::attention::{self, AttentionState, KEY_CHUNK};
use foretoken_kernels::pool::Pool;

use crate::cache::PagedCache;
use crate::plan::{Block, Plan};

/// Chunks folded into one partial state.
const SPLIT: usize = 8;

/// One worker's memory.
#[derive(Default)]
struct Scratch {
    visible: Vec<(u8, u8)>,
    /// K and V of a chunk that holds rows of a branch, put together.
    assembled: Vec<u8>,
    partial: AttentionState,
}

/// The part of a pass's attention that one worker does at once.
struct Item {
    block: usize,
    head: usize,
    /// Splits done into one state, in order.
    splits: std::ops::Range<usize>,
}

/// Memory for attention, kept from pass to pass.
pub(crate) struct Attention {
    items: Vec<Item>,
    states: Vec<AttentionState>,
    scratch: Vec<Mutex<Scratch>>,
}

/// What attention reads besides the plan.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    /// `[kv_heads][rows][group][head_dim]`, scaled by 1 / sqrt(head_dim).
    pub q: &'a [f32],
    pub layer: usize,
    /// Query heads for each K/V head.
    pub group: usize,
    pub isa: Isa,
}

impl Attention {
    pub fn new(threads: usize) -> Self {
        Self { items: Vec::new(), states: Vec::new(), scratch: (0..threads).map(|_| Mutex::default()).collect() }
    }

    /// Divides a pass into items: the same for all layers. Long contexts are split among workers only when there are
    /// few other items.
    pub fn divide(&mut self, plan: &Plan, kv_heads: usize) {
        self.items.clear();
        let by_split = plan.blocks.len() * kv_heads < 4 * self.scratch.len();
        for (block, b) in plan.blocks.iter().enumerate() {
            let n_splits = b.n_chunks.div_ceil(SPLIT);
            for head in 0..kv_heads {
                let parts = if by_split { n_splits } else { 1 };
                self.items.extend((0..parts).map(|part| Item {
                    block,
                    head,
                    splits: if by_split { part..part + 1 } else { 0..n_splits },
                }));
            }
        }
        if self.states.len() < self.items.len() {
            self.states.resize_with(self.items.len(), AttentionState::default);
        }
    }

    /// Writes `out` as `[rows][kv_heads][group][head_dim]`.
    pub fn run(&mut self, pool: &Pool, plan: &Plan, cache: &PagedCache, queries: Queries<'_>, out: &mut [f32]) {
        let Self { items, states, scratch } = self;
        let states = &mut states[..items.len()];
        pool.chunks_mut(states, 1, |worker, index, state| {
            let mut scratch = scratch[worker].lock().expect("no item panics");
            run_item(&items[index], plan, cache, queries, &mut scratch, &mut state[0]);
        });
        let shape = cache.shape();
        let width = queries.group * shape.head_dim;
        let mut index = 0;
        while index < items.len() {
            let Item { block, head, .. } = items[index];
            let parts = items[index..].iter().take_while(|i| (i.block, i.head) == (block, head)).count();
            let (total, rest) = states[index..index + parts].split_first_mut().expect("an item is a part");
            rest.iter().for_each(|part| attention::combine(queries.isa, total, part));
            for (i, row) in plan.blocks[block].rows.clone().enumerate() {
                let start = (row * shape.heads + head) * width;
                let heads = out[start..start + width].chunks_exact_mut(shape.head_dim).enumerate();
                heads.for_each(|(h, out)| attention::finish_query(queries.isa, total, i * queries.group + h, out));
            }
            index += parts;
        }
    }
}

fn run_item(
    item: &Item,
    plan: &Plan,
    cache: &PagedCache,
    queries: Queries<'_>,
    scratch: &mut Scratch,
    total: &mut AttentionState,
) {
    let block = &plan.blocks[item.block];
    let head_dim = cache.shape().head_dim;
    let width = queries.group * head_dim;
    let first = (item.head * plan.rows.len() + block.rows.start) * width;
    let q = &queries.q[first..first + block.rows.len() * width];
    let n_q = block.rows.len() * queries.group;
    let pages = cache.page_table(block.sequence);
    for split in item.splits.clone() {
        let mut partial = std::mem::take(&mut scratch.partial);
        let state = if split == item.splits.start { &mut *total } else { &mut partial };
        state.reset(n_q, head_dim);
        for chunk in split * SPLIT..block.n_chunks.min((split + 1) * SPLIT) {
            see(&mut scratch.visible, plan, block, queries.group, chunk);
            let keys = if block.branch_at < (chunk + 1) * KEY_CHUNK {
                assemble(&mut scratch.assembled, cache, (plan, block), queries.layer, item.head, chunk);
                cache.shape().chunk(&scratch.assembled)
            } else {
                let at = |chunk: usize| cache.chunk(queries.layer, pages[chunk], item.head);
                // The last page of a sequence may lie beyond the block's chunks: asking for it ahead does no harm.
                let next = (chunk + 1).min(pages.len() - 1);
                at(chunk).followed_by(at(next))
            };
            attention::attend(queries.isa, keys, q, &scratch.visible, state);
        }
        if split != item.splits.start {
            attention::combine(queries.isa, total, &partial);
        }
        scratch.partial = partial;
    }
}

/// Which positions of the chunk each query sees.
fn see(visible: &mut Vec<(u8, u8)>, plan: &Plan, block: &Block, group: usize, chunk: usize) {
    visible.clear();
    for row in &plan.rows[block.rows.clone()] {
        let seen = (row.position + 1).saturating_sub(chunk * KEY_CHUNK).min(KEY_CHUNK);
        let first = plan.first_seen.saturating_sub(chunk * KEY_CHUNK).min(seen);
        visible.extend(std::iter::repeat_n((first as u8, seen as u8), group));
    }
}

/// Puts the chunk together as the branch sees it: the page's rows up to where it branches off, then its own.
fn assemble(
    out: &mut Vec<u8>,
    cache: &PagedCache,
    (plan, block): (&Plan, &Block),
    layer: usize,
    head: usize,
    chunk: usize,
) {
    let (start, end) = (chunk * KEY_CHUNK, (chunk + 1) * KEY_CHUNK);
    out.clear();
    out.extend_from_slice(cache.chunk_bytes_at(layer, cache.page_table(block.sequence)[chunk], head));
    let mut assembled = cache.shape().chunk_mut(out);
    for (i, &node) in plan.branches[block.branch.clone()].iter().enumerate() {
        let logical = block.branch_at + i;
        if (start..end).contains(&logical) {
            let from = cache.position(block.sequence, node, logical);
            assembled.copy_position(cache.chunk(layer, from.page, head), from.offset, logical - start);
        }
    }
}
