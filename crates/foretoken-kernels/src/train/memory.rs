//! How the process treats freed memory.
#![allow(unsafe_code)]

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
