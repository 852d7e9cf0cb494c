//! Text from a stream of token bytes, a whole character at a time.

/// Turns the bytes of successive tokens into text and never splits a character.
///
/// All pieces and the final one together equal [`String::from_utf8_lossy`] of all bytes: each maximal invalid sequence
/// becomes one U+FFFD, which is also what the reference tokenizers do.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    /// Bytes of a character whose rest has not come.
    pending: Vec<u8>,
    text: String,
}

impl StreamDecoder {
    /// A decoder at the start of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token's bytes; returns the text that is complete now and was not before, perhaps empty.
    pub fn push(&mut self, token_bytes: &[u8]) -> &str {
        self.text.clear();
        self.pending.extend_from_slice(token_bytes);
        let mut rest = self.pending.as_slice();
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, after) = rest.split_at(error.valid_up_to());
            self.text.push_str(std::str::from_utf8(valid).expect("valid up to here"));
            rest = after;
            let Some(invalid) = error.error_len() else { break };
            self.text.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[invalid..];
        }
        if let Ok(valid) = std::str::from_utf8(rest) {
            self.text.push_str(valid);
            rest = &[];
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
        &self.text
    }

    /// Whether a character is incomplete.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the text: an incomplete character becomes U+FFFD. The decoder starts over.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(tokens: &[&[u8]], expected: &[&str]) {
        let mut decoder = StreamDecoder::new();
        let mut pieces: Vec<String> = tokens.iter().map(|bytes| decoder.push(bytes).to_owned()).collect();
        pieces.push(decoder.finish().to_owned());
        assert_eq!(pieces, expected);
    }

    #[test]
    fn characters_wait_for_their_last_byte() {
        check(&[b"caf\xc3", b"\xa9!"], &["caf", "é!", ""]);
        check(&[b"\xf0", b"\x9f", b"\x98", b"\x80"], &["", "", "", "😀", ""]);
    }

    #[test]
    fn invalid_bytes_are_replaced() {
        check(&[b"a\xff\xfeb"], &["a\u{fffd}\u{fffd}b", ""]);
        check(&[b"\xf0\x9f", b"x"], &["", "\u{fffd}x", ""]);
        check(&[b"\xe6\x97"], &["", "\u{fffd}"]);
        check(&[b"\xc3", b"\xc3", b"\xa9"], &["", "\u{fffd}", "é", ""]);
    }

    proptest! {
        #[test]
        fn any_split_of_any_bytes_gives_the_lossy_text(tokens: Vec<Vec<u8>>) {
            let mut decoder = StreamDecoder::new();
            let mut text: String = tokens.iter().map(|bytes| decoder.push(bytes).to_owned()).collect();
            text.push_str(decoder.finish());
            let bytes = tokens.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
