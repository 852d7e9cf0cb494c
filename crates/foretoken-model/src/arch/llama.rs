//! Llama (Touvron et al., arXiv 2302.13971): RMS norm, rotary positions, grouped heads, gated feed-forward network.

use foretoken_kernels::matmul::Matrix;
use foretoken_kernels::ops::RopeStyle;

use super::Architecture;
use crate::error::ModelError;
use crate::forward::{Linear, Qkv, Run};
use crate::hyper::Hyper;
use crate::load::Loader;
use crate::rope::Rope;

/// One transformer layer of the Llama family.
pub(super) struct Layer {
    attention_norm: Vec<f32>,
    qkv: Qkv,
    output: Linear,
    feed_forward_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Linear,
}

/// A model of the Llama family.
pub(super) struct Llama {
    hyper: Hyper,
    rope: Rope,
    rope_style: RopeStyle,
    embedding: Matrix,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// None: the embedding is the head.
    head: Option<Matrix>,
}

pub(super) fn load(loader: &mut Loader<'_>) -> Result<Box<dyn Architecture>, ModelError> {
    // GGUF's converter reorders q and k of this architecture so that pairs are neighbours.
    load_family(loader, "llama", RopeStyle::Interleaved)
}

/// Loads a model whose layers are Llama's; biases are used where the file has them.
pub(super) fn load_family(
    loader: &mut Loader<'_>,
    arch: &str,
    rope_style: RopeStyle,
) -> Result<Box<dyn Architecture>, ModelError> {
    let hyper = Hyper::read(loader.gguf(), arch)?;
    let divisors = loader.optional_vector("rope_freqs.weight", hyper.head_dim / 2)?;
    let rope = hyper.rope(loader.gguf(), arch, &divisors)?;
    let embedding = loader.matrix("token_embd.weight", hyper.hidden, hyper.vocab)?;
    let layers = (0..hyper.layers).map(|i| load_layer(loader, &hyper, i)).collect::<Result<_, _>>()?;
    let norm = loader.vector("output_norm.weight", hyper.hidden)?;
    let head = match loader.gguf().find("output.weight") {
        Some(_) => Some(loader.matrix("output.weight", hyper.hidden, hyper.vocab)?),
        None => None,
    };
    Ok(Box::new(Llama { hyper, rope, rope_style, embedding, layers, norm, head }))
}

fn load_layer(loader: &mut Loader<'_>, hyper: &Hyper, index: usize) -> Result<Layer, ModelError> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let (hidden, q_dim, kv_dim, wide) = (hyper.hidden, hyper.q_dim(), hyper.kv_dim(), hyper.feed_forward);
    Ok(Layer {
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

impl Architecture for Llama {
    fn hyper(&self) -> &Hyper {
        &self.hyper
    }

    fn unembedding(&self) -> &Matrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    fn forward(&self, run: &mut Run<'_>, n_layers: usize) {
        run.embed(&self.embedding, &self.rope);
        for (index, layer) in self.layers.iter().take(n_layers).enumerate() {
            let Qkv { q, k, v } = &layer.qkv;
            run.norm(&layer.attention_norm, [&q.weights, &k.weights, &v.weights]);
            run.project_qkv(index, &layer.qkv, self.rope_style);
            run.attend(index, &layer.output.weights);
            run.add_projected(&layer.output);

            run.norm(&layer.feed_forward_norm, [&layer.gate, &layer.up]);
            run.gate_up(&layer.gate, &layer.up, &layer.down.weights);
            run.add_projected(&layer.down);
        }
        run.finish(&self.norm, self.unembedding());
    }
}
