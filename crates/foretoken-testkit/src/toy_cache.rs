//! A paged cache of tokens: pages in a shuffled order, tentative rows until committed, every read checked.

use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, SequenceId};
use foretoken_decode::tree::{NodeId, TokenTree};

use crate::rng::Rng;

/// What a freed slot holds; reading it is an error of the loop or the cache.
const POISON: Slot = Slot { token: TokenId::MAX, position: u32::MAX, whole: false };

/// Stands for the K and V of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slot {
    token: TokenId,
    position: u32,
    /// Whether all layers were run.
    whole: bool,
}

#[derive(Debug, Default)]
struct Entry {
    open: bool,
    pages: Vec<usize>,
    committed: usize,
    /// Parents of the tentative rows, which lie in the slots after the committed ones.
    tentative: Vec<NodeId>,
}

/// The toy target's cache.
#[derive(Debug)]
pub struct ToyCache {
    page_size: usize,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// `[page]`: sequences that hold it.
    holders: Vec<usize>,
    entries: Vec<Entry>,
}

impl ToyCache {
    /// A cache of `n_pages` pages of `page_size` tokens, handed out in an order that depends on `seed`.
    pub fn new(page_size: usize, n_pages: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut free: Vec<usize> = (0..n_pages).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, rng.below(i + 1));
        }
        Self {
            page_size,
            slots: vec![POISON; page_size * n_pages],
            free,
            holders: vec![0; n_pages],
            entries: Vec::new(),
        }
    }

    /// Pages in use by any sequence.
    pub fn pages_in_use(&self) -> usize {
        self.slots.len() / self.page_size - self.free.len()
    }

    /// Pages free.
    pub fn pages_free(&self) -> usize {
        self.free.len()
    }

    /// The committed tokens of a sequence, read from its pages.
    pub fn tokens(&self, sequence: SequenceId) -> Vec<TokenId> {
        (0..self.committed(sequence)).map(|position| self.read(sequence, position, position, true)).collect()
    }

    /// Pages missing for `n_rows` more rows in a sequence.
    pub(crate) fn pages_missing(&self, sequence: SequenceId, n_rows: usize) -> usize {
        let entry = self.entry(sequence);
        let missing = (entry.committed + n_rows).div_ceil(self.page_size).saturating_sub(entry.pages.len());
        missing + usize::from(self.shared_tail(sequence).is_some())
    }

    /// The index of the page that the next row falls into, when it holds rows and another sequence holds it too.
    fn shared_tail(&self, sequence: SequenceId) -> Option<usize> {
        let entry = self.entry(sequence);
        let index = entry.committed / self.page_size;
        entry.pages.get(index).filter(|&&page| self.holders[page] > 1).map(|_| index)
    }

    /// Copies a page that is shared and about to be written.
    fn own_tail(&mut self, sequence: SequenceId) {
        if let Some(index) = self.shared_tail(sequence) {
            let copy = self.take_page();
            let page = std::mem::replace(&mut self.entries[sequence.0 as usize].pages[index], copy);
            let start = page * self.page_size;
            self.slots.copy_within(start..start + self.page_size, copy * self.page_size);
            self.holders[page] -= 1;
        }
    }

    fn take_page(&mut self) -> usize {
        let page = self.free.pop().expect("pages were counted before");
        self.holders[page] = 1;
        page
    }

    /// Writes the rows of a tree as tentative; there are enough pages. `whole`: through all layers.
    pub(crate) fn stage(&mut self, sequence: SequenceId, tree: &TokenTree, whole: bool) {
        let committed = self.entry(sequence).committed;
        self.own_tail(sequence);
        self.resize(sequence, committed + tree.len());
        for (node, row) in tree.nodes().iter().enumerate() {
            let slot = self.slot(sequence, committed + node);
            self.slots[slot] = Slot { token: row.token, position: committed as u32 + row.depth, whole };
        }
        self.entries[sequence.0 as usize].tentative = tree.nodes().iter().map(|n| n.parent).collect();
    }

    /// Drops all tentative rows.
    pub(crate) fn drop_tentative(&mut self) {
        for id in 0..self.entries.len() {
            if self.entries[id].open {
                self.commit(SequenceId(id as u32), &[]);
            }
        }
    }

    /// The last `n` tokens of a tentative row's path, latest first, fewer at the start of the text. A `whole` row may only
    /// read whole ones.
    pub(crate) fn path_back(&self, sequence: SequenceId, node: NodeId, n: usize, whole: bool) -> Vec<TokenId> {
        let entry = self.entry(sequence);
        let mut path = Vec::with_capacity(n);
        let mut row = Some(node);
        let start = self.slots[self.slot(sequence, entry.committed + node)].position as usize;
        for position in (0..=start).rev().take(n) {
            match row {
                Some(node) => {
                    path.push(self.read(sequence, entry.committed + node, position, whole));
                    row = (node != 0).then(|| entry.tentative[node]);
                }
                None => path.push(self.read(sequence, position, position, whole)),
            }
        }
        path
    }

    /// Reads a slot that has to hold this position.
    fn read(&self, sequence: SequenceId, index: usize, position: usize, whole: bool) -> TokenId {
        let slot = self.slots[self.slot(sequence, index)];
        assert_eq!(slot.position as usize, position, "slot {index} of {sequence:?} holds another position");
        assert!(slot.whole || !whole, "slot {index} of {sequence:?} was run through some layers only");
        slot.token
    }

    fn slot(&self, sequence: SequenceId, index: usize) -> usize {
        self.entry(sequence).pages[index / self.page_size] * self.page_size + index % self.page_size
    }

    fn entry(&self, sequence: SequenceId) -> &Entry {
        let entry = &self.entries[sequence.0 as usize];
        assert!(entry.open, "{sequence:?} is closed");
        entry
    }

    /// Takes or frees pages so that a sequence has those of `len` slots, and poisons what nobody holds any longer.
    fn resize(&mut self, sequence: SequenceId, len: usize) {
        let n_pages = len.div_ceil(self.page_size);
        while self.entry(sequence).pages.len() > n_pages {
            let page = self.entries[sequence.0 as usize].pages.pop().expect("more than n_pages");
            self.holders[page] -= 1;
            if self.holders[page] == 0 {
                self.slots[page * self.page_size..][..self.page_size].fill(POISON);
                self.free.insert(self.free.len() / 2, page);
            }
        }
        while self.entry(sequence).pages.len() < n_pages {
            let page = self.take_page();
            self.entries[sequence.0 as usize].pages.push(page);
        }
        if let Some(&last) = self.entry(sequence).pages.last().filter(|&&page| self.holders[page] == 1) {
            let end = (last + 1) * self.page_size;
            self.slots[end - (n_pages * self.page_size - len)..end].fill(POISON);
        }
    }
}

impl Cache for ToyCache {
    fn open(&mut self) -> SequenceId {
        let id = self.entries.iter().position(|entry| !entry.open).unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() - 1
        });
        self.entries[id].open = true;
        SequenceId(id as u32)
    }

    fn close(&mut self, sequence: SequenceId) {
        self.truncate(sequence, 0);
        self.entries[sequence.0 as usize].open = false;
    }

    fn share(&mut self, from: SequenceId, len: usize, to: SequenceId) {
        assert!(self.entry(to).pages.is_empty(), "rows are shared with an empty sequence");
        assert!(len <= self.committed(from), "only committed rows are shared");
        let pages = self.entry(from).pages[..len.div_ceil(self.page_size)].to_vec();
        pages.iter().for_each(|&page| self.holders[page] += 1);
        let entry = &mut self.entries[to.0 as usize];
        (entry.pages, entry.committed) = (pages, len);
    }

    fn free_tokens(&self) -> usize {
        self.free.len() * self.page_size
    }

    fn committed(&self, sequence: SequenceId) -> usize {
        self.entry(sequence).committed
    }

    fn commit(&mut self, sequence: SequenceId, path: &[NodeId]) {
        let entry = self.entry(sequence);
        let (committed, rows) = (entry.committed, entry.tentative.len());
        assert!(path.len() <= rows, "the path is longer than the tree");
        for (i, &node) in path.iter().enumerate() {
            let parent = if i == 0 { 0 } else { path[i - 1] };
            assert_eq!(self.entry(sequence).tentative[node], parent, "a path goes from the first node down");
            let (from, to) = (self.slot(sequence, committed + node), self.slot(sequence, committed + i));
            self.slots[to] = self.slots[from];
        }
        let entry = &mut self.entries[sequence.0 as usize];
        entry.committed += path.len();
        entry.tentative.clear();
        self.resize(sequence, committed + path.len());
    }

    fn truncate(&mut self, sequence: SequenceId, len: usize) {
        let entry = &mut self.entries[sequence.0 as usize];
        assert!(entry.open, "{sequence:?} is closed");
        entry.tentative.clear();
        entry.committed = entry.committed.min(len);
        let committed = entry.committed;
        self.resize(sequence, committed);
    }
}
