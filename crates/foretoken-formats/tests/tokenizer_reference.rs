//! Token ids equal Hugging Face's `tokenizers` on the real vocabularies: `fixtures/make_tokenizer.py` made the answers.

use std::collections::BTreeMap;
use std::path::Path;

use foretoken_formats::TokenId;
use foretoken_formats::gguf::{Gguf, Metadata};
use foretoken_formats::tokenizer::{Special, StreamDecoder, Tokenizer};
use foretoken_testkit::models;
use serde::Deserialize;

const PROMPT_FILES: [&str; 4] = ["gsm8k.jsonl", "humaneval.jsonl", "mbpp.jsonl", "spec_bench.jsonl"];

#[derive(Deserialize)]
struct Expected {
    prompts: BTreeMap<String, String>,
    as_text: Vec<Ids>,
    parse: Vec<Ids>,
    /// One hash for each 4096 code points.
    code_points: Vec<String>,
    gpt2: Vec<Ids>,
    #[serde(rename = "llama-bpe")]
    llama_bpe: Vec<Ids>,
}

/// Ids in full, or "count hash" of many.
#[derive(Deserialize, Debug, PartialEq)]
#[serde(untagged)]
enum Ids {
    Full(Vec<TokenId>),
    Hashed(String),
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, carried on.
fn fnv(hash: u64, ids: &[TokenId]) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    ids.iter().flat_map(|id| id.to_le_bytes()).fold(hash, step)
}

fn hashed(ids: &[TokenId]) -> String {
    format!("{} {:016x}", ids.len(), fnv(FNV_START, ids))
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read_to_string(path).expect("fixtures are in the tree")
}

fn expected(model: &str) -> Expected {
    let mut all: BTreeMap<String, Expected> = serde_json::from_str(&fixture("tokenizer.json")).unwrap();
    all.remove(model).unwrap()
}

/// The texts of nasty.json: plain, or as a list of (text, times).
fn nasty() -> Vec<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Text {
        Plain(String),
        Runs(Vec<(String, usize)>),
    }
    let texts: Vec<Text> = serde_json::from_str(&fixture("nasty.json")).unwrap();
    let text = |text| match text {
        Text::Plain(text) => text,
        Text::Runs(runs) => runs.iter().map(|(text, times)| text.repeat(*times)).collect(),
    };
    texts.into_iter().map(text).collect()
}

fn check_nasty(tokenizer: &Tokenizer, special: Special, expected: &[Ids]) {
    let texts = nasty();
    assert_eq!(texts.len(), expected.len());
    let mut wrong = 0;
    for (text, expected) in texts.iter().zip(expected) {
        let ids = tokenizer.encode(text, special).unwrap();
        let found = if let Ids::Full(_) = expected { Ids::Full(ids) } else { Ids::Hashed(hashed(&ids)) };
        if found != *expected {
            wrong += 1;
            eprintln!("{special:?} {:.60?}\n  ours      {found:?}\n  reference {expected:?}", text);
        }
    }
    assert_eq!(wrong, 0, "texts with other ids");
}

/// Every code point of the basic plane between letters, digits, spaces and quotes.
fn check_code_points(tokenizer: &Tokenizer, expected: &[String]) {
    assert_eq!(expected.len(), 16);
    for (block, expected) in (0u32..).zip(expected) {
        let chars = (block * 4096..(block + 1) * 4096).filter_map(char::from_u32);
        let ids = |c: char| tokenizer.encode(&format!("a{c}b {c}{c}1{c}\n{c} '{c}"), Special::AsText).unwrap();
        let hash = chars.fold(FNV_START, |hash, c| fnv(hash, &ids(c)));
        assert_eq!(format!("{hash:016x}"), *expected, "code points from U+{:X}", block * 4096);
    }
}

/// Text to ids and back, streamed: what comes out is what went in, but for NFC and bytes the vocabulary lacks.
fn check_round_trip(tokenizer: &Tokenizer, text: &str) {
    let ids = tokenizer.encode(text, Special::AsText).unwrap();
    let mut decoder = StreamDecoder::new();
    let mut streamed: String = ids.iter().map(|id| decoder.push(tokenizer.token_bytes(*id)).to_owned()).collect();
    streamed.push_str(decoder.finish());
    assert_eq!(streamed, tokenizer.decode(&ids));
    if text.chars().all(|c| c.is_ascii_graphic() || c == ' ' || c == '\n') {
        assert_eq!(streamed, text);
    }
}

fn with_pre(metadata: &Metadata, pre: &str) -> Tokenizer {
    let mut metadata = metadata.clone();
    metadata.insert("tokenizer.ggml.pre", pre.into());
    Tokenizer::from_metadata(&metadata).unwrap()
}

fn check_model(name: &str) {
    let Some(path) = models::find(name) else { return };
    let gguf = Gguf::open(path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let expected = expected(name);
    check_nasty(&tokenizer, Special::AsText, &expected.as_text);
    check_nasty(&tokenizer, Special::Parse, &expected.parse);
    check_nasty(&with_pre(gguf.metadata(), "gpt2"), Special::AsText, &expected.gpt2);
    check_nasty(&with_pre(gguf.metadata(), "llama-bpe"), Special::AsText, &expected.llama_bpe);
    check_code_points(&tokenizer, &expected.code_points);
    nasty().iter().for_each(|text| check_round_trip(&tokenizer, text));

    let mut seen = 0;
    for file in PROMPT_FILES {
        let Some(path) = models::prompts(file) else { return };
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let turns = row["turns"].as_array().cloned().unwrap_or_else(|| vec![row["prompt"].clone()]);
            for (turn, text) in turns.iter().enumerate() {
                let key = format!("{}:{turn}", row["id"].as_str().unwrap());
                let text = text.as_str().unwrap();
                let ids = tokenizer.encode(text, Special::AsText).unwrap();
                assert_eq!(Some(&hashed(&ids)), expected.prompts.get(&key), "{key}");
                check_round_trip(&tokenizer, text);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, expected.prompts.len(), "the prompts are those of the fixture");
}

#[test]
fn smollm2_ids_equal_the_reference() {
    check_model("smollm2-135m");
}

#[test]
fn qwen2_ids_equal_the_reference() {
    check_model("qwen-coder-0.5b");
}
