//! Sixteen lanes on every instruction set: one generic kernel, the same bits everywhere.
//!
//! A kernel is written once over [`Simd`] and made into a function of an [`Isa`](crate::Isa) by `per_isa!`. Each
//! operation works lane by lane and is exactly rounded or exact, so that a kernel's bits follow from `scalar.rs`, which
//! is the definition. NaNs stay NaNs; their sign and payload are left open.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

pub(crate) use scalar::Scalar;

/// Lanes of one [`Simd`] value.
pub(crate) const LANES: usize = 16;

/// Operations on sixteen lanes; a value of the type proves that they may run.
///
/// Implementations are `#[inline(always)]`: called inside a function that enables their features they become single
/// instructions. So kernels are `#[inline(always)]` functions and plain loops; a closure would be a function of its own,
/// compiled without the features unless it happens to be inlined, and cost hundreds of cycles.
pub(crate) trait Simd: Copy {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `u32`.
    type U: Copy;
    /// Sixteen `f64`.
    type D: Copy;
    /// Sixteen truth values.
    type M: Copy;

    /// Whether sixteen lanes are one register and not several.
    const WIDE: bool;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; LANES]) -> Self::F;
    fn store(self, v: Self::F, out: &mut [f32; LANES]);

    /// The half-precision values of 32 little-endian bytes.
    fn load_f16(self, x: &[u8; 2 * LANES]) -> Self::F;
    /// Rounds to half precision, to nearest, ties to even; a NaN keeps its sign and upper bits and becomes quiet.
    fn store_f16(self, v: Self::F, out: &mut [u16; LANES]);
    /// The values of 16 signed bytes.
    fn load_i8(self, x: &[u8; LANES]) -> Self::F;
    /// Each of eight values twice.
    fn load_twice(self, x: &[f32; LANES / 2]) -> Self::F;
    /// Lanes 1, 0, 3, 2, and so on.
    fn swap_pairs(self, v: Self::F) -> Self::F;

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: `b` when either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: `b` when either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;

    /// `a < b`, false for NaN.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a >= b`, false for NaN.
    fn ge(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`, false for NaN.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// Whether either is NaN.
    fn unordered(self, a: Self::F, b: Self::F) -> Self::M;
    fn or_m(self, a: Self::M, b: Self::M) -> Self::M;
    /// `a` where the mask is set, `b` elsewhere.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// The lanes' sum in the tree of [`fold`].
    fn sum(self, v: Self::F) -> f32;
    /// The lanes' [`Simd::max`] in the tree of [`fold`].
    fn greatest(self, v: Self::F) -> f32;
    /// Lane 0 in bit 0.
    fn bits(self, m: Self::M) -> u32;

    fn splat_u(self, x: u32) -> Self::U;
    fn load_u(self, x: &[u32; LANES]) -> Self::U;
    fn store_u(self, v: Self::U, out: &mut [u32; LANES]);
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// The low halves of the products.
    fn mul_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn xor_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn shr_u<const N: i32>(self, a: Self::U) -> Self::U;
    fn shl_u<const N: i32>(self, a: Self::U) -> Self::U;
    fn le_u(self, a: Self::U, b: Self::U) -> Self::M;

    fn to_bits(self, v: Self::F) -> Self::U;
    fn float_from_bits(self, v: Self::U) -> Self::F;
    /// Lanes must lie in `[0, 2^31)`.
    fn int_to_f32(self, v: Self::U) -> Self::F;
    /// To the nearest integer, ties to even. Lanes must lie in `[0, 2^31)`.
    fn round_to_u(self, v: Self::F) -> Self::U;

    /// Asks for the cache line at the start of `x`; computes nothing.
    fn prefetch(self, x: &[u8]);

    fn zero_d(self) -> Self::D;
    /// `a + b` in `f64`.
    fn add_d(self, a: Self::D, b: Self::F) -> Self::D;
    fn store_d(self, v: Self::D, out: &mut [f64; LANES]);
}

/// Makes `pub fn name(isa, args...)` of a generic function `body(simd, args...)`.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)? = $body:path;) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::Isa, $($arg: $ty),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2(simd: $crate::Avx2, $($arg: $ty),*) $(-> $out)? {
                $body(simd, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512(simd: $crate::Avx512, $($arg: $ty),*) $(-> $out)? {
                $body(simd, $($arg),*)
            }
            match isa {
                // SAFETY: the value proves that the CPU has these features.
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx2(simd) => unsafe { avx2(simd, $($arg),*) },
                // SAFETY: the value proves that the CPU has these features.
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx512(simd) => unsafe { avx512(simd, $($arg),*) },
                _ => $body($crate::simd::Scalar, $($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;

/// Loads up to sixteen values, the lanes behind them filled.
#[inline(always)]
pub(crate) fn load_part<S: Simd>(simd: S, x: &[f32], fill: f32) -> S::F {
    let mut lanes = [fill; LANES];
    lanes[..x.len()].copy_from_slice(x);
    simd.load(&lanes)
}

/// Stores the first `out.len()` lanes.
#[inline(always)]
pub(crate) fn store_part<S: Simd>(simd: S, v: S::F, out: &mut [f32]) {
    let mut lanes = [0.0; LANES];
    simd.store(v, &mut lanes);
    out.copy_from_slice(&lanes[..out.len()]);
}

/// Combines sixteen lanes in the one fixed tree: halves, quarters, pairs.
#[inline(always)]
pub(crate) fn fold<T: Copy>(lanes: &[T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut lanes = *lanes;
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
    }
    lanes[0]
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
