//! The optimiser: AdamW, Muon for the matrices that like it, clipping by group.
//!
//! Weights, moments and gradients are updated on the host, where a checkpoint finds them; on the CPU back end that is where
//! they live. Clipping takes the norm of the trunk and of heads 2 to n apart, so that many heads cannot starve the trunk.

mod config;
mod muon;

use rayon::prelude::*;

pub use config::{Method, OptimiserConfig};

use crate::params::{Gradients, Group, ParamId, Params};

/// The optimiser's state: two moments for each weight, of which Muon uses the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimiser {
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

/// A weight on its way.
struct Moving<'a> {
    id: ParamId,
    values: Vec<f32>,
    gradient: Vec<f32>,
    moments: &'a mut [Vec<f32>; 2],
    rule: Rule,
}

/// How it moves.
enum Rule {
    AdamW(Update),
    Muon(muon::Update),
}

impl Optimiser {
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
        let mut moving = Vec::new();
        for ((id, gradient), moments) in ids.into_iter().zip(gradients).zip(&mut self.moments) {
            let Some(gradient) = gradient else { continue };
            let spec = params.spec(id);
            let scale = match spec.group {
                Group::Trunk => clipped[0],
                Group::Heads => clipped[1],
            };
            let keep = if spec.decays() { 1.0 - rate * config.weight_decay } else { 1.0 };
            let rule = if config.method == Method::Muon && !spec.maps.is_empty() {
                Rule::Muon(muon::Update {
                    scale,
                    momentum: config.momentum,
                    rate,
                    keep,
                    shape: spec.shape,
                    maps: spec.maps.clone(),
                })
            } else {
                Rule::AdamW(Update {
                    scale,
                    betas: config.betas,
                    rate: (f64::from(rate) / c1) as f32,
                    root: (1.0 / c2.sqrt()) as f32,
                    eps: config.eps,
                    keep,
                })
            };
            moving.push(Moving { id, values: params.take(id), gradient, moments, rule });
        }
        let moved: Vec<_> = moving.into_par_iter().map(Moving::move_on).collect();
        moved.into_iter().for_each(|(id, values)| params.set(id, values));
        StepReport { norms, applied: true }
    }
}

impl Moving<'_> {
    fn move_on(mut self) -> (ParamId, Vec<f32>) {
        let [first, second] = self.moments;
        match self.rule {
            Rule::Muon(update) => update.apply(&mut self.values, first, &self.gradient),
            Rule::AdamW(update) => self
                .values
                .par_chunks_mut(PIECE)
                .zip(first.par_chunks_mut(PIECE))
                .zip(second.par_chunks_mut(PIECE))
                .zip(self.gradient.par_chunks(PIECE))
                .for_each(|(((values, first), second), gradient)| update.apply(values, first, second, gradient)),
        }
        (self.id, self.values)
    }
}

/// One step's constants of AdamW for one weight.
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
        toml::from_str("learning_rate = 0.1\nweight_decay = 0.0").unwrap()
    }

    #[test]
    fn groups_are_clipped_apart_and_bad_gradients_move_nothing() {
        let mut params = Params::new(&Device::flex(), 1);
        let trunk = params.add("trunk", [2, 2], Init::Constant(1.0), Group::Trunk);
        let heads = params.add("heads", [1, 3], Init::Constant(1.0), Group::Heads);
        let mut adam = Optimiser::new(&params);
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
        Optimiser::new(&params).step(&config, 0.1, &mut params, &mut sums, 1.0);
        assert_eq!(params.host(ids[0]), [0.95, 0.95]);
        assert_eq!(params.host(ids[1]), [1.0, 1.0]);
    }
}
