//! Tells what was typed from what the template wrote, through any template.
//!
//! The first character of each special token inside a message is replaced by a private-use character that occurs
//! nowhere else. The template copies it like any other; after the template's own special tokens have been found, it is
//! changed back and its surroundings are encoded as plain text.

use std::collections::{HashMap, HashSet};

use crate::tokenizer::{TokenKind, Tokenizer};

/// The replacements in use.
pub(super) struct Guard {
    taken: HashSet<char>,
    stand_ins: HashMap<char, char>,
    originals: HashMap<char, char>,
}

fn is_private(c: char) -> bool {
    ('\u{100000}'..='\u{10FFFD}').contains(&c)
}

impl Guard {
    /// A guard that avoids every private character in these texts.
    pub(super) fn new<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let taken = texts.flat_map(str::chars).filter(|c| is_private(*c)).collect();
        Self { taken, stand_ins: HashMap::new(), originals: HashMap::new() }
    }

    /// Whether nothing was hidden.
    pub(super) fn is_idle(&self) -> bool {
        self.stand_ins.is_empty()
    }

    /// Breaks up all control tokens in a typed text, user-defined ones too if `all_kinds`.
    ///
    /// `None` when no private character is free.
    pub(super) fn hide(&mut self, tokenizer: &Tokenizer, text: &str, all_kinds: bool) -> Option<String> {
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text;
        // Every start of a match is broken, also one inside another match.
        while let Some((at, token)) = tokenizer.find_special(rest) {
            let after = at + rest[at..].chars().next().map_or(1, char::len_utf8);
            hidden.push_str(&rest[..at]);
            if all_kinds || tokenizer.kind(token) == TokenKind::Control {
                hidden.push(self.stand_in(rest[at..].chars().next()?)?);
            } else {
                hidden.push_str(&rest[at..after]);
            }
            rest = &rest[after..];
        }
        hidden.push_str(rest);
        Some(hidden)
    }

    /// The text as it was typed.
    pub(super) fn show(&self, text: &str) -> String {
        text.chars().map(|c| self.originals.get(&c).copied().unwrap_or(c)).collect()
    }

    fn stand_in(&mut self, original: char) -> Option<char> {
        if let Some(known) = self.stand_ins.get(&original) {
            return Some(*known);
        }
        let free = ('\u{100000}'..='\u{10FFFD}').find(|c| !self.taken.contains(c))?;
        self.taken.insert(free);
        self.stand_ins.insert(original, free);
        self.originals.insert(free, original);
        Some(free)
    }
}
