//! A vocabulary small enough to check by hand; the real ones are in `tests/tokenizer_reference.rs`.

use super::*;
use crate::gguf::{Numbers, Value};

/// The alphabet's first letters, a space, some merges, and special tokens of both kinds.
fn metadata() -> Metadata {
    let tokens =
        ["a", "b", "c", "Ġ", "<", ">", "|", "x", "ab", "Ġab", "abc", "cc", "<|x|>", "<x>", "<x>>", "[hole]", "</s>"];
    let kinds = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4, 4, 5, 1];
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", "gpt2".into());
    metadata.insert("tokenizer.ggml.pre", "gpt2".into());
    metadata.insert("tokenizer.ggml.tokens", Strings::from_iter(tokens).into());
    metadata.insert("tokenizer.ggml.token_type", Numbers::from_i32(&kinds).into());
    metadata.insert("tokenizer.ggml.merges", Strings::from_iter(["a b", "Ġ ab", "c c", "ab c"]).into());
    metadata.insert("tokenizer.ggml.eos_token_id", 12u32.into());
    metadata
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_metadata(&metadata()).unwrap()
}

#[track_caller]
fn check(text: &str, special: Special, expected: &[TokenId]) {
    assert_eq!(tokenizer().encode(text, special).unwrap(), expected, "{text:?}");
}

#[track_caller]
fn refused(key: &str, value: Option<Value>, parts: &[&str]) {
    let mut changed = Metadata::default();
    for (known, old) in metadata().iter().filter(|(known, _)| *known != key) {
        changed.insert(known, old.clone());
    }
    if let Some(value) = value {
        changed.insert(key, value);
    }
    let message = Tokenizer::from_metadata(&changed).map(|_| ()).unwrap_err().to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message:?} should name {parts:?}");
}

#[test]
fn lower_ranks_merge_first() {
    check("ab", Special::AsText, &[8]);
    check("abc", Special::AsText, &[10]);
    // "cc" has the lower rank, so "abcc" is ab + cc and not abc + c.
    check("abcc", Special::AsText, &[8, 11]);
    check("ab ab", Special::AsText, &[8, 9]);
    check("ccc", Special::AsText, &[11, 2]);
    check("", Special::AsText, &[]);
}

#[test]
fn bytes_without_a_token_vanish_and_their_neighbours_meet() {
    check("azb", Special::AsText, &[8]);
    check("日", Special::AsText, &[]);
}

#[test]
fn special_tokens_are_text_unless_asked_for() {
    check("a<|x|>b", Special::AsText, &[0, 4, 6, 7, 6, 5, 1]);
    check("a<|x|>b", Special::Parse, &[0, 12, 1]);
    check("<x>", Special::AsText, &[4, 7, 5]);
    check("<x><x>>", Special::Parse, &[13, 14]);
    check("<x", Special::Parse, &[4, 7]);
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.special_token("<x>"), Some(13));
    assert_eq!(tokenizer.special_token("ab"), None);
    assert_eq!(tokenizer.special_tokens().collect::<Vec<_>>(), [12, 13, 14]);
    assert_eq!(tokenizer.split_special("a<x>b").collect::<Vec<_>>(), [("a", Some(13)), ("b", None)]);
    assert_eq!(tokenizer.find_special("ab<x>>"), Some((2, 14)));
}

#[test]
fn tokens_know_their_bytes_and_kinds() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.token_bytes(9), b" ab");
    assert_eq!(tokenizer.token_bytes(12), b"<|x|>");
    assert_eq!(tokenizer.token_text(9), " ab");
    assert_eq!(tokenizer.decode(&[9, 12, 11]), " ab<|x|>cc");
    assert!(tokenizer.is_special(12) && !tokenizer.is_special(13) && !tokenizer.is_special(0));
    assert_eq!(tokenizer.kind(13), TokenKind::UserDefined);
    // "</s>" is an ordinary token here, as in HTML, and ends nothing.
    assert_eq!(tokenizer.end_of_generation(), [12]);
    assert!(tokenizer.is_end_of_generation(12) && !tokenizer.is_end_of_generation(16));
}

#[test]
fn whole_words_need_no_merges_where_the_model_ignores_them() {
    let mut metadata = metadata();
    metadata.insert("tokenizer.ggml.merges", Strings::from_iter(["a b"]).into());
    metadata.insert("tokenizer.ggml.bos_token_id", 12u32.into());
    metadata.insert("tokenizer.ggml.pre", "llama-bpe".into());
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.encode("abc", Special::AsText).unwrap(), [10]);
    assert_eq!(tokenizer.encode("abca", Special::AsText).unwrap(), [8, 2, 0]);
    assert_eq!(tokenizer.encode_prompt("abc", Special::AsText).unwrap(), [12, 10], "Llama 3 begins with bos");
    metadata.insert("tokenizer.ggml.add_bos_token", false.into());
    metadata.insert("tokenizer.ggml.add_eos_token", true.into());
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.encode_prompt("abc", Special::AsText).unwrap(), [10, 12]);
}

#[test]
fn contradictions_are_named() {
    let strings = |texts: &[&str]| Some(Strings::from_iter(texts).into());
    refused("tokenizer.ggml.model", Some("llama".into()), &["\"llama\"", "gpt2"]);
    refused("tokenizer.ggml.pre", Some("deepseek-r1-qwen".into()), &["deepseek-r1-qwen", "qwen2, smollm"]);
    refused("tokenizer.ggml.pre", None, &["tokenizer.ggml.pre", "missing"]);
    refused("tokenizer.ggml.tokens", None, &["tokenizer.ggml.tokens", "missing"]);
    refused("tokenizer.ggml.tokens", strings(&[]), &["0 tokens"]);
    refused("tokenizer.ggml.tokens", strings(&["a", "b"]), &["17 entries", "token_type", "2, one for each"]);
    refused("tokenizer.ggml.token_type", Some(Numbers::from_i32(&[1; 16]).into()), &["16 entries", "token_type", "17"]);
    refused("tokenizer.ggml.token_type", Some(Numbers::from_i32(&[9; 17]).into()), &["kind 9", "token 0"]);
    refused("tokenizer.ggml.scores", Some(Numbers::from_f32(&[0.0; 18]).into()), &["18 entries", "scores"]);
    refused("tokenizer.ggml.merges", None, &["tokenizer.ggml.merges", "missing"]);
    refused("tokenizer.ggml.merges", strings(&["a b", "a x"]), &["merge 1", "\"a x\"", "\"ax\""]);
    refused("tokenizer.ggml.merges", strings(&["ab"]), &["merge 0", "no space"]);
    refused("tokenizer.ggml.merges", strings(&["a b c"]), &["merge 0", "\"b c\""]);
    refused("tokenizer.ggml.eos_token_id", Some(17u32.into()), &["eos_token_id", "17"]);
    refused("tokenizer.ggml.add_bos_token", Some(true.into()), &["bos_token_id", "missing"]);
    let twice = Strings::from_iter((0..17).map(|n| (n % 16).to_string()));
    refused("tokenizer.ggml.tokens", Some(twice.into()), &["\"0\" as token 0 and as token 16"]);
}

#[test]
fn the_embedding_must_have_a_row_for_each_token() {
    use crate::gguf::{GgmlType, GgufWriter};
    let model = |rows: usize| {
        let mut writer = GgufWriter::new();
        for (key, value) in metadata().iter() {
            writer = writer.set(key, value.clone());
        }
        let writer = writer.tensor("token_embd.weight", &[1, rows], GgmlType::F32, vec![0; 4 * rows]);
        Tokenizer::from_gguf(&Gguf::from_bytes(writer.to_bytes()).unwrap())
    };
    assert!(model(17).is_ok());
    let message = model(18).unwrap_err().to_string();
    assert!(
        message.contains("token_embd.weight") && message.contains("18 rows") && message.contains("17"),
        "{message}"
    );
}

/// A vocabulary whose token `b` is the byte `b`, but for token 0, which ends a text.
fn byte_metadata() -> Metadata {
    let mut tokens: Vec<String> = bytes::ALPHABET.iter().map(char::to_string).collect();
    tokens[0] = "<|endoftext|>".into();
    let kinds: Vec<i32> = (0..256).map(|id| if id == 0 { 3 } else { 1 }).collect();
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", "gpt2".into());
    metadata.insert("tokenizer.ggml.pre", "gpt-2".into());
    metadata.insert("tokenizer.ggml.tokens", tokens.iter().map(String::as_str).collect::<Strings>().into());
    metadata.insert("tokenizer.ggml.token_type", Numbers::from_i32(&kinds).into());
    metadata.insert("tokenizer.ggml.merges", std::iter::empty::<&str>().collect::<Strings>().into());
    metadata.insert("tokenizer.ggml.eos_token_id", 0u32.into());
    metadata
}

#[test]
fn a_byte_vocabulary_s_tokens_are_the_text_s_bytes() {
    let tokenizer = Tokenizer::from_metadata(&byte_metadata()).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.end_of_generation()), (256, &[0][..]));
    let every: String = (1..0x2_0000u32).step_by(7).filter_map(char::from_u32).collect();
    for text in ["", "def f(x):\n\treturn x\r\n", "naïve 日本語 🦊", "<|endoftext|>", "a\u{a0}b\u{ad}", &every] {
        let ids = tokenizer.encode(text, Special::AsText).unwrap();
        assert!(ids.iter().map(|&id| id as u8).eq(text.bytes()), "{text:?}");
        assert_eq!(tokenizer.decode(&ids), text);
    }
    assert_eq!(tokenizer.encode("a<|endoftext|>b", Special::Parse).unwrap(), [97, 0, 98]);
    // There is no token for the byte 0: it vanishes, like any byte that a vocabulary lacks.
    assert_eq!(tokenizer.encode("a\0b", Special::AsText).unwrap(), [97, 98]);
}
