//! A dense product for the small matrices of attention, the right factor and the sum in rows of whole lanes.

use crate::simd::{LANES, Simd, per_isa};

/// A matrix inside a slice: element `(i, j)` lies at `i * row + j * col`.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// The values.
    pub data: &'a [f32],
    /// Distance between rows.
    pub row: usize,
    /// Distance between columns.
    pub col: usize,
}

per_isa! {
    /// `c += a b` for `size = [m, n, k]`: `c` is `[m, n]`, `a` `[m, k]`, `b` `[k, n]`, the rows of `b` and `c` `b_row` and `c_row` apart.
    ///
    /// `n` is a multiple of 16. Each element is one chain of fused multiply-adds over ascending `k`, from what `c` held.
    pub fn add_product(
        size: [usize; 3],
        a: Strided<'_>,
        b: &[f32],
        b_row: usize,
        c: &mut [f32],
        c_row: usize,
    ) = add_product_lanes;
}

#[inline(always)]
fn add_product_lanes<S: Simd>(
    simd: S,
    [m, n, k]: [usize; 3],
    a: Strided<'_>,
    b: &[f32],
    b_row: usize,
    c: &mut [f32],
    c_row: usize,
) {
    assert!(n.is_multiple_of(LANES), "whole lanes");
    for j in (0..n).step_by(2 * LANES) {
        // Two blocks of lanes a row where they are two registers and not four.
        let pair = j + LANES < n;
        let mut i = 0;
        while i < m {
            let rows = match m - i {
                8.. if S::WIDE => 8,
                4.. => 4,
                _ => 1,
            };
            let (c, b) = (&mut c[i * c_row + j..], &b[j..]);
            match (rows, pair, S::WIDE) {
                (8, true, _) => tile::<S, 8, 2>(simd, a, i, b, b_row, k, c, c_row),
                (8, false, _) => tile::<S, 8, 1>(simd, a, i, b, b_row, k, c, c_row),
                (4, true, true) => tile::<S, 4, 2>(simd, a, i, b, b_row, k, c, c_row),
                (4, true, false) => {
                    tile::<S, 4, 1>(simd, a, i, b, b_row, k, c, c_row);
                    tile::<S, 4, 1>(simd, a, i, &b[LANES..], b_row, k, &mut c[LANES..], c_row);
                }
                (4, false, _) => tile::<S, 4, 1>(simd, a, i, b, b_row, k, c, c_row),
                (_, true, _) => tile::<S, 1, 2>(simd, a, i, b, b_row, k, c, c_row),
                (_, false, _) => tile::<S, 1, 1>(simd, a, i, b, b_row, k, c, c_row),
            }
            i += rows;
        }
    }
}

/// `M` rows from row `i` of `a` and `N` blocks of lanes, kept in registers over all of `k`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn tile<S: Simd, const M: usize, const N: usize>(
    simd: S,
    a: Strided<'_>,
    i: usize,
    b: &[f32],
    b_row: usize,
    k: usize,
    c: &mut [f32],
    c_row: usize,
) {
    let mut sums = [[simd.splat(0.0); N]; M];
    for (r, row) in sums.iter_mut().enumerate() {
        for (v, sum) in row.iter_mut().enumerate() {
            *sum = simd.load(lanes(&c[r * c_row..], v));
        }
    }
    // The two orders that attention has, each with one check of bounds a step.
    if a.row == 1 {
        for (p, right) in b.chunks(b_row).take(k).enumerate() {
            let left: &[f32; M] = a.data[i + p * a.col..][..M].try_into().expect("M values");
            step(simd, left, right, &mut sums);
        }
    } else {
        let rows: [&[f32]; M] = std::array::from_fn(|r| &a.data[(i + r) * a.row..][..(k - 1) * a.col + 1]);
        for (p, right) in b.chunks(b_row).take(k).enumerate() {
            let mut left = [0.0; M];
            for (x, row) in left.iter_mut().zip(&rows) {
                *x = row[p * a.col];
            }
            step(simd, &left, right, &mut sums);
        }
    }
    for (r, row) in sums.iter().enumerate() {
        for (v, sum) in row.iter().enumerate() {
            let out: &mut [f32; LANES] = (&mut c[r * c_row + v * LANES..][..LANES]).try_into().expect("sixteen");
            simd.store(*sum, out);
        }
    }
}

/// Adds one step of `k` to a tile.
#[inline(always)]
fn step<S: Simd, const M: usize, const N: usize>(simd: S, left: &[f32; M], right: &[f32], sums: &mut [[S::F; N]; M]) {
    let right = &right[..N * LANES];
    for (x, row) in left.iter().zip(sums) {
        let x = simd.splat(*x);
        for (v, sum) in row.iter_mut().enumerate() {
            *sum = simd.fma(x, simd.load(lanes(right, v)), *sum);
        }
    }
}

#[inline(always)]
fn lanes(x: &[f32], block: usize) -> &[f32; LANES] {
    x[block * LANES..][..LANES].try_into().expect("sixteen values")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn equals_the_chain_by_hand() {
        let mut rng = Rng(1);
        for [m, n, k] in [[1, 16, 1], [4, 32, 5], [7, 48, 9], [32, 64, 33], [5, 16, 64]] {
            let (b_row, c_row) = (n + 3, n + 16);
            let a = rng.uniforms(m * k + 8, -1.0..1.0);
            let b = rng.uniforms(k * b_row, -1.0..1.0);
            let c = rng.uniforms(m * c_row, -1.0..1.0);
            for (row, col) in [(k, 1), (1, m)] {
                let mut expected = c.clone();
                for i in 0..m {
                    for j in 0..n {
                        for p in 0..k {
                            let sum = expected[i * c_row + j];
                            expected[i * c_row + j] = a[i * row + p * col].mul_add(b[p * b_row + j], sum);
                        }
                    }
                }
                for isa in Isa::available() {
                    let mut out = c.clone();
                    let a = Strided { data: &a[..m * k], row, col };
                    add_product(isa, [m, n, k], a, &b, b_row, &mut out, c_row);
                    assert_same_bits(&out, &expected, isa.name());
                }
            }
        }
    }
}
