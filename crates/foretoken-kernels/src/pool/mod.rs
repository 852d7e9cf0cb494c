//! The worker pool of the forward pass: parallel regions that cost about a microsecond.
//!
//! A pass has hundreds of regions, and another process may take a core at any time. So items are handed out one by one
//! from an atomic counter, a worker that never took an item is never waited for, and workers spin before they sleep.

#![allow(unsafe_code)]

mod chunks;
mod protocol;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use chunks::Chunks;
use protocol::Shared;
use std::cell::Cell;
use sync::{Arc, JoinHandle};

/// Threads that run regions together with their owner.
///
/// A pool belongs to one thread at a time: it may be sent but not shared, so a region inside a region of the same pool
/// does not compile:
///
/// ```compile_fail
/// let pool = foretoken_kernels::pool::Pool::new(2);
/// pool.run(4, &|_, _| pool.run(4, &|_, _| {}));
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Regions may still nest through a thread-local pool.
    running: Cell<bool>,
}

impl Pool {
    /// A pool of `threads` workers, the caller being worker 0; zero counts as one. One worker starts no thread.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::new());
        let helpers = (1..threads)
            .map(|worker| {
                let shared = Arc::clone(&shared);
                sync::spawn(worker, move || shared.help(worker))
            })
            .collect();
        Self { shared, helpers, running: Cell::new(false) }
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `f(worker, item)` once for each item of `0..n_items`, in any order on any worker; returns when all are done.
    ///
    /// No two calls at the same time have the same `worker < threads()`. When items panic the others are still run, and
    /// then the first panic goes on in the caller; the pool stays usable. Allocates nothing. Panics inside a region of
    /// the same pool.
    pub fn run(&self, n_items: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        assert!(!self.running.replace(true), "a region cannot run inside a region of the same pool");
        let _reset = Reset(&self.running);
        if self.helpers.is_empty() || n_items == 1 {
            protocol::run_alone(n_items, f);
        } else {
            self.shared.run(n_items, f);
        }
    }

    /// Calls `f(worker, index, chunk)` for each chunk of `chunk_len` values, the last one possibly shorter.
    pub fn chunks_mut<T: Send>(&self, data: &mut [T], chunk_len: usize, f: impl Fn(usize, usize, &mut [T]) + Sync) {
        let chunks = Chunks::new(data, chunk_len);
        // SAFETY: each index is an item, and each item is run once.
        self.run(chunks.count(), &|worker, index| f(worker, index, unsafe { chunks.take(index) }));
    }

    /// Calls `f(worker, index, chunk_a, chunk_b)` for each pair of chunks of `len_a` and `len_b` values; both slices must
    /// have as many chunks.
    pub fn zip_chunks_mut<A: Send, B: Send>(
        &self,
        a: &mut [A],
        len_a: usize,
        b: &mut [B],
        len_b: usize,
        f: impl Fn(usize, usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a, b) = (Chunks::new(a, len_a), Chunks::new(b, len_b));
        assert_eq!(a.count(), b.count(), "as many chunks on both sides");
        // SAFETY: each index is an item, and each item is run once.
        self.run(a.count(), &|worker, index| f(worker, index, unsafe { a.take(index) }, unsafe { b.take(index) }));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop();
        for helper in self.helpers.drain(..) {
            helper.join().expect("helpers catch every panic");
        }
    }
}

/// Clears the flag however the region ends.
struct Reset<'a>(&'a Cell<bool>);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
