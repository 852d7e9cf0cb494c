//! The byte alphabet of byte-level BPE: every byte has a printable character, in which GGUF writes its tokens.
//!
//! From GPT-2's encoder: printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 onwards.

use crate::gguf::{GgufWriter, Numbers, Strings};

/// Whether the byte stands for itself.
const fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn alphabet() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let mut next = 0x100;
    let mut byte = 0;
    while byte < 256 {
        chars[byte] = if is_itself(byte as u8) {
            byte as u8 as char
        } else {
            let Some(c) = char::from_u32(next) else { panic!("below the surrogates") };
            next += 1;
            c
        };
        byte += 1;
    }
    chars
}

/// The character of each byte.
pub(super) const ALPHABET: [char; 256] = alphabet();

const fn inverse() -> [u8; 68] {
    let mut bytes = [0; 68];
    let mut byte = 0;
    while byte < 256 {
        if !is_itself(byte as u8) {
            bytes[ALPHABET[byte] as usize - 0x100] = byte as u8;
        }
        byte += 1;
    }
    bytes
}

const BEYOND_LATIN: [u8; 68] = inverse();

/// The byte of a character of the alphabet.
pub(super) fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0x100.. => BEYOND_LATIN.get(code as usize - 0x100).copied(),
        code => Some(code as u8).filter(|byte| is_itself(*byte)),
    }
}

/// Appends the bytes that `text` stands for; text with a character outside the alphabet stands for itself.
pub(super) fn decode(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

/// Adds the metadata of a tokenizer of bytes: token `b` is the byte `b`, there are no merges, and token 0, `<|endoftext|>`,
/// ends a text.
pub fn with_byte_vocabulary(file: GgufWriter) -> GgufWriter {
    let mut tokens = ALPHABET.map(String::from);
    tokens[0] = "<|endoftext|>".into();
    with_vocabulary(file, &tokens, &[])
}

/// Adds the metadata of a byte-level tokenizer that splits texts as GPT-2 does: tokens in the byte alphabet, the first of
/// which ends a text and is none itself, and merges, `left right`, the first first.
pub fn with_vocabulary(file: GgufWriter, tokens: &[String], merges: &[String]) -> GgufWriter {
    let kinds: Vec<i32> = (0..tokens.len()).map(|id| if id == 0 { 3 } else { 1 }).collect();
    file.set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "gpt-2")
        .set("tokenizer.ggml.tokens", tokens.iter().map(String::as_str).collect::<Strings>())
        .set("tokenizer.ggml.token_type", Numbers::from_i32(&kinds))
        .set("tokenizer.ggml.merges", merges.iter().map(String::as_str).collect::<Strings>())
        .set("tokenizer.ggml.eos_token_id", 0u32)
        .set("tokenizer.ggml.add_bos_token", false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection() {
        for byte in 0..=255 {
            assert_eq!(byte_of(ALPHABET[byte as usize]), Some(byte));
        }
        assert_eq!(('\0'..='\u{2FFF}').filter(|c| byte_of(*c).is_some()).count(), 256);
        assert_eq!((ALPHABET[b' ' as usize], ALPHABET[b'\n' as usize]), ('Ġ', 'Ċ'));
    }

    #[test]
    fn text_outside_the_alphabet_stands_for_itself() {
        let bytes = |text| {
            let mut out = Vec::new();
            decode(text, &mut out);
            out
        };
        assert_eq!(bytes("Ġcaf\u{c3}\u{a9}"), " café".as_bytes());
        assert_eq!(bytes("a b"), b"a b");
        assert_eq!(bytes("Ġ日"), "Ġ日".as_bytes());
    }
}
