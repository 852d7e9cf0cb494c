//! A slice cut into chunks that different workers may hold at the same time.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A mutable slice, cut. The lifetime keeps the slice borrowed.
pub(super) struct Chunks<'a, T> {
    data: *mut T,
    len: usize,
    chunk_len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: sharing it only hands out disjoint `&mut [T]`, by the promise that `take` asks for.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

impl<'a, T> Chunks<'a, T> {
    pub(super) fn new(data: &'a mut [T], chunk_len: usize) -> Self {
        assert!(chunk_len > 0, "a chunk holds at least one value");
        Self { data: data.as_mut_ptr(), len: data.len(), chunk_len, borrow: PhantomData }
    }

    pub(super) fn count(&self) -> usize {
        self.len.div_ceil(self.chunk_len)
    }

    /// The chunk of this index.
    ///
    /// # Safety
    ///
    /// No two chunks of one index may be alive at the same time.
    #[expect(clippy::mut_from_ref, reason = "that is the promise asked for")]
    pub(super) unsafe fn take(&self, index: usize) -> &mut [T] {
        assert!(index < self.count(), "chunk {index} of {}", self.count());
        let start = index * self.chunk_len;
        let len = self.chunk_len.min(self.len - start);
        // SAFETY: inside the slice, which is borrowed for `'a`, and disjoint from every other chunk; the caller promises
        // that nobody else holds this one.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}
