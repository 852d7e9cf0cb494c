//! The layout of facebook/multi-token-prediction: Llama's state dict, whose last layer is head 1's, and `extra_heads.{i}`, a
//! layer each beside it. (Gloeckle et al., arXiv 2404.19737.)
//!
//! Queries and keys are turned in neighbouring pairs there, as in GGUF's `llama`, so no row changes its place. The heads are
//! `transformer` heads of `docs/heads.md`.

use std::path::Path;

use foretoken_formats::gguf::{Gguf, GgufWriter};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Deserialize;

use crate::TrainError;
use crate::data::Vocabulary;
use crate::export::{Sizes, Storage, Tensors, Weight};

/// What Llama's `params.json` says and the tensors' shapes do not.
#[derive(Deserialize)]
struct Params {
    n_heads: usize,
    n_kv_heads: Option<usize>,
    norm_eps: f32,
    #[serde(default = "theta")]
    rope_theta: f64,
}

fn theta() -> f64 {
    10_000.0
}

/// What is to be known beside the model's files.
#[derive(Clone, Copy, Debug)]
pub struct MetaOptions<'a> {
    /// The model's name in the file.
    pub name: &'a str,
    /// How matrices are stored.
    pub storage: Storage,
    /// The context length that the file states.
    pub context: usize,
    /// A file whose tokenizer becomes the model's; for a model of bytes none is needed.
    pub tokenizer: Option<&'a Gguf>,
}

/// The model in `params.json` and `consolidated.safetensors` of a folder.
pub fn from_meta(folder: &Path, options: MetaOptions<'_>) -> Result<GgufWriter, TrainError> {
    let path = folder.join("params.json");
    let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
    let params: Params = serde_json::from_str(&text).map_err(|error| TrainError::file(&path, error.to_string()))?;

    let path = folder.join("consolidated.safetensors");
    let wrong = |message: String| TrainError::file(&path, message);
    let bytes = std::fs::read(&path).map_err(TrainError::io("read", &path))?;
    let dict = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
    let source = Source { dict, path: &path };
    let shape = |name: &str| source.view(name).map(|view| view.shape().to_vec());
    let [vocabulary, width] = shape("tok_embeddings.weight")?[..] else {
        return Err(wrong("tok_embeddings.weight is no matrix".into()));
    };
    let feed_forward = shape("layers.0.feed_forward.w1.weight")?[0];
    let [layers, extra] = ["layers", "extra_heads"].map(|prefix| source.count(prefix));
    if params.n_heads == 0 || !width.is_multiple_of(params.n_heads) || layers == 0 || extra > 15 {
        let message = format!("{layers} layers of {} attention heads, {width} wide, and {extra} more", params.n_heads);
        return Err(wrong(message));
    }
    let sizes = Sizes {
        context: options.context,
        width,
        layers,
        feed_forward,
        attention_heads: params.n_heads,
        kv_heads: params.n_kv_heads.unwrap_or(params.n_heads),
        norm_eps: params.norm_eps,
        rope_theta: params.rope_theta,
        vocabulary,
    };
    let file = described(sizes.describe(options.name), vocabulary, options.tokenizer).map_err(&wrong)?;
    let mut tensors = Tensors::new(file, options.storage);
    let ends = [("tok_embeddings", "token_embd"), ("norm", "output_norm"), ("output", "output")];
    for (theirs, ours) in ends {
        tensors.add(&format!("{ours}.weight"), source.weight(&format!("{theirs}.weight"))?);
    }
    let trunk = (0..layers).map(|i| (format!("layers.{i}"), format!("blk.{i}")));
    let heads = (0..extra).map(|i| (format!("extra_heads.{i}"), format!("head.{}", i + 2)));
    let mut taken = ends.len();
    for (theirs, ours) in trunk.chain(heads) {
        for (part, own) in PARTS {
            tensors.add(&format!("{ours}.{own}.weight"), source.weight(&format!("{theirs}.{part}.weight"))?);
            taken += 1;
        }
    }
    // The table of angles that older state dicts carry can be computed.
    let unknown = source.dict.names().into_iter().filter(|name| *name != "rope.freqs");
    if unknown.clone().count() != taken {
        let mut names: Vec<_> = unknown.collect();
        names.sort_unstable();
        return Err(wrong(format!(
            "{} tensors and not the {taken} of such a model: {}",
            names.len(),
            names.join(", ")
        )));
    }
    if extra > 0 {
        tensors.set("foretoken.heads.kind", "transformer");
        tensors.set("foretoken.heads.count", extra as u32 + 1);
    }
    Ok(tensors.finish())
}

/// A layer's parts in Llama's state dict and in GGUF.
const PARTS: [(&str, &str); 9] = [
    ("attention_norm", "attn_norm"),
    ("attention.wq", "attn_q"),
    ("attention.wk", "attn_k"),
    ("attention.wv", "attn_v"),
    ("attention.wo", "attn_output"),
    ("ffn_norm", "ffn_norm"),
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w3", "ffn_up"),
    ("feed_forward.w2", "ffn_down"),
];

/// Adds a tokenizer of as many tokens.
fn described(file: GgufWriter, vocabulary: usize, tokenizer: Option<&Gguf>) -> Result<GgufWriter, String> {
    let Some(other) = tokenizer else {
        return match vocabulary {
            256 => Ok(Vocabulary::bytes().describe(file)),
            n => Err(format!("a vocabulary of {n} tokens: name a GGUF file that has its tokenizer")),
        };
    };
    let found = other.metadata().get_strings("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len());
    if found != vocabulary {
        return Err(format!("a vocabulary of {vocabulary} tokens, and a tokenizer of {found}"));
    }
    let entries = other.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer."));
    Ok(entries.fold(file, |file, (key, value)| file.set(key, value.clone())))
}

/// A state dict and where it is from.
struct Source<'a> {
    dict: SafeTensors<'a>,
    path: &'a Path,
}

impl Source<'_> {
    fn view(&self, name: &str) -> Result<TensorView<'_>, TrainError> {
        self.dict.tensor(name).map_err(|_| TrainError::file(self.path, format!("{name} is missing")))
    }

    /// Layers of a prefix, numbered from 0 on.
    fn count(&self, prefix: &str) -> usize {
        let has = |i: &usize| self.dict.tensor(&format!("{prefix}.{i}.attention_norm.weight")).is_ok();
        (0..).take_while(has).count()
    }

    fn weight(&self, name: &str) -> Result<Weight, TrainError> {
        let view = self.view(name)?;
        let (rows, cols) = match *view.shape() {
            [cols] => (1, cols),
            [rows, cols] => (rows, cols),
            ref shape => return Err(TrainError::file(self.path, format!("{name} has the shape {shape:?}"))),
        };
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Dtype::F16 => data.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            Dtype::BF16 => data.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
            other => {
                return Err(TrainError::file(self.path, format!("{name} is {other:?}, and not F32, F16 or BF16")));
            }
        };
        Ok(Weight { rows, cols, values })
    }
}
