//! The pool's protocol under every interleaving that loom finds:
//! `RUSTFLAGS="--cfg loom" cargo test -p foretoken-kernels --release --test loom_pool`.
#![cfg(loom)]
#![allow(unsafe_code)]

use foretoken_kernels::pool::Pool;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// All interleavings with at most so many preemptions.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// Runs a region whose items write plain memory: loom sees a race if an item runs twice, and if the region ends early.
fn region(pool: &Pool, n_items: usize) {
    let cells: Vec<_> = (0..n_items).map(|_| loom::cell::UnsafeCell::new(0)).collect();
    let cells = Cells(cells);
    pool.run(n_items, &|_, item| cells.add(item));
    // SAFETY: loom checks that the region is over.
    let once = |cell: &loom::cell::UnsafeCell<usize>| cell.with(|count| unsafe { *count }) == 1;
    assert!(cells.0.iter().all(once), "every item once");
}

struct Cells(Vec<loom::cell::UnsafeCell<usize>>);

// SAFETY: loom checks each access.
unsafe impl Sync for Cells {}

impl Cells {
    fn add(&self, item: usize) {
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        self.0[item].with_mut(|count| unsafe { *count += 1 });
    }
}

#[test]
fn every_item_once_and_the_region_outlives_them() {
    model(3, || region(&Pool::new(2), 2));
}

#[test]
fn regions_follow_each_other() {
    model(2, || {
        let pool = Pool::new(2);
        region(&pool, 2);
        region(&pool, 3);
    });
}

#[test]
fn two_helpers_share_one_region() {
    model(1, || region(&Pool::new(3), 2));
}

#[test]
fn a_pool_without_work_ends() {
    model(3, || drop(Pool::new(3)));
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    model(2, || {
        let pool = Pool::new(2);
        let ran = AtomicUsize::new(0);
        let region_with_panic = || {
            pool.run(2, &|_, item| {
                ran.fetch_add(1, Relaxed);
                if item == 0 {
                    std::panic::resume_unwind(Box::new("item 0"));
                }
            })
        };
        let payload = catch_unwind(AssertUnwindSafe(region_with_panic)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"item 0"));
        assert_eq!(ran.load(Relaxed), 2);
        region(&pool, 2);
    });
}
