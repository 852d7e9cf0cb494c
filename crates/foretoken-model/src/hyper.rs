//! A model's sizes and constants, from the file's metadata, each checked before it is used.

use foretoken_formats::gguf::Gguf;
use foretoken_kernels::attention::{KEY_CHUNK, MAX_HEAD_DIM};

use crate::error::ModelError;
use crate::rope::{Rope, RopeScaling};

/// Sizes and constants that the Llama family shares.
#[derive(Clone, Debug)]
pub struct Hyper {
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// K/V heads; divides `heads`.
    pub kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// Width of the feed-forward network.
    pub feed_forward: usize,
    /// Number of logits.
    pub vocab: usize,
    /// The longest context that the model was made for.
    pub context: usize,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f32,
}

/// Reads keys below the architecture's name.
struct Keys<'a> {
    gguf: &'a Gguf,
    arch: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        let value = self.gguf.metadata().get_u32(&self.name(key))? as usize;
        if value == 0 { Err(self.bad(key, value, "it must be at least 1")) } else { Ok(value) }
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        if self.gguf.metadata().contains(&self.name(key)) { self.size(key) } else { Ok(default) }
    }

    fn float_or(&self, key: &str, default: f32) -> Result<f32, ModelError> {
        let value = self.gguf.metadata().get_f32_or(&self.name(key), default)?;
        if value.is_finite() { Ok(value) } else { Err(self.bad(key, value, "it must be finite")) }
    }

    fn positive_or(&self, key: &str, default: f32) -> Result<f64, ModelError> {
        let value = self.float_or(key, default)?;
        if value > 0.0 { Ok(f64::from(value)) } else { Err(self.bad(key, value, "it must be above 0")) }
    }

    fn bad(&self, key: &str, found: impl ToString, wanted: &str) -> ModelError {
        ModelError::Size { key: self.name(key), found: found.to_string(), wanted: wanted.into() }
    }
}

impl Hyper {
    /// Reads and checks the sizes of the architecture `arch`.
    pub fn read(gguf: &Gguf, arch: &str) -> Result<Self, ModelError> {
        let keys = Keys { gguf, arch };
        let heads = keys.size("attention.head_count")?;
        let hidden = keys.size("embedding_length")?;
        let kv_heads = keys.size_or("attention.head_count_kv", heads)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(keys.bad("attention.head_count_kv", kv_heads, "it must divide attention.head_count"));
        }
        let head_dim = keys.size_or("attention.key_length", hidden / heads)?;
        if !head_dim.is_multiple_of(KEY_CHUNK) || head_dim > MAX_HEAD_DIM || head_dim == 0 {
            let wanted = format!("heads must have a multiple of {KEY_CHUNK} values, up to {MAX_HEAD_DIM}");
            return Err(keys.bad("attention.key_length", head_dim, &wanted));
        }
        for (key, wanted) in [("attention.value_length", head_dim), ("rope.dimension_count", head_dim)] {
            let found = keys.size_or(key, wanted)?;
            if found != wanted {
                return Err(keys.bad(key, found, &format!("only heads of equal parts are known, {wanted} here")));
            }
        }
        let embedding = gguf.tensor("token_embd.weight")?;
        let vocab = embedding.shape.get(1).copied().unwrap_or(1);
        let named = keys.size_or("vocab_size", vocab)?;
        if named != vocab {
            return Err(keys.bad("vocab_size", named, &format!("the embedding has {vocab} rows")));
        }
        let mut context = keys.size("context_length")?;
        // Below the window's length a sliding window changes nothing.
        context = context.min(keys.size_or("attention.sliding_window", context)?);
        let hyper = Self {
            layers: keys.size("block_count")?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward: keys.size("feed_forward_length")?,
            vocab,
            context,
            norm_eps: keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5)? as f32,
        };
        if hyper.layers > gguf.tensors().len() {
            return Err(keys.bad("block_count", hyper.layers, "the file has fewer tensors than that"));
        }
        Ok(hyper)
    }

    /// Width of all query heads together.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all K (or V) heads together.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Reads the position embedding of the architecture `arch`; `divisors` as in [`Rope::new`].
    pub fn rope(&self, gguf: &Gguf, arch: &str, divisors: &[f32]) -> Result<Rope, ModelError> {
        let keys = Keys { gguf, arch };
        let base = keys.positive_or("rope.freq_base", 10_000.0)?;
        let kind = gguf.metadata().get_str_or(&keys.name("rope.scaling.type"), "none")?;
        let factor = || -> Result<f64, ModelError> {
            // The older name, and an error where there is neither.
            match gguf.metadata().contains(&keys.name("rope.scale_linear")) {
                true => keys.positive_or("rope.scale_linear", 1.0),
                false => {
                    keys.positive_or("rope.scaling.factor", gguf.metadata().get_f32(&keys.name("rope.scaling.factor"))?)
                }
            }
        };
        let scaling = match kind {
            "none" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: factor()? },
            "yarn" => {
                let factor = factor()?;
                RopeScaling::Yarn {
                    factor,
                    original_context: keys.size_or("rope.scaling.original_context_length", self.context)? as f64,
                    beta_fast: keys.positive_or("rope.scaling.yarn_beta_fast", 32.0)?,
                    beta_slow: keys.positive_or("rope.scaling.yarn_beta_slow", 1.0)?,
                    attention_factor: keys.positive_or("rope.scaling.attn_factor", 1.0)?
                        * (1.0 + 0.1 * libm::log(factor.max(1.0))),
                }
            }
            other => {
                let wanted = "known are none, linear, yarn and llama3's rope_freqs; scalings whose angles depend on \
                              the sequence's length (dynamic, longrope) would let drafts change the text";
                return Err(keys.bad("rope.scaling.type", other, wanted));
            }
        };
        Ok(Rope::new(self.head_dim, base, &scaling, divisors))
    }
}
