//! Two columns of growing text on a terminal, redrawn in place.

use std::fmt::Write;
use std::io;

use console::Term;

use super::side::Side;
use crate::colour;
use crate::error::CliError;
use crate::output;

/// Lines around the text: titles, a rule above and below, counts, the legend, and one to spare.
const FRAME_LINES: usize = 7;

/// A drawing that replaces itself. When dropped it stays, and the cursor comes back.
pub struct Screen {
    term: Term,
    prompt: String,
    coloured: bool,
    /// Lines of the last drawing.
    drawn: usize,
}

impl Screen {
    /// Begins below the cursor, which is hidden.
    pub fn new(prompt: String) -> Self {
        let term = Term::stdout();
        // A cursor that stays only flickers.
        let _ = term.hide_cursor();
        Self { term, prompt, coloured: colour::wanted(&io::stdout()), drawn: 0 }
    }

    /// Draws how far the sides are, slowed down so many times.
    pub fn show(&mut self, sides: &[Side; 2], slower: f64) -> Result<(), CliError> {
        let (rows, columns) = self.term.size();
        let width = (usize::from(columns).saturating_sub(4) / 2).max(16);
        let height = usize::from(rows).saturating_sub(FRAME_LINES).max(3);
        let lines = self.frame(sides, slower, width, height);
        let mut out = String::new();
        if self.drawn > 0 {
            write!(out, "\x1b[{}A\r", self.drawn).expect("strings grow");
        }
        for line in &lines {
            writeln!(out, "{line}\x1b[K").expect("strings grow");
        }
        out.push_str("\x1b[J");
        self.drawn = lines.len();
        output::text(&out)
    }

    fn frame(&self, sides: &[Side; 2], slower: f64, width: usize, height: usize) -> Vec<String> {
        let columns = sides.each_ref().map(|side| {
            let mut column = Column::new(width);
            column.write(&self.prompt, None);
            let mut rest = side.text();
            for &(bytes, source) in side.pieces() {
                let end =
                    (bytes.min(rest.len())..=rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
                column.write(&rest[..end], Some(source));
                rest = &rest[end..];
            }
            column.end(height, self.coloured)
        });
        let title = |side: &Side| fit(side.name(), width);
        let counts = |side: &Side| {
            let speed = 1.0 / side.seconds_per_token();
            let per_pass = side.per_pass();
            fit(&format!("{} tokens, {per_pass:.2} a pass, {speed:.0}/s", side.tokens()), width)
        };
        let rule = format!("{}-+-{}", "-".repeat(width), "-".repeat(width));
        let beside = |f: &dyn Fn(&Side) -> String| format!("{} | {}", f(&sides[0]), f(&sides[1]));
        let mut lines = vec![beside(&title), rule.clone()];
        let n = columns[0].len().max(columns[1].len());
        let blank = " ".repeat(width);
        let line = |column: &[String], i: usize| column.get(i).cloned().unwrap_or_else(|| blank.clone());
        lines.extend((0..n).map(|i| format!("{} | {}", line(&columns[0], i), line(&columns[1], i))));
        lines.extend([rule, beside(&counts)]);
        let pace = if slower > 1.05 { format!("slowed down {slower:.0} times; ") } else { String::new() };
        lines.push(fit(&format!("{pace}{}", self.legend(&sides[1])), usize::MAX));
        lines
    }

    /// Who guessed what is coloured.
    fn legend(&self, side: &Side) -> String {
        let mut seen: Vec<u8> = side.pieces().iter().map(|&(_, source)| source).filter(|&source| source > 0).collect();
        seen.sort_unstable();
        seen.dedup();
        let names = side.drafters();
        let name = |&source: &u8| {
            let name = names.get(usize::from(source) - 1).copied().unwrap_or("?");
            if self.coloured { colour::paint(source, name) } else { name.to_owned() }
        };
        format!("guessed by {}", seen.iter().map(name).collect::<Vec<_>>().join(", "))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.term.show_cursor();
    }
}

/// Text cut or filled up to a width.
fn fit(text: &str, width: usize) -> String {
    let cut: String = text.chars().take(width).collect();
    if width == usize::MAX { cut } else { format!("{cut:width$}") }
}

/// Text broken into lines of a width, each character with who guessed it.
struct Column {
    width: usize,
    lines: Vec<Vec<(char, Option<u8>)>>,
}

impl Column {
    fn new(width: usize) -> Self {
        Self { width, lines: vec![Vec::new()] }
    }

    fn write(&mut self, text: &str, source: Option<u8>) {
        for c in text.chars() {
            match c {
                '\n' => self.lines.push(Vec::new()),
                '\t' => (0..4).for_each(|_| self.put(' ', source)),
                c if c.is_control() => self.put('\u{fffd}', source),
                c => self.put(c, source),
            }
        }
    }

    fn put(&mut self, c: char, source: Option<u8>) {
        if self.lines.last().is_some_and(|line| line.len() >= self.width) {
            self.lines.push(Vec::new());
        }
        self.lines.last_mut().expect("there is a line").push((c, source));
    }

    /// The last `height` lines, filled up to the width.
    fn end(self, height: usize, coloured: bool) -> Vec<String> {
        let first = self.lines.len().saturating_sub(height);
        let line = |line: &Vec<(char, Option<u8>)>| {
            let mut text = String::new();
            for run in line.chunk_by(|a, b| a.1 == b.1) {
                let run_text: String = run.iter().map(|&(c, _)| c).collect();
                match run[0].1 {
                    _ if !coloured => text.push_str(&run_text),
                    None => write!(text, "\x1b[2m{run_text}\x1b[0m").expect("strings grow"),
                    Some(source) => text.push_str(&colour::paint(source, &run_text)),
                }
            }
            text + &" ".repeat(self.width - line.len())
        };
        self.lines[first..].iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_break_fill_up_and_scroll() {
        let mut column = Column::new(4);
        column.write("abc", None);
        column.write("def\n\tx\u{1b}", Some(1));
        assert_eq!(column.end(3, false), ["ef  ", "    ", "x\u{fffd}  "]);
        let mut column = Column::new(4);
        column.write("ab", None);
        column.write("c", Some(0));
        column.write("d", Some(1));
        assert_eq!(column.end(9, true), [format!("\x1b[2mab\x1b[0mc{}", colour::paint(1, "d"))]);
    }
}
