//! A hostile file is refused within a second and costs no more memory than its own size and 64 MB.
//!
//! A test binary of its own with one test, because the peak that Linux reports is that of the whole process.
#![cfg(target_os = "linux")]

mod common;

use std::time::{Duration, Instant};

use foretoken_formats::gguf::{Gguf, GgufWriter, Numbers, Strings, ValueType};
use foretoken_formats::tokenizer::Tokenizer;

use common::{forget_peak, peak};

#[track_caller]
fn check(what: &str, bytes: Vec<u8>, refused: bool) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let len = bytes.len();
    drop(bytes);
    forget_peak();
    let before = peak();
    let started = Instant::now();
    let opened = Gguf::open(file.path()).and_then(|gguf| Tokenizer::from_gguf(&gguf).map(|_| ()));
    let (took, used) = (started.elapsed(), peak() - before);
    assert_eq!(opened.is_err(), refused, "{what}: {opened:?}");
    println!("{what}: {len} bytes, {} MB more, {took:?}", used >> 20);
    assert!(used <= len + (64 << 20), "{what}: {used} bytes for a file of {len}");
    // The promise is a second; a machine that is busy with other tests gets more.
    assert!(took < Duration::from_secs(5), "{what}: {took:?}");
}

fn vocabulary(tokens: Strings, merges: Strings) -> GgufWriter {
    GgufWriter::new()
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "llama-bpe")
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.merges", merges)
}

#[test]
fn memory_and_time_are_bounded() {
    check("empty strings", GgufWriter::new().set("k", Strings::from_iter(vec![""; 6 << 20])).to_bytes(), true);
    let numbers = Numbers::from_le_bytes(ValueType::U8, vec![7; 48 << 20]).unwrap();
    check("one long array", GgufWriter::new().set("k", numbers).to_bytes(), true);
    check("one long string", GgufWriter::new().set("k", "x".repeat(48 << 20)).to_bytes(), true);
    let keys = (0..65_536).fold(GgufWriter::new(), |writer, n| writer.set(format!("{n:x}"), true));
    check("many keys", keys.to_bytes(), true);
    let one = || (0..65_536).map(|n| format!("{n:x}"));
    let tensors = one().fold(GgufWriter::new(), |writer, name| {
        writer.tensor(name, &[1], foretoken_formats::gguf::GgmlType::I8, vec![0])
    });
    check("many tensors", tensors.to_bytes(), true);

    // As many tokens and merges as are accepted, and the last merge is wrong: everything has been built by then.
    let digit = |n: u32| char::from_u32(0x21 + n).unwrap();
    let name = |n: u32| -> String { [n >> 18, n >> 12 & 63, n >> 6 & 63, n & 63].map(digit).iter().collect() };
    let mut tokens: Vec<String> = (0..64).map(|n| digit(n).to_string()).collect();
    tokens.extend((0..4096u32).map(|n| [n >> 6, n & 63].map(digit).iter().collect::<String>()));
    tokens.extend((0..(1 << 19) - tokens.len() as u32).map(name));
    let longest = tokens[4160..].iter();
    let halves = longest.clone().map(|token| format!("{} {}", &token[..2], &token[2..]));
    let mut merges: Vec<String> = halves.collect();
    merges.resize(1 << 20, "no merge".to_owned());
    check("many merges", vocabulary(tokens.iter().collect(), merges.iter().collect()).to_bytes(), true);
    let special = |n: usize| {
        let kinds = Numbers::from_i32(&[vec![3; n], vec![1; tokens.len() - n]].concat());
        vocabulary(tokens.iter().collect(), Strings::default()).set("tokenizer.ggml.token_type", kinds).to_bytes()
    };
    check("many special tokens", special(60_000), false);
    check("too many special tokens", special(100_000), true);
    let too_many = Strings::from_iter(vec!["! !"; 3 << 20]);
    check("too many merges", vocabulary(tokens.iter().collect(), too_many).to_bytes(), true);
}
