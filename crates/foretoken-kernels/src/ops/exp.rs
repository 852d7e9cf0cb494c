//! The exponential function, ours so that it is the same on every machine.
//!
//! `exp(x) = 2^n e^r` with `n = round(x / ln 2)`, `|r| <= ln(2) / 2`, and `e^r = 1 + r + r^2 q(r)` where `q` is the minimax
//! polynomial of degree 4 for the relative error (3.1e-9, by the Remez algorithm).

use crate::simd::{LANES, Simd, load_part, per_isa, store_part};
use std::f32::consts::LOG2_E;

/// Adding this leaves the nearest integer in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
const LN_2_HIGH: f32 = std::f32::consts::LN_2;
/// `ln(2) - LN_2_HIGH`.
const LN_2_LOW: f32 = -1.904_654_2e-9;
const Q: [f32; 5] = [0.499_999_93, 0.166_665_2, 0.041_668_393, 0.008_368_78, 0.001_381_446_7];
/// The least `x` whose exponential is a normal number.
const LEAST: f32 = -87.336_54;
/// The greatest `x` whose exponential is finite.
const MOST: f32 = 88.722_83;

/// `e^x` within 1 unit in the last place of the exact value.
///
/// Results below the least normal number, `2^-126`, are 0; `exp(-inf) = 0`, `exp(inf) = inf`, `exp(NaN)` is NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    if x < LEAST {
        return 0.0;
    }
    if x > MOST {
        return f32::INFINITY;
    }
    if x.is_nan() {
        return x;
    }
    let shifted = x.mul_add(LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let q = Q[4].mul_add(r, Q[3]).mul_add(r, Q[2]).mul_add(r, Q[1]).mul_add(r, Q[0]);
    let e_r = 1.0 + (r * r).mul_add(q, r);
    f32::from_bits(e_r.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// [`exp`] of sixteen values.
#[inline(always)]
pub(crate) fn exp_lanes<S: Simd>(simd: S, x: S::F) -> S::F {
    let (least, most, round) = (simd.splat(LEAST), simd.splat(MOST), simd.splat(ROUND));
    // A NaN passes both, to be put back at the end: its payload would meddle with the exponent.
    let inside = simd.min(most, simd.max(least, x));
    let shifted = simd.fma(inside, simd.splat(LOG2_E), round);
    let n = simd.sub(shifted, round);
    let r = simd.fma(n, simd.splat(-LN_2_LOW), simd.fma(n, simd.splat(-LN_2_HIGH), inside));
    let mut q = simd.splat(Q[4]);
    for i in [3, 2, 1, 0] {
        q = simd.fma(q, r, simd.splat(Q[i]));
    }
    let e_r = simd.add(simd.splat(1.0), simd.fma(simd.mul(r, r), q, r));
    let exponent = simd.shl_u::<23>(simd.to_bits(shifted));
    let y = simd.float_from_bits(simd.add_u(simd.to_bits(e_r), exponent));
    let y = simd.select(simd.lt(x, least), simd.splat(0.0), y);
    let y = simd.select(simd.lt(most, x), simd.splat(f32::INFINITY), y);
    simd.select(simd.unordered(x, x), x, y)
}

per_isa! {
    /// [`exp`] of each value, in place.
    pub fn exp_assign(x: &mut [f32]) = exp_assign_lanes;
}

#[inline(always)]
fn exp_assign_lanes<S: Simd>(simd: S, x: &mut [f32]) {
    let (blocks, rest) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        simd.store(exp_lanes(simd, simd.load(block)), block);
    }
    store_part(simd, exp_lanes(simd, load_part(simd, rest, 0.0)), rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::{Rng, assert_same_bits, bits};

    /// The error in units in the last place of the exact value.
    fn ulps(x: f32) -> f64 {
        let exact = libm::exp(f64::from(x));
        let exponent = libm::floor(libm::log2(exact));
        (f64::from(exp(x)) - exact).abs() / libm::exp2(exponent - 23.0)
    }

    #[test]
    fn within_one_ulp_of_the_exact_value() {
        let mut rng = Rng(1);
        let (mut worst, mut steps_back) = (0.0f64, 0);
        for _ in 0..400_000 {
            let x = rng.uniform(LEAST..MOST);
            worst = worst.max(ulps(x));
            steps_back += u32::from(exp(x.next_up()) < exp(x));
            // Small arguments, of either sign.
            worst = worst.max(ulps(f32::from_bits(rng.next_u64() as u32 & 0xbfff_ffff)));
        }
        for x in [LEAST, MOST, 0.0, -0.0, 1.0, -1.0, 0.346_573_6, -0.346_573_6] {
            worst = worst.max(ulps(x));
        }
        assert!(worst <= 1.0, "{worst} ulp");
        assert_eq!(steps_back, 0);
    }

    #[test]
    fn the_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(LEAST.next_down()).to_bits(), 0);
        assert!(exp(LEAST) >= f32::MIN_POSITIVE && exp(MOST).is_finite());
        assert_eq!([MOST.next_up(), f32::MAX, f32::INFINITY].map(exp), [f32::INFINITY; 3]);
        assert!(exp(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn lanes_equal_the_function() {
        let mut rng = Rng(2);
        for len in (0..70).chain([10_000]) {
            let mut x = rng.nasties(len);
            x.iter_mut().step_by(2).for_each(|x| *x *= 20.0);
            let expected: Vec<f32> = x.iter().map(|&x| exp(x)).collect();
            for isa in Isa::available() {
                let mut y = x.clone();
                exp_assign(isa, &mut y);
                assert_same_bits(&y, &expected, isa.name());
            }
        }
        assert_eq!(bits(exp(f32::NAN)), bits(f32::NAN));
    }
}
