//! Plain decoding: proposes nothing.

use super::{Draft, Drafter};
use crate::target::Target;

/// Never guesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDraft;

impl<T: Target> Drafter<T> for NoDraft {
    fn name(&self) -> &'static str {
        "none"
    }

    fn propose(&mut self, _drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {}
}
