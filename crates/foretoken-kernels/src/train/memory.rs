//! How the process treats freed memory, and how much of it large arrays take.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps freed memory for the next allocation instead of giving it back to the system.
///
/// A training step allocates and frees the same large arrays again and again; given back, each costs a page fault for
/// every 4 KiB, a tenth of a step's time. For programs that do nothing but train; elsewhere than on glibc nothing happens.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` only stores two numbers, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}

/// The system's allocator, which counts the bytes of large blocks: for tests that hold what training keeps at a time.
#[derive(Debug)]
pub struct LargeBlocks {
    least: AtomicUsize,
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl LargeBlocks {
    /// Counts nothing until it is told what is large.
    pub const fn new() -> Self {
        Self { least: AtomicUsize::new(usize::MAX), live: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Forgets what was, and counts blocks of at least so many bytes, none of which may be there now.
    pub fn watch(&self, least: usize) {
        self.least.store(least, Ordering::SeqCst);
        self.live.store(0, Ordering::SeqCst);
        self.peak.store(0, Ordering::SeqCst);
    }

    /// The most bytes that large blocks took together.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    fn took(&self, bytes: usize) {
        if bytes >= self.least.load(Ordering::Relaxed) {
            let live = self.live.fetch_add(bytes, Ordering::SeqCst) + bytes;
            self.peak.fetch_max(live, Ordering::SeqCst);
        }
    }

    fn gave(&self, bytes: usize) {
        if bytes >= self.least.load(Ordering::Relaxed) {
            self.live.fetch_sub(bytes, Ordering::SeqCst);
        }
    }
}

impl Default for LargeBlocks {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.took(layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.gave(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.gave(layout.size());
        self.took(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
