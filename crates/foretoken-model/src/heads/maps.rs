//! Heads that are a map of the hidden state: `linear` and `resblock`.

use foretoken_kernels::Isa;
use foretoken_kernels::matmul::{self, Activations, Product};
use foretoken_kernels::ops;
use foretoken_kernels::pool::Pool;

use crate::error::ModelError;
use crate::forward::Linear;
use crate::hyper::Hyper;
use crate::load::Loader;

/// Their weights.
pub(super) struct Maps {
    maps: Vec<Linear>,
    /// `[hidden]`, for residual blocks.
    ones: Option<Vec<f32>>,
    activations: Activations,
}

impl Maps {
    /// Loads the maps of heads 2 to `count + 1`.
    pub fn load(loader: &mut Loader<'_>, hyper: &Hyper, count: usize, residual: bool) -> Result<Self, ModelError> {
        let hidden = hyper.hidden;
        let map = |k: usize| {
            let name = format!("head.{k}.linear");
            let weights = loader.matrix(&format!("{name}.weight"), hidden, hidden)?;
            let bias = if residual { loader.vector(&format!("{name}.bias"), hidden)? } else { Vec::new() };
            Ok(Linear { weights, bias })
        };
        Ok(Self {
            maps: (2..count + 2).map(map).collect::<Result<_, ModelError>>()?,
            ones: residual.then(|| vec![1.0; hidden]),
            activations: Activations::new(),
        })
    }

    /// What the unembeddings of the first `n` heads multiply, `[n][rows][hidden]`, from `y` `[rows][hidden]`.
    pub fn features(&mut self, pool: &Pool, isa: Isa, n: usize, width: usize, y: &[f32], features: &mut [f32]) {
        let Self { maps, ones, activations } = self;
        let maps = &maps[..n];
        activations.set(pool, isa, y, y.len() / width, width, maps.iter().map(|map| map.weights.storage()));
        let mut products: Vec<Product<'_>> = (maps.iter().zip(features.chunks_exact_mut(y.len())))
            .map(|(map, out)| Product { weights: &map.weights, out })
            .collect();
        matmul::matmul(pool, isa, activations, &mut products);
        let Some(ones) = ones else { return };
        for (map, features) in maps.iter().zip(features.chunks_exact_mut(y.len())) {
            for (out, y) in features.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
                ops::add_assign(isa, out, &map.bias);
                ops::silu_mul(isa, out, ones);
                ops::add_assign(isa, out, y);
            }
        }
    }
}
