//! Scaled logits and the sum of their exponentials.

use super::exp_lanes;
use crate::simd::{LANES, Simd, fold, load_part, per_isa, store_part};

per_isa! {
    /// `z[i] = (logits[i] - max) / temperature`: the subtraction first, so that the winner is exactly 0 at any temperature.
    pub fn scale_logits(logits: &[f32], max: f32, temperature: f32, z: &mut [f32]) = scale_logits_lanes;
}

#[inline(always)]
fn scale_logits_lanes<S: Simd>(simd: S, logits: &[f32], max: f32, temperature: f32, z: &mut [f32]) {
    assert_eq!(logits.len(), z.len(), "as many values on both sides");
    let (max, temperature) = (simd.splat(max), simd.splat(temperature));
    let (blocks, rest) = logits.as_chunks::<LANES>();
    let (z_blocks, z_rest) = z.as_chunks_mut::<LANES>();
    for (x, z) in blocks.iter().zip(z_blocks) {
        simd.store(simd.div(simd.sub(simd.load(x), max), temperature), z);
    }
    store_part(simd, simd.div(simd.sub(load_part(simd, rest, 0.0), max), temperature), z_rest);
}

per_isa! {
    /// The sum of `exp(z[i])`, each as [`exp`](super::exp) gives it: in `f64`, value `i` in lane `i % 16`, the lanes
    /// combined in a fixed tree.
    pub fn exp_sum(z: &[f32]) -> f64 = exp_sum_lanes;
}

#[inline(always)]
fn exp_sum_lanes<S: Simd>(simd: S, z: &[f32]) -> f64 {
    let (blocks, rest) = z.as_chunks::<LANES>();
    let mut sum = simd.zero_d();
    for z in blocks {
        sum = simd.add_d(sum, exp_lanes(simd, simd.load(z)));
    }
    let sum = simd.add_d(sum, exp_lanes(simd, load_part(simd, rest, f32::NEG_INFINITY)));
    let mut lanes = [0.0; LANES];
    simd.store_d(sum, &mut lanes);
    fold(&lanes, |a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::ops::exp;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn equals_the_formula_in_the_promised_order() {
        let mut rng = Rng(1);
        for len in (0..70).chain([5001]) {
            let logits = rng.nasties(len);
            for (max, temperature) in [(3.0, 0.7), (f32::MAX, 1e-30), (0.0, 100.0)] {
                let expected: Vec<f32> = logits.iter().map(|x| (x - max) / temperature).collect();
                for isa in Isa::available() {
                    let mut z = vec![0.0; len];
                    scale_logits(isa, &logits, max, temperature, &mut z);
                    assert_same_bits(&z, &expected, isa.name());
                }
            }
            let mut z = rng.uniforms(len, -40.0..0.0);
            z.iter_mut().step_by(7).for_each(|z| *z = f32::NEG_INFINITY);
            let mut lanes = [0.0; LANES];
            z.iter().enumerate().for_each(|(i, &z)| lanes[i % LANES] += f64::from(exp(z)));
            let sum = fold(&lanes, |a, b| a + b);
            let exact: f64 = z.iter().map(|&z| libm::exp(f64::from(z))).sum();
            assert!((sum - exact).abs() <= 1e-6 * exact);
            for isa in Isa::available() {
                assert_eq!(exp_sum(isa, &z).to_bits(), sum.to_bits(), "{isa}");
            }
        }
    }
}
