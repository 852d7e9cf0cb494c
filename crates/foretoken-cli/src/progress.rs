//! A bar for what takes longer than a moment, on a terminal's standard error only.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shorter work shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows how much of a file was loaded, once loading takes longer than a second.
pub struct LoadingBar {
    start: Instant,
    wanted: bool,
    bar: OnceLock<ProgressBar>,
}

impl LoadingBar {
    /// A bar that is not shown yet.
    pub fn new() -> Self {
        Self { start: Instant::now(), wanted: std::io::stderr().is_terminal(), bar: OnceLock::new() }
    }

    /// `read` of `total` bytes are there. May be called from any thread.
    pub fn tell(&self, read: u64, total: u64) {
        if !self.wanted || self.start.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("loading {bar:30} {bytes} of {total_bytes}, {eta} left");
            ProgressBar::new(total).with_style(style.expect("the template is ours"))
        });
        bar.set_position(read);
    }
}

impl Drop for LoadingBar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// A bar over `n` items; hidden unless standard error is a terminal.
pub fn items(n: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos} of {len}, {eta} left");
    ProgressBar::new(n as u64).with_style(style.expect("the template is ours")).with_prefix(what)
}
