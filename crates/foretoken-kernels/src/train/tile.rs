//! Packing of operands into panels, and the tile of a product that stays in registers.
//!
//! A panel holds a few lanes side by side, word after word of `k`. A word is one `f32`, or two neighbouring values of
//! `k` as bfloat16, which Zen 4 and Sapphire Rapids multiply at twice the rate.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::Strided;
use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx512Bf16, detect_avx512_bf16};
use crate::simd::{LANES, Simd, per_isa};

/// How the operands of a product are rounded. Sums are `f32` either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// To bfloat16 where the CPU multiplies it in hardware, else as they are.
    Bf16,
}

/// Which tile runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    F32(Isa),
    #[cfg(target_arch = "x86_64")]
    Bf16(Isa, Avx512Bf16),
}

/// Packed lanes over a piece of `k`.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    /// Panel by panel, in each word by word, in each lane by lane; missing lanes are zero.
    pub words: &'a [u32],
    pub n_lanes: usize,
    pub n_words: usize,
}

/// Rows and columns of a tile: with AVX-512 they are 24 of its 32 registers, else 12 of 16.
const WIDE: [usize; 2] = [12, 2 * LANES];
const NARROW: [usize; 2] = [6, LANES];

impl Kernel {
    pub fn new(isa: Isa, precision: Precision) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let (Isa::Avx512(_), Precision::Bf16, Some(proof)) = (isa, precision, detect_avx512_bf16()) {
            return Self::Bf16(isa, proof);
        }
        let _ = precision;
        Self::F32(isa)
    }

    /// Rows and columns of a tile.
    pub fn tile(self) -> [usize; 2] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::F32(Isa::Avx512(_)) | Self::Bf16(..) => WIDE,
            Self::F32(_) => NARROW,
        }
    }

    /// Values of `k` in a word.
    pub fn per_word(self) -> usize {
        match self {
            Self::F32(_) => 1,
            #[cfg(target_arch = "x86_64")]
            Self::Bf16(..) => 2,
        }
    }

    /// Packs `n_lanes` lanes over `k` steps into a panel of `width` lanes; `from` has lanes as rows, steps as columns.
    pub fn pack(self, from: Strided<'_>, n_lanes: usize, k: usize, width: usize, out: &mut [u32]) {
        match self {
            Self::F32(isa) => pack(isa, from, n_lanes, k, width, 1, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the value proves that the CPU has these features.
            Self::Bf16(_, proof) if from.col == 1 => unsafe { pack_pairs(proof, from, n_lanes, k, width, out) },
            #[cfg(target_arch = "x86_64")]
            Self::Bf16(isa, _) => pack(isa, from, n_lanes, k, width, 2, out),
        }
    }

    /// Writes the product of all lanes of two operands to `c`, whose rows are `c_row` apart; adds it unless this is the
    /// `first` piece of `k`.
    pub fn block(self, left: Panels<'_>, right: Panels<'_>, c: &mut [MaybeUninit<f32>], c_row: usize, first: bool) {
        match self {
            Self::F32(isa) => block_f32(isa, left, right, c, c_row, first),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the value proves that the CPU has these features.
            Self::Bf16(_, proof) => unsafe { block_bf16(proof, left, right, c, c_row, first) },
        }
    }
}

per_isa! {
    fn pack(from: Strided<'_>, n_lanes: usize, k: usize, width: usize, per_word: usize, out: &mut [u32]) = pack_lanes;
}

#[inline(always)]
fn pack_lanes<S: Simd>(
    _: S,
    from: Strided<'_>,
    n_lanes: usize,
    k: usize,
    width: usize,
    per_word: usize,
    out: &mut [u32],
) {
    match width {
        12 => pack_panel::<12>(from, n_lanes, k, per_word, out),
        32 => pack_panel::<32>(from, n_lanes, k, per_word, out),
        6 => pack_panel::<6>(from, n_lanes, k, per_word, out),
        _ => pack_panel::<LANES>(from, n_lanes, k, per_word, out),
    }
}

/// The instruction set is that of the caller: loops over constant widths become vector instructions.
#[inline(always)]
fn pack_panel<const W: usize>(from: Strided<'_>, n_lanes: usize, k: usize, per_word: usize, out: &mut [u32]) {
    let (words, _) = out.as_chunks_mut::<W>();
    if from.row == 1 && n_lanes == W {
        // Lanes lie side by side.
        let step = |p: usize| -> &[f32; W] { from.data[p * from.col..][..W].try_into().expect("W values") };
        for (w, word) in words.iter_mut().enumerate() {
            let p = w * per_word;
            if per_word == 1 {
                *word = step(p).map(f32::to_bits);
            } else {
                let second = if p + 1 < k { step(p + 1) } else { &[0.0; W] };
                for ((word, x), y) in word.iter_mut().zip(step(p)).zip(second) {
                    *word = pair(*x, *y);
                }
            }
        }
        return;
    }
    words.fill([0; W]);
    // Some words at a time, so that what is written lane by lane stays near.
    for (part, words) in words.chunks_mut(LANES).enumerate() {
        let p = part * LANES * per_word;
        let len = (LANES * per_word).min(k - p);
        for lane in 0..n_lanes {
            let steps = &from.data[lane * from.row + p * from.col..];
            if per_word == 1 {
                words.iter_mut().enumerate().for_each(|(i, word)| word[lane] = steps[i * from.col].to_bits());
            } else {
                for (i, word) in words.iter_mut().enumerate() {
                    let second = if 2 * i + 1 < len { steps[(2 * i + 1) * from.col] } else { 0.0 };
                    word[lane] = pair(steps[2 * i * from.col], second);
                }
            }
        }
    }
}

/// [`pack`] of pairs from lanes whose steps lie side by side: one instruction rounds sixteen pairs.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn pack_pairs(_: Avx512Bf16, from: Strided<'_>, n_lanes: usize, k: usize, width: usize, out: &mut [u32]) {
    use std::arch::x86_64::*;
    if n_lanes < width {
        out.fill(0);
    }
    for lane in 0..n_lanes {
        let (parts, rest) = from.data[lane * from.row..][..k].as_chunks::<{ 2 * LANES }>();
        let mut words = out.chunks_exact_mut(width);
        for part in parts {
            let mut pairs = [0u32; LANES];
            // SAFETY: loads and the store go through references to arrays of exactly the bytes they touch.
            unsafe {
                let (low, high) = (_mm512_loadu_ps(part.as_ptr()), _mm512_loadu_ps(part[LANES..].as_ptr()));
                let bits = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(pairs.as_mut_ptr().cast(), bits);
            }
            pairs.iter().zip(&mut words).for_each(|(bits, word)| word[lane] = *bits);
        }
        for (values, word) in rest.chunks(2).zip(&mut words) {
            word[lane] = pair(values[0], values.get(1).copied().unwrap_or(0.0));
        }
    }
}

/// Two values as bfloat16, the first in the low half: to nearest, ties to even. (A NaN stays one, but for those whose
/// payload is in the lowest bits alone, which no arithmetic makes.)
#[inline(always)]
fn pair(x: f32, y: f32) -> u32 {
    let round = |x: f32| {
        let bits = x.to_bits();
        bits.wrapping_add(0x7fff + (bits >> 16 & 1))
    };
    round(x) >> 16 | round(y) & 0xffff_0000
}

/// `M` rows by `N` columns of a product, summed over all words.
trait Tile<const M: usize, const N: usize>: Copy {
    fn sums(self, left: &[[u32; M]], right: &[[u32; N]], sums: &mut [[f32; N]; M]);
}

#[inline(always)]
fn block<T: Tile<M, N>, const M: usize, const N: usize>(
    tile: T,
    left: Panels<'_>,
    right: Panels<'_>,
    c: &mut [MaybeUninit<f32>],
    c_row: usize,
    first: bool,
) {
    let mut sums = [[0.0; N]; M];
    for (j, b) in right.words.chunks_exact(right.n_words * N).enumerate() {
        let cols = N.min(right.n_lanes - j * N);
        for (i, a) in left.words.chunks_exact(left.n_words * M).enumerate() {
            tile.sums(a.as_chunks().0, b.as_chunks().0, &mut sums);
            for (r, sums) in sums.iter().enumerate().take(left.n_lanes - i * M) {
                let row = &mut c[(i * M + r) * c_row + j * N..][..cols];
                match <&mut [MaybeUninit<f32>; N]>::try_from(&mut *row) {
                    Ok(row) => settle(row, sums, first),
                    Err(_) => settle(row, sums, first),
                }
            }
        }
    }
}

#[inline(always)]
fn settle(row: &mut [MaybeUninit<f32>], sums: &[f32], first: bool) {
    for (c, sum) in row.iter_mut().zip(sums) {
        // SAFETY: what is not first comes behind the first, which wrote the same elements.
        let before = if first { 0.0 } else { unsafe { c.assume_init() } };
        c.write(before + sum);
    }
}

/// Lanes of `f32` in `V` registers of sixteen.
#[derive(Clone, Copy)]
struct Singles<S, const V: usize>(S);

impl<S: Simd, const M: usize, const N: usize, const V: usize> Tile<M, N> for Singles<S, V> {
    #[inline(always)]
    fn sums(self, left: &[[u32; M]], right: &[[u32; N]], out: &mut [[f32; N]; M]) {
        let simd = self.0;
        let mut sums = [[simd.splat(0.0); V]; M];
        for (a, b) in left.iter().zip(right) {
            let (b, _) = b.as_chunks::<LANES>();
            for (row, x) in sums.iter_mut().zip(a) {
                let x = simd.splat(f32::from_bits(*x));
                for (sum, b) in row.iter_mut().zip(b) {
                    *sum = simd.fma(x, simd.float_from_bits(simd.load_u(b)), *sum);
                }
            }
        }
        for (row, out) in sums.into_iter().zip(out) {
            for (sum, out) in row.into_iter().zip(out.as_chunks_mut::<LANES>().0) {
                simd.store(sum, out);
            }
        }
    }
}

per_isa! {
    fn block_f32(left: Panels<'_>, right: Panels<'_>, c: &mut [MaybeUninit<f32>], c_row: usize, first: bool) = block_f32_lanes;
}

#[inline(always)]
fn block_f32_lanes<S: Simd>(
    simd: S,
    left: Panels<'_>,
    right: Panels<'_>,
    c: &mut [MaybeUninit<f32>],
    c_row: usize,
    first: bool,
) {
    if S::WIDE {
        block::<_, { WIDE[0] }, { WIDE[1] }>(Singles::<S, 2>(simd), left, right, c, c_row, first);
    } else {
        block::<_, { NARROW[0] }, { NARROW[1] }>(Singles::<S, 1>(simd), left, right, c, c_row, first);
    }
}

/// Pairs of bfloat16 in two registers of sixteen pairs.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Pairs(#[allow(dead_code)] Avx512Bf16);

#[cfg(target_arch = "x86_64")]
impl Tile<{ WIDE[0] }, { WIDE[1] }> for Pairs {
    #[inline(always)]
    fn sums(self, left: &[[u32; WIDE[0]]], right: &[[u32; WIDE[1]]], out: &mut [[f32; WIDE[1]]; WIDE[0]]) {
        use std::arch::x86_64::*;
        // SAFETY: the proof says that the CPU has these instructions; loads and stores go through references to arrays of
        // exactly the bytes they touch.
        unsafe {
            let bits = |x: __m512i| std::mem::transmute::<__m512i, __m512bh>(x);
            let mut sums = [[_mm512_setzero_ps(); 2]; WIDE[0]];
            for (a, b) in left.iter().zip(right) {
                let low = bits(_mm512_loadu_si512(b[..LANES].as_ptr().cast()));
                let high = bits(_mm512_loadu_si512(b[LANES..].as_ptr().cast()));
                for (row, x) in sums.iter_mut().zip(a) {
                    let x = bits(_mm512_set1_epi32(x.cast_signed()));
                    row[0] = _mm512_dpbf16_ps(row[0], x, low);
                    row[1] = _mm512_dpbf16_ps(row[1], x, high);
                }
            }
            for (row, out) in sums.into_iter().zip(out) {
                _mm512_storeu_ps(out[..LANES].as_mut_ptr(), row[0]);
                _mm512_storeu_ps(out[LANES..].as_mut_ptr(), row[1]);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn block_bf16(
    proof: Avx512Bf16,
    left: Panels<'_>,
    right: Panels<'_>,
    c: &mut [MaybeUninit<f32>],
    c_row: usize,
    first: bool,
) {
    block(Pairs(proof), left, right, c, c_row, first);
}
