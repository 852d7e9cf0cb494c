//! Softmax of a row, its sum left to the caller.

use crate::ops::exp_lanes;
use crate::simd::{LANES, Simd, load_part, per_isa, store_part};

per_isa! {
    /// Replaces each value by `exp(x - max)`; returns the greatest value and the sum. An empty row gives minus infinity
    /// and 0.
    pub fn softmax_unscaled(x: &mut [f32]) -> (f32, f32) = softmax_lanes;
}

#[inline(always)]
pub(super) fn softmax_lanes<S: Simd>(simd: S, x: &mut [f32]) -> (f32, f32) {
    let (blocks, rest) = x.as_chunks_mut::<LANES>();
    let mut max = load_part(simd, rest, f32::NEG_INFINITY);
    for x in blocks.iter() {
        max = simd.max(simd.load(x), max);
    }
    let greatest = simd.greatest(max);
    let max = simd.splat(greatest);
    let mut sum = simd.splat(0.0);
    for x in blocks {
        let e = exp_lanes(simd, simd.sub(simd.load(x), max));
        sum = simd.add(sum, e);
        simd.store(e, x);
    }
    if !rest.is_empty() {
        let e = exp_lanes(simd, simd.sub(load_part(simd, rest, f32::NEG_INFINITY), max));
        sum = simd.add(sum, e);
        store_part(simd, e, rest);
    }
    (greatest, simd.sum(sum))
}

per_isa! {
    /// `x[i] *= factor`.
    pub fn scale_assign(x: &mut [f32], factor: f32) = scale_lanes;
}

#[inline(always)]
fn scale_lanes<S: Simd>(simd: S, x: &mut [f32], factor: f32) {
    let factor = simd.splat(factor);
    let (blocks, rest) = x.as_chunks_mut::<LANES>();
    for x in blocks {
        simd.store(simd.mul(simd.load(x), factor), x);
    }
    store_part(simd, simd.mul(load_part(simd, rest, 0.0), factor), rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::ops::exp;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn maximum_sum_and_values() {
        let mut rng = Rng(1);
        for len in [0, 1, 16, 33, 256, 1000] {
            let x = rng.uniforms(len, -9.0..9.0);
            let greatest = x.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let expected: Vec<f32> = x.iter().map(|x| exp(x - greatest)).collect();
            let total: f64 = expected.iter().map(|&e| f64::from(e)).sum();
            for isa in Isa::available() {
                let mut out = x.clone();
                let (max, sum) = softmax_unscaled(isa, &mut out);
                assert_eq!(max, greatest);
                assert!((f64::from(sum) - total).abs() <= 1e-6 * total);
                assert_same_bits(&out, &expected, isa.name());
                scale_assign(isa, &mut out, 0.25);
                let quarters: Vec<f32> = expected.iter().map(|e| e * 0.25).collect();
                assert_same_bits(&out, &quarters, isa.name());
            }
        }
    }
}
