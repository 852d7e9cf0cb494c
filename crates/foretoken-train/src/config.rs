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
        if self.attention_heads == 0 {
            return Err(TrainError::setting("model.attention_heads", 0, "at least 1"));
        }
        if !self.width.is_multiple_of(self.attention_heads) || !self.head_dim().is_multiple_of(16) || self.width == 0 {
            let wanted = format!("a multiple of 16 times attention_heads = {}", self.attention_heads);
            return Err(TrainError::setting("model.width", self.width, wanted));
        }
        if self.kv_heads == 0 || !self.attention_heads.is_multiple_of(self.kv_heads) {
            let wanted = format!("a divisor of attention_heads = {}", self.attention_heads);
            return Err(TrainError::setting("model.kv_heads", self.kv_heads, wanted));
        }
        if self.feed_forward == 0 {
            return Err(TrainError::setting("model.feed_forward", 0, "at least 1"));
        }
        if !(1..=1 << 20).contains(&self.context) {
            return Err(TrainError::setting("model.context", self.context, "1 to 1048576"));
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
        if self.heads.from_trunk && self.heads.kind != HeadKind::Transformer {
            return Err(TrainError::setting(
                "model.heads.from_trunk",
                true,
                "only heads of kind transformer take layers",
            ));
        }
        let taken = if self.heads.from_trunk { self.heads.n - 1 } else { 0 };
        if self.layers <= taken {
            let wanted = format!("more than {taken}, which the heads take");
            return Err(TrainError::setting("model.layers", self.layers, wanted));
        }
        if self.heads.recursive && self.heads.kind != HeadKind::Sequential {
            return Err(TrainError::setting("model.heads.recursive", true, "only heads of kind sequential"));
        }
        Ok(())
    }

    /// Weights of the trunk and the heads, of settings that fit each other; no model has to be made to know.
    pub fn n_weights(&self) -> u128 {
        let of = |n: usize| n as u128;
        let (d, f, v) = (of(self.width), of(self.feed_forward), of(self.vocabulary));
        let kv = of(self.kv_heads * self.head_dim());
        let layer = 2 * d + d * (d + 2 * kv) + d * d + 3 * d * f;
        let others = of(self.heads.n - 1);
        let heads = match self.heads.kind {
            HeadKind::Linear => others * d * d,
            HeadKind::ResBlock => others * (d * d + d),
            HeadKind::Transformer => others * layer,
            HeadKind::Sequential if self.heads.recursive => others.min(1) * (layer + 2 * d * d + 3 * d),
            HeadKind::Sequential => others * (layer + 2 * d * d + 3 * d),
        };
        let own = if self.heads.unembedding == Unembedding::Replicated { others * d * v } else { 0 };
        let ends = d + d * v * if self.tied { 1 } else { 2 };
        ends + of(self.trunk_layers()) * layer + heads + own
    }

    /// Checks that `memory` bytes hold the weights, their gradients and the optimiser's two moments.
    pub fn check_memory(&self, memory: u64) -> Result<(), TrainError> {
        let n = self.n_weights();
        let needed = 16 * n;
        if needed <= u128::from(memory) {
            return Ok(());
        }
        let wanted = format!(
            "{:.1} GB for them, their gradients and two moments, and this machine has {:.1}: fewer model.layers, or a smaller \
             model.width, model.feed_forward or model.vocabulary",
            needed as f64 / 1e9,
            memory as f64 / 1e9
        );
        Err(TrainError::setting("model", format!("{n} weights"), wanted))
    }
}

/// The machine's memory in bytes; all that can be where the system does not say.
pub(crate) fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |n| n.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::model::Model;

    #[test]
    fn weights_are_counted_as_they_are_made() {
        for kind in [HeadKind::Linear, HeadKind::ResBlock, HeadKind::Transformer, HeadKind::Sequential] {
            for (n, tied, odd) in [(1, true, false), (3, false, true), (4, true, true), (4, false, false)] {
                let unembedding = if odd { Unembedding::Replicated } else { Unembedding::Shared };
                let from_trunk = odd && kind == HeadKind::Transformer;
                let recursive = odd && kind == HeadKind::Sequential;
                let config = ModelConfig {
                    vocabulary: 50,
                    width: 32,
                    layers: 5,
                    attention_heads: 2,
                    kv_heads: 1,
                    feed_forward: 48,
                    context: 8,
                    rope_theta: default_theta(),
                    norm_eps: default_eps(),
                    tied,
                    heads: HeadsConfig { n, kind, unembedding, from_trunk, recursive, start: HeadStart::AsFirst },
                };
                let (_, params) = Model::new(&config, &Device::flex(), 1).unwrap();
                let made: usize = params.iter().map(|(_, spec)| spec.len()).sum();
                assert_eq!(config.n_weights(), made as u128, "{config:?}");
                assert!(config.check_memory(16 * made as u64).is_ok());
                let refused = config.check_memory(16 * made as u64 - 1).unwrap_err().to_string();
                assert!(refused.starts_with(&format!("model = {made} weights: ")), "{refused}");
            }
        }
    }
}
