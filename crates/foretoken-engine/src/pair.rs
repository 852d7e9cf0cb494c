//! Whether one model can draft for another, by what is in their files.

use std::path::Path;

use foretoken_decode::TokenId;
use foretoken_formats::tokenizer::Tokenizer;
use foretoken_model::{KvType, Weights};

use crate::by_text::SharedTokens;
use crate::error::EngineError;
use crate::file::ModelFile;

/// A draft model of another vocabulary has at least this share of its tokens in common with the target.
const LEAST_SHARE: f64 = 0.1;

/// How two models' tokens relate.
pub(crate) enum Pair {
    /// An id means the same to both, as far as both have it.
    SameTokens,
    /// They have only the text in common, and these tokens.
    ByText(SharedTokens),
}

impl Pair {
    /// Compares two files; an error says why `draft` cannot draft for `target`.
    pub fn of(target: &ModelFile, draft: &ModelFile) -> Result<Self, EngineError> {
        let [ours, theirs] = [target, draft].map(|file| file.footprint(Weights::AsStored, KvType::F16).packed_bytes);
        let path = draft.path().map_or_else(|| draft.name().into(), Path::to_owned);
        let refused = |reason: String| Err(EngineError::Draft { model: path.clone(), reason });
        let place = |file: &ModelFile| file.path().and_then(|path| path.canonicalize().ok());
        if place(target).is_some_and(|target| place(draft) == Some(target)) {
            return refused("it is the model itself".into());
        }
        if theirs >= ours {
            let (ours, theirs) = (ours / 1_000_000, theirs / 1_000_000);
            return refused(format!("it has {theirs} MB of weights and the model {ours} MB: it would only cost time"));
        }
        if same_tokens(target.tokenizer(), draft.tokenizer()) {
            return Ok(Self::SameTokens);
        }
        let shared = SharedTokens::of(target.tokenizer(), draft.tokenizer());
        if shared.share() < LEAST_SHARE {
            let share = shared.share() * 100.0;
            return refused(format!("only {share:.1} % of its tokens are tokens of the model too"));
        }
        Ok(Self::ByText(shared))
    }
}

/// Whether every id below both sizes stands for the same bytes and is of the same kind. Vocabularies are often padded to a
/// round size, so these may differ; and of the same size may be two that have nothing in common.
fn same_tokens(a: &Tokenizer, b: &Tokenizer) -> bool {
    let shared = a.vocab_size().min(b.vocab_size()) as TokenId;
    (0..shared).all(|id| a.token_bytes(id) == b.token_bytes(id) && a.kind(id) == b.kind(id))
}

#[cfg(test)]
mod tests {
    use foretoken_formats::gguf::{Gguf, GgufWriter, Numbers, Strings};

    use super::*;

    /// A vocabulary of these tokens; those in brackets are control tokens.
    fn tokenizer(tokens: &[&str]) -> Tokenizer {
        let kinds: Vec<i32> = tokens.iter().map(|token| if token.starts_with('<') { 3 } else { 1 }).collect();
        let writer = GgufWriter::new()
            .set("tokenizer.ggml.model", "gpt2")
            .set("tokenizer.ggml.pre", "gpt2")
            .set("tokenizer.ggml.tokens", Strings::from_iter(tokens.iter().copied()))
            .set("tokenizer.ggml.token_type", Numbers::from_i32(&kinds))
            .set("tokenizer.ggml.merges", Strings::from_iter(Vec::<&str>::new()));
        let gguf = Gguf::from_bytes(writer.to_bytes()).expect("the container is sound");
        Tokenizer::from_metadata(gguf.metadata()).expect("the vocabulary is sound")
    }

    #[test]
    fn vocabularies_are_compared_by_content_and_not_by_size() {
        let ours = tokenizer(&["a", "b", "c", "<end>"]);
        assert!(same_tokens(&ours, &tokenizer(&["a", "b", "c", "<end>"])));
        let padded = tokenizer(&["a", "b", "c", "<end>", "[0]", "[1]"]);
        assert!(same_tokens(&ours, &padded) && same_tokens(&padded, &ours));
        assert!(!same_tokens(&ours, &tokenizer(&["a", "c", "b", "<end>"])), "the same size, other tokens");
        assert!(!same_tokens(&ours, &tokenizer(&["a", "b", "<end>", "c"])));
    }

    #[test]
    fn shared_tokens_are_found_wherever_they_stand() {
        let (target, draft) = (tokenizer(&["a", "b", "c", "<end>"]), tokenizer(&["x", "c", "a", "<end>"]));
        let shared = SharedTokens::of(&target, &draft);
        assert_eq!(shared.share(), 0.5, "a control token is no text");
    }
}
