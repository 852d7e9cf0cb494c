//! Sixteen lanes in one 512-bit register.
//!
//! Every block below is sound for the same reason: the `Avx512` value proves that the CPU has the instruction, and
//! loads and stores go through references to arrays of exactly the bytes they touch, with no need of alignment.
#![allow(unsafe_code)]

use super::{LANES, Simd, avx2};
use crate::Avx512;
use std::arch::x86_64::*;

/// An intrinsic whose features `self` proves.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: see the head of this file.
        unsafe { $e }
    };
}

impl Simd for Avx512 {
    type F = __m512;
    type U = __m512i;
    type D = (__m512d, __m512d);
    type M = __mmask16;

    const WIDE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        op!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m512 {
        op!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn store(self, v: __m512, out: &mut [f32; LANES]) {
        op!(_mm512_storeu_ps(out.as_mut_ptr(), v))
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 2 * LANES]) -> __m512 {
        op!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_f16(self, v: __m512, out: &mut [u16; LANES]) {
        op!(_mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES]) -> __m512 {
        op!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn load_twice(self, x: &[f32; LANES / 2]) -> __m512 {
        op!({
            let index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
            _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(x.as_ptr())))
        })
    }
    #[inline(always)]
    fn swap_pairs(self, v: __m512) -> __m512 {
        op!(_mm512_permute_ps::<0b10_11_00_01>(v))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn ge(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn unordered(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b))
    }
    #[inline(always)]
    fn or_m(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mask_blend_ps(m, b, a))
    }
    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        op!(avx2::sum_of_eight(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))))
    }
    #[inline(always)]
    fn greatest(self, v: __m512) -> f32 {
        op!(avx2::greatest_of_eight(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))))
    }
    #[inline(always)]
    fn bits(self, m: __mmask16) -> u32 {
        u32::from(m)
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> __m512i {
        op!(_mm512_set1_epi32(x as i32))
    }
    #[inline(always)]
    fn load_u(self, x: &[u32; LANES]) -> __m512i {
        op!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_u(self, v: __m512i, out: &mut [u32; LANES]) {
        op!(_mm512_storeu_si512(out.as_mut_ptr().cast(), v))
    }
    #[inline(always)]
    fn add_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn xor_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shr_u<const N: i32>(self, a: __m512i) -> __m512i {
        op!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(N)))
    }
    #[inline(always)]
    fn shl_u<const N: i32>(self, a: __m512i) -> __m512i {
        op!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(N)))
    }
    #[inline(always)]
    fn le_u(self, a: __m512i, b: __m512i) -> __mmask16 {
        op!(_mm512_cmple_epu32_mask(a, b))
    }

    #[inline(always)]
    fn to_bits(self, v: __m512) -> __m512i {
        op!(_mm512_castps_si512(v))
    }
    #[inline(always)]
    fn float_from_bits(self, v: __m512i) -> __m512 {
        op!(_mm512_castsi512_ps(v))
    }
    #[inline(always)]
    fn int_to_f32(self, v: __m512i) -> __m512 {
        op!(_mm512_cvtepi32_ps(v))
    }
    #[inline(always)]
    fn round_to_u(self, v: __m512) -> __m512i {
        op!(_mm512_cvtps_epi32(v))
    }

    #[inline(always)]
    fn prefetch(self, x: &[u8]) {
        op!(_mm_prefetch::<_MM_HINT_T0>(x.as_ptr().cast()))
    }

    #[inline(always)]
    fn zero_d(self) -> (__m512d, __m512d) {
        op!((_mm512_setzero_pd(), _mm512_setzero_pd()))
    }
    #[inline(always)]
    fn add_d(self, a: (__m512d, __m512d), b: __m512) -> (__m512d, __m512d) {
        op!((
            _mm512_add_pd(a.0, _mm512_cvtps_pd(_mm512_castps512_ps256(b))),
            _mm512_add_pd(a.1, _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(b)))
        ))
    }
    #[inline(always)]
    fn store_d(self, v: (__m512d, __m512d), out: &mut [f64; LANES]) {
        let (low, high) = out.split_at_mut(LANES / 2);
        op!({
            _mm512_storeu_pd(low.as_mut_ptr(), v.0);
            _mm512_storeu_pd(high.as_mut_ptr(), v.1);
        })
    }
}
