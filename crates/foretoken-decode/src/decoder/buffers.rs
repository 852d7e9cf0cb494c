//! Lists that every pass fills anew, so that it allocates none of them.

use crate::budget::{Bid, Candidate};
use crate::drafters::{Draft, Observation};
use crate::target::Work;

/// What a pass lists. All are empty between passes.
///
/// Drafts and observations are kept as so many words, because they refer to what must not leave its thread, and the
/// decoder may.
#[derive(Default)]
pub(super) struct Buffers {
    pub work: Vec<Work<'static>>,
    pub drafts: Vec<[usize; words::<Draft<'_>>()]>,
    pub bids: Vec<Bid<'static>>,
    pub candidates: Vec<Candidate<'static>>,
    pub seen: Vec<[usize; words::<Observation<'_>>()]>,
    pub bidders: Vec<usize>,
}

const fn words<T>() -> usize {
    size_of::<T>() / size_of::<usize>()
}

/// The list without what it holds, for elements of another type of the same size: the allocation stays, which the standard
/// library's collecting in place sees to.
pub(super) fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

#[cfg(test)]
mod tests {
    use super::{emptied, words};

    #[test]
    fn an_emptied_list_keeps_its_allocation() {
        let text = String::from("a");
        let mut list: Vec<&str> = Vec::with_capacity(100);
        list.push(&text);
        let list: Vec<[usize; words::<&str>()]> = emptied(list);
        assert!(list.is_empty() && list.capacity() == 100);
    }
}
