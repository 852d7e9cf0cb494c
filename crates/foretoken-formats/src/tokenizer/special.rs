//! Tokens with a meaning of their own: kinds, beginning and end, and finding them in a text.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::bpe::ByText;
use crate::gguf::{Metadata, Strings};
use crate::{FormatError, TokenId};

/// What a token is, by its number in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenKind {
    /// Part of text.
    Normal = 1,
    /// Stands for text without a token.
    Unknown = 2,
    /// Steers the model and is not shown, such as `<|im_end|>`.
    Control = 3,
    /// Matched as a whole before all merges and shown, such as `<tool_call>`.
    UserDefined = 4,
    /// A hole in the vocabulary.
    Unused = 5,
    /// A single byte.
    Byte = 6,
}

impl TokenKind {
    fn from_id(id: u32) -> Option<Self> {
        use TokenKind::*;
        match id {
            // 0 is "undefined", which old converters wrote for ordinary tokens.
            0 | 1 => Some(Normal),
            2 => Some(Unknown),
            3 => Some(Control),
            4 => Some(UserDefined),
            5 => Some(Unused),
            6 => Some(Byte),
            _ => None,
        }
    }
}

/// Texts that end a turn or a text in models in the wild, beyond what metadata names. llama.cpp keeps such a list too.
const END_TEXTS: [&str; 21] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "< EOT >",
];

/// Texts that separate files in code models: a completion that reaches one is over.
const FILE_TEXTS: [&str; 10] = [
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Text of all special tokens together. Vocabularies in use have a few hundred of them, some 10 kB; the search table takes
/// a hundred times its text.
const MAX_SPECIAL_BYTES: usize = 256 << 10;

/// Metadata keys of tokens that end the generation.
const END_KEYS: [&str; 6] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// The kinds of all tokens, and the special ones made ready for search.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    kinds: Vec<TokenKind>,
    pub bos: Option<TokenId>,
    pub eos: Option<TokenId>,
    pub eot: Option<TokenId>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// In ascending order.
    pub end_of_generation: Vec<TokenId>,
    /// Control and user-defined tokens in ascending order, and their texts' automaton.
    ids: Vec<TokenId>,
    texts: Vec<String>,
    matcher: AhoCorasick,
}

impl SpecialTokens {
    pub(super) fn new(
        metadata: &Metadata,
        tokens: &Strings,
        by_text: &ByText<'_>,
        add_bos_by_default: bool,
    ) -> Result<Self, FormatError> {
        let kinds = kinds(metadata, tokens)?;
        let token = |key: &str| token_id(metadata, key, tokens.len());
        let (bos, eos) = (token("tokenizer.ggml.bos_token_id")?, token("tokenizer.ggml.eos_token_id")?);
        let marks = |text: &&str| by_text.get(text).copied().filter(|id| kinds[*id as usize] != TokenKind::Normal);

        let mut end_of_generation: Vec<TokenId> = END_TEXTS.iter().chain(&FILE_TEXTS).filter_map(marks).collect();
        for key in END_KEYS {
            end_of_generation.extend(token(key)?);
        }
        end_of_generation.sort_unstable();
        end_of_generation.dedup();
        let eot = match token("tokenizer.ggml.eot_token_id")? {
            Some(id) => Some(id),
            None => ["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"].iter().find_map(marks),
        };

        let add = |key: &str, default: bool, token: Option<TokenId>, name: &str| {
            let add = metadata.get_bool_or(key, default && token.is_some())?;
            if add && token.is_none() {
                return Err(FormatError::MissingKey { key: name.to_owned(), wanted: "a token's id" });
            }
            Ok(add)
        };
        let add_bos = add("tokenizer.ggml.add_bos_token", add_bos_by_default, bos, "tokenizer.ggml.bos_token_id")?;
        let add_eos = add("tokenizer.ggml.add_eos_token", false, eos, "tokenizer.ggml.eos_token_id")?;

        let special = |id: &TokenId| {
            matches!(kinds[*id as usize], TokenKind::Control | TokenKind::UserDefined)
                && tokens.get(*id as usize).is_some_and(|text| !text.is_empty())
        };
        let ids: Vec<TokenId> = (0..tokens.len() as TokenId).filter(special).collect();
        let bytes: usize = ids.iter().filter_map(|id| tokens.get(*id as usize)).map(str::len).sum();
        if bytes > MAX_SPECIAL_BYTES {
            return Err(FormatError::Tokenizer {
                found: format!("{} control and user-defined tokens with {bytes} bytes of text", ids.len()),
                wanted: format!("at most {MAX_SPECIAL_BYTES} bytes; tokenizer.ggml.token_type marks too many"),
            });
        }
        let texts: Vec<String> = ids.iter().filter_map(|id| tokens.get(*id as usize)).map(str::to_owned).collect();
        let matcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts).map_err(|error| {
            FormatError::Tokenizer {
                found: format!("{} special tokens that make no search table ({error})", ids.len()),
                wanted: "fewer of them".to_owned(),
            }
        })?;
        Ok(Self { kinds, bos, eos, eot, add_bos, add_eos, end_of_generation, ids, texts, matcher })
    }

    pub(super) fn kind(&self, id: TokenId) -> TokenKind {
        self.kinds[id as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.ids.iter().copied()
    }

    pub(super) fn find(&self, text: &str) -> Option<TokenId> {
        self.texts.iter().position(|known| known == text).map(|at| self.ids[at])
    }

    /// The first special token's text inside `text`, and the token; of several that start there the longest.
    pub(super) fn find_in(&self, text: &str) -> Option<(Range<usize>, TokenId)> {
        let found = self.matcher.find(text)?;
        Some((found.range(), self.ids[found.pattern().as_usize()]))
    }

    /// Each stretch of plain text with the special token after it; the last stretch has none.
    pub(super) fn split<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, Option<TokenId>)> + use<'t, '_> {
        let mut rest = Some(text);
        std::iter::from_fn(move || {
            let text = rest?;
            let Some((range, token)) = self.find_in(text) else {
                rest = None;
                return Some((text, None));
            };
            rest = Some(&text[range.end..]);
            Some((&text[..range.start], Some(token)))
        })
    }
}

fn kinds(metadata: &Metadata, tokens: &Strings) -> Result<Vec<TokenKind>, FormatError> {
    const KEY: &str = "tokenizer.ggml.token_type";
    if !metadata.contains(KEY) {
        return Ok(vec![TokenKind::Normal; tokens.len()]);
    }
    let kind = |(id, kind): (usize, u32)| {
        TokenKind::from_id(kind).ok_or_else(|| FormatError::Tokenizer {
            found: format!("kind {kind} for token {id} ({KEY})"),
            wanted: "0 to 6".to_owned(),
        })
    };
    metadata.get_u32s(KEY)?.into_iter().enumerate().map(kind).collect()
}

fn token_id(metadata: &Metadata, key: &str, n_tokens: usize) -> Result<Option<TokenId>, FormatError> {
    if !metadata.contains(key) {
        return Ok(None);
    }
    let id = metadata.get_u32(key)?;
    if id as usize >= n_tokens {
        return Err(FormatError::BadValue {
            key: key.to_owned(),
            found: id.to_string(),
            wanted: format!("the id of one of the {n_tokens} tokens"),
        });
    }
    Ok(Some(id))
}
