//! Weights as files store them: `[outputs, inputs]`, each projection apart.

use crate::config::ModelConfig;
use crate::model::Layer;
use crate::params::{ParamId, Params};

/// A matrix of `rows` outputs by `cols` inputs, or a vector with one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weight {
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

impl Weight {
    /// A weight as it is: a vector, or the embedding.
    pub(super) fn plain(params: &Params, id: ParamId) -> Self {
        let [rows, cols] = params.spec(id).shape;
        Self { rows, cols, values: params.host(id) }
    }

    /// A matrix turned from `[inputs, outputs]`.
    pub(super) fn turned(params: &Params, id: ParamId) -> Self {
        let [_, outputs] = params.spec(id).shape;
        Self::columns(params, id, 0..outputs)
    }

    /// Some of a matrix's outputs, turned.
    fn columns(params: &Params, id: ParamId, outputs: std::ops::Range<usize>) -> Self {
        let [inputs, stride] = params.spec(id).shape;
        let values = params.host(id);
        let turned =
            outputs.clone().flat_map(|o| (0..inputs).map(move |i| (i, o))).map(|(i, o)| values[i * stride + o]);
        Self { rows: outputs.len(), cols: inputs, values: turned.collect() }
    }

    /// Rows of each head of `dim` reordered from halves, `(x[i], x[i + dim / 2])`, to neighbours, `(x[2 i], x[2 i + 1])`: how
    /// GGUF's `llama` wants queries and keys.
    pub(super) fn interleaved(self, dim: usize) -> Self {
        let row = |row: usize| {
            let (head, at) = (row / dim, row % dim);
            head * dim + at / 2 + at % 2 * (dim / 2)
        };
        let values = (0..self.rows).flat_map(|i| &self.values[row(i) * self.cols..][..self.cols]).copied().collect();
        Self { values, ..self }
    }
}

/// The parts of a layer, in the order in which files list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    AttentionNorm,
    Query,
    Key,
    Value,
    Output,
    MlpNorm,
    Gate,
    Up,
    Down,
}

/// A layer's weights.
pub(super) fn layer(params: &Params, layer: &Layer, config: &ModelConfig) -> Vec<(Part, Weight)> {
    let (q, kv) = (config.width, config.kv_heads * config.head_dim());
    let f = config.feed_forward;
    let columns = |id, from: usize, n: usize| Weight::columns(params, id, from..from + n);
    vec![
        (Part::AttentionNorm, Weight::plain(params, layer.attention_norm)),
        (Part::Query, columns(layer.qkv, 0, q)),
        (Part::Key, columns(layer.qkv, q, kv)),
        (Part::Value, columns(layer.qkv, q + kv, kv)),
        (Part::Output, Weight::turned(params, layer.output)),
        (Part::MlpNorm, Weight::plain(params, layer.mlp_norm)),
        (Part::Gate, columns(layer.gate_up, 0, f)),
        (Part::Up, columns(layer.gate_up, f, f)),
        (Part::Down, Weight::turned(params, layer.down)),
    ]
}
