//! AdamW with warm-up, cosine decay and clipping by group.
//!
//! Weights, moments and gradients are updated on the host, where a checkpoint finds them; on the CPU back end that is where
//! they live. Clipping takes the norm of the trunk and of heads 2 to n apart, so that many heads cannot starve the trunk.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::params::{Gradients, Group, Params};

/// Settings of the optimiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimiserConfig {
    /// The highest learning rate.
    pub learning_rate: f32,
    /// Steps over which the rate rises from 0.
    #[serde(default = "defaults::warm_up")]
    pub warm_up: u64,
    /// The rate at the end of the cosine, as a part of the highest.
    #[serde(default = "defaults::final_rate")]
    pub final_rate: f32,
    /// Decay rates of the two moments.
    #[serde(default = "defaults::betas")]
    pub betas: [f32; 2],
    /// Added to the root of the second moment.
    #[serde(default = "defaults::eps")]
    pub eps: f32,
    /// Decoupled weight decay, of matrices alone.
    #[serde(default = "defaults::weight_decay")]
    pub weight_decay: f32,
    /// The greatest norm of a group's gradient; 0 for no clipping.
    #[serde(default = "defaults::clip")]
    pub clip: f32,
}

mod defaults {
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
        if self.betas.iter().any(|beta| !(0.0..1.0).contains(beta)) {
            return Err(TrainError::setting("optimiser.betas", format!("{:?}", self.betas), "0 to 1, 1 excluded"));
        }
        if !(0.0..=1.0).contains(&self.final_rate) {
            return Err(TrainError::setting("optimiser.final_rate", self.final_rate, "0 to 1"));
        }
        Ok(())
    }

    /// The learning rate of a step (from 0) of a run of `total`: linear up, cosine down.
    pub fn rate(&self, step: u64, total: u64) -> f32 {
        let warm = ((step + 1) as f64 / self.warm_up.max(1) as f64).min(1.0);
        let behind = step.saturating_sub(self.warm_up) as f64 / total.saturating_sub(self.warm_up).max(1) as f64;
        let cosine = 0.5 * (1.0 + libm::cos(std::f64::consts::PI * behind.min(1.0)));
        let low = f64::from(self.final_rate);
        (f64::from(self.learning_rate) * warm * (low + (1.0 - low) * cosine)) as f32
    }
}

/// The optimiser's state: two moments for each weight. (Loshchilov and Hutter, arXiv 1711.05101.)
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Steps taken.
    pub n_steps: u64,
    /// First and second moments, in the order of [`Params::iter`].
    pub moments: Vec<[Vec<f32>; 2]>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The gradient's norm before clipping: the trunk's and the heads'.
    pub norms: [f32; 2],
    /// Whether the weights moved: they do not when a norm is not finite.
    pub applied: bool,
}

/// Values that one task updates.
const PIECE: usize = 1 << 14;

impl AdamW {
    /// Moments of zero.
    pub fn new(params: &Params) -> Self {
        let zeros = |n| [vec![0.0; n], vec![0.0; n]];
        Self { n_steps: 0, moments: params.iter().map(|(_, spec)| zeros(spec.len())).collect() }
    }

    /// Moves the weights by `gradients * scale`, clipped, at a learning rate. Weights without a gradient stay as they are.
    pub fn step(
        &mut self,
        config: &OptimiserConfig,
        rate: f32,
        params: &mut Params,
        gradients: &mut Gradients,
        scale: f32,
    ) -> StepReport {
        let ids: Vec<_> = params.iter().map(|(id, _)| id).collect();
        let gradients: Vec<Option<Vec<f32>>> = ids.iter().map(|id| gradients.take(*id)).collect();
        let norm = |group: Group| {
            let of_group = ids.iter().zip(&gradients).filter(|(id, _)| params.spec(**id).group == group);
            let square: f64 = of_group.filter_map(|(_, gradient)| gradient.as_deref()).map(sum_of_squares).sum();
            (square.sqrt() * f64::from(scale)) as f32
        };
        let norms = [norm(Group::Trunk), norm(Group::Heads)];
        if !norms.iter().all(|norm| norm.is_finite()) {
            return StepReport { norms, applied: false };
        }
        let clipped = norms.map(|norm| match config.clip > 0.0 && norm > config.clip {
            true => scale * config.clip / norm,
            false => scale,
        });
        self.n_steps += 1;
        let correction = |beta: f32| 1.0 - libm::pow(f64::from(beta), self.n_steps as f64);
        let [c1, c2] = config.betas.map(correction);
        for ((id, gradient), moments) in ids.into_iter().zip(gradients).zip(&mut self.moments) {
            let Some(gradient) = gradient else { continue };
            let spec = params.spec(id);
            let group = match spec.group {
                Group::Trunk => 0,
                Group::Heads => 1,
            };
            let update = Update {
                scale: clipped[group],
                betas: config.betas,
                rate: (f64::from(rate) / c1) as f32,
                root: (1.0 / c2.sqrt()) as f32,
                eps: config.eps,
                keep: if spec.decays() { 1.0 - rate * config.weight_decay } else { 1.0 },
            };
            let mut values = params.take(id);
            let [first, second] = moments;
            values
                .par_chunks_mut(PIECE)
                .zip(first.par_chunks_mut(PIECE))
                .zip(second.par_chunks_mut(PIECE))
                .zip(gradient.par_chunks(PIECE))
                .for_each(|(((values, first), second), gradient)| update.apply(values, first, second, gradient));
            params.set(id, values);
        }
        StepReport { norms, applied: true }
    }
}

/// One step's constants for one weight.
#[derive(Clone, Copy)]
struct Update {
    scale: f32,
    betas: [f32; 2],
    rate: f32,
    root: f32,
    eps: f32,
    keep: f32,
}

impl Update {
    fn apply(self, values: &mut [f32], first: &mut [f32], second: &mut [f32], gradient: &[f32]) {
        let [b1, b2] = self.betas;
        for (((value, m), v), g) in values.iter_mut().zip(first).zip(second).zip(gradient) {
            let g = g * self.scale;
            *m = b1 * *m + (1.0 - b1) * g;
            *v = b2 * *v + (1.0 - b2) * g * g;
            *value = self.keep * *value - self.rate * *m / (v.sqrt() * self.root + self.eps);
        }
    }
}

/// In pieces of fixed bounds, added in order.
fn sum_of_squares(values: &[f32]) -> f64 {
    let pieces: Vec<f64> =
        values.par_chunks(PIECE).map(|piece| piece.iter().map(|x| f64::from(*x) * f64::from(*x)).sum()).collect();
    pieces.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Init;
    use burn::tensor::Device;

    fn config() -> OptimiserConfig {
        OptimiserConfig {
            learning_rate: 0.1,
            warm_up: 10,
            final_rate: 0.1,
            betas: [0.9, 0.95],
            eps: 1e-8,
            weight_decay: 0.0,
            clip: 1.0,
        }
    }

    #[test]
    fn the_rate_rises_and_falls() {
        let config = config();
        assert!((config.rate(0, 110) - 0.01).abs() < 1e-7);
        assert!((config.rate(9, 110) - 0.1).abs() < 1e-7);
        assert!((config.rate(60, 110) - 0.055).abs() < 1e-7);
        assert!((config.rate(110, 110) - 0.01).abs() < 1e-7 && (config.rate(999, 110) - 0.01).abs() < 1e-7);
    }

    #[test]
    fn groups_are_clipped_apart_and_bad_gradients_move_nothing() {
        let mut params = Params::new(&Device::flex(), 1);
        let trunk = params.add("trunk", [2, 2], Init::Constant(1.0), Group::Trunk);
        let heads = params.add("heads", [1, 3], Init::Constant(1.0), Group::Heads);
        let mut adam = AdamW::new(&params);
        let gradients = |params: &Params, at_trunk: f32, at_heads: f32| {
            let loss = params.get(trunk).sum() * at_trunk + params.get(heads).sum() * at_heads;
            let mut sums = Gradients::new(params);
            sums.absorb(params, &mut loss.backward());
            sums
        };
        let mut sums = gradients(&params, f32::NAN, 1.0);
        let report = adam.step(&config(), 0.1, &mut params, &mut sums, 1.0);
        assert!(!report.applied && adam.n_steps == 0 && params.host(heads) == [1.0; 3]);

        let mut sums = gradients(&params, 0.25, 1e6);
        let report = adam.step(&config(), 0.1, &mut params, &mut sums, 1.0);
        assert!(report.applied && (report.norms[0] - 0.5).abs() < 1e-6);
        // The first step of Adam has the size of the rate, whatever the gradient's.
        assert!(params.host(trunk).iter().chain(&params.host(heads)).all(|x| (x - 0.9).abs() < 1e-5));
        // The trunk's moment is that of its own gradient, the heads' that of a clipped one.
        assert!((adam.moments[0][0][0] - 0.1 * 0.25).abs() < 1e-7);
        assert!((adam.moments[1][0][0] - 0.1 / 3.0f32.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn decay_shrinks_matrices_and_not_vectors() {
        let mut params = Params::new(&Device::flex(), 1);
        let ids =
            [[2, 1], [1, 2]].map(|shape| params.add(format!("{shape:?}"), shape, Init::Constant(1.0), Group::Trunk));
        let mut sums = Gradients::new(&params);
        let loss = ids.iter().map(|id| params.get(*id).sum() * 0.0).reduce(|a, b| a + b).unwrap();
        sums.absorb(&params, &mut loss.backward());
        let config = OptimiserConfig { weight_decay: 0.5, ..config() };
        AdamW::new(&params).step(&config, 0.1, &mut params, &mut sums, 1.0);
        assert_eq!(params.host(ids[0]), [0.95, 0.95]);
        assert_eq!(params.host(ids[1]), [1.0, 1.0]);
    }
}
