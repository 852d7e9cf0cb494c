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
        let [q, kv] = [config.attention_heads, config.kv_heads].map(|heads| heads * config.head_dim());
        let residual = 1.0 / (2.0 * config.layers as f64).sqrt();
        let norm = |params: &mut Params, name: &str| {
            params.add(format!("{prefix}.{name}"), [1, d], Init::Constant(1.0), group)
        };
        let maps = |params: &mut Params, name: &str, inputs: usize, maps: &[usize], scale: f64| {
            let init = Init::Normal(scale / (inputs as f64).sqrt());
            params.add_maps(format!("{prefix}.{name}"), inputs, maps, init, group)
        };
        Self {
            attention_norm: norm(params, "attention_norm"),
            qkv: maps(params, "qkv", d, &[q, kv, kv], 1.0),
            output: maps(params, "output", d, &[d], residual),
            mlp_norm: norm(params, "mlp_norm"),
            gate_up: maps(params, "gate_up", d, &[f, f], 1.0),
            down: maps(params, "down", f, &[d], residual),
        }
    }

    /// `[n, width]` to `[n, width]`.
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<2>) -> Tensor<2> {
        let (params, ops) = (pass.params, pass.ops);
        let normed = ops.rms_norm(x.clone(), params.get(self.attention_norm), pass.eps);
        let attended = ops.attention(ops.linear(normed, params.get(self.qkv)), &pass.attention);
        let x = x + ops.linear(attended, params.get(self.output));
        let normed = ops.rms_norm(x.clone(), params.get(self.mlp_norm), pass.eps);
        let gated = ops.swiglu(ops.linear(normed, params.get(self.gate_up)));
        x + ops.linear(gated, params.get(self.down))
    }
}
