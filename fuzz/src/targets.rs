//! What the fuzz targets do with their bytes. The tests of foretoken-formats include this file and replay the corpus.
#![allow(dead_code, reason = "each target uses one of these")]

use foretoken_formats::chat::{ChatTemplate, Message};
use foretoken_formats::gguf::{Gguf, GgufWriter, Metadata, Numbers, Strings};
use foretoken_formats::tokenizer::{PreTokenizer, Special, StreamDecoder, Tokenizer};

/// A whole model file: everything that can be asked of it, except the work on real weights.
pub fn gguf(bytes: &[u8]) {
    let gguf = match Gguf::from_bytes(bytes.to_vec()) {
        Ok(gguf) => gguf,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let summary = gguf.summary();
    assert!(summary.tensor_bytes <= bytes.len() as u64, "tensors do not overlap and lie inside the file");
    let shown: usize = gguf.metadata().iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    assert!(shown < 4096 + 4 * bytes.len() + 1024 * gguf.metadata().len());
    for tensor in gguf.tensors() {
        assert_eq!(gguf.find(&tensor.name), Some(tensor));
        assert_eq!(tensor.n_rows() * tensor.row_bytes(), tensor.n_bytes);
        gguf.read(tensor).expect("a tensor of an open file can be read");
    }
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else { return };
    check_text(&tokenizer, "Hello <|im_end|>\n\n  wörld 1234 \u{1f600}", false);
    if let Ok(Some(template)) = ChatTemplate::from_gguf(&gguf, &tokenizer) {
        let _ = template.encode(&tokenizer, &[Message::new("user", "hello <|im_end|>")], true, Some(0));
    }
}

/// A vocabulary of all bytes plus merges and a text, both from the input.
pub fn tokenizer(bytes: &[u8]) {
    let Some((&[pre, n_merges], rest)) = bytes.split_first_chunk::<2>() else { return };
    let (merges, text) = rest.split_at(rest.len().min(2 * usize::from(n_merges)));
    let (_, pre) = PreTokenizer::ALL[usize::from(pre) % PreTokenizer::ALL.len()];
    let tokenizer = Tokenizer::from_metadata(&vocabulary(pre, merges)).expect("a sound vocabulary");
    let text = String::from_utf8_lossy(text);
    check_text(&tokenizer, &text, pre != "qwen2");
}

/// A template, then a message after the first zero byte.
pub fn chat(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (source, content) = text.split_once('\0').unwrap_or((&text, "hello"));
    let Ok(template) = ChatTemplate::new(source, "<s>", "</s>") else { return };
    let messages = [Message::new("system", "be brief"), Message::new("user", content)];
    if let Ok(text) = template.render_at(&messages, true, Some(1_700_000_000)) {
        assert!(text.len() < (8 << 20) + 4 * bytes.len());
    }
}

/// Ids are in range, special tokens appear only when asked for, and the text comes back: all of it, if it is not composed
/// on the way in and every byte has a token.
fn check_text(tokenizer: &Tokenizer, text: &str, exact: bool) {
    let plain = tokenizer.encode(text, Special::AsText).expect("short enough");
    let parsed = tokenizer.encode(text, Special::Parse).expect("short enough");
    for ids in [&plain, &parsed] {
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
        let mut decoder = StreamDecoder::new();
        let mut streamed: String = ids.iter().map(|id| decoder.push(tokenizer.token_bytes(*id)).to_owned()).collect();
        streamed.push_str(decoder.finish());
        assert_eq!(streamed, tokenizer.decode(ids));
        if exact {
            assert_eq!(streamed, text);
        }
    }
}

/// 256 bytes, three special tokens, and a token for each pair of bytes that name two tokens to merge.
pub fn vocabulary(pre: &str, merge_bytes: &[u8]) -> Metadata {
    let mut tokens: Vec<String> = (0..=255).map(alphabet).map(String::from).collect();
    let mut merges: Vec<String> = Vec::new();
    for pair in merge_bytes.chunks_exact(2) {
        let pick = |byte: u8| tokens[(usize::from(byte) * 7 + merges.len()) % tokens.len()].clone();
        let (left, right) = (pick(pair[0]), pick(pair[1]));
        let union = format!("{left}{right}");
        if union.len() < 64 && !tokens.contains(&union) {
            merges.push(format!("{left} {right}"));
            tokens.push(union);
        }
    }
    let mut kinds = vec![1; tokens.len()];
    for (text, kind) in [("<|im_start|>", 3), ("<|im_end|>", 3), ("<tool_call>", 4)] {
        tokens.push(text.to_owned());
        kinds.push(kind);
    }
    let end = tokens.len() as u32 - 2;
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", "gpt2".into());
    metadata.insert("tokenizer.ggml.pre", pre.into());
    metadata.insert("tokenizer.ggml.tokens", Strings::from_iter(tokens).into());
    metadata.insert("tokenizer.ggml.token_type", Numbers::from_i32(&kinds).into());
    metadata.insert("tokenizer.ggml.merges", Strings::from_iter(merges).into());
    metadata.insert("tokenizer.ggml.eos_token_id", end.into());
    metadata.insert("tokenizer.ggml.bos_token_id", end.into());
    metadata
}

/// A small model file with a bit of everything: where mutation starts.
pub fn small_model(pre: &str) -> GgufWriter {
    use foretoken_formats::gguf::GgmlType;
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let metadata = vocabulary(pre, b"hello world, hello fuzz");
    let n_vocab = metadata.get_strings("tokenizer.ggml.tokens").map_or(0, Strings::len);
    let mut writer = GgufWriter::new()
        .set("general.architecture", "llama")
        .set("general.alignment", 32u32)
        .set("llama.block_count", 1u32)
        .set("llama.rope.freq_base", 10000.0f32)
        .set("tokenizer.ggml.add_bos_token", false)
        .set("tokenizer.chat_template", template);
    for (key, value) in metadata.iter() {
        writer = writer.set(key, value.clone());
    }
    writer
        .tensor("token_embd.weight", &[1, n_vocab], GgmlType::I8, vec![1; n_vocab])
        .tensor("blk.0.attn_q.weight", &[32, 2], GgmlType::Q4_0, vec![2; 36])
        .tensor("output_norm.weight", &[3], GgmlType::F32, vec![3; 12])
}

/// The character of a byte in the alphabet of byte-level BPE, by its definition.
fn alphabet(byte: u32) -> char {
    let itself = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = if itself(byte) { byte } else { 256 + (0..byte).filter(|b| !itself(*b)).count() as u32 };
    char::from_u32(code).expect("below the surrogates")
}
