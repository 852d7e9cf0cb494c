//! The definition of every lane operation.

use super::{LANES, Simd, fold};
use half::f16;

/// Sixteen lanes in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

type F = [f32; LANES];
type U = [u32; LANES];
type M = [bool; LANES];

#[inline(always)]
fn map<A: Copy, B>(a: [A; LANES], f: impl Fn(A) -> B) -> [B; LANES] {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip<A: Copy, B: Copy, C>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> C) -> [C; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Scalar {
    type F = F;
    type U = U;
    type D = [f64; LANES];
    type M = M;

    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> F {
        *x
    }
    #[inline(always)]
    fn store(self, v: F, out: &mut [f32; LANES]) {
        *out = v;
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 2 * LANES]) -> F {
        std::array::from_fn(|i| f16::from_le_bytes([x[2 * i], x[2 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn store_f16(self, v: F, out: &mut [u16; LANES]) {
        *out = map(v, |x| f16::from_f32(x).to_bits());
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES]) -> F {
        map(*x, |b| f32::from(b as i8))
    }
    #[inline(always)]
    fn load_twice(self, x: &[f32; LANES / 2]) -> F {
        std::array::from_fn(|i| x[i / 2])
    }
    #[inline(always)]
    fn swap_pairs(self, v: F) -> F {
        std::array::from_fn(|i| v[i ^ 1])
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> M {
        zip(a, b, |a, b| a < b)
    }
    #[inline(always)]
    fn ge(self, a: F, b: F) -> M {
        zip(a, b, |a, b| a >= b)
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> M {
        zip(a, b, |a, b| a == b)
    }
    #[inline(always)]
    fn unordered(self, a: F, b: F) -> M {
        zip(a, b, |a, b| a.is_nan() || b.is_nan())
    }
    #[inline(always)]
    fn or_m(self, a: M, b: M) -> M {
        zip(a, b, |a, b| a || b)
    }
    #[inline(always)]
    fn select(self, m: M, a: F, b: F) -> F {
        std::array::from_fn(|i| if m[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sum(self, v: F) -> f32 {
        fold(&v, |a, b| a + b)
    }
    #[inline(always)]
    fn greatest(self, v: F) -> f32 {
        fold(&v, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn bits(self, m: M) -> u32 {
        m.iter().enumerate().map(|(i, &set)| u32::from(set) << i).sum()
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> U {
        [x; LANES]
    }
    #[inline(always)]
    fn load_u(self, x: &[u32; LANES]) -> U {
        *x
    }
    #[inline(always)]
    fn store_u(self, v: U, out: &mut [u32; LANES]) {
        *out = v;
    }
    #[inline(always)]
    fn add_u(self, a: U, b: U) -> U {
        zip(a, b, u32::wrapping_add)
    }
    #[inline(always)]
    fn mul_u(self, a: U, b: U) -> U {
        zip(a, b, u32::wrapping_mul)
    }
    #[inline(always)]
    fn xor_u(self, a: U, b: U) -> U {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    fn shr_u<const N: i32>(self, a: U) -> U {
        map(a, |a| a >> N)
    }
    #[inline(always)]
    fn shl_u<const N: i32>(self, a: U) -> U {
        map(a, |a| a << N)
    }
    #[inline(always)]
    fn le_u(self, a: U, b: U) -> M {
        zip(a, b, |a, b| a <= b)
    }

    #[inline(always)]
    fn to_bits(self, v: F) -> U {
        map(v, f32::to_bits)
    }
    #[inline(always)]
    fn float_from_bits(self, v: U) -> F {
        map(v, f32::from_bits)
    }
    #[inline(always)]
    fn int_to_f32(self, v: U) -> F {
        map(v, |x| x as f32)
    }
    #[inline(always)]
    fn round_to_u(self, v: F) -> U {
        map(v, |x| x.round_ties_even() as u32)
    }

    #[inline(always)]
    fn prefetch(self, _: &[u8]) {}

    #[inline(always)]
    fn zero_d(self) -> [f64; LANES] {
        [0.0; LANES]
    }
    #[inline(always)]
    fn add_d(self, a: [f64; LANES], b: F) -> [f64; LANES] {
        zip(a, b, |a, b| a + f64::from(b))
    }
    #[inline(always)]
    fn store_d(self, v: [f64; LANES], out: &mut [f64; LANES]) {
        *out = v;
    }
}
