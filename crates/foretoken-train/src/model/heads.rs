//! The weights of heads 2 to n.

use burn::tensor::Tensor;

use super::{Layer, Pass};
use crate::config::{HeadKind, HeadStart, ModelConfig, Unembedding};
use crate::params::{Group, Init, ParamId, Params};

/// Heads 2 to n; head `k` is at index `k - 2`.
#[derive(Clone, Debug)]
pub enum Heads {
    /// One matrix each.
    Linear {
        /// `[width, width]`.
        maps: Vec<ParamId>,
        /// Unembeddings of their own, or none.
        unembeddings: Vec<ParamId>,
    },
    /// A residual block each.
    ResBlock {
        /// Matrix `[width, width]` and bias `[1, width]`.
        blocks: Vec<(ParamId, ParamId)>,
        /// Unembeddings of their own, or none.
        unembeddings: Vec<ParamId>,
    },
    /// A transformer layer each.
    Transformer {
        /// The layers.
        layers: Vec<Layer>,
        /// Unembeddings of their own, or none.
        unembeddings: Vec<ParamId>,
    },
    /// A module for each depth, or one for all.
    Sequential {
        /// The modules; recursion repeats the first.
        modules: Vec<Module>,
        /// Unembeddings of their own, or none.
        unembeddings: Vec<ParamId>,
    },
}

/// One depth of sequential prediction: `h_k = layer(M [norm(emb(t_{i+k-1})); norm(h_{k-1})])`.
#[derive(Clone, Debug)]
pub struct Module {
    /// Norm of the token's embedding, `[1, width]`.
    pub embedding_norm: ParamId,
    /// Norm of the hidden state of the depth before, `[1, width]`.
    pub hidden_norm: ParamId,
    /// `[2 width, width]`, the embedding's rows first.
    pub projection: ParamId,
    /// The layer.
    pub layer: Layer,
    /// Norm in front of the unembedding, `[1, width]`.
    pub norm: ParamId,
}

impl Heads {
    /// Adds the weights of heads 2 to n.
    pub(super) fn new(params: &mut Params, config: &ModelConfig, unembedding: Option<ParamId>) -> Self {
        let (d, group) = (config.width, Group::Heads);
        let depths = 2..=config.heads.n;
        let square = |params: &mut Params, k: usize, as_first| {
            let init = match config.heads.start {
                HeadStart::AsFirst => as_first,
                HeadStart::Random => Init::Normal(1.0 / (d as f64).sqrt()),
            };
            params.add_maps(format!("heads.{k}.map"), d, &[d], init, group)
        };
        let replicated = config.heads.unembedding == Unembedding::Replicated;
        let mut heads = match config.heads.kind {
            HeadKind::Linear => {
                let maps = depths.clone().map(|k| square(params, k, Init::Identity)).collect();
                Self::Linear { maps, unembeddings: Vec::new() }
            }
            HeadKind::ResBlock => {
                let block = |k| {
                    let weight = square(params, k, Init::Constant(0.0));
                    (weight, params.add(format!("heads.{k}.bias"), [1, d], Init::Constant(0.0), group))
                };
                Self::ResBlock { blocks: depths.clone().map(block).collect(), unembeddings: Vec::new() }
            }
            HeadKind::Transformer => {
                let layer = |k| Layer::new(params, &format!("heads.{k}.layer"), config, group);
                Self::Transformer { layers: depths.clone().map(layer).collect(), unembeddings: Vec::new() }
            }
            HeadKind::Sequential => {
                let distinct = if config.heads.recursive { 2..=config.heads.n.min(2) } else { depths.clone() };
                let mut modules: Vec<_> = distinct.map(|k| Module::new(params, k, config)).collect();
                if config.heads.recursive && !modules.is_empty() {
                    modules.resize(config.heads.n - 1, modules[0].clone());
                }
                Self::Sequential { modules, unembeddings: Vec::new() }
            }
        };
        if replicated {
            let init = unembedding.map_or(Init::Normal(1.0 / (d as f64).sqrt()), Init::CopyOf);
            let own = depths.map(|k| params.add(format!("heads.{k}.unembedding"), [d, config.vocabulary], init, group));
            *heads.unembeddings_mut() = own.collect();
        }
        heads
    }

    fn unembeddings_mut(&mut self) -> &mut Vec<ParamId> {
        match self {
            Self::Linear { unembeddings, .. }
            | Self::ResBlock { unembeddings, .. }
            | Self::Transformer { unembeddings, .. }
            | Self::Sequential { unembeddings, .. } => unembeddings,
        }
    }

    /// Head `k`'s unembedding when it has one of its own.
    pub fn unembedding(&self, k: usize) -> Option<ParamId> {
        let (Self::Linear { unembeddings, .. }
        | Self::ResBlock { unembeddings, .. }
        | Self::Transformer { unembeddings, .. }
        | Self::Sequential { unembeddings, .. }) = self;
        unembeddings.get(k.checked_sub(2)?).copied()
    }
}

impl Module {
    fn new(params: &mut Params, k: usize, config: &ModelConfig) -> Self {
        let (d, group) = (config.width, Group::Heads);
        let one =
            |params: &mut Params, name| params.add(format!("heads.{k}.{name}"), [1, d], Init::Constant(1.0), group);
        Self {
            embedding_norm: one(params, "embedding_norm"),
            hidden_norm: one(params, "hidden_norm"),
            projection: params.add_maps(
                format!("heads.{k}.projection"),
                2 * d,
                &[d],
                Init::Normal(1.0 / (2.0 * d as f64).sqrt()),
                group,
            ),
            layer: Layer::new(params, &format!("heads.{k}.layer"), config, group),
            norm: one(params, "norm"),
        }
    }

    /// The hidden state of this depth from the one before and the embeddings of the tokens between, `[n, width]` each.
    pub fn forward(&self, pass: &Pass<'_>, hidden: Tensor<2>, embedded: Tensor<2>) -> Tensor<2> {
        let norm = |x, id| pass.ops.rms_norm(x, pass.params.get(id), pass.eps);
        let both = Tensor::cat(vec![norm(embedded, self.embedding_norm), norm(hidden, self.hidden_norm)], 1);
        self.layer.forward(pass, pass.ops.linear(both, pass.params.get(self.projection)))
    }

    /// What this depth unembeds.
    pub fn features(&self, pass: &Pass<'_>, hidden: Tensor<2>) -> Tensor<2> {
        pass.ops.rms_norm(hidden, pass.params.get(self.norm), pass.eps)
    }
}
