//! How the caller and its helpers share one region after another.
//!
//! The only way into a region is to take one of its items: a compare-exchange that lowers `left` from above zero. The
//! caller leaves a region when as many items are done as there were. So whoever holds an item may read the job, which
//! cannot change before the item is done; whoever holds none has nothing to read and is not waited for; and a helper
//! that wakes late takes part in whatever region is then open.
#![allow(unsafe_code)]

use super::sync::{
    Condvar, Mutex, UnsafeCell,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    spin,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a region runs: `f(worker, item)` for each item of `0..n_items`.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

#[derive(Clone, Copy)]
struct Job {
    /// Valid while an item of the region is not done.
    f: *const Task<'static>,
    n_items: usize,
}

/// Keeps counters that different threads write on cache lines of their own; two lines, since they are fetched in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// What the caller and its helpers share.
pub(super) struct Shared {
    /// Items of the region that nobody took yet.
    left: Apart<AtomicUsize>,
    /// Items of the region that are done.
    done: Apart<AtomicUsize>,
    /// Written by the caller while `left` is zero and all items are done; read by those who hold an item.
    job: Apart<UnsafeCell<Job>>,
    /// Helpers that sleep or are about to.
    sleepers: AtomicUsize,
    /// The caller sleeps or is about to.
    caller_sleeps: AtomicBool,
    stopping: AtomicBool,
    /// Held from the last look at what is waited for until asleep, and while waking.
    bed: Mutex<()>,
    work_came: Condvar,
    all_done: Condvar,
    panicked: AtomicBool,
    first_panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the job, which alone is not `Send` and `Sync`, points at a `Sync` function and is accessed as its field says.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(super) fn new() -> Self {
        let nothing: &Task<'static> = &|_, _| {};
        Self {
            left: Apart(AtomicUsize::new(0)),
            done: Apart(AtomicUsize::new(0)),
            job: Apart(UnsafeCell::new(Job { f: nothing, n_items: 0 })),
            sleepers: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            bed: Mutex::new(()),
            work_came: Condvar::new(),
            all_done: Condvar::new(),
            panicked: AtomicBool::new(false),
            first_panic: Mutex::new(None),
        }
    }

    /// Runs a region as worker 0 and returns when all its items are done. One caller at a time.
    pub(super) fn run(&self, n_items: usize, f: &Task<'_>) {
        // SAFETY: only the lifetime changes; nobody reads the job once its items are done, and this waits for them.
        let f = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(f) };
        // SAFETY: all items of the last region are done, so nobody holds one and nobody else touches the job.
        self.job.0.with_mut(|job| unsafe { *job = Job { f, n_items } });
        self.done.0.store(0, Ordering::Relaxed);
        self.left.0.store(n_items, Ordering::Release);
        self.wake_helpers();
        let mine = self.work(0);
        if self.done.0.fetch_add(mine, Ordering::AcqRel) + mine != n_items {
            self.wait_for_helpers(n_items);
        }
        if self.panicked.load(Ordering::Relaxed) {
            self.panicked.store(false, Ordering::Relaxed);
            let payload = self.first_panic.lock().expect("never poisoned").take();
            resume_unwind(payload.expect("stored before the item was done"));
        }
    }

    /// Takes items until none is left; returns how many it ran. The caller of this reports them in `done`.
    fn work(&self, worker: usize) -> usize {
        let mut ran = 0;
        while let Some((job, item)) = self.take() {
            // SAFETY: an item is held, so the caller of `run` still waits and its function lives.
            let f = unsafe { &*job.f };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(worker, item))) {
                self.first_panic.lock().expect("never poisoned").get_or_insert(payload);
                self.panicked.store(true, Ordering::Relaxed);
            }
            ran += 1;
        }
        ran
    }

    fn take(&self) -> Option<(Job, usize)> {
        let mut left = self.left.0.load(Ordering::Relaxed);
        while left > 0 {
            // Acquire, from the store that opened the region: every other write to `left` continues its release sequence.
            match self.left.0.compare_exchange_weak(left, left - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: an item is held, so nobody writes the job.
                    let job = self.job.0.with(|job| unsafe { *job });
                    return Some((job, job.n_items - left));
                }
                Err(now) => left = now,
            }
        }
        None
    }

    /// A helper's life.
    pub(super) fn help(&self, worker: usize) {
        while !self.stopping.load(Ordering::Relaxed) {
            let ran = self.work(worker);
            if ran > 0 {
                self.report(ran);
            } else if !spin(|| self.is_wanted()) {
                self.sleep();
            }
        }
    }

    fn is_wanted(&self) -> bool {
        self.left.0.load(Ordering::Relaxed) > 0 || self.stopping.load(Ordering::Relaxed)
    }

    /// Adds to `done`; from then on the region may be over, unless it was not the last item.
    fn report(&self, ran: usize) {
        self.done.0.fetch_add(ran, Ordering::Release);
        // Either this sees that the caller sleeps, or the caller, which fences too, sees the items done.
        fence(Ordering::SeqCst);
        if self.caller_sleeps.load(Ordering::Relaxed) {
            drop(self.bed.lock().expect("never poisoned"));
            self.all_done.notify_one();
        }
    }

    fn wait_for_helpers(&self, n_items: usize) {
        let all_done = || self.done.0.load(Ordering::Acquire) == n_items;
        if spin(all_done) {
            return;
        }
        let mut bed = self.bed.lock().expect("never poisoned");
        self.caller_sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !all_done() {
            bed = self.all_done.wait(bed).expect("never poisoned");
        }
        self.caller_sleeps.store(false, Ordering::Relaxed);
    }

    fn sleep(&self) {
        let mut bed = self.bed.lock().expect("never poisoned");
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !self.is_wanted() {
            bed = self.work_came.wait(bed).expect("never poisoned");
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn wake_helpers(&self) {
        // Either this sees the sleeper, or the sleeper, which fences too, sees the work.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.bed.lock().expect("never poisoned"));
            self.work_came.notify_all();
        }
    }

    /// Makes the helpers return.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake_helpers();
    }
}

/// A region of one worker: the same promises without helpers.
pub(super) fn run_alone(n_items: usize, f: &Task<'_>) {
    let mut first_panic = None;
    for item in 0..n_items {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(0, item))) {
            first_panic.get_or_insert(payload);
        }
    }
    if let Some(payload) = first_panic {
        resume_unwind(payload);
    }
}
