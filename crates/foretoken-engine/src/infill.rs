//! Fill in the middle: what stands between two texts, asked for with the tokens that some code models were trained on
//! (Bavarian et al. 2022, arXiv 2207.14255; the order is prefix, suffix, middle).

use foretoken_decode::TokenId;
use foretoken_formats::tokenizer::{Special, Tokenizer};

use crate::error::EngineError;

/// A prompt for what stands between two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infill {
    /// The prompt.
    pub prompt: Vec<TokenId>,
    /// Tokens that end the text, besides the model's own.
    pub end_tokens: Vec<TokenId>,
}

/// Names of the three tokens in vocabularies that have them: before the prefix, the suffix and the middle.
const NAMES: &[[&str; 3]] = &[
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["<PRE>", "<SUF>", "<MID>"],
];

/// What a model writes when another file or no text would follow.
const ENDS: &[&str] =
    &["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<fim_pad>", "<file_sep>", "<|file_separator|>", "<EOT>"];

pub(crate) fn encode(tokenizer: &Tokenizer, before: &str, after: &str) -> Result<Option<Infill>, EngineError> {
    let find = |names: &[&str; 3]| {
        let mut tokens = names.iter().map(|name| tokenizer.special_token(name));
        Some([tokens.next()??, tokens.next()??, tokens.next()??])
    };
    let Some([prefix, suffix, middle]) = NAMES.iter().find_map(find) else { return Ok(None) };
    let mut prompt: Vec<TokenId> = tokenizer.bos().filter(|_| tokenizer.add_bos()).into_iter().collect();
    prompt.push(prefix);
    prompt.extend(tokenizer.encode(before, Special::AsText)?);
    prompt.push(suffix);
    prompt.extend(tokenizer.encode(after, Special::AsText)?);
    prompt.push(middle);
    let ends = ENDS.iter().filter_map(|name| tokenizer.special_token(name));
    let end_tokens = ends.chain([prefix, suffix, middle]).collect();
    Ok(Some(Infill { prompt, end_tokens }))
}
