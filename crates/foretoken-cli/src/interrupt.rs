//! Ctrl-C and SIGTERM: an answer under way ends cleanly; anything else ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::INTERRUPTED;

/// Ctrl-C was pressed during the work at hand.
static PRESSED: AtomicBool = AtomicBool::new(false);
/// Somebody looks at `PRESSED`.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Installs the handler, also for SIGTERM and SIGHUP. A second Ctrl-C, or one while nobody watches, ends the process.
pub fn install() {
    let handler = || {
        let again = PRESSED.swap(true, Ordering::SeqCst);
        if again || !WATCHED.load(Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
    };
    // Without a handler Ctrl-C still ends the process, only without statistics.
    if let Err(error) = ctrlc::set_handler(handler) {
        tracing::warn!(%error, "no Ctrl-C handler");
    }
}

/// While this lives, Ctrl-C is noticed instead of ending the process.
pub struct Watch(());

impl Watch {
    /// Starts watching, with a clean slate.
    pub fn start() -> Self {
        PRESSED.store(false, Ordering::SeqCst);
        WATCHED.store(true, Ordering::SeqCst);
        Self(())
    }

    /// Whether Ctrl-C was pressed since the start.
    pub fn pressed(&self) -> bool {
        PRESSED.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.store(false, Ordering::SeqCst);
        PRESSED.store(false, Ordering::SeqCst);
    }
}
