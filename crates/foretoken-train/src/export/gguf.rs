//! One GGUF file: the trunk as any reader of `llama` knows it, and, if wanted, the heads beside it.

use foretoken_formats::gguf::{GgmlType, GgufWriter};
use half::f16;

use super::weights::{Part, Place, Weight, layer};
use crate::config::{HeadKind, ModelConfig};
use crate::data::Vocabulary;
use crate::model::{Heads, Layer, Model};
use crate::params::{ParamId, Params};

/// How matrices are stored; norms and biases stay f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// 32-bit floats.
    F32,
    /// Half precision.
    F16,
    /// Bytes with an f16 scale for each 32; rows that are not whole blocks stay f16.
    Q8,
}

/// The file of a model over this vocabulary.
///
/// With `heads`, heads 2 to n are in it under `head.{k}.` (see `docs/heads.md`), which readers that want to know every
/// tensor refuse; without, it is a plain `llama`.
pub fn to_gguf(
    model: &Model,
    params: &Params,
    vocabulary: &Vocabulary,
    name: &str,
    storage: Storage,
    heads: bool,
) -> GgufWriter {
    let config = &model.config;
    assert_eq!(config.vocabulary, vocabulary.n_tokens(), "it is the model's vocabulary");
    let sizes = Sizes {
        context: config.context,
        width: config.width,
        layers: model.layers.len(),
        feed_forward: config.feed_forward,
        attention_heads: config.attention_heads,
        kv_heads: config.kv_heads,
        norm_eps: config.norm_eps,
        rope_theta: config.rope_theta,
        vocabulary: config.vocabulary,
    };
    let mut tensors = Tensors::new(vocabulary.describe(sizes.describe(name)), storage);
    for (name, place) in trunk(model) {
        tensors.add(&name, place.read(params));
    }
    if heads && config.heads.n > 1 {
        tensors.set(COUNT, config.heads.n as u32);
        tensors.set(KIND, kind(config));
        tensors.set("foretoken.heads.recursive", config.heads.recursive);
        for (name, place) in self::heads(model) {
            tensors.add(&name, place.read(params));
        }
    }
    tensors.finish()
}

/// Metadata: heads, head 1 included, and what the others are made of.
pub(crate) const COUNT: &str = "foretoken.heads.count";
pub(crate) const KIND: &str = "foretoken.heads.kind";

/// What the file calls a kind of heads.
pub(crate) fn kind(config: &ModelConfig) -> &'static str {
    match config.heads.kind {
        HeadKind::Linear => "linear",
        HeadKind::ResBlock => "resblock",
        HeadKind::Transformer => "transformer",
        HeadKind::Sequential => "sequential",
    }
}

/// The tensors of the plain model, and where their values are.
pub(crate) fn trunk(model: &Model) -> Vec<(String, Place)> {
    let mut places = vec![("token_embd.weight".to_owned(), Place::plain(model.embedding))];
    for (i, block) in model.layers.iter().enumerate() {
        places.extend(block_places(&format!("blk.{i}"), &model.config, block));
    }
    places.push(("output_norm.weight".to_owned(), Place::plain(model.norm)));
    places.extend(
        model.unembedding.map(|id| ("output.weight".to_owned(), Place::outputs(id, 0..model.config.vocabulary))),
    );
    places
}

/// The tensors of heads 2 to n.
pub(crate) fn heads(model: &Model) -> Vec<(String, Place)> {
    let config = &model.config;
    let square = |id: ParamId| Place::outputs(id, 0..config.width);
    let mut places = Vec::new();
    for k in 2..=config.heads.n {
        let prefix = format!("head.{k}");
        let mut add = |name: &str, place: Place| places.push((format!("{prefix}.{name}"), place));
        match &model.heads {
            Heads::Linear { maps, .. } => add("linear.weight", square(maps[k - 2])),
            Heads::ResBlock { blocks, .. } => {
                add("linear.weight", square(blocks[k - 2].0));
                add("linear.bias", Place::plain(blocks[k - 2].1));
            }
            Heads::Transformer { layers, .. } => places.extend(block_places(&prefix, config, &layers[k - 2])),
            Heads::Sequential { modules, .. } if k == 2 || !config.heads.recursive => {
                let module = &modules[k - 2];
                add("enorm.weight", Place::plain(module.embedding_norm));
                add("hnorm.weight", Place::plain(module.hidden_norm));
                add("eh_proj.weight", square(module.projection));
                places.extend(block_places(&prefix, config, &module.layer));
                places.push((format!("{prefix}.shared_head_norm.weight"), Place::plain(module.norm)));
            }
            Heads::Sequential { .. } => {}
        }
        if let Some(id) = model.heads.unembedding(k) {
            places.push((format!("{prefix}.output.weight"), Place::outputs(id, 0..config.vocabulary)));
        }
    }
    places
}

/// The tensors of a layer.
fn block_places(prefix: &str, config: &ModelConfig, block: &Layer) -> [(String, Place); 9] {
    let dim = config.head_dim();
    layer(block, config).map(|(part, place)| {
        let (name, place) = match part {
            Part::AttentionNorm => ("attn_norm", place),
            Part::Query => ("attn_q", place.interleaved(dim)),
            Part::Key => ("attn_k", place.interleaved(dim)),
            Part::Value => ("attn_v", place),
            Part::Output => ("attn_output", place),
            Part::MlpNorm => ("ffn_norm", place),
            Part::Gate => ("ffn_gate", place),
            Part::Up => ("ffn_up", place),
            Part::Down => ("ffn_down", place),
        };
        (format!("{prefix}.{name}.weight"), place)
    })
}

/// What the metadata of a `llama` says of its sizes.
pub(crate) struct Sizes {
    pub context: usize,
    pub width: usize,
    /// Layers of the plain model.
    pub layers: usize,
    pub feed_forward: usize,
    pub attention_heads: usize,
    pub kv_heads: usize,
    pub norm_eps: f32,
    pub rope_theta: f64,
    pub vocabulary: usize,
}

impl Sizes {
    /// The metadata of a model of this name.
    pub fn describe(&self, name: &str) -> GgufWriter {
        let u32_of = |n: usize| u32::try_from(n).expect("sizes fit");
        GgufWriter::new()
            .set("general.architecture", "llama")
            .set("general.name", name)
            .set("llama.context_length", u32_of(self.context))
            .set("llama.embedding_length", u32_of(self.width))
            .set("llama.block_count", u32_of(self.layers))
            .set("llama.feed_forward_length", u32_of(self.feed_forward))
            .set("llama.attention.head_count", u32_of(self.attention_heads))
            .set("llama.attention.head_count_kv", u32_of(self.kv_heads))
            .set("llama.attention.layer_norm_rms_epsilon", self.norm_eps)
            .set("llama.rope.dimension_count", u32_of(self.width / self.attention_heads))
            .set("llama.rope.freq_base", self.rope_theta as f32)
            .set("llama.vocab_size", u32_of(self.vocabulary))
    }
}

/// A file under way, and how it stores matrices.
pub(crate) struct Tensors {
    file: GgufWriter,
    storage: Storage,
}

impl Tensors {
    /// Goes on with a file.
    pub fn new(file: GgufWriter, storage: Storage) -> Self {
        Self { file, storage }
    }

    /// The file.
    pub fn finish(self) -> GgufWriter {
        self.file
    }

    /// Sets metadata.
    pub fn set(&mut self, key: &str, value: impl Into<foretoken_formats::gguf::Value>) {
        self.file = std::mem::take(&mut self.file).set(key, value);
    }

    /// Adds a weight.
    pub fn add(&mut self, name: &str, weight: Weight) {
        let Weight { rows, cols, values } = weight;
        let blocks = cols.is_multiple_of(32);
        let (ty, data) = match (rows, self.storage) {
            (1, _) | (_, Storage::F32) => (GgmlType::F32, values.iter().flat_map(|x| x.to_le_bytes()).collect()),
            (_, Storage::Q8) if blocks => (GgmlType::Q8_0, values.as_chunks().0.iter().flat_map(q8_block).collect()),
            _ => (GgmlType::F16, values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()),
        };
        let shape: &[usize] = if rows == 1 { &[cols] } else { &[cols, rows] };
        self.file = std::mem::take(&mut self.file).tensor(name, shape, ty, data);
    }
}

/// 32 values as GGUF's Q8_0: an f16 scale, `max |x| / 127`, and the codes.
fn q8_block(values: &[f32; 32]) -> [u8; 34] {
    let greatest = values.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let scale = greatest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    for (code, x) in block[2..].iter_mut().zip(values) {
        *code = (x * inverse).round() as i8 as u8;
    }
    block
}
