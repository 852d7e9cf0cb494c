//! Dense matrix products of training: both operands packed, tiles of the result in registers, work spread over the cores.
//!
//! The operand along the longer side of the result is packed piece by piece by the tasks, the other one once for all.
//! Each element is one chain over ascending `k`, cut at every [`DEPTH`] words and nowhere else, so the result does not
//! depend on the number of threads. (The layering is that of Goto and van de Geijn, "Anatomy of high-performance matrix
//! multiplication", 2008.)
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use super::Strided;
use super::tile::{Kernel, Panels, Precision};
use crate::Isa;

/// Words of `k` between two visits to the result: a panel of the left operand then fits the first cache.
const DEPTH: usize = 512;

/// Panels that a task packs: of the left operand, or of the right one.
const PANELS: [usize; 2] = [8, 2];

/// `a b` for `size = [m, n, k]`: `[m, n]` row by row, of `a` `[m, k]` and `b` `[k, n]`.
///
/// Operands are rounded to `precision`, sums are `f32`. The bits of the result depend on the instruction set.
pub fn product(isa: Isa, precision: Precision, size: [usize; 3], a: Strided<'_>, b: Strided<'_>) -> Vec<f32> {
    let [m, n, k] = size;
    if m * n * k == 0 {
        return vec![0.0; m * n];
    }
    let last = |x: Strided<'_>, rows, cols| (rows - 1) * x.row + (cols - 1) * x.col;
    assert!(last(a, m, k) < a.data.len() && last(b, k, n) < b.data.len(), "operands of {m} x {k} and {k} x {n}");
    let kernel = Kernel::new(isa, precision);
    let [rows, cols] = kernel.tile();
    let left = Operand { kernel, data: a.data, lane: a.row, step: a.col, width: rows, n_lanes: m, k };
    let right = Operand { kernel, data: b.data, lane: b.col, step: b.row, width: cols, n_lanes: n, k };
    let mut result = Vec::with_capacity(m * n);
    let c = &mut result.spare_capacity_mut()[..m * n];
    if m >= n || m >= 16 * PANELS[0] * rows {
        let right = right.pack_all();
        let per_task = PANELS[0] * rows;
        c.par_chunks_mut(per_task * n).enumerate().for_each_init(Vec::new, |scratch, (i, c)| {
            for (depth, right) in left.depths().zip(&right) {
                let first = depth.start == 0;
                let left = left.pack(i * per_task..i * per_task + c.len() / n, depth, scratch);
                kernel.block(left, right.panels(), c, n, first);
            }
        });
    } else {
        // Blocks of columns are made apart and put in their places at the end.
        let left = left.pack_all();
        let per_task = (PANELS[1] * cols).min(n.div_ceil(8).next_multiple_of(cols));
        let blocks: Vec<Vec<MaybeUninit<f32>>> = (0..n.div_ceil(per_task))
            .into_par_iter()
            .map_init(Vec::new, |scratch, j| {
                let lanes = j * per_task..((j + 1) * per_task).min(n);
                let mut block = vec![MaybeUninit::uninit(); m * lanes.len()];
                for (depth, left) in right.depths().zip(&left) {
                    let first = depth.start == 0;
                    let right = right.pack(lanes.clone(), depth, scratch);
                    kernel.block(left.panels(), right, &mut block, lanes.len(), first);
                }
                block
            })
            .collect();
        c.par_chunks_mut(n).enumerate().for_each(|(i, row)| {
            for (part, block) in row.chunks_mut(per_task).zip(&blocks) {
                let len = part.len();
                part.copy_from_slice(&block[i * len..][..len]);
            }
        });
    }
    // SAFETY: the first piece of `k`, which is there, has written every element.
    unsafe { result.set_len(m * n) };
    result
}

/// An operand: its lanes are the rows of the left one, the columns of the right one.
#[derive(Clone, Copy)]
struct Operand<'a> {
    kernel: Kernel,
    data: &'a [f32],
    /// Distances between lanes and between steps of `k`.
    lane: usize,
    step: usize,
    /// Lanes of a panel.
    width: usize,
    n_lanes: usize,
    k: usize,
}

/// All lanes of an operand over a piece of `k`.
struct Packed {
    words: Vec<u32>,
    n_lanes: usize,
    n_words: usize,
}

impl Packed {
    fn panels(&self) -> Panels<'_> {
        Panels { words: &self.words, n_lanes: self.n_lanes, n_words: self.n_words }
    }
}

impl Operand<'_> {
    /// The pieces that `k` is cut into.
    fn depths(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (k, depth) = (self.k, DEPTH * self.kernel.per_word());
        (0..k).step_by(depth).map(move |from| from..(from + depth).min(k))
    }

    /// Packs some lanes over a piece of `k`.
    fn pack<'s>(&self, lanes: Range<usize>, depth: Range<usize>, scratch: &'s mut Vec<u32>) -> Panels<'s> {
        let n_words = depth.len().div_ceil(self.kernel.per_word());
        scratch.resize(lanes.len().div_ceil(self.width) * self.width * n_words, 0);
        for (i, out) in scratch.chunks_exact_mut(self.width * n_words).enumerate() {
            self.pack_panel(lanes.start + i * self.width..lanes.end, depth.clone(), out);
        }
        Panels { words: scratch, n_lanes: lanes.len(), n_words }
    }

    /// Packs all lanes, piece by piece of `k`.
    fn pack_all(&self) -> Vec<Packed> {
        self.depths()
            .map(|depth| {
                let n_words = depth.len().div_ceil(self.kernel.per_word());
                let mut words = vec![0; self.n_lanes.div_ceil(self.width) * self.width * n_words];
                words.par_chunks_exact_mut(self.width * n_words).enumerate().for_each(|(i, out)| {
                    self.pack_panel(i * self.width..self.n_lanes, depth.clone(), out);
                });
                Packed { words, n_lanes: self.n_lanes, n_words }
            })
            .collect()
    }

    fn pack_panel(&self, lanes: Range<usize>, depth: Range<usize>, out: &mut [u32]) {
        let data = &self.data[lanes.start * self.lane + depth.start * self.step..];
        let from = Strided { data, row: self.lane, col: self.step };
        self.kernel.pack(from, lanes.len().min(self.width), depth.len(), self.width, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::testing::Rng;

    /// The product in f64.
    fn exact([m, n, k]: [usize; 3], a: Strided<'_>, b: Strided<'_>) -> Vec<f64> {
        let at = |x: Strided<'_>, i, j| f64::from(x.data[i * x.row + j * x.col]);
        let element = |i: usize| (0..k).map(|p| at(a, i / n, p) * at(b, p, i % n)).sum();
        (0..m * n).map(element).collect()
    }

    /// Tall, wide, deep and tiny; with both operands in either order.
    fn check(precision: Precision, tolerance: f64) {
        let mut rng = Rng(1);
        for [m, n, k] in [[1, 1, 1], [13, 33, 7], [200, 65, 40], [70, 300, 530], [25, 40, 1100], [1600, 1700, 3]] {
            let a = rng.uniforms(m * k, -1.0..1.0);
            let b = rng.uniforms(k * n, -1.0..1.0);
            for (a_row, a_col, b_row, b_col) in [(k, 1, n, 1), (1, m, n, 1), (k, 1, 1, k), (1, m, 1, k)] {
                let a = Strided { data: &a, row: a_row, col: a_col };
                let b = Strided { data: &b, row: b_row, col: b_col };
                let expected = exact([m, n, k], a, b);
                for isa in Isa::available() {
                    let c = product(isa, precision, [m, n, k], a, b);
                    assert_eq!(c.len(), m * n);
                    let worst = c.iter().zip(&expected).map(|(c, e)| (f64::from(*c) - e).abs()).fold(0.0, f64::max);
                    assert!(worst <= tolerance * (k as f64).sqrt(), "{m} x {n} x {k}, {isa}: {worst}");
                }
            }
        }
    }

    #[test]
    fn near_the_product_in_f64() {
        check(Precision::F32, 3e-6);
    }

    #[test]
    fn halves_lose_what_their_mantissa_lacks() {
        // Each factor is off by at most one part in 512; over k terms errors add up like a random walk.
        check(Precision::Bf16, 0.01);
    }

    #[test]
    fn the_same_for_any_number_of_threads() {
        let mut rng = Rng(2);
        for [m, n, k] in [[300, 70, 1100], [70, 300, 1100]] {
            let (a, b) = (rng.uniforms(m * k, -1.0..1.0), rng.uniforms(k * n, -1.0..1.0));
            let with = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (a, b) = (Strided { data: &a, row: k, col: 1 }, Strided { data: &b, row: n, col: 1 });
                pool.install(|| product(Isa::best(), Precision::F32, [m, n, k], a, b))
            };
            assert_eq!(with(1), with(3));
        }
    }
}
