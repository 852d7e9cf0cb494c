//! The model: a Llama-type trunk and its prediction heads.
//!
//! Weights begin normal with deviation `1 / sqrt(inputs)`, those that end a residual branch divided by `sqrt(2 layers)`
//! besides; embeddings with `1 / sqrt(width)`, norms at 1, heads as [`HeadKind`] says. (Zhang et al., "Fixup"; GPT-2's
//! report for the residual scale.)

mod heads;
mod layer;

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use foretoken_kernels::train::{AttentionShape, Rotary};

use crate::TrainError;
use crate::batch::Batch;
use crate::config::{HeadKind, ModelConfig, machine_memory};
use crate::ops::{AttentionInputs, Ops};
use crate::params::{Group, Init, ParamId, Params};

pub use heads::{Heads, Module};
pub use layer::Layer;

/// Where the weights of each part are; the weights themselves are in [`Params`].
#[derive(Clone, Debug)]
pub struct Model {
    /// The settings it was made from.
    pub config: ModelConfig,
    /// `[vocabulary, width]`.
    pub embedding: ParamId,
    /// The layers of the plain Llama model.
    pub layers: Vec<Layer>,
    /// The final norm, `[1, width]`.
    pub norm: ParamId,
    /// `[width, vocabulary]`; none when tied to the embedding.
    pub unembedding: Option<ParamId>,
    /// Heads 2 to n.
    pub heads: Heads,
}

/// One pass over a batch: what all layers share.
pub struct Pass<'a> {
    /// The weights.
    pub params: &'a Params,
    /// Which version of the small parts runs.
    pub ops: Ops,
    /// Added in norms.
    pub eps: f32,
    /// Windows, positions and documents.
    pub attention: AttentionInputs,
}

/// The rotary tables of `n_tokens` positions: angle `p theta^(-2 i / head_dim)` for pair `i` at position `p`.
pub fn rotary(n_tokens: usize, head_dim: usize, theta: f64) -> Rotary {
    let n_pairs = head_dim / 2;
    let angles = (0..n_tokens * n_pairs).map(|i| {
        let rate = libm::pow(theta, -2.0 * (i % n_pairs) as f64 / head_dim as f64);
        (i / n_pairs) as f64 * rate
    });
    let (cos, sin) = angles.map(|angle| (libm::cos(angle) as f32, libm::sin(angle) as f32)).unzip();
    Rotary::new(cos, sin, n_pairs)
}

impl Model {
    /// Makes a model's weights from a seed. Errors when the settings contradict each other or the machine's memory.
    pub fn new(config: &ModelConfig, device: &Device, seed: u64) -> Result<(Self, Params), TrainError> {
        config.check()?;
        config.check_memory(machine_memory())?;
        let mut params = Params::new(device, seed);
        let [v, d] = [config.vocabulary, config.width];
        let deviation = 1.0 / (d as f64).sqrt();
        let trunk = Group::Trunk;
        let embedding = params.add("embedding", [v, d], Init::Normal(deviation), trunk);
        let layers = (0..config.trunk_layers())
            .map(|i| Layer::new(&mut params, &format!("layers.{i}"), config, trunk))
            .collect();
        let norm = params.add("norm", [1, d], Init::Constant(1.0), trunk);
        let unembedding = (!config.tied).then(|| params.add("unembedding", [d, v], Init::Normal(deviation), trunk));
        let heads = Heads::new(&mut params, config, unembedding);
        Ok((Self { config: config.clone(), embedding, layers, norm, unembedding, heads }, params))
    }

    /// What the layers of a pass over a batch share.
    pub fn pass<'a>(&self, params: &'a Params, ops: Ops, batch: &Batch) -> Pass<'a> {
        let config = &self.config;
        let shape = AttentionShape {
            n_tokens: batch.n_tokens(),
            n_heads: config.attention_heads,
            n_kv_heads: config.kv_heads,
            head_dim: config.head_dim(),
        };
        let rotary = Arc::new(rotary(batch.n_tokens(), config.head_dim(), config.rope_theta));
        let attention = AttentionInputs { shape, rotary, first_keys: Arc::new(batch.first_keys()) };
        Pass { params, ops, eps: config.norm_eps, attention }
    }

    /// Rows of the embedding, `[n, width]`.
    pub fn embed(&self, pass: &Pass<'_>, tokens: Vec<i32>) -> Tensor<2> {
        let n = tokens.len();
        let tokens = Tensor::<1, Int>::from_data(TensorData::new(tokens, [n]), pass.params.device());
        pass.params.get(self.embedding).select(0, tokens)
    }

    /// The hidden state that the heads begin from, `[n, width]`: after the last layer, or before it when the heads are
    /// transformer layers beside it.
    pub fn trunk(&self, pass: &Pass<'_>, batch: &Batch) -> Tensor<2> {
        let shared = match self.config.heads.kind {
            HeadKind::Transformer => self.layers.len() - 1,
            _ => self.layers.len(),
        };
        let x = self.embed(pass, batch.tokens(0));
        self.layers[..shared].iter().fold(x, |x, layer| layer.forward(pass, x))
    }

    /// What head `k` unembeds, from the trunk's hidden state; for sequential heads `k` is 1 and later depths are
    /// [`Module::forward`].
    pub fn features(&self, pass: &Pass<'_>, k: usize, z: Tensor<2>) -> Tensor<2> {
        let normed = |z| pass.ops.rms_norm(z, pass.params.get(self.norm), pass.eps);
        match (&self.heads, k) {
            (Heads::Transformer { .. }, 1) => normed(self.layers[self.layers.len() - 1].forward(pass, z)),
            (Heads::Transformer { layers, .. }, _) => normed(layers[k - 2].forward(pass, z)),
            (Heads::Linear { maps, .. }, 2..) => pass.ops.linear(normed(z), pass.params.get(maps[k - 2])),
            (Heads::ResBlock { blocks, .. }, 2..) => {
                let y = normed(z);
                let (weight, bias) = blocks[k - 2];
                let inside = pass.ops.linear(y.clone(), pass.params.get(weight)) + pass.params.get(bias);
                y + pass.ops.silu(inside)
            }
            _ => normed(z),
        }
    }

    /// Logits of head `k` from its features, `[n, vocabulary]`.
    pub fn logits(&self, pass: &Pass<'_>, k: usize, features: Tensor<2>) -> Tensor<2> {
        match self.heads.unembedding(k).or(self.unembedding) {
            Some(id) => pass.ops.linear(features, pass.params.get(id)),
            None => pass.ops.linear_transposed(features, pass.params.get(self.embedding)),
        }
    }
}
