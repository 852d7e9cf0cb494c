//! Pages of K/V rows, shared by prefix, tentative until committed.
//!
//! A page holds [`KEY_CHUNK`] logical positions of one sequence for every layer. The rows of a pass that continue the
//! committed text in a straight line (a prompt chunk, the first branch of a tree) are written where they will stay;
//! the rows of other branches are *staged* in pages of their own and moved when their path is committed. Rolling back
//! is not advancing: nothing reads a position at or past the committed length that the pass at hand did not write.

use std::collections::BTreeMap;

use foretoken_decode::target::{Cache, SequenceId, TargetError};
use foretoken_decode::tree::{NodeId, TokenTree};
use foretoken_kernels::Isa;
use foretoken_kernels::arena::{Arena, ArenaError, ArenaSlice};
use foretoken_kernels::attention::{KEY_CHUNK, KvChunk, KvChunkMut, KvType};

/// Index of a page in the cache.
type PageId = u32;

/// Sizes of one model's K/V rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers that keep rows.
    pub layers: usize,
    /// K/V heads a layer.
    pub heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// How they are stored.
    pub kv_type: KvType,
    /// Values of the hidden state that is kept beside a position's rows; 0 for none.
    pub state: usize,
}

impl KvShape {
    /// Bytes of one head's K (or V) in one page.
    pub fn chunk_bytes(&self) -> usize {
        self.kv_type.chunk_bytes(self.head_dim)
    }

    /// K and V at the start of `bytes`.
    pub(crate) fn chunk<'a>(&self, bytes: &'a [u8]) -> KvChunk<'a> {
        let n = self.chunk_bytes();
        KvChunk::new(self.kv_type, self.head_dim, &bytes[..n], &bytes[n..2 * n])
    }

    /// K and V at the start of `bytes`, to be written.
    pub(crate) fn chunk_mut<'a>(&self, bytes: &'a mut [u8]) -> KvChunkMut<'a> {
        let n = self.chunk_bytes();
        let (k, v) = bytes[..2 * n].split_at_mut(n);
        KvChunkMut::new(self.kv_type, self.head_dim, k, v)
    }

    /// Bytes of a page's rows: K and V of every head and layer.
    fn rows_bytes(&self) -> usize {
        self.layers * self.heads * self.chunk_bytes() * 2
    }

    /// Bytes of a page: its rows and hidden states.
    pub fn page_bytes(&self) -> usize {
        self.rows_bytes() + KEY_CHUNK * self.state * size_of::<f32>()
    }
}

/// Where a pass put the row of a tree node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At its logical position in the sequence's own pages.
    Home,
    /// In this slot of the sequence's staging pages.
    Staged(usize),
}

/// The rows of the last pass of one sequence.
#[derive(Debug, Default)]
struct Tentative {
    places: Vec<Place>,
    staging: Vec<PageId>,
}

#[derive(Debug, Default)]
struct Sequence {
    pages: Vec<PageId>,
    committed: usize,
    tentative: Tentative,
    readings: Vec<Reading>,
}

/// How far a prediction module has read a sequence: its K/V rows lag behind the model's, by as much as nobody asked it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// Positions read, from the first on. A row depends on the tokens up to its own alone, so it may be shared.
    pub rows: usize,
    /// What the module made of the last of them; empty where that is not known.
    pub last: Vec<f32>,
}

impl Reading {
    fn cut(&mut self, len: usize) {
        if self.rows > len {
            self.rows = len;
            self.last.clear();
        }
    }
}

/// Who holds which page.
struct Pages {
    /// Pages nobody holds; the last is taken first.
    free: Vec<PageId>,
    holders: Vec<u32>,
}

impl Pages {
    fn take(&mut self) -> PageId {
        let page = self.free.pop().expect("room was checked");
        self.holders[page as usize] = 1;
        page
    }

    fn release(&mut self, page: PageId) {
        let holders = &mut self.holders[page as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }

    /// Releases all pages but the first `keep`.
    fn shrink(&mut self, held: &mut Vec<PageId>, keep: usize) {
        while held.len() > keep {
            self.release(held.pop().expect("it is longer than that"));
        }
    }
}

/// The paged K/V cache of one model.
pub struct PagedCache {
    shape: KvShape,
    /// `[page][layer][head][k, v]` chunks: a short text touches few huge pages, which the system has to clear first.
    rows: ArenaSlice,
    /// `[page][position][state]`
    states: Vec<f32>,
    pages: Pages,
    sequences: BTreeMap<SequenceId, Sequence>,
    next_sequence: u32,
}

/// One position in the cache: a page and an offset inside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub page: PageId,
    pub offset: usize,
}

impl PagedCache {
    /// A cache of `n_tokens` positions in all, rounded up to pages. Memory is touched only as pages are used.
    pub fn new(shape: KvShape, n_tokens: usize) -> Result<Self, ArenaError> {
        let n_pages = n_tokens.div_ceil(KEY_CHUNK);
        // What is too much to be counted is more than any system has.
        let bytes = n_pages.saturating_mul(shape.rows_bytes());
        Ok(Self {
            shape,
            rows: Arena::new(bytes)?.take(bytes)?,
            states: vec![0.0; n_pages * KEY_CHUNK * shape.state],
            pages: Pages { free: (0..n_pages as PageId).rev().collect(), holders: vec![0; n_pages] },
            sequences: BTreeMap::new(),
            next_sequence: 0,
        })
    }

    /// The sizes it was made for.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Pages nobody holds.
    pub fn free_pages(&self) -> usize {
        self.pages.free.len()
    }

    /// Pages in all.
    pub fn n_pages(&self) -> usize {
        self.pages.holders.len()
    }

    /// Hands pages out in another order (`random(n)` is below `n`): placement must not matter, and tests show it.
    pub fn shuffle_free_pages(&mut self, mut random: impl FnMut(usize) -> usize) {
        for i in (1..self.pages.free.len()).rev() {
            self.pages.free.swap(i, random(i + 1));
        }
    }

    fn sequence_mut(&mut self, id: SequenceId) -> &mut Sequence {
        self.sequences.get_mut(&id).expect("the sequence is open")
    }

    /// Makes room for the rows of `tree` and decides where each goes. On an error nothing has changed but that earlier
    /// tentative rows are gone.
    pub(crate) fn stage(&mut self, id: SequenceId, tree: &TokenTree) -> Result<(), TargetError> {
        self.drop_tentative(id);
        let sequence = self.sequences.get_mut(&id).expect("the sequence is open");
        let places = &mut sequence.tentative.places;
        let (mut tip, mut staged) = (0, 0);
        for (node, n) in tree.nodes().iter().enumerate() {
            if node == 0 || (n.parent == tip && n.depth == tree.nodes()[tip].depth + 1) {
                places.push(Place::Home);
                tip = node;
            } else {
                places.push(Place::Staged(staged));
                staged += 1;
            }
        }
        let deepest = tree.nodes().iter().map(|n| n.depth as usize).max().unwrap_or(0);
        let end = (sequence.committed + deepest + 1).div_ceil(KEY_CHUNK);
        let first = sequence.committed / KEY_CHUNK;
        let shared = sequence.pages.get(first).copied().filter(|&page| self.pages.holders[page as usize] > 1);
        let staging = staged.div_ceil(KEY_CHUNK);
        let needed = end.saturating_sub(sequence.pages.len()) + usize::from(shared.is_some()) + staging;
        if needed > self.pages.free.len() {
            places.clear();
            return Err(TargetError::CacheFull { needed, free: self.pages.free.len() });
        }
        sequence.tentative.staging.extend((0..staging).map(|_| self.pages.take()));
        while sequence.pages.len() < end {
            sequence.pages.push(self.pages.take());
        }
        if let Some(original) = shared {
            let copy = self.pages.take();
            sequence.pages[first] = copy;
            self.copy_page(original, copy);
            self.pages.release(original);
        }
        Ok(())
    }

    /// Where the last [`Self::stage`] put a node.
    pub(crate) fn place(&self, id: SequenceId, node: NodeId) -> Place {
        self.sequences[&id].tentative.places[node]
    }

    /// The cache position of a tentative node whose logical position is `logical`.
    pub(crate) fn position(&self, id: SequenceId, node: NodeId, logical: usize) -> Position {
        let sequence = &self.sequences[&id];
        let (pages, at) = match sequence.tentative.places[node] {
            Place::Home => (&sequence.pages, logical),
            Place::Staged(slot) => (&sequence.tentative.staging, slot),
        };
        Position { page: pages[at / KEY_CHUNK], offset: at % KEY_CHUNK }
    }

    /// The pages of a sequence, by logical chunk.
    pub(crate) fn page_table(&self, id: SequenceId) -> &[PageId] {
        &self.sequences[&id].pages
    }

    /// Whether the sequence is open.
    pub fn contains(&self, id: SequenceId) -> bool {
        self.sequences.contains_key(&id)
    }

    fn chunk_start(&self, layer: usize, page: PageId, head: usize) -> usize {
        ((page as usize * self.shape.layers + layer) * self.shape.heads + head) * 2 * self.shape.chunk_bytes()
    }

    /// K and V of one head in one page.
    pub(crate) fn chunk(&self, layer: usize, page: PageId, head: usize) -> KvChunk<'_> {
        self.shape.chunk(&self.rows[self.chunk_start(layer, page, head)..])
    }

    /// Stores one position's K and V of one head, `[head_dim]` each.
    pub(crate) fn store(&mut self, isa: Isa, layer: usize, head: usize, at: Position, k: &[f32], v: &[f32]) {
        let start = self.chunk_start(layer, at.page, head);
        let mut chunk = self.shape.chunk_mut(&mut self.rows[start..]);
        chunk.store_k(isa, at.offset, k);
        chunk.store_v(isa, at.offset, v);
    }

    /// Keeps a position's hidden state.
    pub(crate) fn keep_state(&mut self, at: Position, state: &[f32]) {
        let start = self.state_start(at);
        self.states[start..start + state.len()].copy_from_slice(state);
    }

    /// The hidden state of a committed row.
    pub(crate) fn state(&self, id: SequenceId, row: usize) -> &[f32] {
        let page = self.page_table(id)[row / KEY_CHUNK];
        let start = self.state_start(Position { page, offset: row % KEY_CHUNK });
        &self.states[start..start + self.shape.state]
    }

    fn state_start(&self, at: Position) -> usize {
        (at.page as usize * KEY_CHUNK + at.offset) * self.shape.state
    }

    /// How far a prediction module has read the sequence.
    pub(crate) fn reading(&self, id: SequenceId, module: usize) -> Reading {
        self.sequences[&id].readings.get(module).cloned().unwrap_or_default()
    }

    /// Says how far a prediction module has read the sequence.
    pub(crate) fn set_reading(&mut self, id: SequenceId, module: usize, reading: Reading) {
        let readings = &mut self.sequence_mut(id).readings;
        readings.resize_with(readings.len().max(module + 1), Reading::default);
        readings[module] = reading;
    }

    /// The bytes of K and V of one head in one page.
    pub(crate) fn chunk_bytes_at(&self, layer: usize, page: PageId, head: usize) -> &[u8] {
        let start = self.chunk_start(layer, page, head);
        &self.rows[start..start + 2 * self.shape.chunk_bytes()]
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        let [source, target] = [from, to].map(|page| self.chunk_start(0, page, 0));
        self.rows.copy_within(source..source + self.shape.rows_bytes(), target);
        let [source, target] = [from, to].map(|page| self.state_start(Position { page, offset: 0 }));
        self.states.copy_within(source..source + KEY_CHUNK * self.shape.state, target);
    }

    /// Copies one position's K/V of every layer and head, and its hidden state.
    fn copy_position(&mut self, from: Position, to: Position) {
        let KvShape { layers, heads, .. } = self.shape;
        let shape = self.shape;
        for (layer, head) in (0..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))) {
            let source = self.chunk_start(layer, from.page, head);
            let target = self.chunk_start(layer, to.page, head);
            let (low, high) = self.rows.split_at_mut(source.max(target));
            let (source, target) =
                if source < target { (&low[source..], &mut high[..]) } else { (&high[..], &mut low[target..]) };
            shape.chunk_mut(target).copy_position(shape.chunk(source), from.offset, to.offset);
        }
        let [source, target] = [from, to].map(|at| self.state_start(at));
        self.states.copy_within(source..source + shape.state, target);
    }

    fn drop_tentative(&mut self, id: SequenceId) {
        let Sequence { pages, committed, tentative, .. } = self.sequences.get_mut(&id).expect("the sequence is open");
        tentative.places.clear();
        self.pages.shrink(&mut tentative.staging, 0);
        self.pages.shrink(pages, committed.div_ceil(KEY_CHUNK));
    }
}

impl Cache for PagedCache {
    fn open(&mut self) -> SequenceId {
        let id = SequenceId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, Sequence::default());
        id
    }

    fn close(&mut self, id: SequenceId) {
        self.truncate(id, 0);
        self.sequences.remove(&id);
    }

    fn share(&mut self, from: SequenceId, len: usize, to: SequenceId) {
        let source = &self.sequences[&from];
        assert!(len <= source.committed, "only committed rows are shared");
        let pages = source.pages[..len.div_ceil(KEY_CHUNK)].to_vec();
        let mut readings = source.readings.clone();
        readings.iter_mut().for_each(|reading| reading.cut(len));
        for &page in &pages {
            self.pages.holders[page as usize] += 1;
        }
        let target = self.sequence_mut(to);
        assert!(target.pages.is_empty(), "rows are shared with an empty sequence");
        (target.pages, target.committed, target.readings) = (pages, len, readings);
    }

    fn free_tokens(&self) -> usize {
        self.free_pages() * KEY_CHUNK
    }

    fn committed(&self, id: SequenceId) -> usize {
        self.sequences[&id].committed
    }

    fn commit(&mut self, id: SequenceId, path: &[NodeId]) {
        assert!(path.first().is_none_or(|&node| node == 0), "a path starts at the first node");
        let committed = self.committed(id);
        for (step, &node) in path.iter().enumerate() {
            let home = committed + step;
            if let Place::Staged(_) = self.place(id, node) {
                let from = self.position(id, node, home);
                let page = self.page_table(id)[home / KEY_CHUNK];
                self.copy_position(from, Position { page, offset: home % KEY_CHUNK });
            }
        }
        self.sequence_mut(id).committed += path.len();
        self.drop_tentative(id);
    }

    fn truncate(&mut self, id: SequenceId, len: usize) {
        let sequence = self.sequence_mut(id);
        sequence.committed = sequence.committed.min(len);
        sequence.readings.iter_mut().for_each(|reading| reading.cut(len));
        self.drop_tentative(id);
    }
}
