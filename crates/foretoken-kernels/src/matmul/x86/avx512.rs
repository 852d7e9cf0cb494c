//! The products with AVX-512-VNNI: a vector holds 4 codes of 16 rows, an activation's 4 bytes are broadcast to all rows.
use std::arch::x86_64::*;

use super::*;
use crate::isa::Avx512;
use crate::matmul::TileFn;
use crate::matmul::activations::{Group, MAX_GROUP_ROWS};
use crate::matmul::layout::TILE_ROWS;
use crate::quant::{WeightType, offset};

/// The kernel for a type and a number of rows from 1 to 8. Calling it is safe on a CPU that has [`Avx512`].
pub(in crate::matmul) fn kernel(_isa: Avx512, ty: WeightType, width: usize) -> TileFn {
    macro_rules! widths {
        ($kernel:ident, $type:ty) => {
            match width {
                1 => $kernel::<$type, 1>,
                2 => $kernel::<$type, 2>,
                3 => $kernel::<$type, 3>,
                4 => $kernel::<$type, 4>,
                5 => $kernel::<$type, 5>,
                6 => $kernel::<$type, 6>,
                7 => $kernel::<$type, 7>,
                _ => $kernel::<$type, 8>,
            }
        };
    }
    match ty {
        WeightType::F32 => widths!(floats, F32),
        WeightType::F16 => widths!(floats, F16),
        WeightType::BF16 => widths!(floats, Bf16),
        WeightType::Q4_0 => widths!(blocks_32, Q4_0),
        WeightType::Q4_1 => widths!(blocks_32, Q4_1),
        WeightType::Q5_0 => widths!(blocks_32, Q5_0),
        WeightType::Q5_1 => widths!(blocks_32, Q5_1),
        WeightType::Q8_0 => widths!(blocks_32, Q8_0),
        WeightType::Q4_K => widths!(blocks_256_min, Q4_K),
        WeightType::Q5_K => widths!(blocks_256_min, Q5_K),
        WeightType::Q6_K => widths!(blocks_256_signed, Q6_K),
    }
}

/// Reads codes of 16 rows out of the bytes of 32 codes (see [`crate::matmul::layout`]).
trait Codes {
    /// Codes 8c..8c + 4 and 8c + 4..8c + 8 as unsigned bytes.
    ///
    /// # Safety
    /// The CPU has AVX-512 and `step` points at the bytes of 32 codes.
    unsafe fn pair(step: *const u8, c: usize) -> (__m512i, __m512i);
}

impl Codes for Nibbles {
    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let v = _mm512_loadu_si512(step.add(64 * c).cast());
            (_mm512_and_si512(v, low), _mm512_and_si512(_mm512_srli_epi16::<4>(v), low))
        }
    }
}

impl Codes for FiveBits {
    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let bit = _mm512_set1_epi8(16);
            let v = _mm512_loadu_si512(step.add(64 * c).cast());
            let plane = _mm512_loadu_si512(step.add(256).cast());
            // Bit 2c and bit 2c + 1 of each byte, moved to bit 4.
            let (first, second) = match c {
                0 => (_mm512_slli_epi16::<4>(plane), _mm512_slli_epi16::<3>(plane)),
                1 => (_mm512_slli_epi16::<2>(plane), _mm512_slli_epi16::<1>(plane)),
                2 => (plane, _mm512_srli_epi16::<1>(plane)),
                _ => (_mm512_srli_epi16::<2>(plane), _mm512_srli_epi16::<3>(plane)),
            };
            let join = |code, plane| _mm512_ternarylogic_epi32::<AND_OR>(code, low, _mm512_and_si512(plane, bit));
            (join(v, first), join(_mm512_srli_epi16::<4>(v), second))
        }
    }
}

impl Codes for SixBits {
    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let bits = _mm512_set1_epi8(48);
            let v = _mm512_loadu_si512(step.add(64 * c).cast());
            let plane = _mm512_loadu_si512(step.add(256 + c / 2 * 64).cast());
            // Bits 0, 1 and 2, 3 of each byte for even c, 4, 5 and 6, 7 for odd c, moved to bits 4, 5.
            let (first, second) = match c % 2 {
                0 => (_mm512_slli_epi16::<4>(plane), _mm512_slli_epi16::<2>(plane)),
                _ => (plane, _mm512_srli_epi16::<2>(plane)),
            };
            let join = |code, plane| _mm512_ternarylogic_epi32::<AND_OR>(code, low, _mm512_and_si512(plane, bits));
            (join(v, first), join(_mm512_srli_epi16::<4>(v), second))
        }
    }
}

impl Codes for Bytes {
    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize) -> (__m512i, __m512i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let first = _mm512_loadu_si512(step.add(128 * c).cast());
            (first, _mm512_loadu_si512(step.add(128 * c + 64).cast()))
        }
    }
}

/// Truth table of (a & b) | c.
const AND_OR: i32 = 0xea;

/// Dot products of 32 codes with the bytes of `R` rows, added to `sums`.
///
/// # Safety
/// The CPU has AVX-512-VNNI, `step` points at the bytes of 32 codes, `bytes` at 8 words of `R` rows.
#[inline(always)]
unsafe fn dot<Q: Quantised<Codes: Codes>, const R: usize>(step: *const u8, bytes: *const u32, sums: &mut [__m512i; R]) {
    for c in 0..4 {
        ask_for_codes::<Q>(step, c);
        // SAFETY: the caller's promises.
        unsafe {
            let (first, second) = Q::Codes::pair(step, c);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_dpbusd_epi32(*sum, first, word(bytes.add(2 * c * R + r)));
                *sum = _mm512_dpbusd_epi32(*sum, second, word(bytes.add((2 * c + 1) * R + r)));
            }
        }
    }
}

/// A 32-bit word for all rows of the tile.
///
/// # Safety
/// The CPU has AVX-512 and `at` is readable.
#[inline(always)]
unsafe fn word(at: *const u32) -> __m512i {
    // SAFETY: the caller's promises.
    unsafe { _mm512_set1_epi32(*at as i32) }
}

/// 16 f16 values.
///
/// # Safety
/// The CPU has AVX-512 and 32 bytes are readable.
#[inline(always)]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's promises.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

/// Blocks of 32: d s (dot - offset sum), and m s sum where there is a minimum.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn blocks_32<Q: Quantised<Codes: Codes>, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    let mut totals = [_mm512_setzero_ps(); R];
    for b in 0..n_in / 32 {
        // SAFETY: tile and group have n_in / 32 blocks.
        unsafe {
            let codes = tile.as_ptr().add(Q::LAYOUT.codes_at(b));
            let scales = tile.as_ptr().add(Q::LAYOUT.scales_at(b));
            let sums = group.sums_32.as_ptr().add(b * R);
            ask_for_scales::<Q>(scales);
            let mut dots = [_mm512_setzero_si512(); R];
            if const { offset(Q::TY) != 0 } {
                for (r, dot) in dots.iter_mut().enumerate() {
                    let negative = _mm512_sub_epi32(*dot, word(sums.add(r)));
                    *dot = _mm512_mullo_epi32(negative, _mm512_set1_epi32(offset(Q::TY)));
                }
            }
            dot::<Q, R>(codes, group.bytes.as_ptr().add(8 * b * R), &mut dots);
            let d = halves(scales);
            let row_scales = group.scales.as_ptr().add(b * R);
            for r in 0..R {
                let scale = _mm512_set1_ps(*row_scales.add(r));
                totals[r] = _mm512_fmadd_ps(_mm512_mul_ps(d, scale), _mm512_cvtepi32_ps(dots[r]), totals[r]);
                if const { matches!(Q::TY, WeightType::Q4_1 | WeightType::Q5_1) } {
                    let m = _mm512_mul_ps(halves(scales.add(32)), scale);
                    totals[r] = _mm512_fmadd_ps(m, _mm512_cvtepi32_ps(word(sums.add(r))), totals[r]);
                }
            }
        }
    }
    store(&totals, out);
}

fn store<const R: usize>(totals: &[__m512; R], out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS]) {
    for (total, out) in totals.iter().zip(out) {
        // SAFETY: a vector and 16 floats are the same bytes.
        *out = unsafe { std::mem::transmute::<__m512, [f32; TILE_ROWS]>(*total) };
    }
}

/// Blocks of 256 with a scale and a minimum per 32: d s (scales x dots), then - m s (minimums x sums).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn blocks_256_min<Q: Quantised<Codes: Codes>, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    let mut totals = [_mm512_setzero_ps(); R];
    for b in 0..n_in / 256 {
        // SAFETY: tile and group have n_in / 256 blocks.
        unsafe {
            let codes = tile.as_ptr().add(Q::LAYOUT.codes_at(b));
            let scales = tile.as_ptr().add(Q::LAYOUT.scales_at(b));
            let bytes = group.bytes.as_ptr().add(64 * b * R);
            ask_for_scales::<Q>(scales);
            let mut scaled = [_mm512_setzero_si512(); R];
            for p in 0..4 {
                let pair = _mm512_cvtepu8_epi16(_mm256_loadu_si256(scales.add(32 * p).cast()));
                let pair = [_mm512_and_si512(pair, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32::<16>(pair)];
                for (half, scale) in pair.into_iter().enumerate() {
                    let j = 2 * p + half;
                    let mut dots = [_mm512_setzero_si512(); R];
                    dot::<Q, R>(codes.add(j * Q::STEP), bytes.add(8 * j * R), &mut dots);
                    for (scaled, dot) in scaled.iter_mut().zip(dots) {
                        *scaled = _mm512_add_epi32(*scaled, _mm512_mullo_epi32(dot, scale));
                    }
                }
            }
            let mut mins = [_mm512_setzero_si512(); R];
            for p in 0..4 {
                let pair = _mm512_cvtepu8_epi16(_mm256_loadu_si256(scales.add(128 + 32 * p).cast()));
                let sums = group.sums_32.as_ptr().add((4 * b + p) * R);
                for (r, mins) in mins.iter_mut().enumerate() {
                    *mins = _mm512_dpwssd_epi32(*mins, pair, word(sums.add(r)));
                }
            }
            let (d, m) = (halves(scales.add(256)), halves(scales.add(288)));
            let row_scales = group.scales.as_ptr().add(b * R);
            for r in 0..R {
                let scale = _mm512_set1_ps(*row_scales.add(r));
                totals[r] = _mm512_fmadd_ps(_mm512_mul_ps(d, scale), _mm512_cvtepi32_ps(scaled[r]), totals[r]);
                totals[r] = _mm512_fnmadd_ps(_mm512_mul_ps(m, scale), _mm512_cvtepi32_ps(mins[r]), totals[r]);
            }
        }
    }
    store(&totals, out);
}

/// Blocks of 256 with a signed scale per 16: d s (scales x (dots - offset sums)).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn blocks_256_signed<Q: Quantised<Codes: Codes>, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    let mut totals = [_mm512_setzero_ps(); R];
    for b in 0..n_in / 256 {
        // SAFETY: tile and group have n_in / 256 blocks.
        unsafe {
            let codes = tile.as_ptr().add(Q::LAYOUT.codes_at(b));
            let scales = tile.as_ptr().add(Q::LAYOUT.scales_at(b));
            let bytes = group.bytes.as_ptr().add(64 * b * R);
            ask_for_scales::<Q>(scales);
            let mut offsets = [_mm512_setzero_si512(); R];
            let mut scaled = [_mm512_setzero_si512(); R];
            for p in 0..8 {
                let pair = _mm512_cvtepi8_epi16(_mm256_loadu_si256(scales.add(32 * p).cast()));
                let sums = group.sums_16.as_ptr().add((8 * b + p) * R);
                for (r, offsets) in offsets.iter_mut().enumerate() {
                    *offsets = _mm512_dpwssd_epi32(*offsets, pair, word(sums.add(r)));
                }
                let pair = [_mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(pair)), _mm512_srai_epi32::<16>(pair)];
                for (half, scale) in pair.into_iter().enumerate() {
                    let mut dots = [_mm512_setzero_si512(); R];
                    for c in [2 * half, 2 * half + 1] {
                        let step = codes.add(p * Q::STEP);
                        ask_for_codes::<Q>(step, c);
                        let (first, second) = Q::Codes::pair(step, c);
                        let bytes = bytes.add((8 * p + 2 * c) * R);
                        for (r, dot) in dots.iter_mut().enumerate() {
                            *dot = _mm512_dpbusd_epi32(*dot, first, word(bytes.add(r)));
                            *dot = _mm512_dpbusd_epi32(*dot, second, word(bytes.add(R + r)));
                        }
                    }
                    for (scaled, dot) in scaled.iter_mut().zip(dots) {
                        *scaled = _mm512_add_epi32(*scaled, _mm512_mullo_epi32(dot, scale));
                    }
                }
            }
            let d = halves(scales.add(256));
            let row_scales = group.scales.as_ptr().add(b * R);
            for r in 0..R {
                let offsets = _mm512_mullo_epi32(offsets[r], _mm512_set1_epi32(offset(Q::TY)));
                let scaled = _mm512_cvtepi32_ps(_mm512_sub_epi32(scaled[r], offsets));
                let scale = _mm512_set1_ps(*row_scales.add(r));
                totals[r] = _mm512_fmadd_ps(_mm512_mul_ps(d, scale), scaled, totals[r]);
            }
        }
    }
    store(&totals, out);
}

/// A float type.
trait Float {
    /// Bytes of a weight.
    const SIZE: usize;
    /// 16 weights.
    ///
    /// # Safety
    /// The CPU has AVX-512 and 16 weights are readable.
    unsafe fn load(at: *const u8) -> __m512;
}

impl Float for F32 {
    const SIZE: usize = 4;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: the caller's promises.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }
}

impl Float for F16 {
    const SIZE: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: the caller's promises.
        unsafe { halves(at) }
    }
}

impl Float for Bf16 {
    const SIZE: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: the caller's promises; a bf16 is the upper half of an f32.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }
}

/// Float weights: one fused multiply-add per weight, in order.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn floats<F: Float, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    let mut totals = [_mm512_setzero_ps(); R];
    for k in 0..n_in {
        // SAFETY: tile and group have n_in weights and values.
        unsafe {
            let at = tile.as_ptr().add(k * TILE_ROWS * F::SIZE);
            if F::SIZE == 4 || k % 2 == 0 {
                ask_for(at);
            }
            let weights = F::load(at);
            let x = group.x.as_ptr().add(k * R);
            for (r, total) in totals.iter_mut().enumerate() {
                *total = _mm512_fmadd_ps(weights, _mm512_set1_ps(*x.add(r)), *total);
            }
        }
    }
    store(&totals, out);
}
