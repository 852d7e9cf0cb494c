//! The byte-level BPE tokenizer inside a model file: text to token ids, token ids to bytes.
//!
//! Ids equal those of Hugging Face's tokenizers for the same vocabulary; `docs/tokenizer.md` says how that is checked
//! and where llama.cpp differs.

mod bpe;
mod bytes;
mod pre;
mod special;
mod stream;

use std::borrow::Cow;

pub use bytes::{with_byte_vocabulary, with_vocabulary};
pub use pre::PreTokenizer;
pub use special::TokenKind;
pub use stream::StreamDecoder;

use crate::gguf::{Gguf, Metadata, Strings};
use crate::{FormatError, TokenId};
use bpe::{Bpe, ByText, Scratch};
use pre::Splitter;
use special::SpecialTokens;

/// Vocabularies in use have up to 262k tokens and 580k merges. The limits keep a hostile file's tables below 64 MB.
const MAX_TOKENS: usize = 1 << 19;
const MAX_MERGES: usize = 1 << 20;
const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";

/// What happens to the text of a special token, such as `<|im_end|>`, inside a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// It is text like any other. For everything that a user typed.
    AsText,
    /// It becomes the token. For text made by a chat template or by the program itself.
    Parse,
}

/// A vocabulary with its merges.
#[derive(Debug)]
pub struct Tokenizer {
    splitter: Splitter,
    bpe: Bpe,
    special: SpecialTokens,
    /// The bytes of all tokens, and where each token's end.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Normal tokens in the order of their bytes; only for pre-tokenizers that ignore merges.
    whole_words: Vec<TokenId>,
}

impl Tokenizer {
    /// The tokenizer of a model file. Errors name the metadata that is missing, unknown or contradicts the rest.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, FormatError> {
        let tokenizer = Self::from_metadata(gguf.metadata());
        let checked = tokenizer.and_then(|tokenizer| match gguf.find("token_embd.weight") {
            Some(embedding) if embedding.n_rows() != tokenizer.vocab_size() => Err(FormatError::BadTensor {
                tensor: embedding.name.clone(),
                found: format!("{} rows", embedding.n_rows()),
                wanted: format!("one row for each of the vocabulary's {} tokens", tokenizer.vocab_size()),
            }),
            _ => Ok(tokenizer),
        });
        checked.map_err(|error| gguf.about(error))
    }

    /// The same from metadata alone.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, FormatError> {
        let model = metadata.get_str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(FormatError::Tokenizer {
                found: format!("model {model:?} (tokenizer.ggml.model)"),
                wanted: "\"gpt2\", the byte-level BPE".to_owned(),
            });
        }
        let pre = PreTokenizer::from_name(metadata.get_str("tokenizer.ggml.pre")?)?;
        let tokens = metadata.get_strings(TOKENS)?;
        let merges = metadata.get_strings(MERGES)?;
        check_sizes(metadata, tokens, merges)?;

        let by_text = index(tokens)?;
        let special = SpecialTokens::new(metadata, tokens, &by_text, pre.adds_bos_by_default())?;
        let bpe = Bpe::new(merges, &by_text)?;

        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(tokens.len());
        for (id, text) in tokens.iter().enumerate() {
            match special.kind(id as TokenId) {
                TokenKind::Control | TokenKind::UserDefined => bytes.extend_from_slice(text.as_bytes()),
                _ => bytes::decode(text, &mut bytes),
            }
            ends.push(u32::try_from(bytes.len()).map_err(|_| FormatError::Tokenizer {
                found: format!("{TOKENS} with more than 4 GiB of text"),
                wanted: "less".to_owned(),
            })?);
        }
        let mut tokenizer = Self { splitter: Splitter::new(pre), bpe, special, bytes, ends, whole_words: Vec::new() };
        if pre.ignores_merges() {
            let normal = |id: &TokenId| tokenizer.kind(*id) == TokenKind::Normal;
            let mut words: Vec<TokenId> = (0..tokens.len() as TokenId).filter(normal).collect();
            words.sort_unstable_by_key(|id| tokenizer.token_bytes(*id));
            tokenizer.whole_words = words;
        }
        Ok(tokenizer)
    }

    /// Number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.ends.len()
    }

    /// The ids of a text, without beginning or end tokens.
    ///
    /// A byte that the vocabulary has no token for is left out, as in the reference (SmolLM2 lacks a few control
    /// characters). Errors when the text has 4 GiB or more.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<TokenId>, FormatError> {
        if u32::try_from(text.len()).is_err() {
            let reason = format!("the text has {} bytes; at most 4294967295 are accepted", text.len());
            return Err(FormatError::Encode { reason });
        }
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut scratch = Scratch::default();
        match special {
            Special::AsText => self.encode_plain(text, &mut scratch, &mut ids),
            Special::Parse => {
                for (plain, token) in self.special.split(text) {
                    self.encode_plain(plain, &mut scratch, &mut ids);
                    ids.extend(token);
                }
            }
        }
        Ok(ids)
    }

    /// Bytes of a text's longest word, which is where merges run: encoding takes longer for each byte of a word that is longer.
    pub fn longest_word(&self, text: &str) -> usize {
        let mut longest = 0;
        self.splitter.split(text, |word| longest = longest.max(word.len()));
        longest
    }

    /// The ids of a whole prompt: [`Self::encode`], with the beginning and end tokens that the file asks for.
    pub fn encode_prompt(&self, text: &str, special: Special) -> Result<Vec<TokenId>, FormatError> {
        let mut ids = self.encode(text, special)?;
        if let Some(bos) = self.bos().filter(|_| self.add_bos()) {
            ids.insert(0, bos);
        }
        ids.extend(self.eos().filter(|_| self.add_eos()));
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, scratch: &mut Scratch, ids: &mut Vec<TokenId>) {
        let text = self.splitter.normalize(text);
        self.splitter.split(&text, |word| match self.whole_word(word) {
            Some(id) => ids.push(id),
            None => self.bpe.encode(word.as_bytes(), scratch, ids),
        });
    }

    fn whole_word(&self, word: &str) -> Option<TokenId> {
        let found = self.whole_words.binary_search_by(|id| self.token_bytes(*id).cmp(word.as_bytes()));
        found.ok().map(|at| self.whole_words[at])
    }

    /// The exact bytes that a token stands for; for control and user-defined tokens, their text.
    ///
    /// Panics when the id is not below [`Self::vocab_size`].
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        let id = id as usize;
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[id] as usize]
    }

    /// A token's bytes as text, each invalid sequence replaced by U+FFFD: for display.
    pub fn token_text(&self, id: TokenId) -> Cow<'_, str> {
        String::from_utf8_lossy(self.token_bytes(id))
    }

    /// The text of many tokens, control tokens included.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.token_bytes(*id)).copied().collect();
        match String::from_utf8_lossy(&bytes) {
            Cow::Borrowed(_) => String::from_utf8(bytes).expect("borrowed means valid"),
            Cow::Owned(text) => text,
        }
    }

    /// What kind of token this is. Panics when the id is not below [`Self::vocab_size`].
    pub fn kind(&self, id: TokenId) -> TokenKind {
        self.special.kind(id)
    }

    /// Whether the token is a control token, which is never shown as text.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.kind(id) == TokenKind::Control
    }

    /// The token that begins a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<TokenId> {
        self.special.bos
    }

    /// The token that ends a text, if the vocabulary has one.
    pub fn eos(&self) -> Option<TokenId> {
        self.special.eos
    }

    /// The token that ends a turn, if the vocabulary has one.
    pub fn eot(&self) -> Option<TokenId> {
        self.special.eot
    }

    /// Whether a prompt starts with [`Self::bos`].
    pub fn add_bos(&self) -> bool {
        self.special.add_bos
    }

    /// Whether a prompt ends with [`Self::eos`].
    pub fn add_eos(&self) -> bool {
        self.special.add_eos
    }

    /// All tokens after which a model has nothing more to say, in ascending order.
    pub fn end_of_generation(&self) -> &[TokenId] {
        &self.special.end_of_generation
    }

    /// Whether the token ends the generation.
    pub fn is_end_of_generation(&self, id: TokenId) -> bool {
        self.end_of_generation().binary_search(&id).is_ok()
    }

    /// The control or user-defined token with exactly this text.
    pub fn special_token(&self, text: &str) -> Option<TokenId> {
        self.special.find(text)
    }

    /// Where the first control or user-defined token's text starts in `text`, in bytes, and which token it is; of several
    /// that start there, the longest.
    pub fn find_special(&self, text: &str) -> Option<(usize, TokenId)> {
        self.special.find_in(text).map(|(range, token)| (range.start, token))
    }

    /// Cuts a text after each special token: what is before it, and the token; the last piece has none.
    pub fn split_special<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, Option<TokenId>)> + use<'t, '_> {
        self.special.split(text)
    }

    /// All control and user-defined tokens, in ascending order.
    pub fn special_tokens(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.special.iter()
    }
}

/// Arrays with one entry a token have as many entries as there are tokens.
fn check_sizes(metadata: &Metadata, tokens: &Strings, merges: &Strings) -> Result<(), FormatError> {
    if !(1..=MAX_TOKENS).contains(&tokens.len()) {
        return Err(FormatError::Tokenizer {
            found: format!("{} tokens ({TOKENS})", tokens.len()),
            wanted: format!("1 to {MAX_TOKENS}"),
        });
    }
    if merges.len() > MAX_MERGES {
        return Err(FormatError::Tokenizer {
            found: format!("{} merges ({MERGES})", merges.len()),
            wanted: format!("at most {MAX_MERGES}"),
        });
    }
    for key in ["tokenizer.ggml.token_type", "tokenizer.ggml.scores"] {
        if !metadata.contains(key) {
            continue;
        }
        let n = metadata.get_numbers(key)?.len();
        if n != tokens.len() {
            return Err(FormatError::Tokenizer {
                found: format!("{n} entries in {key}"),
                wanted: format!("{}, one for each token", tokens.len()),
            });
        }
    }
    Ok(())
}

/// Tokens by text; the same text twice would make merges ambiguous.
fn index(tokens: &Strings) -> Result<ByText<'_>, FormatError> {
    let mut by_text = ByText::with_capacity_and_hasher(tokens.len(), ahash::RandomState::new());
    for (id, text) in tokens.iter().enumerate() {
        if let Some(first) = by_text.insert(text, id as TokenId) {
            return Err(FormatError::Tokenizer {
                found: format!("{text:?} as token {first} and as token {id}"),
                wanted: "each text once".to_owned(),
            });
        }
    }
    Ok(by_text)
}

#[cfg(test)]
mod tests;
