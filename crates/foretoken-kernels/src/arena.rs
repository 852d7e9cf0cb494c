//! One anonymous mapping in huge pages that holds all packed weights: four-kilobyte pages halve the speed of a pass.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};
use thiserror::Error;

/// The size and alignment of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Slices start at multiples of this (a cache line and a 512-bit vector).
const ALIGN: usize = 64;

/// Why there is no memory for weights or for keys and values.
#[derive(Debug, Error)]
pub enum ArenaError {
    /// The system gave no mapping of this size.
    #[error("the system has no {bytes} bytes of memory: {source}")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// More was taken than the arena was made for.
    #[error("the arena has {left} bytes left, {wanted} were asked for")]
    Full {
        /// Bytes still free.
        left: usize,
        /// Bytes asked for.
        wanted: usize,
    },
}

/// Zeroed memory handed out piece by piece, never returned until the arena and every slice of it are gone.
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
    /// Offset of the first free byte in the mapping.
    next: usize,
    /// Offset of the end of what may be taken.
    end: usize,
}

/// Owns the pages; slices keep it alive.
#[derive(Debug)]
struct Mapping {
    map: MmapMut,
}

impl Arena {
    /// Maps room for `bytes`, counting each slice rounded up by [`Arena::rounded`]. Memory is resident only once written.
    pub fn new(bytes: usize) -> Result<Arena, ArenaError> {
        let error = |source| ArenaError::Map { bytes, source };
        let length = bytes.checked_add(HUGE_PAGE).ok_or_else(|| error(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapOptions::new().len(length).map_anon().map_err(error)?;
        #[cfg(target_os = "linux")]
        // Advice only: where huge pages are off, everything still works, slower.
        let _ = map.advise(memmap2::Advice::HugePage);
        let next = map.as_ptr().align_offset(HUGE_PAGE);
        Ok(Arena { mapping: Arc::new(Mapping { map }), next, end: next + bytes })
    }

    /// What a slice of `bytes` uses up in an arena.
    pub const fn rounded(bytes: usize) -> usize {
        bytes.next_multiple_of(ALIGN)
    }

    /// Hands out the next `bytes`, zeroed and 64-byte aligned.
    pub fn take(&mut self, bytes: usize) -> Result<ArenaSlice, ArenaError> {
        let left = self.end - self.next;
        if bytes > left {
            return Err(ArenaError::Full { left, wanted: bytes });
        }
        let offset = self.next;
        self.next = (offset + Arena::rounded(bytes)).min(self.end);
        // SAFETY: offset + bytes <= end <= the mapping's length, so the pointer stays inside the mapping.
        let start = unsafe { self.mapping.map.as_ptr().add(offset) }.cast_mut();
        Ok(ArenaSlice { start, len: bytes, _mapping: Arc::clone(&self.mapping) })
    }
}

/// Bytes owned by whoever holds this, inside an arena that lives as long as they do.
#[derive(Debug)]
pub struct ArenaSlice {
    start: *mut u8,
    len: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: the slice is the only access to its bytes (`take` never hands out a byte twice and the mapping itself is
// never read or written through `Mapping`), so it may move between and be shared by threads like a `Box<[u8]>`.
unsafe impl Send for ArenaSlice {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for ArenaSlice {}

impl Deref for ArenaSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: start..start + len lies in the mapping, which `_mapping` keeps alive, is initialised (anonymous pages
        // are zero) and belongs to this slice alone.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for ArenaSlice {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive; the mapping is writable.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_aligned_zeroed_disjoint_and_outlive_the_arena() {
        let mut arena = Arena::new(Arena::rounded(100) + Arena::rounded(64) + 1).unwrap();
        let mut a = arena.take(100).unwrap();
        let mut b = arena.take(64).unwrap();
        let c = arena.take(1).unwrap();
        assert!(matches!(arena.take(1), Err(ArenaError::Full { left: 0, wanted: 1 })));
        drop(arena);
        assert_eq!(a.as_ptr().addr() % HUGE_PAGE, 0);
        assert_eq!(b.as_ptr().addr() % ALIGN, 0);
        assert!(a.iter().chain(b.iter()).chain(c.iter()).all(|&x| x == 0));
        a.fill(1);
        b.fill(2);
        assert!(a.iter().all(|&x| x == 1) && b.iter().all(|&x| x == 2) && c[0] == 0);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(matches!(Arena::new(usize::MAX), Err(ArenaError::Map { .. })));
    }
}
