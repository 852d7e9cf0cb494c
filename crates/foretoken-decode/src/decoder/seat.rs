//! A drafter's place in the loop: who asks for it, what came of it.

use crate::drafters::{Drafter, Retired};
use crate::target::Target;

/// What came of a drafter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrafterStats {
    /// The drafter's name.
    pub name: &'static str,
    /// Guesses proposed.
    pub proposed: usize,
    /// Of these, tokens outside the vocabulary or chances that are no number.
    pub nonsense: usize,
    /// Of these, too many or too deep.
    pub over_limit: usize,
    /// Sequences it gave up, by reason.
    pub retired: Vec<Retired>,
}

/// A drafter and its books.
pub(super) struct Seat<T: Target> {
    pub drafter: Box<dyn Drafter<T>>,
    pub stats: DrafterStats,
    /// Whether requests that name no drafters ask it.
    pub by_default: bool,
}

impl<T: Target> Seat<T> {
    pub fn new(drafter: Box<dyn Drafter<T>>, by_default: bool) -> Self {
        let stats = DrafterStats { name: drafter.name(), ..DrafterStats::default() };
        Self { drafter, stats, by_default }
    }
}
