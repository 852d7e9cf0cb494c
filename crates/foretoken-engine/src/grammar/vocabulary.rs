//! Our tokenizer as llguidance wants to see it: a trie of the tokens' bytes, and canonical tokens for forced text.

use std::sync::Arc;

use foretoken_formats::tokenizer::{Special, TokenKind, Tokenizer};
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::error::EngineError;

/// A tokenizer with its trie.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl Vocabulary {
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, EngineError> {
        let end_tokens = tokenizer.end_of_generation();
        let Some(&eos) = end_tokens.first() else {
            let why = "this model has no token that ends a text, and a text with a grammar has to end".to_owned();
            return Err(EngineError::Grammar { what: "grammar", why });
        };
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as TokenId).map(|id| bytes(&tokenizer, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, eos), &words).with_eos_tokens(end_tokens);
        Ok(Self { tokenizer, trie })
    }

    pub fn into_env(self) -> TokEnv {
        Arc::new(self)
    }
}

/// What a token adds to a text. Control tokens are out of reach of any text: a marker that is no UTF-8 comes first.
fn bytes(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    match tokenizer.kind(id) {
        TokenKind::Unused | TokenKind::Unknown => Vec::new(),
        TokenKind::Control => [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.token_bytes(id)].concat(),
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte => tokenizer.token_bytes(id).to_vec(),
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let exact = |ids: &Vec<TokenId>| {
            let decoded = ids.iter().flat_map(|&id| self.tokenizer.token_bytes(id));
            decoded.eq(bytes)
        };
        let ids = std::str::from_utf8(bytes).ok().and_then(|text| self.tokenizer.encode(text, Special::AsText).ok());
        // Some tokenizers normalise characters or leave some out; the grammar's bytes come as they are.
        ids.filter(exact).unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}
