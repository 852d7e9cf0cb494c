//! What tokens stand for: bytes, or the byte pairs that a vocabulary was made of on the spot.
//!
//! Pairs are found by Hugging Face's `tokenizers`, which writes `tokenizer.json`, and texts are then encoded by the tokenizer
//! that runs the exported model: what is trained on is what is decoded. (Sennrich et al., arXiv 1508.07909; GPT-2's report for
//! bytes instead of characters.)

use std::path::Path;

use foretoken_formats::gguf::{Gguf, GgufWriter};
use foretoken_formats::tokenizer::{Special, Tokenizer, with_byte_vocabulary, with_vocabulary};
use serde::Deserialize;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer as PairFinder};

use super::END_OF_TEXT;
use crate::TrainError;
use crate::trainer::write_atomically;

/// The name of the file in the folder of the token files.
const NAME: &str = "tokenizer.json";
/// What ends a text, as a token.
const END: &str = "<|endoftext|>";

/// A byte-level vocabulary whose token 0 ends a text.
#[derive(Debug)]
pub struct Vocabulary {
    /// Tokens in the byte alphabet and merges, `left right`, best first; `None`: bytes.
    pairs: Option<(Vec<String>, Vec<String>)>,
    tokenizer: Tokenizer,
}

/// What is read of `tokenizer.json`.
#[derive(Deserialize)]
struct File {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    vocab: std::collections::BTreeMap<String, usize>,
    merges: Vec<[String; 2]>,
}

impl Vocabulary {
    /// Token `b` is the byte `b`.
    pub fn bytes() -> Self {
        let file = with_byte_vocabulary(GgufWriter::new());
        Self { pairs: None, tokenizer: tokenizer(file).expect("the byte vocabulary is sound") }
    }

    /// Finds the byte pairs that occur most often in texts, until there are `n` tokens, and writes them to a folder.
    pub fn train<'a>(texts: impl Iterator<Item = &'a str> + Send, n: usize, folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(NAME);
        let wrong = |error: tokenizers::Error| TrainError::file(&path, error.to_string());
        let mut finder = PairFinder::new(BPE::default());
        finder.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        finder.with_decoder(Some(ByteLevel::new(false, true, true)));
        let mut trainer: TrainerWrapper = BpeTrainer::builder()
            .vocab_size(n)
            .special_tokens(vec![AddedToken::from(END, true)])
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .show_progress(false)
            .build()
            .into();
        finder.train(&mut trainer, texts).map_err(wrong)?;
        write_atomically(&path, finder.to_string(false).map_err(wrong)?.as_bytes())?;
        Self::in_folder(folder, Some(n))
    }

    /// The vocabulary of a folder's token files: that of its `tokenizer.json` where one of `n` tokens is wanted, else bytes.
    pub fn in_folder(folder: &Path, n: Option<usize>) -> Result<Self, TrainError> {
        let Some(n) = n else { return Ok(Self::bytes()) };
        let path = folder.join(NAME);
        let wrong = |message: String| TrainError::file(&path, message);
        let text = std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
        let File { model } = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let found = model.vocab.len();
        let mut tokens = vec![String::new(); found];
        for (token, id) in model.vocab {
            let place = tokens.get_mut(id).ok_or_else(|| wrong(format!("token {id} of {found}")))?;
            *place = token;
        }
        if found != n || tokens[usize::from(END_OF_TEXT)] != END {
            let message = format!("{found} tokens, {n} were asked for: the texts are too few, or it is of another run");
            return Err(wrong(message));
        }
        let merges: Vec<String> = model.merges.iter().map(|[left, right]| format!("{left} {right}")).collect();
        let tokenizer = tokenizer(with_vocabulary(GgufWriter::new(), &tokens, &merges)).map_err(wrong)?;
        Ok(Self { pairs: Some((tokens, merges)), tokenizer })
    }

    /// Tokens.
    pub fn n_tokens(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    /// The tokens of a text; [`END_OF_TEXT`] is not among them.
    pub fn encode(&self, text: &str) -> Result<Vec<u16>, TrainError> {
        if self.pairs.is_none() {
            return Ok(text.bytes().map(u16::from).collect());
        }
        let tokens = self.tokenizer.encode(text, Special::AsText);
        let tokens = tokens.map_err(|error| TrainError::file(Path::new(NAME), error.to_string()))?;
        Ok(tokens.into_iter().map(|token| u16::try_from(token).expect("vocabularies are below 65,536")).collect())
    }

    /// The bytes that tokens stand for, up to the one that ends a text.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let text = tokens.iter().take_while(|token| **token != u32::from(END_OF_TEXT));
        text.flat_map(|token| self.tokenizer.token_bytes(*token)).copied().collect()
    }

    /// Adds it to a file, for whoever runs the model.
    pub fn describe(&self, file: GgufWriter) -> GgufWriter {
        match &self.pairs {
            None => with_byte_vocabulary(file),
            Some((tokens, merges)) => with_vocabulary(file, tokens, merges),
        }
    }
}

fn tokenizer(file: GgufWriter) -> Result<Tokenizer, String> {
    let file = Gguf::from_bytes(file.to_bytes()).map_err(|error| error.to_string())?;
    Tokenizer::from_gguf(&file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn texts() -> Vec<String> {
        let mut rng = Rng::new(1, "texts");
        let words = [
            "def",
            "return",
            "value",
            "self",
            "naïve",
            "日本",
            "  ",
            "\n",
            "(x, y)",
            "don't",
            "1234",
            "==",
            "<|endoftext|>",
        ];
        (0..200).map(|_| (0..30).map(|_| format!("{} ", words[rng.below(words.len())])).collect()).collect()
    }

    #[test]
    fn pairs_are_found_and_the_reference_encodes_alike() {
        let folder = crate::scratch::Scratch::new();
        let texts = texts();
        let vocabulary = Vocabulary::train(texts.iter().map(String::as_str), 300, folder.path()).unwrap();
        assert_eq!(vocabulary.n_tokens(), 300);
        let reference = PairFinder::from_file(folder.path().join(NAME)).unwrap();
        for text in &texts {
            let tokens = vocabulary.encode(text).unwrap();
            assert!(4 * tokens.len() < 3 * text.len() && tokens.iter().all(|token| *token != END_OF_TEXT));
            let ids: Vec<u32> = tokens.iter().map(|token| (*token).into()).collect();
            assert_eq!(vocabulary.decode(&ids), text.as_bytes());
            // The reference takes the end's text for the end, also where somebody typed it.
            let parts = text.split(END).map(|part| reference.encode(part, false).unwrap().get_ids().to_vec());
            let ends = text.matches(END).count();
            let of_parts: Vec<u32> = parts.flatten().collect();
            assert!(ends > 0 || of_parts == ids);
        }
        let again = crate::scratch::Scratch::new();
        let same = Vocabulary::train(texts.iter().map(String::as_str), 300, again.path()).unwrap();
        assert_eq!(same.pairs, vocabulary.pairs);
        assert!(Vocabulary::in_folder(again.path(), Some(301)).unwrap_err().to_string().contains("300 tokens"));
    }

    #[test]
    fn bytes_need_no_file() {
        let vocabulary = Vocabulary::in_folder(Path::new("/nowhere"), None).unwrap();
        assert_eq!(vocabulary.encode("aé").unwrap(), [97, 0xc3, 0xa9]);
        assert_eq!(vocabulary.decode(&[97, 98, 0, 99]), b"ab");
        assert_eq!(vocabulary.n_tokens(), 256);
    }
}
