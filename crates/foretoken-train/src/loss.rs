//! How much each head's loss weighs, and when.
//!
//! The loss is `CE_1 + lambda * sum over k >= 2 of w_k CE_k`, the `w_k` summing to 1. With uniform weights, lambda = n - 1
//! weighs every head as much as the next token (arXiv 2404.19737); DeepSeek-V3 has lambda = .3, late .1.

use serde::{Deserialize, Serialize};

use crate::TrainError;

/// Weights of the heads over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// The sum of the weights of heads 2 to n, against 1 for head 1.
    pub lambda: f32,
    /// From `late_from` on, this instead of `lambda`.
    #[serde(default)]
    pub late_lambda: Option<f32>,
    /// The part of the run after which `late_lambda` holds, 0 to 1.
    #[serde(default = "default_late_from")]
    pub late_from: f32,
    /// How lambda is shared among heads 2 to n.
    #[serde(default)]
    pub weights: Weights,
    /// Which heads take part when.
    #[serde(default)]
    pub curriculum: Curriculum,
}

fn default_late_from() -> f32 {
    0.8
}

/// How the weight of heads 2 to n is shared; normalised to a sum of 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// All the same.
    #[default]
    Uniform,
    /// Each this times the one before.
    Geometric(f32),
    /// These.
    Given(Vec<f32>),
}

/// Which heads take part when. (Aynetdinov and Akbik, arXiv 2505.22757.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curriculum {
    /// All, always.
    #[default]
    Static,
    /// One at first, one more at each of n equal stages of the given part of the run, then all.
    Forward(f32),
    /// All at first, one fewer at each stage, then head 1 alone.
    Reverse(f32),
}

impl LossConfig {
    /// Checks the settings for `n` heads.
    pub fn check(&self, n: usize) -> Result<(), TrainError> {
        let part = |setting, value: f32| match (0.0..=1.0).contains(&value) {
            true => Ok(()),
            false => Err(TrainError::setting(setting, value, "0 to 1")),
        };
        part("loss.late_from", self.late_from)?;
        for (setting, lambda) in [("loss.lambda", Some(self.lambda)), ("loss.late_lambda", self.late_lambda)] {
            if let Some(lambda) = lambda.filter(|lambda| !(*lambda >= 0.0 && lambda.is_finite())) {
                return Err(TrainError::setting(setting, lambda, "at least 0"));
            }
        }
        match &self.weights {
            Weights::Given(weights) if weights.len() != n.saturating_sub(1) => {
                let wanted = format!("{} weights, one for each head behind the first", n - 1);
                return Err(TrainError::setting("loss.weights", format!("{weights:?}"), wanted));
            }
            Weights::Given(weights)
                if !weights.iter().all(|w| *w >= 0.0 && w.is_finite()) || weights.iter().sum::<f32>() <= 0.0 =>
            {
                let wanted = "weights of at least 0, not all of them 0";
                return Err(TrainError::setting("loss.weights", format!("{weights:?}"), wanted));
            }
            Weights::Geometric(ratio) if !(*ratio > 0.0 && ratio.is_finite()) => {
                return Err(TrainError::setting("loss.weights.geometric", ratio, "above 0"));
            }
            _ => {}
        }
        if !self.shares(n).1.is_finite() {
            let value = format!("{:?}", self.weights);
            return Err(TrainError::setting(
                "loss.weights",
                value,
                "smaller numbers: their sum has no place in a float",
            ));
        }
        match self.curriculum {
            Curriculum::Static => Ok(()),
            Curriculum::Forward(until) | Curriculum::Reverse(until) => part("loss.curriculum", until),
        }
    }

    /// How heads 2 to `n` share lambda, and the sum of it.
    fn shares(&self, n: usize) -> (Vec<f32>, f32) {
        let shares: Vec<f32> = match &self.weights {
            Weights::Uniform => vec![1.0; n - 1],
            Weights::Geometric(ratio) => {
                std::iter::successors(Some(1.0), |share| Some(share * ratio)).take(n - 1).collect()
            }
            Weights::Given(weights) => weights.clone(),
        };
        let total = shares.iter().sum();
        (shares, total)
    }

    /// The weights of heads 1 to `n` at `progress` (0 to 1) of the run; a head of weight 0 is not computed.
    pub fn at(&self, progress: f32, n: usize) -> Vec<f32> {
        let lambda = match self.late_lambda {
            Some(late) if progress >= self.late_from => late,
            _ => self.lambda,
        };
        let (mut shares, total) = self.shares(n);
        shares.iter_mut().for_each(|share| *share *= lambda / total);
        let stage = |until: f32| if until > 0.0 { (progress / until * n as f32) as usize } else { n };
        let active = match self.curriculum {
            Curriculum::Static => n,
            Curriculum::Forward(until) => (stage(until) + 1).min(n),
            Curriculum::Reverse(until) => n - stage(until).min(n - 1),
        };
        let mut weights = vec![1.0];
        weights.extend(shares.iter().enumerate().map(|(i, share)| if i + 1 < active { *share } else { 0.0 }));
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(weights: Weights, curriculum: Curriculum) -> LossConfig {
        LossConfig { lambda: 0.3, late_lambda: Some(0.1), late_from: 0.5, weights, curriculum }
    }

    #[test]
    fn weights_sum_to_lambda_and_lambda_falls_late() {
        let uniform = config(Weights::Uniform, Curriculum::Static);
        assert_eq!(uniform.at(0.0, 4), [1.0, 0.1, 0.1, 0.1]);
        assert!((uniform.at(0.5, 4)[1..].iter().sum::<f32>() - 0.1).abs() < 1e-6);
        let geometric = config(Weights::Geometric(0.5), Curriculum::Static).at(0.0, 4);
        assert!((geometric[1] - 0.3 * 4.0 / 7.0).abs() < 1e-6 && (geometric[3] * 4.0 - geometric[1]).abs() < 1e-6);
        assert_eq!(config(Weights::Uniform, Curriculum::Static).at(0.0, 1), [1.0]);
    }

    #[test]
    fn curricula_add_or_drop_heads_stage_by_stage() {
        let active = |curriculum, progress| {
            let weights = config(Weights::Uniform, curriculum).at(progress, 4);
            weights.iter().filter(|weight| **weight > 0.0).count()
        };
        let stages = [0.0, 0.13, 0.26, 0.38, 0.5, 1.0];
        assert_eq!(stages.map(|p| active(Curriculum::Forward(0.5), p)), [1, 2, 3, 4, 4, 4]);
        assert_eq!(stages.map(|p| active(Curriculum::Reverse(0.5), p)), [4, 3, 2, 1, 1, 1]);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        assert!(config(Weights::Given(vec![1.0]), Curriculum::Static).check(4).is_err());
        assert!(config(Weights::Geometric(-1.0), Curriculum::Static).check(4).is_err());
        assert!(config(Weights::Geometric(1e30), Curriculum::Static).check(16).is_err());
        assert!(config(Weights::Uniform, Curriculum::Forward(2.0)).check(4).is_err());
        assert!(config(Weights::Given(vec![1.0, 0.0, 2.0]), Curriculum::Reverse(0.3)).check(4).is_ok());
    }
}
