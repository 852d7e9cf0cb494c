//! Products of activation rows with packed weights: y = W x for each row, one parallel region for several matrices.
//!
//! An output is one chain of arithmetic (see `scalar.rs`) that depends on its row and its weights alone: not on the other
//! rows, the threads or the instruction set. Threads take runs of tiles; a tile is multiplied with every row while it is
//! in cache.
#![allow(unsafe_code)]

mod activations;
mod layout;
mod matrix;
mod quantise;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::isa::Isa;
use crate::ops::silu_mul;
use crate::pool::Pool;
pub use activations::Activations;
use activations::{Form, Group, MAX_GROUP_ROWS, group_rows};
use layout::TILE_ROWS;
pub use matrix::Matrix;

/// A task is about this many bytes of weights: large enough to stream, small enough to share out evenly.
const TASK_BYTES: usize = 96 << 10;

/// At most so many products are one parallel region; more are done in turn.
const FUSED: usize = 8;

/// One matrix to multiply and where its outputs go.
#[derive(Debug)]
pub struct Product<'a> {
    /// Weights `[n_out][n_in]`.
    pub weights: &'a Matrix,
    /// Outputs `[n_rows][n_out]`.
    pub out: &'a mut [f32],
}

/// Multiplies the rows with every product's weights. Panics when a shape does not fit or the activations were prepared
/// for another instruction set or without these weight types.
pub fn matmul(pool: &Pool, isa: Isa, activations: &Activations, products: &mut [Product<'_>]) {
    for products in products.chunks_mut(FUSED) {
        let mut jobs = [const { None }; FUSED];
        let mut n_tasks = 0;
        for (job, product) in jobs.iter_mut().zip(products) {
            let tasks = Tasks::new(pool, isa, activations, product.weights);
            n_tasks += tasks.count;
            *job = Some((tasks, Out::new(product.out, activations, product.weights)));
        }
        let strands = Strands::new(pool.threads(), n_tasks);
        pool.run(n_tasks, &|worker, _| {
            let mut index = strands.take(worker);
            for (tasks, out) in jobs.iter().flatten() {
                if index < tasks.count {
                    return tasks.each_tile(index, |tile, group, values| out.write(tile, group, values));
                }
                index -= tasks.count;
            }
        });
    }
}

/// out `[n_rows][n_out]` = silu(gate x) * (up x), in one parallel region. Panics as [`matmul`] does, and when the two matrices differ in shape.
pub fn matmul_glu(pool: &Pool, isa: Isa, activations: &Activations, gate: &Matrix, up: &Matrix, out: &mut [f32]) {
    assert_eq!((gate.n_out(), gate.n_in()), (up.n_out(), up.n_in()), "gate and up have one shape");
    let out = Out::new(out, activations, gate);
    let gates = Tasks::new(pool, isa, activations, gate);
    let ups = Kernel::new(isa, activations, up);
    let strands = Strands::new(pool.threads(), gates.count);
    pool.run(gates.count, &|worker, _| {
        gates.each_tile(strands.take(worker), |tile, group, gate| {
            let mut up = [[0.0; TILE_ROWS]; MAX_GROUP_ROWS];
            let up = ups.multiply(tile, group, &mut up);
            silu_mul(isa, gate.as_flattened_mut(), up.as_flattened());
            out.write(tile, group, gate);
        });
    });
}

/// Multiplies a tile with as many rows as the group has: `out[lane][row]`. The CPU must have what the kernel was written
/// for, and tile and group `n_in` weights and activations a row.
type TileFn = unsafe fn(tile: &[u8], n_in: usize, group: &Group<'_>, out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS]);

/// A matrix, the rows to multiply it with and how.
struct Kernel<'a> {
    activations: &'a Activations,
    weights: &'a Matrix,
    isa: Isa,
}

impl<'a> Kernel<'a> {
    fn new(isa: Isa, activations: &'a Activations, weights: &'a Matrix) -> Self {
        assert_eq!(activations.isa(), isa, "activations are prepared for the instruction set");
        assert_eq!(activations.n_in(), weights.n_in(), "activations are as long as weight rows");
        Kernel { activations, weights, isa }
    }

    /// Multiplies tile `tile` with group `group`; returns the lanes written.
    fn multiply<'o>(
        &self,
        tile: usize,
        group: usize,
        out: &'o mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
    ) -> &'o mut [[f32; TILE_ROWS]] {
        let ty = self.weights.storage();
        let group = self.activations.group(Form::of(ty), group);
        let (tile, n_in) = (self.weights.tile(tile), self.weights.n_in());
        match self.isa {
            Isa::Scalar => scalar::tile(ty, tile, n_in, &group, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: holding the value proves the CPU's features; tile and group are n_in long.
            Isa::Avx2(isa) => unsafe { x86::avx2::kernel(isa, ty, group.width)(tile, n_in, &group, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512(isa) => unsafe { x86::avx512::kernel(isa, ty, group.width)(tile, n_in, &group, out) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => scalar::tile(ty, tile, n_in, &group, out),
        }
        &mut out[..group.width]
    }
}

/// Hands each worker tasks that follow each other in memory, and the others' when its own are done: streams that start
/// anew with every task of 100 kB reach four fifths of the bandwidth of streams that go on.
struct Strands {
    next: [Apart; MAX_STRANDS],
    n_strands: usize,
    n_tasks: usize,
}

/// Workers beyond these share strands.
const MAX_STRANDS: usize = 32;

/// A counter on cache lines of its own.
#[repr(align(128))]
struct Apart(AtomicUsize);

impl Strands {
    fn new(n_workers: usize, n_tasks: usize) -> Self {
        let n_strands = n_workers.clamp(1, MAX_STRANDS);
        let start = |strand: usize| Apart(AtomicUsize::new(strand * n_tasks / n_strands));
        Strands { next: std::array::from_fn(start), n_strands, n_tasks }
    }

    /// The next task for a worker. Called once for each task in all, it gives out each once.
    fn take(&self, worker: usize) -> usize {
        for i in 0..self.n_strands {
            let strand = (worker + i) % self.n_strands;
            let end = (strand + 1) * self.n_tasks / self.n_strands;
            let task = self.next[strand].0.fetch_add(1, Ordering::Relaxed);
            if task < end {
                return task;
            }
        }
        unreachable!("as many calls as tasks")
    }
}

/// A kernel's tiles, shared out as tasks.
struct Tasks<'a> {
    kernel: Kernel<'a>,
    /// Tiles of one task.
    tiles: usize,
    /// Number of tasks.
    count: usize,
}

impl<'a> Tasks<'a> {
    fn new(pool: &Pool, isa: Isa, activations: &'a Activations, weights: &'a Matrix) -> Self {
        let kernel = Kernel::new(isa, activations, weights);
        let n_tiles = weights.n_tiles();
        let large = TASK_BYTES / weights.tile_bytes().max(1);
        let fair = n_tiles / (4 * pool.threads());
        let tiles = large.min(fair).max(1);
        Tasks { kernel, tiles, count: n_tiles.div_ceil(tiles) }
    }

    /// Calls `done` with every tile of a task, every group of rows and their products.
    fn each_tile(&self, index: usize, mut done: impl FnMut(usize, usize, &mut [[f32; TILE_ROWS]])) {
        let first = index * self.tiles;
        let last = (first + self.tiles).min(self.kernel.weights.n_tiles());
        let mut out = [[0.0; TILE_ROWS]; MAX_GROUP_ROWS];
        for tile in first..last {
            for group in 0..self.kernel.activations.n_groups() {
                done(tile, group, self.kernel.multiply(tile, group, &mut out));
            }
        }
    }
}

/// Outputs `[n_rows][n_out]` that tasks write to in parallel, each its own columns.
struct Out<'a> {
    start: *mut f32,
    n_rows: usize,
    n_out: usize,
    group_rows: usize,
    _out: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks only write, and `Tasks` gives every tile, and so every column, to one task.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    fn new(out: &'a mut [f32], activations: &Activations, weights: &Matrix) -> Self {
        let (n_rows, n_out) = (activations.n_rows(), weights.n_out());
        assert_eq!(out.len(), n_rows * n_out, "outputs are [{n_rows}][{n_out}]");
        let group_rows = group_rows(activations.isa());
        Out { start: out.as_mut_ptr(), n_rows, n_out, group_rows, _out: PhantomData }
    }

    /// Writes the products of tile `tile` with group `group`. A tile must be written by one thread only.
    fn write(&self, tile: usize, group: usize, values: &[[f32; TILE_ROWS]]) {
        let column = tile * TILE_ROWS;
        let columns = TILE_ROWS.min(self.n_out - column);
        for (lane, values) in values.iter().enumerate() {
            let row = group * self.group_rows + lane;
            assert!(row < self.n_rows);
            // SAFETY: row < n_rows and column + columns <= n_out, so the range lies in the outputs borrowed by `_out`;
            // no other task writes these columns.
            unsafe {
                let place = self.start.add(row * self.n_out + column);
                std::ptr::copy_nonoverlapping(values.as_ptr(), place, columns);
            }
        }
    }
}
