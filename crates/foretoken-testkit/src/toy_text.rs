//! Text of toy tokens: letters, tokens of several letters, characters split over tokens, tokens without text.

use foretoken_decode::{Detokenize, TokenId};

/// Bytes of the toy tokens; ids from 12 on are letters.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToyText;

impl ToyText {
    /// The bytes of one token.
    pub fn bytes(token: TokenId) -> &'static [u8] {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
        match token {
            0 => b"a",
            1 => b"b",
            2 => b"ab",
            3 => b"bab",
            4 => b" ",
            5 => "é".as_bytes(),
            6 => &[0xc3],
            7 => &[0xa9],
            8 => b"",
            9 => b"abba",
            10 => b"\n",
            11 => b"a b",
            other => std::slice::from_ref(&LETTERS[other as usize % 26]),
        }
    }

    /// The text of tokens, invalid bytes replaced.
    pub fn text(tokens: &[TokenId]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| Self::bytes(token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Detokenize for ToyText {
    fn append(&self, token: TokenId, text: &mut Vec<u8>) {
        text.extend_from_slice(Self::bytes(token));
    }
}
