//! Settings of the optimiser, and the learning rate over a run.

use serde::{Deserialize, Serialize};

use crate::TrainError;

/// Settings of the optimiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimiserConfig {
    /// What moves the matrices between hidden states; all other weights are moved by AdamW.
    #[serde(default)]
    pub method: Method,
    /// The highest learning rate.
    pub learning_rate: f32,
    /// Steps over which the rate rises from 0.
    #[serde(default = "defaults::warm_up")]
    pub warm_up: u64,
    /// The last part of the run, 0 to 1, over which the rate falls in a line; it is constant before, so that a run can be
    /// prolonged, or brought to its end, at any time by changing its number of steps. Without it the rate falls in a cosine
    /// over the whole run.
    #[serde(default)]
    pub decay: Option<f32>,
    /// The rate at the end, as a part of the highest.
    #[serde(default = "defaults::final_rate")]
    pub final_rate: f32,
    /// Muon: how slowly its mean of gradients forgets.
    #[serde(default = "defaults::momentum")]
    pub momentum: f32,
    /// AdamW: decay rates of the two moments.
    #[serde(default = "defaults::betas")]
    pub betas: [f32; 2],
    /// AdamW: added to the root of the second moment.
    #[serde(default = "defaults::eps")]
    pub eps: f32,
    /// Decoupled weight decay, of matrices alone.
    #[serde(default = "defaults::weight_decay")]
    pub weight_decay: f32,
    /// The greatest norm of a group's gradient; 0 for no clipping.
    #[serde(default = "defaults::clip")]
    pub clip: f32,
}

/// What moves the matrices between hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// AdamW, as for all other weights. (Loshchilov and Hutter, arXiv 1711.05101.)
    #[default]
    AdamW,
    /// Orthogonalised momentum, with AdamW's size of step. (Jordan et al., "Muon", 2024; Liu et al., arXiv 2502.16982.)
    Muon,
}

mod defaults {
    pub fn momentum() -> f32 {
        0.95
    }
    pub fn warm_up() -> u64 {
        200
    }
    pub fn final_rate() -> f32 {
        0.03
    }
    pub fn betas() -> [f32; 2] {
        [0.9, 0.95]
    }
    pub fn eps() -> f32 {
        1e-8
    }
    pub fn weight_decay() -> f32 {
        0.1
    }
    pub fn clip() -> f32 {
        1.0
    }
}

impl OptimiserConfig {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), TrainError> {
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return Err(TrainError::setting("optimiser.learning_rate", self.learning_rate, "above 0"));
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(TrainError::setting("optimiser.momentum", self.momentum, "0 to 1, 1 excluded"));
        }
        if let Some(decay) = self.decay.filter(|decay| !(0.0..=1.0).contains(decay)) {
            return Err(TrainError::setting("optimiser.decay", decay, "a part of the run, 0 to 1"));
        }
        if self.betas.iter().any(|beta| !(0.0..1.0).contains(beta)) {
            return Err(TrainError::setting("optimiser.betas", format!("{:?}", self.betas), "0 to 1, 1 excluded"));
        }
        let others =
            [("optimiser.eps", self.eps), ("optimiser.weight_decay", self.weight_decay), ("optimiser.clip", self.clip)];
        for (setting, value) in others {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(TrainError::setting(setting, value, "at least 0"));
            }
        }
        if !(0.0..=1.0).contains(&self.final_rate) {
            return Err(TrainError::setting("optimiser.final_rate", self.final_rate, "0 to 1"));
        }
        Ok(())
    }

    /// The learning rate of a step (from 0) of a run of `total`: up in a line, then down in a cosine or, with `decay`,
    /// constant and at last down in a line.
    pub fn rate(&self, step: u64, total: u64) -> f32 {
        let warm = ((step + 1) as f64 / self.warm_up.max(1) as f64).min(1.0);
        let left = match self.decay {
            Some(decay) => {
                let falling = (f64::from(decay) * total as f64).max(1.0);
                (total.saturating_sub(step) as f64 / falling).min(1.0)
            }
            None => {
                let behind =
                    step.saturating_sub(self.warm_up) as f64 / total.saturating_sub(self.warm_up).max(1) as f64;
                0.5 * (1.0 + libm::cos(std::f64::consts::PI * behind.min(1.0)))
            }
        };
        let low = f64::from(self.final_rate);
        (f64::from(self.learning_rate) * warm * (low + (1.0 - low) * left)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> OptimiserConfig {
        toml::from_str(&format!("learning_rate = 0.1\nwarm_up = 10\nfinal_rate = 0.1\n{more}")).unwrap()
    }

    #[test]
    fn the_rate_rises_and_falls() {
        let config = config("");
        assert!((config.rate(0, 110) - 0.01).abs() < 1e-7);
        assert!((config.rate(9, 110) - 0.1).abs() < 1e-7);
        assert!((config.rate(60, 110) - 0.055).abs() < 1e-7);
        assert!((config.rate(110, 110) - 0.01).abs() < 1e-7 && (config.rate(999, 110) - 0.01).abs() < 1e-7);
    }

    #[test]
    fn with_decay_it_is_constant_until_the_last_part() {
        let config = config("decay = 0.2");
        assert!([10, 50, 80].iter().all(|step| config.rate(*step, 100) == 0.1));
        assert!((config.rate(90, 100) - 0.055).abs() < 1e-7 && (config.rate(100, 100) - 0.01).abs() < 1e-7);
        // A longer run is the same run until the shorter one would fall.
        assert!((0..=80).all(|step| config.rate(step, 100) == config.rate(step, 1000)));
        assert!(self::config("decay = 1.5").check().is_err() && self::config("momentum = 1.0").check().is_err());
    }
}
