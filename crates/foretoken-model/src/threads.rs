//! The threads of passes, shared by all models that run in turn: a target and those that draft for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretoken_kernels::pool::Pool;

/// A handle on worker threads. Models with clones of one handle run on the same threads, one pass at a time.
#[derive(Clone)]
pub struct Threads {
    pool: Arc<Mutex<Pool>>,
    count: usize,
}

impl Threads {
    /// Starts threads, so that with the caller's there are `count`; zero counts as one.
    pub fn new(count: usize) -> Self {
        let pool = Pool::new(count);
        Self { count: pool.threads(), pool: Arc::new(Mutex::new(pool)) }
    }

    /// How many, the caller's included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The threads, for one pass.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Pool> {
        // A panic leaves a pool usable.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
