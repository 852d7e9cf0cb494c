//! Rotary position embedding: angles from the position alone, with linear, llama3 and yarn scaling.
//!
//! Su et al., arXiv 2104.09864; yarn: Peng et al., arXiv 2309.00071. Dynamic scaling, whose angles depend on the
//! sequence's length, is refused: it would make a row depend on its company.

use std::f64::consts::PI;

/// How frequencies are stretched beyond the trained context.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Trained frequencies.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// Stretch.
        factor: f64,
    },
    /// High frequencies kept, low ones divided by `factor`, a ramp between; values longer by the attention factor.
    Yarn {
        /// Stretch.
        factor: f64,
        /// Context length of the training.
        original_context: f64,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which a frequency is fully divided.
        beta_slow: f64,
        /// Multiplies sine and cosine.
        attention_factor: f64,
    },
}

/// Inverse frequencies of one head.
#[derive(Clone, Debug)]
pub struct Rope {
    inv_freq: Vec<f64>,
    magnitude: f64,
}

impl Rope {
    /// For heads of `head_dim` (even) values; `divisors`, when not empty, divide the frequencies one by one (llama3's
    /// scaling as GGUF stores it, `rope_freqs.weight`).
    pub fn new(head_dim: usize, base: f64, scaling: &RopeScaling, divisors: &[f32]) -> Self {
        let half = head_dim / 2;
        assert!(divisors.is_empty() || divisors.len() == half, "one divisor a frequency");
        let plain = |i: usize| libm::pow(base, -2.0 * i as f64 / head_dim as f64);
        let mut inv_freq: Vec<f64> = (0..half).map(plain).collect();
        let mut magnitude = 1.0;
        match *scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => inv_freq.iter_mut().for_each(|f| *f /= factor),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
                // The index whose frequency turns `rotations` times over the original context.
                let index = |rotations: f64| {
                    head_dim as f64 * libm::log(original_context / (rotations * 2.0 * PI)) / (2.0 * libm::log(base))
                };
                let low = index(beta_fast).floor().max(0.0);
                let high = index(beta_slow).ceil().min(head_dim as f64 - 1.0);
                let width = (high - low).max(0.001);
                for (i, f) in inv_freq.iter_mut().enumerate() {
                    let stretched = ((i as f64 - low) / width).clamp(0.0, 1.0);
                    *f = *f / factor * stretched + *f * (1.0 - stretched);
                }
                magnitude = attention_factor;
            }
        }
        for (f, &divisor) in inv_freq.iter_mut().zip(divisors) {
            *f /= f64::from(divisor);
        }
        Self { inv_freq, magnitude }
    }

    /// Values of `cos` and `sin` needed for a position: half of the head's.
    pub fn len(&self) -> usize {
        self.inv_freq.len()
    }

    /// Whether heads are empty; they never are.
    pub fn is_empty(&self) -> bool {
        self.inv_freq.is_empty()
    }

    /// Fills `cos` and `sin` (`[head_dim / 2]` each) for one position.
    pub fn angles(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((&f, cos), sin) in self.inv_freq.iter().zip(cos).zip(sin) {
            let (s, c) = libm::sincos(position as f64 * f);
            *cos = (c * self.magnitude) as f32;
            *sin = (s * self.magnitude) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_does_not_turn() {
        let rope = Rope::new(8, 10_000.0, &RopeScaling::None, &[]);
        let (mut cos, mut sin) = ([0.0; 4], [1.0; 4]);
        rope.angles(0, &mut cos, &mut sin);
        assert_eq!((cos, sin), ([1.0; 4], [0.0; 4]));
    }

    #[test]
    fn linear_scaling_is_a_slower_position() {
        let plain = Rope::new(8, 10_000.0, &RopeScaling::None, &[]);
        let linear = Rope::new(8, 10_000.0, &RopeScaling::Linear { factor: 4.0 }, &[]);
        let angles = |rope: &Rope, position| {
            let (mut cos, mut sin) = ([0.0; 4], [0.0; 4]);
            rope.angles(position, &mut cos, &mut sin);
            (cos, sin)
        };
        assert_eq!(angles(&plain, 3), angles(&linear, 12));
    }

    #[test]
    fn yarn_keeps_fast_frequencies_and_stretches_slow_ones() {
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            original_context: 2048.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.0,
        };
        let plain = Rope::new(64, 10_000.0, &RopeScaling::None, &[]);
        let stretched = Rope::new(64, 10_000.0, &yarn, &[]);
        assert_eq!(plain.inv_freq[0], stretched.inv_freq[0]);
        assert_eq!(plain.inv_freq[31] / 4.0, stretched.inv_freq[31]);
    }
}
