//! Colours on a terminal: one for each drafter.

use std::env;
use std::fmt::Write;
use std::io::IsTerminal;

/// Numbers in the palette of 256, readable on dark and light. Those that `auto` asks are easiest to tell apart.
const COLOURS: [u8; 11] = [33, 208, 35, 170, 203, 37, 130, 178, 62, 99, 100];

/// Whether text written to `stream` is coloured: on a terminal, unless `NO_COLOR` is set (<https://no-color.org>) or the
/// terminal knows no colours.
pub fn wanted(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text in the colour of a drafter, counted from 1; 0 is the model itself, which has none.
pub fn paint(source: u8, text: &str) -> String {
    let Some(index) = usize::from(source).checked_sub(1) else { return text.to_owned() };
    let colour = COLOURS[index % COLOURS.len()];
    let mut painted = String::with_capacity(text.len() + 16);
    // A colour that goes on over the end of a line is lost in pagers.
    for line in text.split_inclusive('\n') {
        let (words, end) = line.strip_suffix('\n').map_or((line, ""), |words| (words, "\n"));
        match words {
            "" => painted.push_str(end),
            _ => write!(painted, "\x1b[38;5;{colour}m{words}\x1b[0m{end}").expect("strings grow"),
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use foretoken_engine::Method;

    use super::*;

    #[test]
    fn those_that_draft_together_look_different() {
        let together = ["suffix", "recycle", "grammar", "mtp", "draft_model", "requantised"];
        let source = |name: &str| 1 + Method::names().position(|other| other == name).expect("a drafter");
        let colours = together.map(|name| paint(source(name) as u8, "a"));
        assert_eq!(BTreeSet::from(colours).len(), together.len());
    }

    #[test]
    fn colours_end_with_the_line() {
        assert_eq!(paint(0, "a\nb"), "a\nb");
        assert_eq!(paint(1, "a\n\nb"), "\x1b[38;5;33ma\x1b[0m\n\n\x1b[38;5;33mb\x1b[0m");
        assert_eq!(paint(12, "a"), paint(1, "a"));
    }
}
