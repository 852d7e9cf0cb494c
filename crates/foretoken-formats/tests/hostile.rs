//! Damaged and hostile files: an error, at once, in bounded memory, and never a panic.

use std::path::Path;
use std::time::{Duration, Instant};

use foretoken_formats::gguf::Gguf;
use proptest::prelude::*;

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

/// Every input that fuzzing found worth keeping.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has inputs", folder.display());
    for file in files {
        let started = Instant::now();
        run(&std::fs::read(&file).unwrap());
        assert!(started.elapsed() < Duration::from_secs(2), "{} takes {:?}", file.display(), started.elapsed());
    }
}

#[test]
fn the_gguf_corpus_replays() {
    replay("gguf", targets::gguf);
}

#[test]
fn the_tokenizer_corpus_replays() {
    replay("tokenizer", targets::tokenizer);
}

#[test]
fn the_chat_corpus_replays() {
    replay("chat", targets::chat);
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let whole = targets::small_model("qwen2").to_bytes();
    // The last tensor's padding is not part of it.
    let needed = {
        let gguf = Gguf::from_bytes(whole.clone()).unwrap();
        let ends = gguf.tensors().iter().map(|tensor| tensor.offset + tensor.n_bytes as u64);
        ends.max().unwrap() as usize
    };
    for len in 0..needed {
        let error = Gguf::from_bytes(whole[..len].to_vec()).expect_err("something is missing").to_string();
        assert!(error.contains("truncated") || error.contains("not a GGUF"), "{len}: {error}");
    }
    assert!(Gguf::from_bytes(whole[..needed].to_vec()).is_ok());
}

/// The whole header of a small file, one byte at a time, set to what breaks arithmetic.
#[test]
fn any_byte_may_be_wrong() {
    let whole = targets::small_model("llama-bpe").to_bytes();
    for at in (0..whole.len()).step_by(3) {
        for wrong in [whole[at] ^ 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = wrong;
            targets::gguf(&bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..12)) {
        let mut bytes = targets::small_model("smollm").to_bytes();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        targets::gguf(&bytes);
    }

    #[test]
    fn hostile_numbers_never_panic(at: prop::sample::Index, value in prop_oneof![
        Just(u64::MAX), Just(1 << 63), Just(u64::from(u32::MAX)), Just(1 << 32), Just(0), (0u32..64).prop_map(|n| 1u64 << n), 0u64..100_000,
    ]) {
        let mut bytes = targets::small_model("gpt2").to_bytes();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        targets::gguf(&bytes);
    }

    #[test]
    fn any_text_comes_back(pre in 0u8..4, merges in prop::collection::vec(any::<u8>(), 0..60), text in ".{0,60}") {
        let mut input = vec![pre, merges.len() as u8 / 2];
        input.extend_from_slice(&merges[..merges.len() / 2 * 2]);
        input.extend_from_slice(text.as_bytes());
        targets::tokenizer(&input);
    }

    #[test]
    fn any_template_ends(source in "(\\{%|%\\}|\\{\\{|\\}\\}|for|in|if|set|endif|endfor|range|messages|content|macro|[-+*/~|.()\\[\\]'x0-9 ]|\n){0,40}") {
        targets::chat(source.as_bytes());
    }
}
