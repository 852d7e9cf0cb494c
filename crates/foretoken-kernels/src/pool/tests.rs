//! Every item once, panics, oversubscription.

use super::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[test]
fn every_item_runs_once_on_a_worker_of_its_own() {
    for threads in 0..=4 {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads.max(1));
        let busy: Vec<AtomicUsize> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
        for round in 0..2_000 {
            let n_items = [0, 1, 2, 3, 7, 64, 300][round % 7];
            let counts: Vec<AtomicUsize> = (0..n_items).map(|_| AtomicUsize::new(0)).collect();
            pool.run(n_items, &|worker, item| {
                assert_eq!(busy[worker].fetch_add(1, Relaxed), 0, "one item at a time on a worker");
                counts[item].fetch_add(1, Relaxed);
                busy[worker].fetch_sub(1, Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Relaxed) == 1), "{threads} threads, {n_items} items");
        }
    }
}

#[test]
fn two_oversubscribed_pools_finish() {
    let work = |threads: usize| {
        let pool = Pool::new(threads);
        let sum = AtomicUsize::new(0);
        for _ in 0..3_000 {
            pool.run(8, &|_, item| {
                sum.fetch_add(item, Relaxed);
            });
        }
        sum.into_inner()
    };
    let sums = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(3));
        [work(4), other.join().unwrap()]
    });
    assert_eq!(sums, [3_000 * 28; 2]);
}

#[test]
fn a_panic_reaches_the_caller_after_the_other_items() {
    for threads in 1..=3 {
        let pool = Pool::new(threads);
        for round in 0..50 {
            let ran = AtomicUsize::new(0);
            let region = || {
                pool.run(16, &|_, item| {
                    ran.fetch_add(1, Relaxed);
                    // Without the hook's message: the payload is all that counts.
                    if item % 5 == 2 {
                        std::panic::resume_unwind(Box::new(format!("item {item} of round {round}")));
                    }
                });
            };
            let payload = catch_unwind(AssertUnwindSafe(region)).unwrap_err();
            assert!(payload.downcast_ref::<String>().unwrap().ends_with(&format!("of round {round}")));
            assert_eq!(ran.load(Relaxed), 16);
        }
        let ran = AtomicUsize::new(0);
        pool.run(5, &|_, _| {
            ran.fetch_add(1, Relaxed);
        });
        assert_eq!(ran.into_inner(), 5);
    }
}

#[test]
fn helpers_sleep_and_wake() {
    let pool = Pool::new(2);
    for _ in 0..5 {
        // Longer than they spin.
        let start = std::time::Instant::now();
        while start.elapsed().as_micros() < 300 {
            std::hint::spin_loop();
        }
        // Two items that wait for each other need two workers, so this ends only if the helper wakes.
        let met = AtomicUsize::new(0);
        pool.run(2, &|_, _| {
            met.fetch_add(1, Relaxed);
            while met.load(Relaxed) < 2 {
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn a_region_inside_a_region_is_refused() {
    thread_local!(static POOL: Pool = Pool::new(1));
    let outcome = POOL
        .with(|pool| catch_unwind(AssertUnwindSafe(|| pool.run(2, &|_, _| POOL.with(|pool| pool.run(1, &|_, _| {}))))));
    assert!(outcome.is_err());
}

#[test]
fn chunks_cover_the_slice_in_order() {
    let pool = Pool::new(3);
    for len in [0, 1, 9, 10, 11, 100] {
        let mut data = vec![usize::MAX; len];
        pool.chunks_mut(&mut data, 10, |_, index, chunk| {
            for (i, x) in chunk.iter_mut().enumerate() {
                *x = 10 * index + i;
            }
        });
        assert!(data.iter().copied().eq(0..len));
        let mut tens = vec![0; len.div_ceil(10)];
        pool.zip_chunks_mut(&mut data, 10, &mut tens, 1, |_, _, chunk, ten| ten[0] = chunk[0] / 10);
        assert!(tens.iter().copied().eq(0..len.div_ceil(10)));
    }
}
