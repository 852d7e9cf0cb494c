//! One sentence each time the budget changes its mind, for those who want to know why.

use super::Decoder;
use crate::budget::Weighed;
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

impl<T: crate::target::Target, D, C> Decoder<T, D, C> {
    /// Says why, if the choice is another than the pass before.
    pub(super) fn explain(&mut self, weighed: &Weighed) {
        let choice = Choice::of(self.batch.iter().map(|&i| &self.sequences[i].tree));
        self.why = None;
        if choice == self.choice {
            return;
        }
        self.choice = choice;
        let names =
            self.seats.iter().enumerate().filter(|(index, _)| choice.has(*index)).map(|(_, seat)| seat.stats.name);
        let names = names.collect::<Vec<_>>().join(" and ");
        let Weighed { plain, best, all } = weighed;
        let (plain_ms, best_ms, all_ms) = (plain.seconds * 1e3, best.seconds * 1e3, all.seconds * 1e3);
        self.why = Some(match (names.as_str(), best.guesses, all.guesses) {
            ("", _, 0) => "no guesses: no drafter has any".to_owned(),
            ("", _, n) => format!(
                "no guesses: the {n} there are promise {:.2} tokens in {all_ms:.1} ms, plain decoding {:.0} in {plain_ms:.1} ms",
                all.tokens, plain.tokens
            ),
            (names, 0, _) => format!("guesses of {names} to learn what more rows cost"),
            (names, n, _) => format!(
                "{n} of {names}: they promise {:.2} tokens in {best_ms:.1} ms, plain decoding {:.0} in {plain_ms:.1} ms",
                best.tokens, plain.tokens
            ),
        });
    }
}
