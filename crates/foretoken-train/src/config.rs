//! The settings of a model and its prediction heads, as they stand in a run's TOML file.

use serde::{Deserialize, Serialize};

use crate::TrainError;

/// A Llama-type model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Tokens, at least 2.
    pub vocabulary: usize,
    /// Values in a hidden state.
    pub width: usize,
    /// Transformer layers, those of `transformer` heads included when they are taken from the trunk.
    pub layers: usize,
    /// Attention heads; `width / attention_heads` values each, a multiple of 16.
    pub attention_heads: usize,
    /// Key and value heads, a divisor of `attention_heads`.
    pub kv_heads: usize,
    /// Values inside a feed-forward layer.
    pub feed_forward: usize,
    /// Tokens of a training window, and the context length that exported files state.
    pub context: usize,
    /// Base of the rotary angles.
    #[serde(default = "default_theta")]
    pub rope_theta: f64,
    /// Added to the mean square in norms.
    #[serde(default = "default_eps")]
    pub norm_eps: f32,
    /// Whether the unembedding is the embedding, transposed.
    #[serde(default)]
    pub tied: bool,
    /// The prediction heads.
    pub heads: HeadsConfig,
}

fn default_theta() -> f64 {
    10_000.0
}

fn default_eps() -> f32 {
    1e-5
}

/// The prediction heads: head 1 predicts the next token and is always there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadsConfig {
    /// Heads, 1 to 16.
    pub n: usize,
    /// What heads 2 to n are made of.
    #[serde(default)]
    pub kind: HeadKind,
    /// Whether heads 2 to n share head 1's unembedding or have one each.
    #[serde(default)]
    pub unembedding: Unembedding,
    /// `transformer`: heads 2 to n take their layers from the trunk's number, so that the parameters stay equal.
    #[serde(default)]
    pub from_trunk: bool,
    /// `sequential`: one module for every depth instead of one each.
    #[serde(default)]
    pub recursive: bool,
    /// How heads of kind `linear` and `resblock` begin.
    #[serde(default)]
    pub start: HeadStart,
}

/// How the matrices of heads that have no layer begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadStart {
    /// So that the head is head 1.
    #[default]
    AsFirst,
    /// Normal, of deviation `1 / sqrt(width)`, as the trunk's.
    Random,
}

/// What heads 2 to n are made of. `y` is the normalised hidden state that head 1 unembeds, `z` the same before the norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadKind {
    /// `W y`, the identity at the start (see [`HeadStart`]).
    Linear,
    /// `y + silu(W y + b)`, zero at the start: each head begins as head 1. (Medusa, arXiv 2401.10774.)
    #[default]
    ResBlock,
    /// A transformer layer each on the hidden state before the trunk's last layer, which is head 1's; then the trunk's
    /// norm. (Gloeckle et al., arXiv 2404.19737.)
    Transformer,
    /// Each depth continues from the one before it and the token between: `layer(M [norm(emb); norm(h)])`, then a norm of
    /// its own. (DeepSeek-V3, arXiv 2412.19437.)
    Sequential,
}

/// Whether heads share an unembedding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unembedding {
    /// Head 1's for all.
    #[default]
    Shared,
    /// One each, equal to head 1's at the start; for small vocabularies such as bytes.
    Replicated,
}

impl ModelConfig {
    /// Values an attention head.
    pub fn head_dim(&self) -> usize {
        self.width / self.attention_heads
    }

    /// Layers of the plain Llama model, head 1's included.
    pub fn trunk_layers(&self) -> usize {
        match (self.heads.kind, self.heads.from_trunk) {
            (HeadKind::Transformer, true) => self.layers - (self.heads.n - 1),
            _ => self.layers,
        }
    }

    /// Checks that the settings fit each other.
    pub fn check(&self) -> Result<(), TrainError> {
        if !(2..=1 << 16).contains(&self.vocabulary) {
            let wanted = "2 to 65536, as token files have two bytes a token";
            return Err(TrainError::setting("model.vocabulary", self.vocabulary, wanted));
        }
        if self.attention_heads == 0
            || !self.width.is_multiple_of(self.attention_heads)
            || !self.head_dim().is_multiple_of(16)
            || self.width == 0
        {
            let wanted = format!("a multiple of 16 times attention_heads = {}", self.attention_heads);
            return Err(TrainError::setting("model.width", self.width, wanted));
        }
        if self.kv_heads == 0 || !self.attention_heads.is_multiple_of(self.kv_heads) {
            let wanted = format!("a divisor of attention_heads = {}", self.attention_heads);
            return Err(TrainError::setting("model.kv_heads", self.kv_heads, wanted));
        }
        for (setting, value) in [("model.feed_forward", self.feed_forward), ("model.context", self.context)] {
            if value == 0 {
                return Err(TrainError::setting(setting, 0, "at least 1"));
            }
        }
        if !(self.rope_theta > 0.0 && self.rope_theta.is_finite()) {
            return Err(TrainError::setting("model.rope_theta", self.rope_theta, "above 0, such as 10000"));
        }
        if !(self.norm_eps >= 0.0 && self.norm_eps.is_finite()) {
            return Err(TrainError::setting("model.norm_eps", self.norm_eps, "at least 0, such as 1e-5"));
        }
        if !(1..=16).contains(&self.heads.n) {
            return Err(TrainError::setting("model.heads.n", self.heads.n, "1 to 16"));
        }
        let taken = if self.heads.from_trunk { self.heads.n - 1 } else { 0 };
        if self.layers <= taken {
            let wanted = format!("more than {taken}, which the heads take");
            return Err(TrainError::setting("model.layers", self.layers, wanted));
        }
        if self.heads.from_trunk && self.heads.kind != HeadKind::Transformer {
            return Err(TrainError::setting(
                "model.heads.from_trunk",
                true,
                "only heads of kind transformer take layers",
            ));
        }
        if self.heads.recursive && self.heads.kind != HeadKind::Sequential {
            return Err(TrainError::setting("model.heads.recursive", true, "only heads of kind sequential"));
        }
        Ok(())
    }
}
