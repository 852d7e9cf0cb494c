//! Sums, gates and conversions, one value at a time.

use super::exp_lanes;
use crate::simd::{LANES, Simd, load_part, per_isa, store_part};

per_isa! {
    /// `x[i] += y[i]`.
    pub fn add_assign(x: &mut [f32], y: &[f32]) = add_assign_lanes;
}

#[inline(always)]
fn add_assign_lanes<S: Simd>(simd: S, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "as many values on both sides");
    let (x_blocks, x_rest) = x.as_chunks_mut::<LANES>();
    let (y_blocks, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_blocks.iter_mut().zip(y_blocks) {
        simd.store(simd.add(simd.load(x), simd.load(y)), x);
    }
    store_part(simd, simd.add(load_part(simd, x_rest, 0.0), load_part(simd, y_rest, 0.0)), x_rest);
}

per_isa! {
    /// `gate[i] = silu(gate[i]) * up[i]` with `silu(x) = x / (1 + exp(-x))`.
    pub fn silu_mul(gate: &mut [f32], up: &[f32]) = silu_mul_lanes;
}

#[inline(always)]
fn silu_mul_lanes<S: Simd>(simd: S, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "as many values on both sides");
    let (gate_blocks, gate_rest) = gate.as_chunks_mut::<LANES>();
    let (up_blocks, up_rest) = up.as_chunks::<LANES>();
    for (gate, up) in gate_blocks.iter_mut().zip(up_blocks) {
        simd.store(gated(simd, simd.load(gate), simd.load(up)), gate);
    }
    let rest = gated(simd, load_part(simd, gate_rest, 0.0), load_part(simd, up_rest, 0.0));
    store_part(simd, rest, gate_rest);
}

/// `silu(gate) * up` of sixteen values.
#[inline(always)]
pub(crate) fn gated<S: Simd>(simd: S, gate: S::F, up: S::F) -> S::F {
    let exp = exp_lanes(simd, simd.sub(simd.splat(0.0), gate));
    simd.mul(simd.div(gate, simd.add(simd.splat(1.0), exp)), up)
}

per_isa! {
    /// Half-precision bits of each value, rounded to nearest, ties to even.
    pub fn f32_to_f16(x: &[f32], out: &mut [u16]) = f32_to_f16_lanes;
}

#[inline(always)]
fn f32_to_f16_lanes<S: Simd>(simd: S, x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len(), "as many values on both sides");
    let (blocks, rest) = x.as_chunks::<LANES>();
    let (out_blocks, out_rest) = out.as_chunks_mut::<LANES>();
    for (x, out) in blocks.iter().zip(out_blocks) {
        simd.store_f16(simd.load(x), out);
    }
    let mut lanes = [0; LANES];
    simd.store_f16(load_part(simd, rest, 0.0), &mut lanes);
    out_rest.copy_from_slice(&lanes[..out_rest.len()]);
}

per_isa! {
    /// The value of each half-precision number, exactly. (Of a little-endian machine, as all that run this.)
    pub fn f16_to_f32(x: &[u16], out: &mut [f32]) = f16_to_f32_lanes;
}

#[inline(always)]
fn f16_to_f32_lanes<S: Simd>(simd: S, x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "as many values on both sides");
    let (blocks, rest) = x.as_chunks::<LANES>();
    let (out_blocks, out_rest) = out.as_chunks_mut::<LANES>();
    for (x, out) in blocks.iter().zip(out_blocks) {
        simd.store(simd.load_f16(bytemuck::cast_ref(x)), out);
    }
    let mut lanes = [0; LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    store_part(simd, simd.load_f16(bytemuck::cast_ref(&lanes)), out_rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::ops::exp;
    use crate::simd::testing::{Rng, assert_same_bits};
    use half::f16;

    #[test]
    fn sums_and_gates_equal_their_formulas() {
        let mut rng = Rng(1);
        for len in (0..70).chain([1000]) {
            let (x, y) = (rng.nasties(len), rng.nasties(len));
            let pairs = || x.iter().zip(&y);
            let sums: Vec<f32> = pairs().map(|(x, y)| x + y).collect();
            let gated: Vec<f32> = pairs().map(|(x, y)| x / (1.0 + exp(0.0 - x)) * y).collect();
            for isa in Isa::available() {
                let mut out = x.clone();
                add_assign(isa, &mut out, &y);
                assert_same_bits(&out, &sums, isa.name());
                let mut out = x.clone();
                silu_mul(isa, &mut out, &y);
                assert_same_bits(&out, &gated, isa.name());
            }
        }
    }

    #[test]
    fn silu_is_accurate() {
        let x = Rng(2).uniforms(20_000, -90.0..90.0);
        let mut y = x.clone();
        silu_mul(Isa::best(), &mut y, &vec![1.0; x.len()]);
        for (x, y) in x.iter().zip(y) {
            let exact = f64::from(*x) / (1.0 + libm::exp(-f64::from(*x)));
            assert!((f64::from(y) - exact).abs() <= 3.0e-7 * exact.abs() + 1e-36, "silu({x}) = {y}");
        }
    }

    #[test]
    fn half_precision_equals_the_half_crate() {
        let every: Vec<u16> = (0..=u16::MAX).collect();
        let values: Vec<f32> = every.iter().map(|&bits| f16::from_bits(bits).to_f32()).collect();
        let mut rng = Rng(3);
        let mut floats = rng.nasties(100_003);
        // Ties and their neighbours.
        for pair in values.windows(2).filter(|pair| pair[0].is_finite() && pair[1].is_finite()) {
            let tie = (pair[0] + pair[1]) / 2.0;
            floats.extend([tie, tie.next_up(), tie.next_down()]);
        }
        let rounded: Vec<u16> = floats.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
        for isa in Isa::available() {
            for len in (0..40).chain([every.len()]) {
                let mut out = vec![0.0; len];
                f16_to_f32(isa, &every[..len], &mut out);
                assert_same_bits(&out, &values[..len], isa.name());
            }
            for len in (0..40).chain([floats.len()]) {
                let mut out = vec![0; len];
                f32_to_f16(isa, &floats[..len], &mut out);
                assert_eq!(out, rounded[..len], "{isa}");
            }
        }
    }
}
