//! Finding the few greatest of many values without sorting them.
//!
//! The k-th greatest block maximum is a threshold that at least k values reach, and seldom many more: [`block_max`], a
//! selection among a few thousand maxima, then [`collect_at_least`] leave a short list that holds the top k.

use crate::simd::{LANES, Simd, load_part, per_isa};

/// Values per block of [`block_max`].
pub const MAX_BLOCK: usize = 64;

per_isa! {
    /// The greatest value of each block of [`MAX_BLOCK`] values, NaNs ignored, minus infinity when there is none.
    ///
    /// `out` holds one value for each block, the last block possibly shorter.
    pub fn block_max(values: &[f32], out: &mut [f32]) = block_max_lanes;
}

#[inline(always)]
fn block_max_lanes<S: Simd>(simd: S, values: &[f32], out: &mut [f32]) {
    assert_eq!(out.len(), values.len().div_ceil(MAX_BLOCK), "one maximum for each block");
    for (block, out) in values.chunks(MAX_BLOCK).zip(out) {
        let (full, rest) = block.as_chunks::<LANES>();
        let mut max = simd.splat(f32::NEG_INFINITY);
        for x in full {
            max = simd.max(simd.load(x), max);
        }
        if !rest.is_empty() {
            max = simd.max(load_part(simd, rest, f32::NEG_INFINITY), max);
        }
        *out = simd.greatest(max) + 0.0;
    }
}

per_isa! {
    /// Appends the indices of the values that are at least `threshold`, in ascending order.
    pub fn collect_at_least(values: &[f32], threshold: f32, out: &mut Vec<u32>) = collect_at_least_lanes;
}

#[inline(always)]
fn collect_at_least_lanes<S: Simd>(simd: S, values: &[f32], threshold: f32, out: &mut Vec<u32>) {
    let limit = simd.splat(threshold);
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut first = 0;
    for block in blocks {
        let mut hits = simd.bits(simd.ge(simd.load(block), limit));
        while hits != 0 {
            out.push(first + hits.trailing_zeros());
            hits &= hits - 1;
        }
        first += LANES as u32;
    }
    out.extend((first..).zip(rest).filter(|(_, x)| **x >= threshold).map(|(id, _)| id));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::Rng;

    #[test]
    fn equals_the_plain_search() {
        let mut rng = Rng(1);
        for len in (0..200).chain([5000]) {
            let values = rng.nasties(len);
            let maxima: Vec<f32> = values
                .chunks(MAX_BLOCK)
                .map(|block| block.iter().filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, |a, &b| a.max(b)) + 0.0)
                .collect();
            for isa in Isa::available() {
                let mut out = vec![0.0; maxima.len()];
                block_max(isa, &values, &mut out);
                assert_eq!(out, maxima, "{isa}");
                for threshold in [f32::NEG_INFINITY, -1.0, 0.0, -0.0, 3.0, f32::INFINITY, f32::NAN] {
                    let mut ids = vec![7];
                    collect_at_least(isa, &values, threshold, &mut ids);
                    let expected = (0..len).filter(|&i| values[i] >= threshold).map(|i| i as u32);
                    assert!(ids.iter().copied().eq([7].into_iter().chain(expected)), "{isa}, {len} values");
                }
            }
        }
    }
}
