//! The products with AVX2: two vectors hold 4 codes of 8 rows each. Byte products are summed in 16 bits as long as no bit
//! pattern can overflow them, then in 32; with AVX-VNNI in 32 at once.
use std::arch::x86_64::*;

use super::*;
use crate::isa::Avx2;
use crate::matmul::TileFn;
use crate::matmul::activations::{Group, MAX_GROUP_ROWS};
use crate::matmul::layout::TILE_ROWS;
use crate::quant::{WeightType, offset};

/// The kernel for a type and a number of rows from 1 to 4. Calling it is safe on a CPU that has [`Avx2`].
pub(in crate::matmul) fn kernel(isa: Avx2, ty: WeightType, width: usize) -> TileFn {
    macro_rules! widths {
        ($($kernel:ident)::+, $type:ty) => {
            match width {
                1 => $($kernel)::+::<$type, 1>,
                2 => $($kernel)::+::<$type, 2>,
                3 => $($kernel)::+::<$type, 3>,
                _ => $($kernel)::+::<$type, 4>,
            }
        };
    }
    macro_rules! bytes {
        ($kernel:ident, $type:ty) => {
            if isa.vnni() { widths!(vnni::$kernel, $type) } else { widths!(plain::$kernel, $type) }
        };
    }
    match ty {
        WeightType::F32 => widths!(floats, F32),
        WeightType::F16 => widths!(floats, F16),
        WeightType::BF16 => widths!(floats, Bf16),
        WeightType::Q4_0 => bytes!(blocks_32, Q4_0),
        WeightType::Q4_1 => bytes!(blocks_32, Q4_1),
        WeightType::Q5_0 => bytes!(blocks_32, Q5_0),
        WeightType::Q5_1 => bytes!(blocks_32, Q5_1),
        WeightType::Q8_0 => bytes!(blocks_32, Q8_0),
        WeightType::Q4_K => bytes!(blocks_256_min, Q4_K),
        WeightType::Q5_K => bytes!(blocks_256_min, Q5_K),
        WeightType::Q6_K => bytes!(blocks_256_signed, Q6_K),
    }
}

/// The kernels of bytes for one set of features.
macro_rules! kernels {
    ($module:ident: $features:literal, $vnni:literal, $($kernel:ident),*) => {
        mod $module {
            use super::{Codes, Group, MAX_GROUP_ROWS, Quantised, TILE_ROWS};
            $(
                #[target_feature(enable = $features)]
                pub(super) unsafe fn $kernel<Q: Quantised<Codes: Codes>, const R: usize>(
                    tile: &[u8],
                    n_in: usize,
                    group: &Group<'_>,
                    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
                ) {
                    // SAFETY: this function has the features, and its caller keeps the other promises.
                    unsafe { super::$kernel::<Q, $vnni, R>(tile, n_in, group, out) }
                }
            )*
        }
    };
}
kernels!(plain: "avx2,fma,f16c", false, blocks_32, blocks_256_min, blocks_256_signed);
kernels!(vnni: "avx2,fma,f16c,avxvnni", true, blocks_32, blocks_256_min, blocks_256_signed);

/// A vector for rows 0 to 7 of the tile and one for rows 8 to 15.
type Halves<T> = [T; 2];

/// Reads codes out of the bytes of 32 codes of 16 rows (see [`crate::matmul::layout`]).
trait Codes {
    /// Vectors of 4 codes whose products with bytes within +-127 can be summed in 16 bits: 2 n c 127 < 2^15 for the largest code c.
    const STEPS_16: usize;

    /// Codes 8c..8c + 4 and 8c + 4..8c + 8 of 8 rows, as unsigned bytes.
    ///
    /// # Safety
    /// The CPU has AVX2 and `step` points at the bytes of 32 codes.
    unsafe fn pair(step: *const u8, c: usize, half: usize) -> (__m256i, __m256i);
}

/// Four bits of every byte, from bit 0.
const NIBBLE: i8 = 15;

impl Codes for Nibbles {
    const STEPS_16: usize = 8;

    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize, half: usize) -> (__m256i, __m256i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let low = _mm256_set1_epi8(NIBBLE);
            let v = load(step.add(64 * c + 32 * half));
            (_mm256_and_si256(v, low), _mm256_and_si256(_mm256_srli_epi16::<4>(v), low))
        }
    }
}

impl Codes for FiveBits {
    const STEPS_16: usize = 4;

    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize, half: usize) -> (__m256i, __m256i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let (first, second) = Nibbles::pair(step, c, half);
            let bit = _mm256_set1_epi8(16);
            let plane = load(step.add(256 + 32 * half));
            // Bit 2c and bit 2c + 1 of each byte, moved to bit 4.
            let (high_first, high_second) = match c {
                0 => (_mm256_slli_epi16::<4>(plane), _mm256_slli_epi16::<3>(plane)),
                1 => (_mm256_slli_epi16::<2>(plane), _mm256_slli_epi16::<1>(plane)),
                2 => (plane, _mm256_srli_epi16::<1>(plane)),
                _ => (_mm256_srli_epi16::<2>(plane), _mm256_srli_epi16::<3>(plane)),
            };
            let join = |low, high| _mm256_or_si256(low, _mm256_and_si256(high, bit));
            (join(first, high_first), join(second, high_second))
        }
    }
}

impl Codes for SixBits {
    const STEPS_16: usize = 2;

    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize, half: usize) -> (__m256i, __m256i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let (first, second) = Nibbles::pair(step, c, half);
            let bits = _mm256_set1_epi8(48);
            let plane = load(step.add(256 + c / 2 * 64 + 32 * half));
            // Bits 0, 1 and 2, 3 of each byte for even c, 4, 5 and 6, 7 for odd c, moved to bits 4, 5.
            let (high_first, high_second) = match c % 2 {
                0 => (_mm256_slli_epi16::<4>(plane), _mm256_slli_epi16::<2>(plane)),
                _ => (plane, _mm256_srli_epi16::<2>(plane)),
            };
            let join = |low, high| _mm256_or_si256(low, _mm256_and_si256(high, bits));
            (join(first, high_first), join(second, high_second))
        }
    }
}

impl Codes for Bytes {
    // Products of signed weights (magnitudes up to 128): a pair of them fits, a sum of two pairs does not.
    const STEPS_16: usize = 1;

    #[inline(always)]
    unsafe fn pair(step: *const u8, c: usize, half: usize) -> (__m256i, __m256i) {
        // SAFETY: the caller's promises; c < 4.
        unsafe {
            let signed = |at| _mm256_xor_si256(load(at), _mm256_set1_epi8(i8::MIN));
            let first = signed(step.add(128 * c + 32 * half));
            (first, signed(step.add(128 * c + 64 + 32 * half)))
        }
    }
}

/// 32 bytes.
///
/// # Safety
/// The CPU has AVX2 and the bytes are readable.
#[inline(always)]
unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: the caller's promises.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// A 32-bit word for all rows.
///
/// # Safety
/// The CPU has AVX2 and `at` is readable.
#[inline(always)]
unsafe fn word(at: *const u32) -> __m256i {
    // SAFETY: the caller's promises.
    unsafe { _mm256_set1_epi32(*at as i32) }
}

/// 16 f16 values.
///
/// # Safety
/// The CPU has AVX2 and F16C and 32 bytes are readable.
#[inline(always)]
unsafe fn halves(at: *const u8) -> Halves<__m256> {
    // SAFETY: the caller's promises.
    unsafe { [0, 16].map(|half| _mm256_cvtph_ps(_mm_loadu_si128(at.add(half).cast()))) }
}

/// Dot products of codes 8c..8c + 8 for every c in `quarters` with the bytes of `R` rows, times the factors (each 32 bits
/// hold one twice), added to `sums`.
///
/// # Safety
/// The CPU has AVX2, and AVX-VNNI if `VNNI`; `step` points at the bytes of 32 codes, `bytes` at 8 words of `R` rows.
#[inline(always)]
unsafe fn dot<Q: Quantised<Codes: Codes>, const VNNI: bool, const R: usize>(
    step: *const u8,
    quarters: std::ops::Range<usize>,
    bytes: *const u32,
    factors: Option<Halves<__m256i>>,
    sums: &mut [Halves<__m256i>; R],
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut parts = [[_mm256_setzero_si256(); 2]; R];
        for c in quarters.clone() {
            ask_for_codes::<Q>(step, c);
            let codes = [Q::Codes::pair(step, c, 0), Q::Codes::pair(step, c, 1)];
            let codes = [[codes[0].0, codes[1].0], [codes[0].1, codes[1].1]];
            for (t, codes) in codes.into_iter().enumerate() {
                for (r, parts) in parts.iter_mut().enumerate() {
                    let bytes = word(bytes.add((2 * c + t) * R + r));
                    for (half, part) in parts.iter_mut().enumerate() {
                        let (codes, bytes) = unsigned::<Q>(codes[half], bytes);
                        *part = match (VNNI, Q::Codes::STEPS_16) {
                            (true, _) => _mm256_dpbusd_avx_epi32(*part, codes, bytes),
                            (false, 1) => _mm256_maddubs_epi16(codes, bytes),
                            (false, _) => _mm256_add_epi16(*part, _mm256_maddubs_epi16(codes, bytes)),
                        };
                    }
                }
                let steps = 2 * (c - quarters.start) + t + 1;
                if !VNNI && steps.is_multiple_of(Q::Codes::STEPS_16) {
                    for (sums, parts) in sums.iter_mut().zip(&mut parts) {
                        for half in 0..2 {
                            let factors = factors.map_or(_mm256_set1_epi16(1), |factors| factors[half]);
                            sums[half] = _mm256_add_epi32(sums[half], _mm256_madd_epi16(parts[half], factors));
                            parts[half] = _mm256_setzero_si256();
                        }
                    }
                }
            }
        }
        if VNNI {
            for (sums, parts) in sums.iter_mut().zip(&parts) {
                for half in 0..2 {
                    let scaled = match factors {
                        Some(factors) => _mm256_mullo_epi32(parts[half], _mm256_srai_epi32::<16>(factors[half])),
                        None => parts[half],
                    };
                    sums[half] = _mm256_add_epi32(sums[half], scaled);
                }
            }
        }
    }
}

/// The same products with unsigned codes: signed ones hand their signs to the bytes.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn unsigned<Q: Quantised>(codes: __m256i, bytes: __m256i) -> (__m256i, __m256i) {
    if const { matches!(Q::TY, WeightType::Q8_0) } {
        // SAFETY: the caller's promise.
        unsafe { (_mm256_abs_epi8(codes), _mm256_sign_epi8(bytes, codes)) }
    } else {
        (codes, bytes)
    }
}

/// Writes the outputs of every row.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn store<const R: usize>(totals: &[Halves<__m256>; R], out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS]) {
    for (totals, out) in totals.iter().zip(out) {
        for (total, out) in totals.iter().zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: 8 floats are writable.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), *total) };
        }
    }
}

/// Blocks of 32: d s (dot - offset sum), and m s sum where there is a minimum.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and AVX-VNNI if `VNNI`; tile and group are `n_in` long.
#[inline(always)]
unsafe fn blocks_32<Q: Quantised<Codes: Codes>, const VNNI: bool, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    // Signed weights need no offset.
    let offset = if const { matches!(Q::TY, WeightType::Q8_0) } { 0 } else { offset(Q::TY) };
    // SAFETY: the caller's promises.
    let mut totals = [[unsafe { _mm256_setzero_ps() }; 2]; R];
    for b in 0..n_in / 32 {
        // SAFETY: tile and group have n_in / 32 blocks.
        unsafe {
            let codes = tile.as_ptr().add(Q::LAYOUT.codes_at(b));
            let scales = tile.as_ptr().add(Q::LAYOUT.scales_at(b));
            ask_for_scales::<Q>(scales);
            let sums = group.sums_32.as_ptr().add(b * R);
            let mut dots = [[_mm256_setzero_si256(); 2]; R];
            dot::<Q, VNNI, R>(codes, 0..4, group.bytes.as_ptr().add(8 * b * R), None, &mut dots);
            let d = halves(scales);
            let row_scales = group.scales.as_ptr().add(b * R);
            for r in 0..R {
                let scale = _mm256_set1_ps(*row_scales.add(r));
                let sum = word(sums.add(r));
                for half in 0..2 {
                    let total = &mut totals[r][half];
                    let mut dot = dots[r][half];
                    if offset != 0 {
                        dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(sum, _mm256_set1_epi32(offset)));
                    }
                    *total = _mm256_fmadd_ps(_mm256_mul_ps(d[half], scale), _mm256_cvtepi32_ps(dot), *total);
                    if const { matches!(Q::TY, WeightType::Q4_1 | WeightType::Q5_1) } {
                        let m = _mm256_mul_ps(halves(scales.add(32))[half], scale);
                        *total = _mm256_fmadd_ps(m, _mm256_cvtepi32_ps(sum), *total);
                    }
                }
            }
        }
    }
    // SAFETY: the caller's promises.
    unsafe { store(&totals, out) };
}

/// The low or the high half of each 32 bits, twice.
#[inline(always)]
unsafe fn twice(pairs: __m256i, high: bool) -> __m256i {
    // SAFETY: the callers have AVX2.
    unsafe {
        if high {
            _mm256_blend_epi16::<0x55>(pairs, _mm256_srli_epi32::<16>(pairs))
        } else {
            _mm256_blend_epi16::<0xaa>(pairs, _mm256_slli_epi32::<16>(pairs))
        }
    }
}

/// Blocks of 256 with a scale and a minimum per 32: d s (scales x dots), then - m s (minimums x sums).
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and AVX-VNNI if `VNNI`; tile and group are `n_in` long.
#[inline(always)]
unsafe fn blocks_256_min<Q: Quantised<Codes: Codes>, const VNNI: bool, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    // SAFETY: the caller's promises.
    let mut totals = [[unsafe { _mm256_setzero_ps() }; 2]; R];
    for b in 0..n_in / 256 {
        // SAFETY: tile and group have n_in / 256 blocks.
        unsafe {
            let codes = tile.as_ptr().add(Q::LAYOUT.codes_at(b));
            let scales = tile.as_ptr().add(Q::LAYOUT.scales_at(b));
            ask_for_scales::<Q>(scales);
            let bytes = group.bytes.as_ptr().add(64 * b * R);
            let pairs = |at: usize| {
                [0, 16].map(|half| _mm256_cvtepu8_epi16(_mm_loadu_si128(scales.add(32 * at + half).cast())))
            };
            let mut scaled = [[_mm256_setzero_si256(); 2]; R];
            for j in 0..8 {
                let factors = pairs(j / 2).map(|pairs| twice(pairs, j % 2 == 1));
                dot::<Q, VNNI, R>(codes.add(j * Q::STEP), 0..4, bytes.add(8 * j * R), Some(factors), &mut scaled);
            }
            let mut mins = [[_mm256_setzero_si256(); 2]; R];
            for p in 0..4 {
                let pairs = pairs(4 + p);
                for (r, mins) in mins.iter_mut().enumerate() {
                    let sums = word(group.sums_32.as_ptr().add((4 * b + p) * R + r));
                    for half in 0..2 {
                        mins[half] = _mm256_add_epi32(mins[half], _mm256_madd_epi16(pairs[half], sums));
                    }
                }
            }
            let (d, m) = (halves(scales.add(256)), halves(scales.add(288)));
            let row_scales = group.scales.as_ptr().add(b * R);
            for r in 0..R {
                let scale = _mm256_set1_ps(*row_scales.add(r));
                for half in 0..2 {
                    let total = &mut totals[r][half];
                    let scaled = _mm256_cvtepi32_ps(scaled[r][half]);
                    *total = _mm256_fmadd_ps(_mm256_mul_ps(d[half], scale), scaled, *total);
                    let mins = _mm256_cvtepi32_ps(mins[r][half]);
                    *total = _mm256_fnmadd_ps(_mm256_mul_ps(m[half], scale), mins, *total);
                }
            }
        }
    }
    // SAFETY: the caller's promises.
    unsafe { store(&totals, out) };
}

/// Blocks of 256 with a signed scale per 16: d s (scales x (dots - offset sums)).
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and AVX-VNNI if `VNNI`; tile and group are `n_in` long.
#[inline(always)]
unsafe fn blocks_256_signed<Q: Quantised<Codes: Codes>, const VNNI: bool, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    // SAFETY: the caller's promises.
    let mut totals = [[unsafe { _mm256_setzero_ps() }; 2]; R];
    for b in 0..n_in / 256 {
        // SAFETY: tile and group have n_in / 256 blocks.
        unsafe {
            let codes = tile.as_ptr().add(Q::LAYOUT.codes_at(b));
            let scales = tile.as_ptr().add(Q::LAYOUT.scales_at(b));
            ask_for_scales::<Q>(scales);
            let bytes = group.bytes.as_ptr().add(64 * b * R);
            let mut scaled = [[_mm256_setzero_si256(); 2]; R];
            let mut offsets = [[_mm256_setzero_si256(); 2]; R];
            for p in 0..8 {
                let pairs = [0, 16].map(|half| _mm256_cvtepi8_epi16(_mm_loadu_si128(scales.add(32 * p + half).cast())));
                for (r, offsets) in offsets.iter_mut().enumerate() {
                    let sums = word(group.sums_16.as_ptr().add((8 * b + p) * R + r));
                    for half in 0..2 {
                        offsets[half] = _mm256_add_epi32(offsets[half], _mm256_madd_epi16(pairs[half], sums));
                    }
                }
                let (step, bytes) = (codes.add(p * Q::STEP), bytes.add(8 * p * R));
                dot::<Q, VNNI, R>(step, 0..2, bytes, Some(pairs.map(|pairs| twice(pairs, false))), &mut scaled);
                dot::<Q, VNNI, R>(step, 2..4, bytes, Some(pairs.map(|pairs| twice(pairs, true))), &mut scaled);
            }
            let d = halves(scales.add(256));
            let row_scales = group.scales.as_ptr().add(b * R);
            for r in 0..R {
                let scale = _mm256_set1_ps(*row_scales.add(r));
                for half in 0..2 {
                    let offsets = _mm256_mullo_epi32(offsets[r][half], _mm256_set1_epi32(offset(Q::TY)));
                    let scaled = _mm256_cvtepi32_ps(_mm256_sub_epi32(scaled[r][half], offsets));
                    let total = &mut totals[r][half];
                    *total = _mm256_fmadd_ps(_mm256_mul_ps(d[half], scale), scaled, *total);
                }
            }
        }
    }
    // SAFETY: the caller's promises.
    unsafe { store(&totals, out) };
}

/// A float type.
trait Float {
    /// Bytes of a weight.
    const SIZE: usize;
    /// 8 weights.
    ///
    /// # Safety
    /// The CPU has AVX2 and F16C and 8 weights are readable.
    unsafe fn load(at: *const u8) -> __m256;
}

impl Float for F32 {
    const SIZE: usize = 4;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller's promises.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl Float for F16 {
    const SIZE: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller's promises.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }
}

impl Float for Bf16 {
    const SIZE: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller's promises; a bf16 is the upper half of an f32.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }
}

/// Float weights: one fused multiply-add per weight, in order.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn floats<F: Float, const R: usize>(
    tile: &[u8],
    n_in: usize,
    group: &Group<'_>,
    out: &mut [[f32; TILE_ROWS]; MAX_GROUP_ROWS],
) {
    let mut totals = [[_mm256_setzero_ps(); 2]; R];
    for k in 0..n_in {
        // SAFETY: tile and group have n_in weights and values.
        unsafe {
            let at = tile.as_ptr().add(k * TILE_ROWS * F::SIZE);
            if F::SIZE == 4 || k % 2 == 0 {
                ask_for(at);
            }
            let weights = [F::load(at), F::load(at.add(8 * F::SIZE))];
            let x = group.x.as_ptr().add(k * R);
            for (r, totals) in totals.iter_mut().enumerate() {
                let x = _mm256_set1_ps(*x.add(r));
                for half in 0..2 {
                    totals[half] = _mm256_fmadd_ps(weights[half], x, totals[half]);
                }
            }
        }
    }
    // SAFETY: this function has AVX2.
    unsafe { store(&totals, out) };
}
