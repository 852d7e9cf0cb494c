//! The rows of a pass in the order they are run, and which K/V chunks each reads.

use std::ops::Range;

use foretoken_decode::target::{Cache, SequenceId, Want, Work};
use foretoken_decode::tree::NodeId;
use foretoken_kernels::attention::KEY_CHUNK;

use crate::cache::{PagedCache, Place};

/// Rows that read K/V together at most.
const BLOCK_ROWS: usize = 16;

/// A node that has no row yet.
const UNLAID: usize = usize::MAX;

/// One row of the pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub node: NodeId,
    pub sequence: SequenceId,
    pub token: u32,
    /// Logical position: tokens before it on its path.
    pub position: usize,
    pub want: Want,
}

/// Rows whose keys lie in the same chunks: consecutive rows of a sequence's home line, or of one branch.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub sequence: SequenceId,
    pub rows: Range<usize>,
    /// Staged nodes of the branch, by logical position from `branch_at` on, in [`Plan::branches`]; empty for rows at home.
    pub branch: Range<usize>,
    /// Logical position of the first staged node of the path.
    pub branch_at: usize,
    /// Chunks that the last row reads.
    pub n_chunks: usize,
}

/// Everything about a pass that does not depend on the layer.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub rows: Vec<Row>,
    pub blocks: Vec<Block>,
    /// Staged nodes of every branch.
    pub branches: Vec<NodeId>,
    /// Logical position before which no row sees anything; below [`KEY_CHUNK`].
    pub first_seen: usize,
    /// Row of node `n` of work `w`: `row_of[first[w] + n]`.
    row_of: Vec<usize>,
    first: Vec<usize>,
}

impl Plan {
    /// Lays out the rows of `work`, whose trees the cache has staged.
    pub fn make(&mut self, cache: &PagedCache, work: &[Work<'_>]) {
        self.rows.clear();
        self.blocks.clear();
        self.branches.clear();
        self.row_of.clear();
        self.first.clear();
        self.first_seen = 0;
        for (index, item) in work.iter().enumerate() {
            let first = self.row_of.len();
            self.first.push(first);
            self.row_of.resize(first + item.tree.len(), UNLAID);
            let committed = cache.committed(item.sequence);
            self.lay_home(cache, index, item, committed);
            self.lay_branches(cache, index, item, committed);
        }
    }

    /// Lays out the last committed row of each sequence, alone, as if it were run again.
    pub fn last_rows(&mut self, cache: &PagedCache, sequences: &[SequenceId]) {
        self.rows.clear();
        self.blocks.clear();
        self.first_seen = 0;
        for (index, &sequence) in sequences.iter().enumerate() {
            let position = cache.committed(sequence).checked_sub(1).expect("a row is committed");
            self.rows.push(Row { node: 0, sequence, token: 0, position, want: Want::Nothing });
            self.block(sequence, index..index + 1, 0..0, usize::MAX);
        }
    }

    /// Lays out positions of sequences that are committed or stand in a straight line behind those; no row sees what stands
    /// before `first_seen`.
    pub fn lines(&mut self, lines: &[(SequenceId, Range<usize>)], first_seen: usize) {
        self.rows.clear();
        self.blocks.clear();
        self.first_seen = first_seen;
        for (sequence, positions) in lines {
            for first in positions.clone().step_by(BLOCK_ROWS) {
                let start = self.rows.len();
                let block = first..positions.end.min(first + BLOCK_ROWS);
                let row = |position| Row { node: 0, sequence: *sequence, token: 0, position, want: Want::Nothing };
                self.rows.extend(block.map(row));
                self.block(*sequence, start..self.rows.len(), 0..0, usize::MAX);
            }
        }
    }

    /// The row of a node.
    pub fn row(&self, work: usize, node: NodeId) -> usize {
        self.row_of[self.first[work] + node]
    }

    fn push(&mut self, index: usize, item: &Work<'_>, committed: usize, node: NodeId) {
        let n = item.tree.nodes()[node];
        self.row_of[self.first[index] + node] = self.rows.len();
        self.rows.push(Row {
            node,
            sequence: item.sequence,
            token: n.token,
            position: committed + n.depth as usize,
            want: item.wants[node],
        });
    }

    fn lay_home(&mut self, cache: &PagedCache, index: usize, item: &Work<'_>, committed: usize) {
        let start = self.rows.len();
        for node in (0..item.tree.len()).filter(|&node| cache.place(item.sequence, node) == Place::Home) {
            self.push(index, item, committed, node);
        }
        let end = self.rows.len();
        for first in (start..end).step_by(BLOCK_ROWS) {
            self.block(item.sequence, first..end.min(first + BLOCK_ROWS), 0..0, usize::MAX);
        }
    }

    /// Each leaf takes the staged nodes above it that no earlier leaf took.
    fn lay_branches(&mut self, cache: &PagedCache, index: usize, item: &Work<'_>, committed: usize) {
        let nodes = item.tree.nodes();
        let is_leaf = |node: NodeId| !nodes[node + 1..].iter().any(|n| n.parent == node);
        for leaf in (0..nodes.len()).rev() {
            if self.row_of[self.first[index] + leaf] != UNLAID || !is_leaf(leaf) {
                continue;
            }
            // Nothing below a staged node is at home.
            let begins = self.branches.len();
            let mut node = leaf;
            while cache.place(item.sequence, node) != Place::Home {
                self.branches.push(node);
                node = nodes[node].parent;
            }
            self.branches[begins..].reverse();
            let branch = begins..self.branches.len();
            let start = self.rows.len();
            for at in branch.clone() {
                let node = self.branches[at];
                if self.row_of[self.first[index] + node] == UNLAID {
                    self.push(index, item, committed, node);
                }
            }
            let at_home = nodes[self.branches[begins]].depth as usize;
            self.block(item.sequence, start..self.rows.len(), branch, committed + at_home);
        }
    }

    fn block(&mut self, sequence: SequenceId, rows: Range<usize>, branch: Range<usize>, branch_at: usize) {
        let last = self.rows[rows.clone()].iter().map(|row| row.position).max().expect("a block has rows");
        self.blocks.push(Block { sequence, rows, branch, branch_at, n_chunks: last / KEY_CHUNK + 1 });
    }
}
