//! Muon: the step of a matrix is its momentum with all singular values made one.
//!
//! The update is nearly orthogonal, so every direction of the matrix learns at one speed, however small its gradient. Five
//! steps of an odd polynomial bring the singular values near one (Jordan et al., "Muon", 2024); the factor
//! `0.2 sqrt(max(rows, columns))` gives the step the size of AdamW's, so that both share a learning rate and a decay
//! (Liu et al., arXiv 2502.16982). Maps that lie side by side in one matrix are made orthogonal one by one.

use foretoken_kernels::Isa;
use foretoken_kernels::train::{Precision, Strided, product};
use rayon::prelude::*;

/// Coefficients of `a x + b x^3 + c x^5`.
const POLYNOMIAL: [f32; 3] = [3.4445, -4.775, 2.0315];
const STEPS: usize = 5;

/// One step's constants for one weight.
pub(super) struct Update {
    pub scale: f32,
    pub momentum: f32,
    pub rate: f32,
    pub keep: f32,
    pub shape: [usize; 2],
    /// Columns of each map.
    pub maps: Vec<usize>,
}

impl Update {
    pub(super) fn apply(&self, values: &mut [f32], mean: &mut [f32], gradient: &[f32]) {
        let b = self.momentum;
        for (m, g) in mean.iter_mut().zip(gradient) {
            *m = b * *m + (1.0 - b) * self.scale * g;
        }
        let [rows, width] = self.shape;
        let starts: Vec<usize> =
            self.maps.iter().scan(0, |end, cols| Some(std::mem::replace(end, *end + cols))).collect();
        let directions: Vec<Vec<f32>> = starts
            .par_iter()
            .zip(&self.maps)
            .map(|(start, cols)| {
                let ahead = |i: usize| b * mean[i] + (1.0 - b) * self.scale * gradient[i];
                let elements = (0..rows).flat_map(|row| row * width + start..row * width + start + cols);
                orthogonal(elements.map(ahead).collect(), [rows, *cols])
            })
            .collect();
        for ((start, cols), direction) in starts.iter().zip(&self.maps).zip(&directions) {
            let rate = self.rate * 0.2 * (rows.max(*cols) as f32).sqrt();
            for (values, direction) in values.chunks_exact_mut(width).zip(direction.chunks_exact(*cols)) {
                for (value, d) in values[*start..][..*cols].iter_mut().zip(direction) {
                    *value = self.keep * *value - rate * d;
                }
            }
        }
    }
}

/// The matrix with singular values near one; zero stays zero.
fn orthogonal(mut x: Vec<f32>, [rows, cols]: [usize; 2]) -> Vec<f32> {
    let norm = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt() as f32;
    x.iter_mut().for_each(|x| *x /= norm + 1e-20);
    let n = rows.min(cols);
    let [a, b, c] = POLYNOMIAL;
    for _ in 0..STEPS {
        let (plain, flipped) = (Strided { data: &x, row: cols, col: 1 }, Strided { data: &x, row: 1, col: cols });
        let gram = match rows <= cols {
            true => multiply([n, n, cols], plain, flipped),
            false => multiply([n, n, rows], flipped, plain),
        };
        let g = Strided { data: &gram, row: n, col: 1 };
        let mut square = multiply([n, n, n], g, g);
        square.iter_mut().zip(&gram).for_each(|(square, gram)| *square = b * gram + c * *square);
        let factor = Strided { data: &square, row: n, col: 1 };
        let next = match rows <= cols {
            true => multiply([rows, cols, n], factor, plain),
            false => multiply([rows, cols, n], plain, factor),
        };
        x.iter_mut().zip(&next).for_each(|(x, next)| *x = a * *x + next);
    }
    x
}

fn multiply(size: [usize; 3], left: Strided<'_>, right: Strided<'_>) -> Vec<f32> {
    product(Isa::best(), Precision::Bf16, size, left, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn singular_values_come_near_one() {
        for [rows, cols] in [[40, 24], [24, 40], [32, 32]] {
            let mut rng = Rng::new(1, "matrix");
            let x = orthogonal((0..rows * cols).map(|_| rng.normal() as f32).collect(), [rows, cols]);
            // Of an orthogonal matrix, a random direction on the small side keeps its length.
            let n = rows.min(cols);
            for _ in 0..10 {
                let v: Vec<f32> = (0..n).map(|_| rng.normal() as f32).collect();
                let at = |i: usize, j: usize| if rows <= cols { x[j * cols + i] } else { x[i * cols + j] };
                let image = (0..rows.max(cols)).map(|i| (0..n).map(|j| at(i, j) * v[j]).sum::<f32>());
                let length = image.map(|y| y * y).sum::<f32>() / v.iter().map(|v| v * v).sum::<f32>();
                assert!((0.5..1.35).contains(&length), "{length} for {rows} x {cols}");
            }
        }
        assert!(orthogonal(vec![0.0; 6], [2, 3]).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn maps_side_by_side_are_moved_as_if_apart() {
        let mut rng = Rng::new(2, "maps");
        let gradient: Vec<f32> = (0..8 * 12).map(|_| rng.normal() as f32).collect();
        let update = |shape, maps| Update { scale: 1.0, momentum: 0.9, rate: 0.1, keep: 0.5, shape, maps };
        let mut both = vec![1.0; 8 * 12];
        update([8, 12], vec![8, 4]).apply(&mut both, &mut [0.0; 8 * 12], &gradient);
        for (start, cols) in [(0, 8), (8, 4)] {
            let part: Vec<f32> = gradient.chunks_exact(12).flat_map(|row| &row[start..start + cols]).copied().collect();
            let mut alone = vec![1.0; 8 * cols];
            update([8, cols], vec![cols]).apply(&mut alone, &mut vec![0.0; 8 * cols], &part);
            let moved: Vec<f32> = both.chunks_exact(12).flat_map(|row| &row[start..start + cols]).copied().collect();
            assert_eq!(moved, alone);
            assert!(moved.iter().any(|x| (x - 0.5).abs() > 1e-3));
        }
    }
}
