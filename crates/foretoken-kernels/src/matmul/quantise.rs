//! One block of activations to bytes. The same plain code is compiled for each instruction set: equal by construction.
#![allow(unsafe_code)]

use crate::isa::Isa;

/// `N` bytes, `S` = N / 16 sums and a scale.
#[derive(Clone, Debug, PartialEq)]
#[repr(align(64))]
pub(crate) struct QuantisedBlock<const N: usize, const S: usize> {
    /// Within +-127.
    pub bytes: [i8; N],
    /// Sum of each 16 bytes.
    pub sums: [i32; S],
    /// Value of one step: max |x| / 127; NaN when a value was not finite.
    pub scale: f32,
}

impl<const N: usize, const S: usize> Default for QuantisedBlock<N, S> {
    fn default() -> Self {
        QuantisedBlock { bytes: [0; N], sums: [0; S], scale: 0.0 }
    }
}

impl<const N: usize, const S: usize> QuantisedBlock<N, S> {
    /// The bytes, four to a word, the first one lowest.
    pub fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&[a, b, c, d]| u32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]))
    }
}

/// Quantises a block of 32 or 256 values.
pub(crate) fn quantise<const N: usize, const S: usize>(isa: Isa, x: &[f32; N], block: &mut QuantisedBlock<N, S>) {
    match isa {
        Isa::Scalar => plain(x, block),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: holding the value proves that the CPU has these features.
        Isa::Avx2(_) => unsafe { with_avx2(x, block) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: holding the value proves that the CPU has these features.
        Isa::Avx512(_) => unsafe { with_avx512(x, block) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => plain(x, block),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<const N: usize, const S: usize>(x: &[f32; N], block: &mut QuantisedBlock<N, S>) {
    plain(x, block);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn with_avx512<const N: usize, const S: usize>(x: &[f32; N], block: &mut QuantisedBlock<N, S>) {
    plain(x, block);
}

#[inline(always)]
fn plain<const N: usize, const S: usize>(x: &[f32; N], block: &mut QuantisedBlock<N, S>) {
    // Magnitudes compare like their bits, and everything from infinity on is not finite.
    let max_bits = x.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff));
    let max = f32::from_bits(max_bits);
    let inverse = 127.0 / max;
    if !max.is_finite() || !inverse.is_finite() {
        // Not finite, or so small (below 4e-37) that it counts as zero.
        block.bytes = [0; N];
        block.sums = [0; S];
        block.scale = if max.is_finite() { 0.0 } else { f32::NAN };
        return;
    }
    for (byte, &x) in block.bytes.iter_mut().zip(x) {
        let rounded = (x * inverse).round_ties_even().clamp(-127.0, 127.0);
        // SAFETY: x is finite, so `rounded` is a number within +-127.
        *byte = unsafe { rounded.to_int_unchecked::<i32>() } as i8;
    }
    for (sum, bytes) in block.sums.iter_mut().zip(block.bytes.as_chunks::<16>().0) {
        *sum = bytes.iter().map(|&byte| i32::from(byte)).sum();
    }
    block.scale = max / 127.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(x: [f32; 32], want_scale: f32) {
        for isa in Isa::available() {
            let mut block = QuantisedBlock::<32, 2>::default();
            quantise(isa, &x, &mut block);
            assert_eq!(block.scale.to_bits(), want_scale.to_bits(), "{isa}");
            let sums = [0, 1].map(|i| block.bytes[16 * i..][..16].iter().map(|&b| i32::from(b)).sum::<i32>());
            assert_eq!(block.sums, sums, "{isa}");
            for (&byte, x) in block.bytes.iter().zip(x) {
                assert!(byte != i8::MIN);
                let error = (f32::from(byte) * block.scale - x).abs();
                assert!(block.scale.is_nan() || error <= 0.501 * block.scale.max(4e-37), "{isa}: {x} became {byte}");
            }
        }
    }

    #[test]
    fn values_are_within_half_a_step() {
        check(std::array::from_fn(|i| i as f32 * 0.37 - 5.0), (31.0f32 * 0.37 - 5.0) / 127.0);
        check([-3.0; 32], 3.0 / 127.0);
        check(std::array::from_fn(|i| if i == 9 { 1e38 } else { -1.0 }), 1e38 / 127.0);
    }

    #[test]
    fn zeros_and_tiny_values_are_zero() {
        check([0.0; 32], 0.0);
        check([f32::MIN_POSITIVE / 8.0; 32], 0.0);
    }

    #[test]
    fn a_value_that_is_not_finite_spoils_its_block() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            check(std::array::from_fn(|i| if i == 31 { bad } else { 1.0 }), f32::NAN);
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bytes() {
        let mut state = 7u32;
        for round in 0..200 {
            let x: [f32; 256] = std::array::from_fn(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Halves of steps on purpose: ties must round alike.
                (state >> 22) as i32 as f32 * if round % 2 == 0 { 0.5 } else { 0.013 } - 250.0
            });
            let mut want = QuantisedBlock::<256, 16>::default();
            quantise(Isa::Scalar, &x, &mut want);
            for isa in Isa::available() {
                let mut got = QuantisedBlock::<256, 16>::default();
                quantise(isa, &x, &mut got);
                assert_eq!(got, want, "{isa}");
            }
        }
    }
}
