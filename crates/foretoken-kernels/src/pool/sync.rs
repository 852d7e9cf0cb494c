//! The standard primitives, or loom's, which try every interleaving; and how long to spin.

#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::{Arc, Condvar, Mutex, atomic},
    thread::JoinHandle,
};
#[cfg(not(loom))]
pub(super) use std::{
    sync::{Arc, Condvar, Mutex, atomic},
    thread::JoinHandle,
};

/// `std::cell::UnsafeCell` with the interface of loom's.
#[cfg(not(loom))]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    #[inline]
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Starts the thread of a helper.
pub(super) fn spawn(worker: usize, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    #[cfg(not(loom))]
    let spawned = std::thread::Builder::new().name(format!("foretoken-{worker}")).spawn(f);
    #[cfg(loom)]
    let spawned = loom::thread::Builder::new().name(format!("foretoken-{worker}")).spawn(f);
    spawned.expect("the system can start a thread")
}

/// Waits for `ready` for some tens of microseconds, politely in the second half; tells whether it came.
///
/// The gaps between the regions of a pass are shorter than this. Yielding hands an oversubscribed core to the thread that
/// is waited for, and costs little on an idle one.
#[cfg(not(loom))]
#[inline]
pub(super) fn spin(ready: impl Fn() -> bool) -> bool {
    const HOT: std::time::Duration = std::time::Duration::from_micros(20);
    const WARM: std::time::Duration = std::time::Duration::from_micros(60);
    for _ in 0..64 {
        if ready() {
            return true;
        }
        std::hint::spin_loop();
    }
    let start = std::time::Instant::now();
    loop {
        for _ in 0..16 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        match start.elapsed() {
            waited if waited > WARM => return ready(),
            waited if waited > HOT => std::thread::yield_now(),
            _ => {}
        }
    }
}

/// One look, and one more after the others had a chance: the model needs no more.
#[cfg(loom)]
pub(super) fn spin(ready: impl Fn() -> bool) -> bool {
    ready() || {
        loom::thread::yield_now();
        ready()
    }
}
