//! One sentence each time the budget changes its mind, for those who want to know why.

use std::fmt::{self, Write};

use super::Decoder;
use super::seat::Seat;
use crate::budget::Weighed;
use crate::target::Target;
use crate::tree::{Source, TokenTree};

/// Whose guesses a pass runs, and about how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Bit `s` for source `s`.
    sources: u128,
    /// 0 for none, then doubling.
    width: u32,
}

impl Choice {
    /// The choice that these trees show.
    pub fn of<'a>(trees: impl Iterator<Item = &'a TokenTree>) -> Self {
        let (mut sources, mut guesses) = (0, 0);
        for tree in trees {
            for guess in &tree.nodes()[tree.given()..] {
                sources |= 1u128 << u32::from(guess.source.0).min(127);
                guesses += 1;
            }
        }
        Self { sources, width: usize::BITS - usize::leading_zeros(guesses) }
    }

    /// Whether drafter `index` has guesses in it.
    fn has(&self, index: usize) -> bool {
        let Source(bit) = crate::budget::source_of(index);
        self.sources >> u32::from(bit).min(127) & 1 == 1
    }
}

impl<T: Target, D, C> Decoder<T, D, C> {
    /// Says why, if the choice is another than the pass before; else `why` is empty.
    pub(super) fn explain(&mut self, weighed: &Weighed) {
        let choice = Choice::of(self.batch.iter().map(|&i| &self.sequences[i].tree));
        self.why.clear();
        if choice == self.choice {
            return;
        }
        self.choice = choice;
        let names = Names(&self.seats, choice);
        let Weighed { plain, best, all } = weighed;
        let (plain_ms, best_ms, all_ms) = (plain.seconds * 1e3, best.seconds * 1e3, all.seconds * 1e3);
        let why = &mut self.why;
        let written = match (choice.sources, best.guesses, all.guesses) {
            (0, _, 0) => write!(why, "no guesses: no drafter has any"),
            (0, _, n) => write!(
                why,
                "no guesses: the {n} there are promise {:.2} tokens in {all_ms:.1} ms, plain decoding {:.0} in {plain_ms:.1} ms",
                all.tokens, plain.tokens
            ),
            (_, 0, _) => write!(why, "guesses of {names} to learn what more rows cost"),
            (_, n, _) => write!(
                why,
                "{n} of {names}: they promise {:.2} tokens in {best_ms:.1} ms, plain decoding {:.0} in {plain_ms:.1} ms",
                best.tokens, plain.tokens
            ),
        };
        written.expect("strings grow");
    }
}

/// The drafters of a choice, by name.
struct Names<'a, T: Target>(&'a [Seat<T>], Choice);

impl<T: Target> fmt::Display for Names<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seats, choice) = self;
        let names = seats.iter().enumerate().filter(|(index, _)| choice.has(*index)).map(|(_, seat)| seat.stats.name);
        names.enumerate().try_for_each(|(i, name)| write!(f, "{}{name}", if i > 0 { " and " } else { "" }))
    }
}
