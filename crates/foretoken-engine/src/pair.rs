//! Whether one model can draft for another, by what is in their files.

use foretoken_decode::TokenId;
use foretoken_formats::tokenizer::Tokenizer;
use foretoken_model::{KvType, Weights};

use crate::error::EngineError;
use crate::file::ModelFile;
use crate::footprint::Footprint;

/// How two models' tokens relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    /// An id means the same to both, as far as both have it.
    SameTokens,
    /// They have only the text in common.
    ByText,
}

impl Pair {
    /// Compares two files; an error says why `draft` cannot draft for `target`.
    pub fn of(target: &ModelFile, draft: &ModelFile) -> Result<Self, EngineError> {
        let weight = |file: &ModelFile| Footprint::of(file.gguf(), file.hyper(), Weights::AsStored, KvType::F16);
        let (ours, theirs) = (weight(target).packed_bytes, weight(draft).packed_bytes);
        let refused = |reason: String| Err(EngineError::Draft { model: draft.path().to_owned(), reason });
        if target.path().canonicalize().ok() == draft.path().canonicalize().ok() {
            return refused("it is the model itself".into());
        }
        if theirs >= ours {
            let (ours, theirs) = (ours / 1_000_000, theirs / 1_000_000);
            return refused(format!("it has {theirs} MB of weights and the model {ours} MB: it would only cost time"));
        }
        if same_tokens(target.tokenizer(), draft.tokenizer()) {
            return Ok(Self::SameTokens);
        }
        Ok(Self::ByText)
    }
}

/// Whether every id below both sizes stands for the same bytes and is of the same kind. Vocabularies are often padded to a
/// round size, so these may differ; and of the same size may be two that have nothing in common.
fn same_tokens(a: &Tokenizer, b: &Tokenizer) -> bool {
    let shared = a.vocab_size().min(b.vocab_size()) as TokenId;
    (0..shared).all(|id| a.token_bytes(id) == b.token_bytes(id) && a.kind(id) == b.kind(id))
}
