//! The layout of facebook/multi-token-prediction: Llama's state dict, whose last layer is head 1's, and `extra_heads.{i}`, a
//! layer each beside it. (Gloeckle et al., arXiv 2404.19737.)
//!
//! Queries and keys are turned in neighbouring pairs there, as in GGUF's `llama`, so no row changes its place. The heads are
//! `transformer` heads of `docs/heads.md`.

use std::collections::HashSet;
use std::path::Path;

use foretoken_formats::gguf::{Gguf, GgufWriter};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Deserialize;

use crate::TrainError;
use crate::data::Vocabulary;
use crate::export::{Sizes, Storage, Tensors, Weight};

/// What Llama's `params.json` says. Sizes that the tensors' shapes say too are read to be compared, where they are there.
#[derive(Deserialize)]
struct Params {
    n_heads: usize,
    n_kv_heads: Option<usize>,
    norm_eps: f32,
    #[serde(default = "theta")]
    rope_theta: f64,
    /// Layers, those of all heads included.
    n_layers: Option<usize>,
    /// Heads, head 1 included.
    n_future_tokens: Option<usize>,
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

/// How a checkpoint as it is downloaded becomes one that is read here.
const SAVE: &str = "save_file(torch.load(\"consolidated.pth\", map_location=\"cpu\"), \"consolidated.safetensors\") in Python \
    makes it (from safetensors.torch)";

/// The model in `params.json` and `consolidated.safetensors` of a folder.
pub fn from_meta(folder: &Path, options: MetaOptions<'_>) -> Result<GgufWriter, TrainError> {
    let path = folder.join("params.json");
    let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
    let params: Params = serde_json::from_str(&text).map_err(|error| TrainError::file(&path, error.to_string()))?;

    let path = folder.join("consolidated.safetensors");
    let wrong = |message: String| TrainError::file(&path, message);
    let bytes = std::fs::read(&path).map_err(|error| wrong(format!("cannot read it ({error}); {SAVE}")))?;
    let dict = SafeTensors::deserialize(&bytes)
        .map_err(|error| wrong(format!("not a whole safetensors file ({error}); {SAVE}")))?;
    let source = Source { dict, path: &path };
    let sizes = source.sizes(&params, options.context)?;
    let extra = source.count("extra_heads");
    for (key, stated, found) in
        [("n_layers", params.n_layers, sizes.layers + extra), ("n_future_tokens", params.n_future_tokens, extra + 1)]
    {
        if stated.is_some_and(|stated| stated != found) {
            return Err(wrong(format!(
                "{key} of params.json is {}, and by the tensors, {} layers.* and {extra} extra_heads.*, it is {found}",
                stated.unwrap_or_default(),
                sizes.layers
            )));
        }
    }
    let file = described(sizes.describe(options.name), sizes.vocabulary, options.tokenizer).map_err(&wrong)?;
    let mut tensors = Tensors::new(file, options.storage);
    let (vocabulary, width) = (sizes.vocabulary, sizes.width);
    let ends = [
        ("tok_embeddings.weight", "token_embd.weight", [vocabulary, width]),
        ("norm.weight", "output_norm.weight", [1, width]),
        ("output.weight", "output.weight", [vocabulary, width]),
    ];
    let mut taken = HashSet::new();
    for (theirs, ours, shape) in ends {
        tensors.add(ours, source.weight(theirs, shape)?);
        taken.insert(theirs.to_owned());
    }
    let trunk = (0..sizes.layers).map(|i| (format!("layers.{i}"), format!("blk.{i}")));
    let heads = (0..extra).map(|i| (format!("extra_heads.{i}"), format!("head.{}", i + 2)));
    for (theirs, ours) in trunk.chain(heads) {
        for (part, own, shape) in parts(&sizes) {
            let name = format!("{theirs}.{part}.weight");
            tensors.add(&format!("{ours}.{own}.weight"), source.weight(&name, shape)?);
            taken.insert(name);
        }
    }
    // The table of angles that older state dicts carry can be computed.
    let unknown: Vec<_> =
        source.names().into_iter().filter(|name| *name != "rope.freqs" && !taken.contains(*name)).collect();
    if !unknown.is_empty() {
        return Err(wrong(format!(
            "{} tensors that this layout does not have: {}; without them the file can be read",
            unknown.len(),
            some(&unknown)
        )));
    }
    if extra > 0 {
        tensors.set("foretoken.heads.kind", "transformer");
        tensors.set("foretoken.heads.count", extra as u32 + 1);
    }
    Ok(tensors.finish())
}

/// The first of many names.
fn some(names: &[&str]) -> String {
    let more = if names.len() > 4 { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(4)].join(", "))
}

/// A layer's parts in Llama's state dict and in GGUF, and their rows and columns.
fn parts(sizes: &Sizes) -> [(&'static str, &'static str, [usize; 2]); 9] {
    let (width, feed_forward) = (sizes.width, sizes.feed_forward);
    let kv = sizes.kv_heads * (width / sizes.attention_heads);
    [
        ("attention_norm", "attn_norm", [1, width]),
        ("attention.wq", "attn_q", [width, width]),
        ("attention.wk", "attn_k", [kv, width]),
        ("attention.wv", "attn_v", [kv, width]),
        ("attention.wo", "attn_output", [width, width]),
        ("ffn_norm", "ffn_norm", [1, width]),
        ("feed_forward.w1", "ffn_gate", [feed_forward, width]),
        ("feed_forward.w3", "ffn_up", [feed_forward, width]),
        ("feed_forward.w2", "ffn_down", [width, feed_forward]),
    ]
}

/// Adds a tokenizer of as many tokens.
fn described(file: GgufWriter, vocabulary: usize, tokenizer: Option<&Gguf>) -> Result<GgufWriter, String> {
    let Some(other) = tokenizer else {
        return match vocabulary {
            256 => Ok(Vocabulary::bytes().describe(file)),
            n => Err(format!("a vocabulary of {n} tokens: --tokenizer FILE names a GGUF file that has its tokenizer")),
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
        self.dict.tensor(name).map_err(|_| {
            let message = format!(
                "{name} is missing, among {}; names have to be those of consolidated.pth, layers and extra_heads \
                 numbered from 0 on without a gap",
                some(&self.names())
            );
            TrainError::file(self.path, message)
        })
    }

    /// In the order of the alphabet.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.dict.names();
        names.sort_unstable();
        names
    }

    /// One more than the greatest number after a prefix.
    fn count(&self, prefix: &str) -> usize {
        let number =
            |name: &&str| name.strip_prefix(prefix)?.strip_prefix('.')?.split('.').next()?.parse::<usize>().ok();
        self.names().iter().filter_map(number).max().map_or(0, |last| last.saturating_add(1))
    }

    /// The model's sizes, by the shapes of some tensors and `params.json`.
    fn sizes(&self, params: &Params, context: usize) -> Result<Sizes, TrainError> {
        let wrong = |message: String| TrainError::file(self.path, message);
        let matrix = |name: &str| match *self.view(name)?.shape() {
            [rows, cols] if rows > 0 && cols > 0 => Ok([rows, cols]),
            ref shape => Err(wrong(format!("{name} has the shape {shape:?} and not that of a matrix"))),
        };
        let [vocabulary, width] = matrix("tok_embeddings.weight")?;
        let [feed_forward, _] = matrix("layers.0.feed_forward.w1.weight")?;
        let (attention_heads, kv_heads) = (params.n_heads, params.n_kv_heads.unwrap_or(params.n_heads));
        if attention_heads == 0 || !width.is_multiple_of(2 * attention_heads) {
            let message = format!(
                "n_heads of params.json is {attention_heads}: tok_embeddings.weight is {width} wide, which has to be an \
                 even multiple of it"
            );
            return Err(wrong(message));
        }
        if kv_heads == 0 || !attention_heads.is_multiple_of(kv_heads) {
            let message =
                format!("n_kv_heads of params.json is {kv_heads}, and not a divisor of n_heads = {attention_heads}");
            return Err(wrong(message));
        }
        let [layers, extra] = ["layers", "extra_heads"].map(|prefix| self.count(prefix));
        if extra > MAX_EXTRA {
            return Err(wrong(format!("{extra} extra_heads.*: {MAX_EXTRA} at most can be run")));
        }
        Ok(Sizes {
            context,
            width,
            layers,
            feed_forward,
            attention_heads,
            kv_heads,
            norm_eps: params.norm_eps,
            rope_theta: params.rope_theta,
            vocabulary,
        })
    }

    /// A tensor of as many rows and columns; one row is a vector.
    fn weight(&self, name: &str, shape: [usize; 2]) -> Result<Weight, TrainError> {
        let wrong = |message: String| TrainError::file(self.path, message);
        let view = self.view(name)?;
        let [rows, cols] = shape;
        let expected = if rows == 1 { &shape[1..] } else { &shape[..] };
        if view.shape() != expected {
            let found = view.shape();
            return Err(wrong(format!(
                "{name} has the shape {found:?} and not {expected:?}, as tok_embeddings, layers.0.feed_forward.w1 and the \
                 heads in params.json would have it"
            )));
        }
        let data = view.data();
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Dtype::F16 => data.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            Dtype::BF16 => data.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
            other => return Err(wrong(format!("{name} is {other:?}, and not F32, F16 or BF16"))),
        };
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(wrong(format!("{name} has the value {value}: the checkpoint is broken")));
        }
        Ok(Weight { rows, cols, values })
    }
}

/// Heads beside head 1 that `docs/heads.md` has numbers for.
const MAX_EXTRA: usize = 15;
