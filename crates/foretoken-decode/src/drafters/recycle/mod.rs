//! Token Recycling (Luo et al. 2024, arXiv 2408.08696): every row that the target runs says which tokens it found likely
//! next, whatever came; the table of these successors is unrolled to a tree.
//!
//! Beyond the paper: successors are looked up by the last one, two and three tokens; what the row before found likely beside
//! its token, and rejected rows at the same positions, count too; siblings are drawn with the request's own processors and
//! noise; and all of it is weighed as in `recall`, which this is without its copies of the text.

mod rows;
mod table;

use super::recall::Recall;
use super::{Draft, Drafter, Observation};
use crate::target::{SequenceId, Target};
pub(super) use rows::RowReader;
pub(super) use table::{Context, ORDERS, Successors, Table};

/// Drafts what past rows found likely.
#[derive(Debug)]
pub struct Recycle(Recall);

impl Default for Recycle {
    fn default() -> Self {
        Self(Recall::of_rows())
    }
}

impl<T: Target> Drafter<T> for Recycle {
    fn name(&self) -> &'static str {
        "recycle"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut T, cache: &mut T::Cache) {
        self.0.propose(drafts, target, cache);
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        Drafter::<T>::observe(&mut self.0, seen);
    }

    fn bytes(&self) -> usize {
        Drafter::<T>::bytes(&self.0)
    }

    fn forget(&mut self, sequence: SequenceId) {
        Drafter::<T>::forget(&mut self.0, sequence);
    }

    fn unlearn(&mut self) {
        Drafter::<T>::unlearn(&mut self.0);
    }
}
