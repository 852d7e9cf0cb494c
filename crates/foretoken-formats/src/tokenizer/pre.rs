//! Splits a text into the words that byte-pair merges never cross, as each model's original tokenizer does.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of spaces leaves its last one to the next word. That is the only
//! look-ahead in them, and it is done here by hand, so that the rest runs on an automaton whose time is linear in the
//! text, whatever the text.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization_alignments::UnicodeNormalization;

use crate::FormatError;

/// How a model's tokenizer splits text: `tokenizer.ggml.pre`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreTokenizer {
    /// Qwen2: NFC, then words with the character before them; each digit alone.
    Qwen2,
    /// SmolLM: each digit alone, then as GPT-2 between them.
    Smollm,
    /// GPT-2.
    Gpt2,
    /// Llama 3: words with the character before them; up to three digits together; known words are never merged.
    LlamaBpe,
}

impl PreTokenizer {
    /// All of them with their names in the file.
    pub const ALL: [(PreTokenizer, &'static str); 4] =
        [(Self::Qwen2, "qwen2"), (Self::Smollm, "smollm"), (Self::Gpt2, "gpt2"), (Self::LlamaBpe, "llama-bpe")];

    /// The one that the file names.
    pub fn from_name(name: &str) -> Result<Self, FormatError> {
        // llama.cpp's converter writes GPT-2's with a hyphen.
        let name = if name == "gpt-2" { "gpt2" } else { name };
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(pre, _)| *pre).ok_or_else(|| FormatError::Tokenizer {
            found: format!("pre-tokenizer {name:?} (tokenizer.ggml.pre)"),
            wanted: format!("one of {}", Self::ALL.map(|(_, name)| name).join(", ")),
        })
    }

    /// Whether a word that is a token as it stands is never split, even if no sequence of merges leads to it.
    pub(super) fn ignores_merges(self) -> bool {
        self == Self::LlamaBpe
    }

    /// Whether a text starts with the beginning-of-sequence token when the file does not say.
    pub(super) fn adds_bos_by_default(self) -> bool {
        self == Self::LlamaBpe
    }

    /// The pattern, compiled once in a process; its look-ahead is what [`Splitter`] does.
    fn regex(self) -> &'static Regex {
        static GPT2: LazyLock<Regex> = LazyLock::new(|| compile(PreTokenizer::Gpt2));
        static QWEN2: LazyLock<Regex> = LazyLock::new(|| compile(PreTokenizer::Qwen2));
        static LLAMA_BPE: LazyLock<Regex> = LazyLock::new(|| compile(PreTokenizer::LlamaBpe));
        match self {
            Self::Gpt2 | Self::Smollm => &GPT2,
            Self::Qwen2 => &QWEN2,
            Self::LlamaBpe => &LLAMA_BPE,
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Gpt2 | Self::Smollm => r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+",
            Self::Qwen2 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
            }
            Self::LlamaBpe => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
            }
        }
    }

    /// Whether a run of spaces that ends in a line break was matched as such and keeps its end.
    fn keeps_line_breaks(self) -> bool {
        matches!(self, Self::Qwen2 | Self::LlamaBpe)
    }
}

fn compile(pre: PreTokenizer) -> Regex {
    Regex::new(pre.pattern()).expect("the patterns are constants")
}

/// A pre-tokenizer made ready.
#[derive(Debug)]
pub(super) struct Splitter {
    pre: PreTokenizer,
    regex: &'static Regex,
}

impl Splitter {
    pub(super) fn new(pre: PreTokenizer) -> Self {
        Self { pre, regex: pre.regex() }
    }

    /// The text as the merges see it. Borrows when nothing changes.
    pub(super) fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.pre != PreTokenizer::Qwen2 || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        // The crate that Hugging Face's tokenizers use: the ids follow its Unicode tables, not newer ones.
        Cow::Owned(text.nfc().map(|(c, _)| c).collect())
    }

    /// Calls `word` with each word in order; together they are the text.
    pub(super) fn split<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        if self.pre != PreTokenizer::Smollm {
            return self.split_by_pattern(text, &mut word);
        }
        let mut start = 0;
        for (at, digit) in text.match_indices(char::is_numeric) {
            self.split_by_pattern(&text[start..at], &mut word);
            word(digit);
            start = at + digit.len();
        }
        self.split_by_pattern(&text[start..], &mut word);
    }

    fn split_by_pattern<'t>(&self, text: &'t str, word: &mut impl FnMut(&'t str)) {
        let mut at = 0;
        while at < text.len() {
            let end = match self.regex.find_at(text, at) {
                Some(found) if found.start() == at => at + self.word_len(found.as_str(), found.end() == text.len()),
                // The alternatives cover every character; should one be missed, it is a word of its own.
                Some(found) => found.start(),
                None => text.len(),
            };
            word(&text[at..end]);
            at = end;
        }
    }

    /// Length of the word: what was matched, less the last of several spaces before a word.
    fn word_len(&self, matched: &str, at_end: bool) -> usize {
        let Some(last) = matched.chars().next_back().filter(|c| c.is_whitespace() && !at_end) else {
            return matched.len();
        };
        let keeps = self.pre.keeps_line_breaks() && matches!(last, '\r' | '\n');
        let is_run = matched.len() > last.len_utf8() && matched.chars().next().is_some_and(char::is_whitespace);
        if is_run && !keeps { matched.len() - last.len_utf8() } else { matched.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pre: PreTokenizer, text: &str, expected: &[&str]) {
        let splitter = Splitter::new(pre);
        let text = splitter.normalize(text);
        let mut words = Vec::new();
        splitter.split(&text, |word| words.push(word));
        assert_eq!(words, expected, "{pre:?}");
        assert_eq!(words.concat(), text);
    }

    #[test]
    fn a_run_of_spaces_leaves_its_last_to_the_next_word() {
        for (pre, _) in PreTokenizer::ALL {
            check(pre, "a   b", &["a", "  ", " b"]);
            check(pre, "a  ", &["a", "  "]);
            check(pre, " ", &[" "]);
            check(pre, "", &[]);
            check(pre, "a\u{3000}\u{2003}!", &["a", "\u{3000}", "\u{2003}", "!"]);
        }
    }

    #[test]
    fn line_breaks_stay_together_or_not() {
        check(PreTokenizer::Qwen2, "a \n\n  b;\n\nc", &["a", " \n\n", " ", " b", ";\n\n", "c"]);
        check(PreTokenizer::LlamaBpe, "a\r\n\tb", &["a", "\r\n", "\tb"]);
        check(PreTokenizer::Gpt2, "a \n\n  b;\n\nc", &["a", " \n\n ", " b", ";", "\n", "\n", "c"]);
        check(PreTokenizer::Gpt2, "a\n\nb", &["a", "\n", "\n", "b"]);
    }

    #[test]
    fn digits() {
        check(PreTokenizer::Qwen2, "x 1234", &["x", " ", "1", "2", "3", "4"]);
        check(PreTokenizer::LlamaBpe, "x 1234", &["x", " ", "123", "4"]);
        check(PreTokenizer::Gpt2, "x 1234", &["x", " 1234"]);
        // Digits are cut out first, so the spaces before one are at the end of their piece and stay together.
        check(PreTokenizer::Smollm, "x   12  y", &["x", "   ", "1", "2", " ", " y"]);
    }

    #[test]
    fn contractions() {
        check(PreTokenizer::Gpt2, "I'll DON'T", &["I", "'ll", " DON", "'", "T"]);
        check(PreTokenizer::Qwen2, "I'll DON'T", &["I", "'ll", " DON", "'T"]);
    }

    #[test]
    fn qwen2_composes() {
        check(PreTokenizer::Qwen2, "e\u{301}", &["\u{e9}"]);
        check(PreTokenizer::LlamaBpe, "e\u{301}", &["e", "\u{301}"]);
    }

    #[test]
    fn both_spellings_of_gpt_2_are_known() {
        assert_eq!(PreTokenizer::from_name("gpt-2").unwrap(), PreTokenizer::Gpt2);
        assert_eq!(PreTokenizer::from_name("gpt2").unwrap(), PreTokenizer::Gpt2);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = PreTokenizer::from_name("gpt-4o").unwrap_err().to_string();
        assert!(message.contains("\"gpt-4o\"") && message.contains("qwen2, smollm, gpt2, llama-bpe"), "{message}");
    }
}
