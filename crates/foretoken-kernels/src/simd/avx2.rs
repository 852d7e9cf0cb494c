//! Sixteen lanes in two 256-bit registers.
//!
//! Every block below is sound for the same reason: the `Avx2` value proves that the CPU has the instruction, and loads
//! and stores go through references to arrays of at least the bytes they touch, with no need of alignment.
#![allow(unsafe_code)]

use super::{LANES, Simd};
use crate::Avx2;
use std::arch::x86_64::*;

/// An intrinsic whose features `self` proves.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: see the head of this file.
        unsafe { $e }
    };
}

/// The same intrinsic on both halves.
macro_rules! both {
    ($f:ident $(::<$n:tt>)? ($($a:ident),+)) => {
        op!(($f$(::<$n>)?($($a.0),+), $f$(::<$n>)?($($a.1),+)))
    };
}

type F = (__m256, __m256);
type U = (__m256i, __m256i);

#[inline(always)]
fn halves<T>(x: &[T; LANES]) -> (&[T; LANES / 2], &[T; LANES / 2]) {
    let (low, high) = x.split_at(LANES / 2);
    (low.try_into().expect("half"), high.try_into().expect("half"))
}

/// The rest of the tree of a sum: quarters of the sixteen lanes, eighths, pairs.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum_of_eight(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// The rest of the tree of a maximum.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn greatest_of_eight(v: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
}

impl Simd for Avx2 {
    type F = F;
    type U = U;
    type D = [__m256d; 4];
    type M = F;

    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        op!((_mm256_set1_ps(x), _mm256_set1_ps(x)))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> F {
        let (low, high) = halves(x);
        op!((_mm256_loadu_ps(low.as_ptr()), _mm256_loadu_ps(high.as_ptr())))
    }
    #[inline(always)]
    fn store(self, v: F, out: &mut [f32; LANES]) {
        let (low, high) = out.split_at_mut(LANES / 2);
        op!({
            _mm256_storeu_ps(low.as_mut_ptr(), v.0);
            _mm256_storeu_ps(high.as_mut_ptr(), v.1);
        })
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 2 * LANES]) -> F {
        let (low, high) = x.split_at(LANES);
        op!((
            _mm256_cvtph_ps(_mm_loadu_si128(low.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(high.as_ptr().cast()))
        ))
    }
    #[inline(always)]
    fn store_f16(self, v: F, out: &mut [u16; LANES]) {
        let (low, high) = out.split_at_mut(LANES / 2);
        op!({
            _mm_storeu_si128(low.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
            _mm_storeu_si128(high.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1));
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES]) -> F {
        op!({
            let bytes = _mm_loadu_si128(x.as_ptr().cast());
            (
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))),
            )
        })
    }
    #[inline(always)]
    fn load_twice(self, x: &[f32; LANES / 2]) -> F {
        op!({
            let v = _mm256_loadu_ps(x.as_ptr());
            (
                _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)),
            )
        })
    }
    #[inline(always)]
    fn swap_pairs(self, v: F) -> F {
        both!(_mm256_permute_ps::<0b10_11_00_01>(v))
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        both!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        both!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        both!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        both!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        both!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        both!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        both!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> F {
        both!(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn ge(self, a: F, b: F) -> F {
        both!(_mm256_cmp_ps::<_CMP_GE_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> F {
        both!(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn unordered(self, a: F, b: F) -> F {
        both!(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b))
    }
    #[inline(always)]
    fn or_m(self, a: F, b: F) -> F {
        both!(_mm256_or_ps(a, b))
    }
    #[inline(always)]
    fn select(self, m: F, a: F, b: F) -> F {
        both!(_mm256_blendv_ps(b, a, m))
    }
    #[inline(always)]
    fn sum(self, v: F) -> f32 {
        op!(sum_of_eight(_mm256_add_ps(v.0, v.1)))
    }
    #[inline(always)]
    fn greatest(self, v: F) -> f32 {
        op!(greatest_of_eight(_mm256_max_ps(v.0, v.1)))
    }
    #[inline(always)]
    fn bits(self, m: F) -> u32 {
        op!(_mm256_movemask_ps(m.0) as u32 | (_mm256_movemask_ps(m.1) as u32) << 8)
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> U {
        op!((_mm256_set1_epi32(x as i32), _mm256_set1_epi32(x as i32)))
    }
    #[inline(always)]
    fn load_u(self, x: &[u32; LANES]) -> U {
        let (low, high) = halves(x);
        op!((_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_u(self, v: U, out: &mut [u32; LANES]) {
        let (low, high) = out.split_at_mut(LANES / 2);
        op!({
            _mm256_storeu_si256(low.as_mut_ptr().cast(), v.0);
            _mm256_storeu_si256(high.as_mut_ptr().cast(), v.1);
        })
    }
    #[inline(always)]
    fn add_u(self, a: U, b: U) -> U {
        both!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul_u(self, a: U, b: U) -> U {
        both!(_mm256_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn xor_u(self, a: U, b: U) -> U {
        both!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn shr_u<const N: i32>(self, a: U) -> U {
        both!(_mm256_srli_epi32::<N>(a))
    }
    #[inline(always)]
    fn shl_u<const N: i32>(self, a: U) -> U {
        both!(_mm256_slli_epi32::<N>(a))
    }
    #[inline(always)]
    fn le_u(self, a: U, b: U) -> F {
        let least = both!(_mm256_min_epu32(a, b));
        let same = both!(_mm256_cmpeq_epi32(least, a));
        both!(_mm256_castsi256_ps(same))
    }

    #[inline(always)]
    fn to_bits(self, v: F) -> U {
        both!(_mm256_castps_si256(v))
    }
    #[inline(always)]
    fn float_from_bits(self, v: U) -> F {
        both!(_mm256_castsi256_ps(v))
    }
    #[inline(always)]
    fn int_to_f32(self, v: U) -> F {
        both!(_mm256_cvtepi32_ps(v))
    }
    #[inline(always)]
    fn round_to_u(self, v: F) -> U {
        both!(_mm256_cvtps_epi32(v))
    }

    #[inline(always)]
    fn prefetch(self, x: &[u8]) {
        op!(_mm_prefetch::<_MM_HINT_T0>(x.as_ptr().cast()))
    }

    #[inline(always)]
    fn zero_d(self) -> [__m256d; 4] {
        op!([_mm256_setzero_pd(); 4])
    }
    #[inline(always)]
    fn add_d(self, a: [__m256d; 4], b: F) -> [__m256d; 4] {
        op!([
            _mm256_add_pd(a[0], _mm256_cvtps_pd(_mm256_castps256_ps128(b.0))),
            _mm256_add_pd(a[1], _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(b.0))),
            _mm256_add_pd(a[2], _mm256_cvtps_pd(_mm256_castps256_ps128(b.1))),
            _mm256_add_pd(a[3], _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(b.1))),
        ])
    }
    #[inline(always)]
    fn store_d(self, v: [__m256d; 4], out: &mut [f64; LANES]) {
        for (lanes, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(v) {
            op!(_mm256_storeu_pd(lanes.as_mut_ptr(), v))
        }
    }
}
