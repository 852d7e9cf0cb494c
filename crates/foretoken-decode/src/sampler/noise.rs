//! The noise of coupled sampling: a pure function of (seed, choice, position, token, purpose), never a stream.

use foretoken_kernels::ops::noise::hash32;

use crate::TokenId;

/// What noise is used for; different purposes never share any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Drawing a token.
    Token = 1,
    /// Sampling from a drafter's own distribution.
    Draft = 2,
    /// Whether such a sample is kept.
    Accept = 3,
    /// Drawing what takes its place.
    Residual = 4,
}

/// The noise of one position: 32 random bits for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseKey(pub(super) u64);

impl NoiseKey {
    /// The key of an absolute position: all 64 bits depend on every bit of every argument.
    pub fn new(seed: u64, choice: u32, position: u64, purpose: Purpose) -> Self {
        let stream = mix64(mix64(seed) ^ (u64::from(choice) << 8 | purpose as u64));
        Self(mix64(stream ^ position))
    }

    /// Gumbel noise of a token.
    pub fn gumbel(self, token: TokenId) -> f64 {
        gumbel(hash32(self.0, token))
    }

    /// A uniform number in [0, 1), of 53 bits.
    pub fn uniform(self) -> f64 {
        let bits = u64::from(hash32(self.0, 0)) << 32 | u64::from(hash32(self.0, 1));
        (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }
}

/// Standard Gumbel noise: `-ln(-ln(1 - u))` with `u = (bits + 0.5) / 2^32`, which f64 holds exactly, as it does `1 - u`.
pub fn gumbel(bits: u32) -> f64 {
    let u = (f64::from(bits) + 0.5) * (1.0 / 4_294_967_296.0);
    -libm::log(-libm::log1p(-u))
}

/// No noise is larger: that of bits which are all zero.
pub const GUMBEL_MAX: f32 = 22.874;

/// The finaliser of SplitMix64 (Steele et al. 2014) on a golden-ratio step.
fn mix64(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_are_finite_and_distinct() {
        assert!((gumbel(0) - 22.8739).abs() < 1e-3, "{}", gumbel(0));
        assert!(gumbel(0) < f64::from(GUMBEL_MAX));
        assert!((gumbel(u32::MAX) + 3.13).abs() < 0.01, "{}", gumbel(u32::MAX));
        for bits in (0..1000).chain(u32::MAX - 1000..u32::MAX) {
            assert!(gumbel(bits) > gumbel(bits + 1), "{bits}");
        }
    }

    #[test]
    fn bits_are_uniform_and_independent_of_neighbours() {
        // Every output bit is set half the time, over tokens, positions, choices and seeds that differ in one low bit.
        let n = 65_536u64;
        let key = |seed, choice, position| NoiseKey::new(seed, choice, position, Purpose::Token).0;
        type Vary<'a> = &'a dyn Fn(u64) -> u32;
        let vary: [Vary<'_>; 4] = [
            &|i| hash32(key(7, 0, 100), i as u32),
            &|i| hash32(key(7, 0, i), 5),
            &|i| hash32(key(7, i as u32, 100), 5),
            &|i| hash32(key(i, 0, 100), 5),
        ];
        for (which, f) in vary.iter().enumerate() {
            for bit in 0..32 {
                let ones = (0..n).filter(|&i| f(i) >> bit & 1 == 1).count() as f64;
                assert!((ones - n as f64 / 2.0).abs() < 5.0 * 128.0, "{which}: bit {bit}: {ones}");
                let same = (0..n).filter(|&i| (f(i) ^ f(i + 1)) >> bit & 1 == 0).count() as f64;
                assert!((same - n as f64 / 2.0).abs() < 5.0 * 128.0, "{which}: bit {bit}: {same}");
            }
        }
    }
}
