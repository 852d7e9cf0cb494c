//! Seeded inputs for the tests of kernels: ordinary values, and nasty ones.

use std::ops::Range;

/// SplitMix64.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }

    pub(crate) fn uniform(&mut self, range: Range<f32>) -> f32 {
        let u = (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32;
        range.start + u * (range.end - range.start)
    }

    pub(crate) fn uniforms(&mut self, n: usize, range: Range<f32>) -> Vec<f32> {
        (0..n).map(|_| self.uniform(range.clone())).collect()
    }

    /// One in three from a list of special values, one any bit pattern, one ordinary.
    pub(crate) fn nasty(&mut self) -> f32 {
        const SPECIAL: [f32; 16] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MIN_POSITIVE,
            -f32::MIN_POSITIVE,
            1e-45,
            -1e-45,
            f32::MAX,
            f32::MIN,
            65_504.0,
            65_520.0,
            5.960_464_5e-8,
        ];
        match self.below(3) {
            0 => SPECIAL[self.below(SPECIAL.len())],
            1 => f32::from_bits(self.next_u64() as u32),
            _ => self.uniform(-4.0..4.0),
        }
    }

    pub(crate) fn nasties(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.nasty()).collect()
    }
}

/// The bits, with every NaN the same.
pub(crate) fn bits(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }
}

/// Asserts that two slices hold the same bits, any NaN equal to any other.
#[track_caller]
pub(crate) fn assert_same_bits(actual: &[f32], expected: &[f32], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert_eq!(bits(*a), bits(*e), "{what}: {a:e} and not {e:e} at {i} of {}", actual.len());
    }
}
