//! Markup and text, kept apart by type.

use std::fmt::{self, Display, Write};

/// Markup. Made from our own words and escaped text only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(pub(crate) String);

impl Html {
    /// An element around markup. `open` is the tag's name with its attributes, whose values are the caller's own.
    pub fn element(open: &str, inner: impl Into<Html>) -> Self {
        let name = open.split_whitespace().next().unwrap_or(open);
        Self(format!("<{open}>{}</{name}>", inner.into().0))
    }

    /// An element of text.
    pub fn text(open: &str, text: impl Display) -> Self {
        Self::element(open, Self(escape(text)))
    }

    /// An element that has no inside, such as `input`.
    pub fn void(open: &str) -> Self {
        Self(format!("<{open}>"))
    }

    /// Adds more markup behind.
    pub fn push(&mut self, more: impl Into<Html>) {
        self.0.push_str(&more.into().0);
    }
}

impl From<&str> for Html {
    fn from(text: &str) -> Self {
        Self(escape(text))
    }
}

impl Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect())
    }
}

/// Text as markup that shows it, also inside an attribute's value. Control characters, which HTML cannot hold, become
/// U+FFFD.
pub fn escape(text: impl Display) -> String {
    let text = text.to_string();
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' | '\'' => write!(shown, "&#{};", u32::from(c)).expect("strings grow"),
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.push('\u{fffd}'),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<b a='x' b=\"y\">&"), "&#60;b a=&#39;x&#39; b=&#34;y&#34;&#62;&#38;");
        assert_eq!(escape("a\u{0}\u{1b}[2J\r\n\tb"), "a\u{fffd}\u{fffd}[2J\u{fffd}\n\tb");
        assert_eq!(Html::text("p class=\"x\"", "1 < 2").to_string(), "<p class=\"x\">1 &#60; 2</p>");
    }
}
