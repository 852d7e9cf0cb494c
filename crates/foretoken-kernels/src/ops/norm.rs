//! Root mean square normalisation.

use crate::simd::{LANES, Simd, load_part, per_isa, store_part};

per_isa! {
    /// `out[i] = (x[i] * s) * weight[i]` with `s = 1 / sqrt(mean(x^2) + eps)`.
    ///
    /// The squares are summed in sixteen lanes, value `i` in lane `i % 16`, which are then combined in a fixed tree.
    /// (Zhang and Sennrich, "Root mean square layer normalization", arXiv 1910.07467.)
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_lanes;
}

#[inline(always)]
fn rms_norm_lanes<S: Simd>(simd: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "as many values everywhere");
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut sum = simd.splat(0.0);
    for x in blocks {
        sum = simd.fma(simd.load(x), simd.load(x), sum);
    }
    let last = load_part(simd, rest, 0.0);
    let mean = simd.sum(simd.fma(last, last, sum)) / x.len() as f32;
    let scale = simd.splat(1.0 / (mean + eps).sqrt());

    let (weights, weight_rest) = weight.as_chunks::<LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    for ((x, weight), out) in blocks.iter().zip(weights).zip(outs) {
        simd.store(simd.mul(simd.mul(simd.load(x), scale), simd.load(weight)), out);
    }
    let y = simd.mul(simd.mul(last, scale), load_part(simd, weight_rest, 0.0));
    store_part(simd, y, out_rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::fold;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn near_the_formula_in_f64_and_the_same_everywhere() {
        let mut rng = Rng(1);
        for len in (1..70).chain([576, 1536, 4099]) {
            let (x, weight) = (rng.uniforms(len, -3.0..3.0), rng.uniforms(len, -2.0..2.0));
            let mean = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / len as f64;
            let mut expected = vec![0.0; len];
            rms_norm(Isa::Scalar, &x, &weight, 1e-5, &mut expected);
            for i in 0..len {
                let exact = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(weight[i]);
                assert!(
                    (f64::from(expected[i]) - exact).abs() <= 1e-6 * exact.abs(),
                    "{} and not {exact}",
                    expected[i]
                );
            }
            let nasty = rng.nasties(len);
            let mut nasty_expected = vec![0.0; len];
            rms_norm(Isa::Scalar, &nasty, &weight, 1e-5, &mut nasty_expected);
            for isa in Isa::available() {
                let mut out = vec![0.0; len];
                rms_norm(isa, &x, &weight, 1e-5, &mut out);
                assert_same_bits(&out, &expected, isa.name());
                rms_norm(isa, &nasty, &weight, 1e-5, &mut out);
                assert_same_bits(&out, &nasty_expected, isa.name());
            }
        }
    }

    #[test]
    fn lanes_and_tree_are_as_promised() {
        let x = Rng(2).uniforms(53, -3.0..3.0);
        let mut lanes = [0.0f32; LANES];
        x.iter().enumerate().for_each(|(i, x)| lanes[i % LANES] = x.mul_add(*x, lanes[i % LANES]));
        let scale = 1.0 / (fold(&lanes, |a, b| a + b) / 53.0 + 1e-6).sqrt();
        let mut out = vec![0.0; 53];
        rms_norm(Isa::Scalar, &x, &[1.0; 53], 1e-6, &mut out);
        assert_same_bits(&out, &x.iter().map(|x| x * scale).collect::<Vec<_>>(), "by hand");
    }
}
