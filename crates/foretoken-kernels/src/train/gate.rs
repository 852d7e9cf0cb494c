//! The gate of a feed-forward layer, `silu(gate) up`, and its backward pass.

use crate::ops::exp_lanes;
use crate::simd::{LANES, Simd, load_part, per_isa, store_part};

per_isa! {
    /// `out[i] = silu(gate[i]) up[i]` with `silu(x) = x / (1 + exp(-x))`. (Shazeer, "GLU variants", arXiv 2002.05202.)
    pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) = swiglu_lanes;
}

#[inline(always)]
fn swiglu_lanes<S: Simd>(simd: S, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && gate.len() == out.len(), "as many values everywhere");
    let (gates, gate_rest) = gate.as_chunks::<LANES>();
    let (ups, up_rest) = up.as_chunks::<LANES>();
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
        let (gate, up) = (simd.load(gate), simd.load(up));
        simd.store(simd.mul(simd.mul(gate, sigmoid(simd, gate)), up), out);
    }
    let gate = load_part(simd, gate_rest, 0.0);
    let y = simd.mul(simd.mul(gate, sigmoid(simd, gate)), load_part(simd, up_rest, 0.0));
    store_part(simd, y, out_rest);
}

#[inline(always)]
fn sigmoid<S: Simd>(simd: S, x: S::F) -> S::F {
    let one = simd.splat(1.0);
    simd.div(one, simd.add(one, exp_lanes(simd, simd.sub(simd.splat(0.0), x))))
}

per_isa! {
    /// Gradients of [`swiglu`], written: with `s = sigmoid(gate)`, `d_gate = dy up s (1 + gate (1 - s))` and
    /// `d_up = dy gate s`.
    pub fn swiglu_backward(gate: &[f32], up: &[f32], dy: &[f32], d_gate: &mut [f32], d_up: &mut [f32]) = backward_lanes;
}

#[inline(always)]
fn backward_lanes<S: Simd>(simd: S, gate: &[f32], up: &[f32], dy: &[f32], d_gate: &mut [f32], d_up: &mut [f32]) {
    assert!([up.len(), dy.len(), d_gate.len(), d_up.len()] == [gate.len(); 4], "as many values everywhere");
    let (gates, gate_rest) = gate.as_chunks::<LANES>();
    let (ups, up_rest) = up.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    let (d_gates, d_gate_rest) = d_gate.as_chunks_mut::<LANES>();
    let (d_ups, d_up_rest) = d_up.as_chunks_mut::<LANES>();
    for ((((gate, up), dy), d_gate), d_up) in gates.iter().zip(ups).zip(dys).zip(d_gates).zip(d_ups) {
        let (g, u) = slopes(simd, simd.load(gate), simd.load(up), simd.load(dy));
        simd.store(g, d_gate);
        simd.store(u, d_up);
    }
    let (gate, up) = (load_part(simd, gate_rest, 0.0), load_part(simd, up_rest, 0.0));
    let (g, u) = slopes(simd, gate, up, load_part(simd, dy_rest, 0.0));
    store_part(simd, g, d_gate_rest);
    store_part(simd, u, d_up_rest);
}

#[inline(always)]
fn slopes<S: Simd>(simd: S, gate: S::F, up: S::F, dy: S::F) -> (S::F, S::F) {
    let one = simd.splat(1.0);
    let s = sigmoid(simd, gate);
    let dy_s = simd.mul(dy, s);
    let rise = simd.fma(gate, simd.sub(one, s), one);
    (simd.mul(simd.mul(dy_s, up), rise), simd.mul(dy_s, gate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn near_the_formulas_in_f64_and_the_same_everywhere() {
        let mut rng = Rng(1);
        for len in [1, 16, 45, 300] {
            let (gate, up) = (rng.uniforms(len, -6.0..6.0), rng.uniforms(len, -2.0..2.0));
            let dy = rng.uniforms(len, -1.0..1.0);
            let (mut out, mut d_gate, mut d_up) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
            swiglu(Isa::Scalar, &gate, &up, &mut out);
            swiglu_backward(Isa::Scalar, &gate, &up, &dy, &mut d_gate, &mut d_up);
            for i in 0..len {
                let (g, u, d) = (f64::from(gate[i]), f64::from(up[i]), f64::from(dy[i]));
                let s = 1.0 / (1.0 + libm::exp(-g));
                let near = |value: f32, exact: f64| (f64::from(value) - exact).abs() < 1e-6 * (1.0 + exact.abs());
                assert!(near(out[i], g * s * u));
                assert!(near(d_gate[i], d * u * s * (1.0 + g * (1.0 - s))));
                assert!(near(d_up[i], d * g * s));
            }
            for isa in Isa::available() {
                let (mut y, mut a, mut b) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
                swiglu(isa, &gate, &up, &mut y);
                swiglu_backward(isa, &gate, &up, &dy, &mut a, &mut b);
                assert_same_bits(&y, &out, isa.name());
                assert_same_bits(&a, &d_gate, isa.name());
                assert_same_bits(&b, &d_up, isa.name());
            }
        }
    }
}
