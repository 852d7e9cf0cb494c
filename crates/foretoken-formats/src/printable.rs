//! Text from a file, made safe to show: a terminal obeys control characters, whoever wrote them.

use std::fmt::Write;

/// `text` with control characters, line ends among them, and marks that turn the direction of writing as Rust's escapes.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if c.is_control() || reorders(c) => write!(shown, "{}", c.escape_default()).expect("strings grow"),
            _ => shown.push(c),
        }
    }
    shown
}

/// The characters of Unicode's property `Bidi_Control`, and the two that separate lines and paragraphs.
fn reorders(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn only_what_steers_a_terminal_is_escaped() {
        assert_eq!(printable("Größe 名前 🦊 e\u{301} \"a\\b\""), "Größe 名前 🦊 e\u{301} \"a\\b\"");
        assert_eq!(printable("\x1b[2J\x07\r\n\u{9b}1m\x7f"), r"\u{1b}[2J\u{7}\r\n\u{9b}1m\u{7f}");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{200f}"), r"a\u{202e}b\u{2066}c\u{200f}");
    }
}
