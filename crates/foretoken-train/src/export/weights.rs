//! Weights as files store them: `[outputs, inputs]`, each projection apart. And back.

use std::ops::Range;

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

/// Where what a file calls a weight lies among a model's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    id: ParamId,
    /// Which outputs of a matrix `[inputs, outputs]`; none for vectors and embeddings, which files hold as they are.
    outputs: Option<Range<usize>>,
    /// Values of each attention head whose rows the file has in another order.
    interleaved: Option<usize>,
}

impl Place {
    /// A vector, or the embedding.
    pub fn plain(id: ParamId) -> Self {
        Self { id, outputs: None, interleaved: None }
    }

    /// Some of a matrix's outputs.
    pub fn outputs(id: ParamId, outputs: Range<usize>) -> Self {
        Self { id, outputs: Some(outputs), interleaved: None }
    }

    /// Rows of each head of `dim` reordered from halves, `(x[i], x[i + dim / 2])`, to neighbours, `(x[2 i], x[2 i + 1])`: how
    /// GGUF's `llama` wants queries and keys.
    pub fn interleaved(self, dim: usize) -> Self {
        Self { interleaved: Some(dim), ..self }
    }

    /// Rows and columns in a file.
    pub fn shape(&self, params: &Params) -> [usize; 2] {
        let [rows, cols] = params.spec(self.id).shape;
        self.outputs.as_ref().map_or([rows, cols], |outputs| [outputs.len(), rows])
    }

    /// The output that a file's row stands for, counted from the first of them.
    fn output(&self, row: usize) -> usize {
        let Some(dim) = self.interleaved else { return row };
        let (head, at) = (row / dim, row % dim);
        head * dim + at / 2 + at % 2 * (dim / 2)
    }

    /// As a file has it.
    pub fn read(&self, params: &Params) -> Weight {
        let [rows, cols] = self.shape(params);
        let values = params.host(self.id);
        let values = match &self.outputs {
            None => values,
            Some(outputs) => {
                let stride = params.spec(self.id).shape[1];
                let at = |row: usize, input: usize| values[input * stride + outputs.start + self.output(row)];
                (0..rows).flat_map(|row| (0..cols).map(move |input| (row, input))).map(|(r, i)| at(r, i)).collect()
            }
        };
        Weight { rows, cols, values }
    }

    /// Puts what [`Place::read`] gives back.
    pub fn write(&self, params: &mut Params, weight: &Weight) {
        assert_eq!([weight.rows, weight.cols], self.shape(params), "as many rows and columns");
        let Some(outputs) = &self.outputs else { return params.set(self.id, weight.values.clone()) };
        let stride = params.spec(self.id).shape[1];
        let mut values = params.host(self.id);
        for (row, inputs) in weight.values.chunks_exact(weight.cols).enumerate() {
            let output = outputs.start + self.output(row);
            for (input, value) in inputs.iter().enumerate() {
                values[input * stride + output] = *value;
            }
        }
        params.set(self.id, values);
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
pub(super) fn layer(layer: &Layer, config: &ModelConfig) -> [(Part, Place); 9] {
    let (d, kv) = (config.width, config.kv_heads * config.head_dim());
    let f = config.feed_forward;
    let outputs = |id, from: usize, n: usize| Place::outputs(id, from..from + n);
    [
        (Part::AttentionNorm, Place::plain(layer.attention_norm)),
        (Part::Query, outputs(layer.qkv, 0, d)),
        (Part::Key, outputs(layer.qkv, d, kv)),
        (Part::Value, outputs(layer.qkv, d + kv, kv)),
        (Part::Output, outputs(layer.output, 0, d)),
        (Part::MlpNorm, Place::plain(layer.mlp_norm)),
        (Part::Gate, outputs(layer.gate_up, 0, f)),
        (Part::Up, outputs(layer.gate_up, f, f)),
        (Part::Down, outputs(layer.down, 0, d)),
    ]
}
