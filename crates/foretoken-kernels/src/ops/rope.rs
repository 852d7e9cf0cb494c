//! Rotary position embedding of one head.

use crate::simd::{LANES, Simd, load_part, per_isa, store_part};

/// Which values of a head form the pairs that are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// `(x[2i], x[2i + 1])`, as in the paper and in GGUF files of `llama`.
    Interleaved,
    /// `(x[i], x[i + n])` with `n` pairs, as in GPT-NeoX and `qwen2`.
    Halves,
}

per_isa! {
    /// Turns pair `i` of `x` by the angle of `cos[i]`, `sin[i]`: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`, each as
    /// one product and one fused multiply-add.
    ///
    /// Only the first `2 * cos.len()` values of `x` are turned. (Su et al., "RoFormer", arXiv 2104.09864.)
    pub fn rope(x: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) = rope_lanes;
}

#[inline(always)]
fn rope_lanes<S: Simd>(simd: S, x: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    let n_pairs = cos.len();
    assert!(sin.len() == n_pairs && x.len() >= 2 * n_pairs, "a cosine and a sine for each pair of the head");
    let x = &mut x[..2 * n_pairs];
    match style {
        RopeStyle::Interleaved => interleaved(simd, x, cos, sin),
        RopeStyle::Halves => {
            let (a, b) = x.split_at_mut(n_pairs);
            halves(simd, a, b, cos, sin);
        }
    }
}

#[inline(always)]
fn halves<S: Simd>(simd: S, a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (cos_blocks, cos_rest) = cos.as_chunks::<LANES>();
    let (sin_blocks, sin_rest) = sin.as_chunks::<LANES>();
    let (a_blocks, a_rest) = a.as_chunks_mut::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks_mut::<LANES>();
    for (((a, b), cos), sin) in a_blocks.iter_mut().zip(b_blocks).zip(cos_blocks).zip(sin_blocks) {
        let (new_a, new_b) = turn(simd, simd.load(a), simd.load(b), simd.load(cos), simd.load(sin));
        simd.store(new_a, a);
        simd.store(new_b, b);
    }
    if !a_rest.is_empty() {
        let (cos, sin) = (load_part(simd, cos_rest, 0.0), load_part(simd, sin_rest, 0.0));
        let (new_a, new_b) = turn(simd, load_part(simd, a_rest, 0.0), load_part(simd, b_rest, 0.0), cos, sin);
        store_part(simd, new_a, a_rest);
        store_part(simd, new_b, b_rest);
    }
}

#[inline(always)]
fn turn<S: Simd>(simd: S, a: S::F, b: S::F, cos: S::F, sin: S::F) -> (S::F, S::F) {
    let minus_b_sin = simd.mul(simd.sub(simd.splat(-0.0), b), sin);
    (simd.fma(a, cos, minus_b_sin), simd.fma(b, cos, simd.mul(a, sin)))
}

#[inline(always)]
fn interleaved<S: Simd>(simd: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (x_blocks, x_rest) = x.as_chunks_mut::<LANES>();
    let (cos_blocks, cos_rest) = cos.as_chunks::<PAIRS>();
    let (sin_blocks, sin_rest) = sin.as_chunks::<PAIRS>();
    for ((x, cos), sin) in x_blocks.iter_mut().zip(cos_blocks).zip(sin_blocks) {
        simd.store(turn_pairs(simd, simd.load(x), cos, sin), x);
    }
    if !x_rest.is_empty() {
        let (mut cos, mut sin) = ([0.0; PAIRS], [0.0; PAIRS]);
        cos[..cos_rest.len()].copy_from_slice(cos_rest);
        sin[..sin_rest.len()].copy_from_slice(sin_rest);
        store_part(simd, turn_pairs(simd, load_part(simd, x_rest, 0.0), &cos, &sin), x_rest);
    }
}

/// Pairs in sixteen lanes.
const PAIRS: usize = LANES / 2;

#[inline(always)]
fn turn_pairs<S: Simd>(simd: S, x: S::F, cos: &[f32; PAIRS], sin: &[f32; PAIRS]) -> S::F {
    const SIGNS: [f32; LANES] = [-1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1.];
    // Multiplying by -1 is exact, so this is the chain of `turn`.
    let across = simd.mul(simd.mul(simd.swap_pairs(x), simd.load(&SIGNS)), simd.load_twice(sin));
    simd.fma(x, simd.load_twice(cos), across)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn each_pair_is_turned_by_its_angle() {
        let mut rng = Rng(1);
        for n_pairs in (0..40).chain([64, 128]) {
            for nasty in [false, true] {
                let len = 2 * n_pairs + rng.below(3);
                let x = if nasty { rng.nasties(len) } else { rng.uniforms(len, -2.0..2.0) };
                let (cos, sin) = (rng.uniforms(n_pairs, -1.0..1.0), rng.uniforms(n_pairs, -1.0..1.0));
                for style in [RopeStyle::Interleaved, RopeStyle::Halves] {
                    let mut expected = x.clone();
                    for i in 0..n_pairs {
                        let [a, b] = match style {
                            RopeStyle::Interleaved => [2 * i, 2 * i + 1],
                            RopeStyle::Halves => [i, i + n_pairs],
                        };
                        expected[a] = x[a].mul_add(cos[i], -x[b] * sin[i]);
                        expected[b] = x[b].mul_add(cos[i], x[a] * sin[i]);
                    }
                    for isa in Isa::available() {
                        let mut out = x.clone();
                        rope(isa, &mut out, &cos, &sin, style);
                        assert_same_bits(&out, &expected, &format!("{isa} {style:?}"));
                    }
                }
            }
        }
    }
}
