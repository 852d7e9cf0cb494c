//! One transformer layer: attention and a gated feed-forward, each behind a norm, each added to the hidden state.

use burn::tensor::Tensor;

use super::Pass;
use crate::config::ModelConfig;
use crate::params::{Group, Init, ParamId, Params};

/// The weights of a layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// `[1, width]`.
    pub attention_norm: ParamId,
    /// Queries, keys and values side by side: `[width, (heads + 2 kv_heads) head_dim]`.
    pub qkv: ParamId,
    /// `[heads head_dim, width]`.
    pub output: ParamId,
    /// `[1, width]`.
    pub mlp_norm: ParamId,
    /// Gate and up side by side: `[width, 2 feed_forward]`.
    pub gate_up: ParamId,
    /// `[feed_forward, width]`.
    pub down: ParamId,
}

impl Layer {
    /// Adds a layer's weights under a prefix.
    pub fn new(params: &mut Params, prefix: &str, config: &ModelConfig, group: Group) -> Self {
        let (d, f) = (config.width, config.feed_forward);
        let qkv = (config.attention_heads + 2 * config.kv_heads) * config.head_dim();
        let residual = 1.0 / (2.0 * config.layers as f64).sqrt();
        let mut add = |name: &str, shape: [usize; 2], scale: f64| {
            let init = match shape[0] {
                1 => Init::Constant(1.0),
                inputs => Init::Normal(scale / (inputs as f64).sqrt()),
            };
            params.add(format!("{prefix}.{name}"), shape, init, group)
        };
        Self {
            attention_norm: add("attention_norm", [1, d], 1.0),
            qkv: add("qkv", [d, qkv], 1.0),
            output: add("output", [d, d], residual),
            mlp_norm: add("mlp_norm", [1, d], 1.0),
            gate_up: add("gate_up", [d, 2 * f], 1.0),
            down: add("down", [f, d], residual),
        }
    }

    /// `[n, width]` to `[n, width]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<2>) -> Tensor<2> {
        let (params, ops) = (pass.params, pass.ops);
        let normed = ops.rms_norm(x.clone(), params.get(self.attention_norm), pass.eps);
        let attended = ops.attention(normed.matmul(params.get(self.qkv)), &pass.attention);
        let x = x + attended.matmul(params.get(self.output));
        let normed = ops.rms_norm(x.clone(), params.get(self.mlp_norm), pass.eps);
        let gated = ops.swiglu(normed.matmul(params.get(self.gate_up)));
        x + gated.matmul(params.get(self.down))
    }
}
