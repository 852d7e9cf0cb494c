//! Llama (Touvron et al., arXiv 2302.13971): RMS norm, rotary positions, grouped heads, gated feed-forward network.

use foretoken_kernels::matmul::Matrix;
use foretoken_kernels::ops::RopeStyle;

use super::{Architecture, Ends};
use crate::block::Block;
use crate::error::ModelError;
use crate::forward::Run;
use crate::hyper::Hyper;
use crate::load::Loader;
use crate::rope::Rope;

/// A model of the Llama family.
pub(super) struct Llama {
    hyper: Hyper,
    rope: Rope,
    rope_style: RopeStyle,
    embedding: Matrix,
    layers: Vec<Block>,
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
    let layers =
        (0..hyper.layers).map(|i| Block::load(loader, &hyper, &format!("blk.{i}"))).collect::<Result<_, _>>()?;
    let norm = loader.vector("output_norm.weight", hyper.hidden)?;
    let head = match loader.gguf().find("output.weight") {
        Some(_) => Some(loader.matrix("output.weight", hyper.hidden, hyper.vocab)?),
        None => None,
    };
    Ok(Box::new(Llama { hyper, rope, rope_style, embedding, layers, norm, head }))
}

impl Architecture for Llama {
    fn hyper(&self) -> &Hyper {
        &self.hyper
    }

    fn ends(&self) -> Ends<'_> {
        let unembedding = self.head.as_ref().unwrap_or(&self.embedding);
        let Self { rope, rope_style, embedding, norm, .. } = self;
        Ends { rope, rope_style: *rope_style, embedding, norm, unembedding }
    }

    fn forward(&self, run: &mut Run<'_>, n_layers: usize) {
        run.embed(&self.embedding, &self.rope);
        for (index, layer) in self.layers.iter().take(n_layers).enumerate() {
            if index + 1 == self.layers.len() {
                run.before_last_layer(self.rope_style);
            }
            layer.run(run, index, self.rope_style);
        }
        let Ends { norm, unembedding, .. } = self.ends();
        run.finish(norm, unembedding);
    }
}
