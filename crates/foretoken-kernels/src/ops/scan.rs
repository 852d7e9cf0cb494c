//! The greatest logit, and whether a row of logits is fit to be sampled from.

use crate::simd::{LANES, Simd, load_part, per_isa};

/// What [`scan`] finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan {
    /// The greatest value that is not NaN, `+0` for a zero of either sign; minus infinity when all are NaN.
    pub max: f32,
    /// The lowest index of a value equal to `max`; 0 when all are NaN.
    pub argmax: u32,
    /// Some value is NaN.
    pub nan: bool,
    /// Some value is plus infinity.
    pub pos_inf: bool,
}

/// Values whose maximum is looked at together: the winner is then sought in one of these only.
const BLOCK: usize = 64 * LANES;

per_isa! {
    /// Looks at a row of logits. Panics when there is none.
    pub fn scan(logits: &[f32]) -> Scan = scan_lanes;
}

#[inline(always)]
fn scan_lanes<S: Simd>(simd: S, logits: &[f32]) -> Scan {
    assert!(!logits.is_empty(), "a row of logits holds at least one");
    let (mut max, mut best_block, mut nan) = (f32::NEG_INFINITY, 0, false);
    for (index, block) in logits.chunks(BLOCK).enumerate() {
        let (block_max, block_nan) = max_and_nan(simd, block);
        nan |= block_nan;
        if block_max > max {
            (max, best_block) = (block_max, index);
        }
    }
    let start = best_block * BLOCK;
    let block = &logits[start..logits.len().min(start + BLOCK)];
    let argmax = start + first_equal(simd, block, max).unwrap_or(0);
    let (max, argmax) = if max == f32::NEG_INFINITY {
        // No block beat the start: the first minus infinity, wherever it is.
        (max, logits.iter().position(|&x| x == max).unwrap_or(0))
    } else {
        (max + 0.0, argmax)
    };
    Scan { max, argmax: argmax as u32, nan, pos_inf: max == f32::INFINITY }
}

/// The greatest of the values that are not NaN, and whether there is one that is.
#[inline(always)]
fn max_and_nan<S: Simd>(simd: S, x: &[f32]) -> (f32, bool) {
    let lowest = simd.splat(f32::NEG_INFINITY);
    let (mut max, mut nan) = ([lowest; 4], simd.lt(lowest, lowest));
    let (blocks, rest) = x.as_chunks::<LANES>();
    let (fours, ones) = blocks.as_chunks::<4>();
    for four in fours {
        let (a, b, c, d) = (simd.load(&four[0]), simd.load(&four[1]), simd.load(&four[2]), simd.load(&four[3]));
        max = [simd.max(a, max[0]), simd.max(b, max[1]), simd.max(c, max[2]), simd.max(d, max[3])];
        nan = simd.or_m(nan, simd.or_m(simd.unordered(a, b), simd.unordered(c, d)));
    }
    for one in ones {
        let x = simd.load(one);
        max[0] = simd.max(x, max[0]);
        nan = simd.or_m(nan, simd.unordered(x, x));
    }
    let rest = load_part(simd, rest, f32::NEG_INFINITY);
    max[0] = simd.max(rest, max[0]);
    nan = simd.or_m(nan, simd.unordered(rest, rest));
    let max = simd.max(simd.max(max[0], max[1]), simd.max(max[2], max[3]));
    (simd.greatest(max), simd.bits(nan) != 0)
}

/// The index of the first value that equals `wanted`.
#[inline(always)]
fn first_equal<S: Simd>(simd: S, x: &[f32], wanted: f32) -> Option<usize> {
    let (blocks, rest) = x.as_chunks::<LANES>();
    for (index, block) in blocks.iter().enumerate() {
        let hits = simd.bits(simd.eq(simd.load(block), simd.splat(wanted)));
        if hits != 0 {
            return Some(index * LANES + hits.trailing_zeros() as usize);
        }
    }
    rest.iter().position(|&x| x == wanted).map(|i| blocks.len() * LANES + i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::Rng;

    fn expected(logits: &[f32]) -> Scan {
        let max = logits.iter().copied().filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, f32::max) + 0.0;
        let argmax = logits.iter().position(|&x| x == max).unwrap_or(0) as u32;
        Scan { max, argmax, nan: logits.iter().any(|x| x.is_nan()), pos_inf: logits.contains(&f32::INFINITY) }
    }

    #[track_caller]
    fn check(logits: &[f32]) {
        let expected = expected(logits);
        for isa in Isa::available() {
            let actual = scan(isa, logits);
            assert_eq!(actual, expected, "{isa}, {} logits", logits.len());
            assert_eq!(actual.max.to_bits(), expected.max.to_bits(), "the sign of zero");
        }
    }

    #[test]
    fn equals_the_plain_search() {
        let mut rng = Rng(1);
        for len in (1..200).chain([1023, 1024, 1025, 4096, 20_000]) {
            check(&rng.nasties(len));
            check(&rng.uniforms(len, -5.0..5.0));
            // Ties in every place.
            let few = [0.0, -0.0, -1.0];
            check(&(0..len).map(|_| few[rng.below(3)]).collect::<Vec<_>>());
            check(&(0..len).map(|_| [-0.0, f32::NEG_INFINITY][rng.below(2)]).collect::<Vec<_>>());
            check(&(0..len).map(|_| [f32::NAN, f32::NEG_INFINITY][rng.below(2)]).collect::<Vec<_>>());
            check(&vec![f32::NAN; len]);
            // One of a kind, anywhere.
            for special in [7.0, f32::INFINITY, f32::NAN] {
                let mut logits = rng.uniforms(len, -5.0..5.0);
                logits[rng.below(len)] = special;
                check(&logits);
            }
        }
    }
}
