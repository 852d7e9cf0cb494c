//! Threads with deep stacks, for what strangers may nest: parsers, and values that are dropped one inside the other, call
//! themselves as deep as their input goes, and an overflow ends the whole process.

use std::{io, panic, thread};

/// Runs `work` on a thread with a stack of so many bytes and waits for it; only what is used of them takes memory. Errors
/// when there is no thread to be had.
pub fn run<V: Send>(stack_bytes: usize, work: impl FnOnce() -> V + Send) -> io::Result<V> {
    let builder = thread::Builder::new().name("deep".into()).stack_size(stack_bytes);
    thread::scope(|scope| {
        let running = builder.spawn_scoped(scope, work)?;
        Ok(running.join().unwrap_or_else(|fault| panic::resume_unwind(fault)))
    })
}
