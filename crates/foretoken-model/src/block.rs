//! One transformer layer of the Llama family: RMS norm, rotary positions, grouped heads, gated feed-forward network.

use foretoken_kernels::matmul::Matrix;
use foretoken_kernels::ops::RopeStyle;

use crate::error::ModelError;
use crate::forward::{Linear, Qkv, Run};
use crate::hyper::Hyper;
use crate::load::Loader;

/// The weights of a layer.
pub(crate) struct Block {
    attention_norm: Vec<f32>,
    qkv: Qkv,
    output: Linear,
    feed_forward_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Linear,
}

impl Block {
    /// Loads the tensors whose names begin with `prefix` and a dot. Biases are used where the file has them.
    pub fn load(loader: &mut Loader<'_>, hyper: &Hyper, prefix: &str) -> Result<Self, ModelError> {
        let name = |part: &str| format!("{prefix}.{part}");
        let (hidden, q_dim, kv_dim, wide) = (hyper.hidden, hyper.q_dim(), hyper.kv_dim(), hyper.feed_forward);
        Ok(Self {
            attention_norm: loader.vector(&name("attn_norm.weight"), hidden)?,
            qkv: Qkv {
                q: loader.linear(&name("attn_q"), hidden, q_dim)?,
                k: loader.linear(&name("attn_k"), hidden, kv_dim)?,
                v: loader.linear(&name("attn_v"), hidden, kv_dim)?,
            },
            output: loader.linear(&name("attn_output"), q_dim, hidden)?,
            feed_forward_norm: loader.vector(&name("ffn_norm.weight"), hidden)?,
            gate: loader.matrix(&name("ffn_gate.weight"), hidden, wide)?,
            up: loader.matrix(&name("ffn_up.weight"), hidden, wide)?,
            down: loader.linear(&name("ffn_down"), wide, hidden)?,
        })
    }

    /// Takes the rows through the layer, whose K/V rows are those of `layer` in the cache.
    pub fn run(&self, run: &mut Run<'_>, layer: usize, style: RopeStyle) {
        let Qkv { q, k, v } = &self.qkv;
        run.norm(&self.attention_norm, [&q.weights, &k.weights, &v.weights]);
        run.project_qkv(layer, &self.qkv, style);
        self.attend_and_feed_forward(run, layer);
    }

    /// Stores the rows' K/V and nothing else.
    pub fn store(&self, run: &mut Run<'_>, layer: usize, style: RopeStyle) {
        let Qkv { k, v, .. } = &self.qkv;
        run.norm(&self.attention_norm, [&k.weights, &v.weights]);
        run.project_kv(layer, &self.qkv, style);
    }

    /// [`Self::run`] for rows whose K/V are in the cache.
    pub fn run_stored(&self, run: &mut Run<'_>, layer: usize, style: RopeStyle) {
        run.norm(&self.attention_norm, [&self.qkv.q.weights]);
        run.project_q(&self.qkv.q, style);
        self.attend_and_feed_forward(run, layer);
    }

    fn attend_and_feed_forward(&self, run: &mut Run<'_>, layer: usize) {
        run.attend(layer, &self.output.weights);
        run.add_projected(&self.output);

        run.norm(&self.feed_forward_norm, [&self.gate, &self.up]);
        run.gate_up(&self.gate, &self.up, &self.down.weights);
        run.add_projected(&self.down);
    }
}
