//! A text that grows in one vocabulary, told in another.

use foretoken_decode::TokenId;
use foretoken_formats::tokenizer::{Special, Tokenizer};

/// One text in both vocabularies.
#[derive(Debug, Default)]
pub struct Retold {
    /// The tokens told so far.
    seen: Vec<TokenId>,
    /// Their text in the other vocabulary, up to where nothing that follows can change it.
    sealed: Vec<TokenId>,
    /// The text after that.
    open: Vec<u8>,
}

impl Retold {
    /// Tells on to the end of `tokens`; from the beginning when they do not go on from those told so far.
    pub fn follow(&mut self, tokens: &[TokenId], from: &Tokenizer, to: &Tokenizer) {
        if !tokens.starts_with(&self.seen) {
            *self = Self::default();
        }
        if self.seen.is_empty() {
            self.sealed.extend(to.bos().filter(|_| to.add_bos()));
        }
        for &token in &tokens[self.seen.len()..] {
            self.open_up(token, from, to);
        }
        self.seen.extend_from_slice(&tokens[self.seen.len()..]);
        if let Some(at) = last_seam(&self.open) {
            let rest = self.open.split_off(at);
            self.seal(to);
            self.open = rest;
        }
    }

    /// How many tokens were told.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// The text in the other vocabulary; `None` when it ends inside a character.
    pub fn tokens(&self, to: &Tokenizer) -> Option<Vec<TokenId>> {
        let open = std::str::from_utf8(&self.open).ok()?;
        let mut tokens = self.sealed.clone();
        tokens.extend(to.encode(open, Special::AsText).ok()?);
        Some(tokens)
    }

    fn open_up(&mut self, token: TokenId, from: &Tokenizer, to: &Tokenizer) {
        let bytes = from.token_bytes(token);
        if !from.is_special(token) {
            self.open.extend_from_slice(bytes);
            // Bytes that no later ones can make a character of.
            if std::str::from_utf8(&self.open).is_err_and(|error| error.error_len().is_some()) {
                self.seal(to);
            }
            return;
        }
        self.seal(to);
        // Markers of turns have the same names in many vocabularies; others have no text to tell.
        self.sealed.extend(std::str::from_utf8(bytes).ok().and_then(|name| to.special_token(name)));
    }

    fn seal(&mut self, to: &Tokenizer) {
        let text = String::from_utf8_lossy(&self.open);
        // Only texts of gigabytes cannot be encoded, and then the draft is of something else.
        self.sealed.extend(to.encode(&text, Special::AsText).unwrap_or_default());
        self.open.clear();
    }
}

/// The last place where every pre-tokenizer in use cuts a text whatever follows: before a space after another visible
/// character. What is left of it is encoded alone as it is in the whole.
fn last_seam(text: &[u8]) -> Option<usize> {
    text.windows(2).rposition(|pair| pair[0].is_ascii_graphic() && pair[1] == b' ').map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use foretoken_formats::gguf::Gguf;
    use foretoken_testkit::{Rng, models};

    use super::*;

    fn tokenizer(name: &str) -> Option<Tokenizer> {
        let gguf = Gguf::open(&models::find(name)?).expect("the file is sound");
        Some(Tokenizer::from_gguf(&gguf).expect("it has a tokenizer"))
    }

    #[test]
    fn in_pieces_a_text_is_told_as_in_one() {
        let (Some(from), Some(to)) = (tokenizer("qwen-coder-0.5b"), tokenizer("smollm2-135m")) else { return };
        let text = "fn main() {\n    let x = 3.14;  // naïve – 日本語 🦀🦀 text\n\n\tprintln!(\"{x:>8}\");  }\r\n \
                    don't I'LL it's   12345 + 67  a  b\u{301}e\u{a0}x\n - item one\n - item two\n";
        let tokens = from.encode(text, Special::AsText).expect("it is text");
        let mut rng = Rng::new(5);
        for _ in 0..20 {
            let mut told = Retold::default();
            let mut at = 0;
            while at < tokens.len() {
                at = tokens.len().min(at + 1 + rng.below(5));
                told.follow(&tokens[..at], &from, &to);
                let bytes: Vec<u8> = tokens[..at].iter().flat_map(|&id| from.token_bytes(id)).copied().collect();
                let whole = std::str::from_utf8(&bytes).ok();
                let expected = whole.map(|whole| to.encode(whole, Special::AsText).expect("it is text"));
                assert_eq!(told.tokens(&to), expected, "{:?}", String::from_utf8_lossy(&bytes));
                assert_eq!(told.len(), at);
            }
        }
        assert!(tokens.len() > 60);
    }

    #[test]
    fn markers_of_turns_are_told_by_name_and_another_text_from_its_beginning() {
        let (Some(from), Some(to)) = (tokenizer("qwen-coder-0.5b"), tokenizer("smollm2-135m")) else { return };
        let tokens = |of: &Tokenizer| of.encode("<|im_start|>user\nHi<|im_end|>", Special::Parse).expect("it is text");
        let mut told = Retold::default();
        told.follow(&tokens(&from), &from, &to);
        assert_eq!(told.tokens(&to).expect("it is text"), tokens(&to));
        let other = from.encode("Hi there", Special::AsText).expect("it is text");
        told.follow(&other, &from, &to);
        assert_eq!(told.tokens(&to), to.encode("Hi there", Special::AsText).ok());
        // A byte that never becomes a character, and text after it.
        let lone = (0..from.vocab_size() as TokenId).find(|&id| from.token_bytes(id) == [0xff]).expect("it is there");
        told.follow(&[other.as_slice(), &[lone], &other].concat(), &from, &to);
        assert!(told.tokens(&to).is_some());
    }
}
