//! The backward pass of root mean square normalisation.

use super::dot;
use crate::simd::{LANES, Simd, load_part, per_isa, store_part};

per_isa! {
    /// Gradients of `y = x s w`, `s = 1 / sqrt(mean(x^2) + eps)`, for one row.
    ///
    /// With `g = dy w`: `dx = s (g - x s^2 mean(g x))` is written, `dw += dy x s` is added.
    pub fn rms_norm_backward(x: &[f32], weight: &[f32], dy: &[f32], eps: f32, dx: &mut [f32], dw: &mut [f32]) = lanes;
}

#[inline(always)]
fn lanes<S: Simd>(simd: S, x: &[f32], weight: &[f32], dy: &[f32], eps: f32, dx: &mut [f32], dw: &mut [f32]) {
    let n = x.len();
    assert!([weight.len(), dy.len(), dx.len(), dw.len()] == [n; 4], "as many values everywhere");
    let scale = 1.0 / (dot(simd, x, x) / n as f32 + eps).sqrt();
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (ws, w_rest) = weight.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    let mut sum = simd.splat(0.0);
    for ((x, w), dy) in xs.iter().zip(ws).zip(dys) {
        sum = simd.fma(simd.mul(simd.load(dy), simd.load(w)), simd.load(x), sum);
    }
    let last = simd.mul(load_part(simd, dy_rest, 0.0), load_part(simd, w_rest, 0.0));
    let mean = simd.sum(simd.fma(last, load_part(simd, x_rest, 0.0), sum)) / n as f32;

    let (scale, pull) = (simd.splat(scale), simd.splat(-(scale * scale) * mean));
    let (dxs, dx_rest) = dx.as_chunks_mut::<LANES>();
    let (dws, dw_rest) = dw.as_chunks_mut::<LANES>();
    for ((((x, w), dy), dx), dw) in xs.iter().zip(ws).zip(dys).zip(dxs).zip(dws) {
        let (x, w, dy) = (simd.load(x), simd.load(w), simd.load(dy));
        simd.store(simd.mul(scale, simd.fma(x, pull, simd.mul(dy, w))), dx);
        simd.store(simd.fma(dy, simd.mul(x, scale), simd.load(dw)), dw);
    }
    let (x, w) = (load_part(simd, x_rest, 0.0), load_part(simd, w_rest, 0.0));
    let dy = load_part(simd, dy_rest, 0.0);
    store_part(simd, simd.mul(scale, simd.fma(x, pull, simd.mul(dy, w))), dx_rest);
    let dw = simd.fma(dy, simd.mul(x, scale), load_part(simd, dw_rest, 0.0));
    store_part(simd, dw, dw_rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::{Rng, assert_same_bits};

    #[test]
    fn near_the_formula_in_f64_and_the_same_everywhere() {
        let mut rng = Rng(1);
        for len in [1, 5, 16, 31, 64, 257] {
            let (x, w) = (rng.uniforms(len, -2.0..2.0), rng.uniforms(len, -2.0..2.0));
            let (dy, before) = (rng.uniforms(len, -1.0..1.0), rng.uniforms(len, -1.0..1.0));
            let f = |v: &[f32], i: usize| f64::from(v[i]);
            let mean = |g: &dyn Fn(usize) -> f64| (0..len).map(g).sum::<f64>() / len as f64;
            let scale = 1.0 / (mean(&|i| f(&x, i) * f(&x, i)) + 1e-5).sqrt();
            let pull = scale * scale * mean(&|i| f(&dy, i) * f(&w, i) * f(&x, i));
            let (mut dx, mut dw) = (vec![0.0; len], before.clone());
            rms_norm_backward(Isa::Scalar, &x, &w, &dy, 1e-5, &mut dx, &mut dw);
            for i in 0..len {
                let exact = scale * (f(&dy, i) * f(&w, i) - f(&x, i) * pull);
                assert!((f(&dx, i) - exact).abs() < 3e-6 * (1.0 + exact.abs()), "{} and not {exact}", dx[i]);
                let exact = f(&before, i) + f(&dy, i) * f(&x, i) * scale;
                assert!((f(&dw, i) - exact).abs() < 1e-6 * (1.0 + exact.abs()), "{} and not {exact}", dw[i]);
            }
            for isa in Isa::available() {
                let (mut dx_2, mut dw_2) = (vec![0.0; len], before.clone());
                rms_norm_backward(isa, &x, &w, &dy, 1e-5, &mut dx_2, &mut dw_2);
                assert_same_bits(&dx_2, &dx, isa.name());
                assert_same_bits(&dw_2, &dw, isa.name());
            }
        }
    }
}
