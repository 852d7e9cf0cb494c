//! What a model file holds, in the terms people ask for.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{GgmlType, Gguf, Value};

/// A model file at a glance. Absent metadata is `None`; nothing here fails.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// `general.architecture`, such as "llama".
    pub architecture: Option<String>,
    /// `general.name`.
    pub name: Option<String>,
    /// `general.license`.
    pub license: Option<String>,
    /// The format's version.
    pub gguf_version: u32,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Number of tensors.
    pub n_tensors: usize,
    /// Use of each tensor type, the largest first.
    pub types: Vec<TypeUse>,
    /// Types that foretoken does not compute with, each with a tensor that has it.
    pub unsupported: Vec<(String, String)>,
    /// The longest context the model was made for, in tokens.
    pub context_length: Option<u64>,
    /// Number of layers.
    pub n_layers: Option<u64>,
    /// Width of the hidden state.
    pub embedding_length: Option<u64>,
    /// Width of the feed-forward layers.
    pub feed_forward_length: Option<u64>,
    /// Query heads.
    pub n_heads: Option<u64>,
    /// Key and value heads.
    pub n_kv_heads: Option<u64>,
    /// Tokens in the vocabulary.
    pub vocab_size: Option<u64>,
    /// `tokenizer.ggml.model` and `tokenizer.ggml.pre`, such as "gpt2/qwen2".
    pub tokenizer: Option<String>,
    /// Whether the file has a chat template.
    pub chat_template: bool,
}

/// How much of the file one tensor type takes.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct TypeUse {
    /// The type's name.
    pub ty: String,
    /// Tensors of this type.
    pub tensors: usize,
    /// Their elements.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether foretoken computes with it.
    pub supported: bool,
}

impl Summary {
    pub(super) fn of(gguf: &Gguf) -> Self {
        let metadata = gguf.metadata();
        let text = |key: &str| metadata.get_str(key).ok().map(str::to_owned);
        let architecture = text("general.architecture");
        let number = |key: &str| {
            let key = format!("{}.{key}", architecture.as_deref().unwrap_or_default());
            metadata.get_u64(&key).ok()
        };

        let mut types: BTreeMap<u32, TypeUse> = BTreeMap::new();
        let mut unsupported: BTreeMap<u32, (String, String)> = BTreeMap::new();
        for tensor in gguf.tensors() {
            let id = tensor.ty.id();
            let empty = |ty: GgmlType| TypeUse {
                ty: ty.name().to_owned(),
                tensors: 0,
                parameters: 0,
                bytes: 0,
                supported: ty.supported(),
            };
            let total = types.entry(id).or_insert_with(|| empty(tensor.ty));
            total.tensors += 1;
            total.parameters = total.parameters.saturating_add(tensor.n_elements() as u64);
            total.bytes += tensor.n_bytes as u64;
            if !tensor.ty.supported() {
                unsupported.entry(id).or_insert_with(|| (tensor.ty.name().to_owned(), tensor.name.clone()));
            }
        }
        let mut types: Vec<TypeUse> = types.into_values().collect();
        types.sort_by_key(|total| std::cmp::Reverse(total.bytes));

        let vocab = metadata.get_strings("tokenizer.ggml.tokens").ok().map(|tokens| tokens.len() as u64);
        Self {
            name: text("general.name"),
            license: text("general.license"),
            gguf_version: gguf.version(),
            file_bytes: gguf.file_len(),
            parameters: types.iter().map(|total| total.parameters).fold(0, u64::saturating_add),
            tensor_bytes: types.iter().map(|total| total.bytes).sum(),
            n_tensors: gguf.tensors().len(),
            types,
            unsupported: unsupported.into_values().collect(),
            context_length: number("context_length"),
            n_layers: number("block_count"),
            embedding_length: number("embedding_length"),
            feed_forward_length: number("feed_forward_length"),
            n_heads: number("attention.head_count"),
            n_kv_heads: number("attention.head_count_kv").or_else(|| number("attention.head_count")),
            vocab_size: vocab.or_else(|| number("vocab_size")),
            tokenizer: text("tokenizer.ggml.model").map(|model| match text("tokenizer.ggml.pre") {
                Some(pre) => format!("{model}/{pre}"),
                None => model,
            }),
            chat_template: matches!(metadata.get("tokenizer.chat_template"), Some(Value::String(_))),
            architecture,
        }
    }
}
