//! Runs one request until it ends or Ctrl-C is pressed, and streams its text, on request coloured by who guessed it.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;

use foretoken_decode::tree::Source;
use foretoken_engine::{Engine, Event, Outcome, Request, TokenId};

use crate::colour;
use crate::error::CliError;
use crate::interrupt::Watch;
use crate::output;

/// What a pass brought.
pub struct Piece<'a> {
    /// Its tokens.
    pub tokens: &'a [TokenId],
    /// Who guessed each.
    pub sources: &'a [Source],
    /// New text, which may lag behind the tokens.
    pub text: &'a str,
    /// Why the guesses of the pass were chosen, when that has changed.
    pub why: Option<&'a str>,
}

/// Runs a request; `on_piece` sees what every pass brought.
pub fn answer(
    engine: &mut Engine,
    request: Request,
    mut on_piece: impl FnMut(&Piece<'_>) -> Result<(), CliError>,
) -> Result<Outcome, CliError> {
    let watch = Watch::start();
    let mut told = Ok(());
    let outcome = engine.scheduler().run(request, |event| {
        if let &Event::Progress { tokens, sources, text, why, .. } = event
            && told.is_ok()
        {
            told = on_piece(&Piece { tokens, sources, text, why });
        }
        if watch.pressed() || told.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    told.map(|()| outcome)
}

/// What is shown of an answer beside its text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Colours: who guessed each token.
    pub sources: bool,
    /// A sentence for each change in what is drafted.
    pub why: bool,
}

/// Runs a request and writes its text to standard output as it comes.
pub fn stream(engine: &mut Engine, request: Request, shown: Shown) -> Result<Outcome, CliError> {
    let coloured = shown.sources && colour::wanted(&io::stdout());
    let tokenizer = engine.file().tokenizer().clone();
    let names = engine.drafters();
    let mut painter = Painter::default();
    let mut reasons = Reasons::default();
    let outcome = answer(engine, request, |piece| {
        let len = |token| if tokenizer.is_special(token) { 0 } else { tokenizer.token_bytes(token).len() };
        painter.expect(piece.tokens.iter().map(|&token| len(token)).zip(piece.sources.iter().copied()));
        reasons.take(piece);
        if coloured { output::text(&painter.paint(piece.text)) } else { output::text(piece.text) }
    })?;
    if shown.sources {
        output::note(format_args!("\n\n{}", painter.legend(&names, colour::wanted(&io::stderr()))));
    }
    if shown.why {
        output::note(format_args!("\n\n{}", reasons.lines.join("\n")));
    }
    Ok(outcome)
}

/// Why guesses were chosen, from which token on.
#[derive(Debug, Default)]
pub struct Reasons {
    n_tokens: usize,
    /// One for each change.
    pub lines: Vec<String>,
}

impl Reasons {
    /// Takes in what a pass brought.
    pub fn take(&mut self, piece: &Piece<'_>) {
        self.lines.extend(piece.why.map(|why| format!("token {:>5}: {why}", self.n_tokens)));
        self.n_tokens += piece.tokens.len();
    }
}

/// Colours text by the tokens it is of. Text may come later than its tokens, while it could become a stop string.
#[derive(Debug, Default)]
struct Painter {
    /// Bytes of text still to come, by who guessed them.
    expected: VecDeque<(usize, Source)>,
    /// `[source]`: tokens.
    counts: Vec<usize>,
}

impl Painter {
    /// Takes tokens in, as the number of their bytes and who guessed them.
    fn expect(&mut self, tokens: impl Iterator<Item = (usize, Source)>) {
        for (bytes, source) in tokens {
            let index = usize::from(source.0);
            self.counts.resize(self.counts.len().max(index + 1), 0);
            self.counts[index] += 1;
            self.expected.push_back((bytes, source));
        }
    }

    /// The next of the text. A character that belongs to several tokens goes with the first.
    fn paint(&mut self, text: &str) -> String {
        let mut painted = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let Some((bytes, source)) = self.expected.pop_front() else {
                painted.push_str(rest);
                break;
            };
            let end = (bytes..rest.len()).find(|&end| rest.is_char_boundary(end)).unwrap_or(rest.len());
            let (piece, more) = rest.split_at(end);
            if bytes > rest.len() {
                self.expected.push_front((bytes - rest.len(), source));
            }
            // What a piece took from the tokens behind it is theirs no more.
            let mut over = end.saturating_sub(bytes);
            while over > 0
                && let Some((bytes, _)) = self.expected.front_mut()
            {
                let taken = over.min(*bytes);
                (*bytes, over) = (*bytes - taken, over - taken);
                if *bytes == 0 {
                    self.expected.pop_front();
                }
            }
            painted.push_str(&colour::paint(source.0, piece));
            rest = more;
        }
        painted
    }

    /// How many tokens each gave.
    fn legend(&self, names: &[&str], coloured: bool) -> String {
        let total: usize = self.counts.iter().sum();
        let names = std::iter::once("the model itself").chain(names.iter().copied());
        let parts =
            names.zip(&self.counts).zip(0..).filter(|((_, count), _)| **count > 0).map(|((name, count), source)| {
                let part = format!("■ {name} {:.0} %", 100.0 * *count as f64 / total as f64);
                if coloured { colour::paint(source, &part) } else { part }
            });
        parts.collect::<Vec<_>>().join("  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painter(tokens: &[(usize, u8)]) -> Painter {
        let mut painter = Painter::default();
        painter.expect(tokens.iter().map(|&(bytes, source)| (bytes, Source(source))));
        painter
    }

    #[test]
    fn late_text_has_the_colour_of_its_tokens() {
        let mut painter = painter(&[(2, 1), (1, 0), (3, 2)]);
        assert_eq!(painter.paint("a"), colour::paint(1, "a"));
        assert_eq!(painter.paint(""), "");
        assert_eq!(painter.paint("bcdef"), colour::paint(1, "b") + "c" + &colour::paint(2, "def"));
        assert_eq!(painter.paint("x"), "x", "text that nothing announced is plain");
        let legend = painter.legend(&["suffix", "recycle"], false);
        assert_eq!(legend, "■ the model itself 33 %  ■ suffix 33 %  ■ recycle 33 %");
    }

    #[test]
    fn a_character_of_several_tokens_goes_with_the_first() {
        let mut painter = painter(&[(1, 1), (2, 2), (2, 0)]);
        // The fox has four bytes: one of the first token, two of the second, one of the third.
        assert_eq!(painter.paint("🦊x"), colour::paint(1, "🦊") + "x");
    }
}
