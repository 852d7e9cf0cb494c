//! Checks the options against the file and loads the model.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use foretoken_formats::gguf::Gguf;
use foretoken_model::{Hyper, LoadOptions, Model, Threads};

use crate::engine::EngineOptions;
use crate::error::EngineError;
use crate::file::context_size;
use crate::footprint::Footprint;

/// Rows of a prompt per pass when nothing else is asked for.
pub const PROMPT_ROWS: usize = 256;

/// The default context is the model's own, up to this.
pub const DEFAULT_CONTEXT: usize = 8192;

/// A model in memory and what it weighs, without tokenizer and requests: for benchmarks of the bare pass.
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// What it weighs.
    pub footprint: Footprint,
}

impl Loaded {
    /// Loads the model of a file whose header [`foretoken_model::check`] has read, and tells `progress` instead of the
    /// options'.
    pub fn load(
        gguf: &Gguf,
        hyper: &Hyper,
        options: &EngineOptions<'_>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Self, EngineError> {
        let footprint = Footprint::of(gguf, hyper, options.weights, options.kv_type);
        let threads = match options.threads {
            None => thread::available_parallelism().map_or(1, usize::from).min(threads_for(&footprint)),
            Some(0) => return Err(EngineError::option("threads", 0, "at least 1")),
            Some(threads) => threads,
        };
        if options.prompt_rows == 0 {
            return Err(EngineError::option("prompt_rows", 0, "at least 1"));
        }
        if options.cache_tokens == Some(0) {
            return Err(EngineError::option("cache_tokens", 0, "at least 1"));
        }
        if options.max_running == 0 {
            return Err(EngineError::option("max_running", 0, "at least 1"));
        }
        let load = LoadOptions {
            weights: options.weights,
            kv_type: options.kv_type,
            threads: Threads::new(threads),
            isa: options.isa,
            context: context_size(hyper, options.context)?,
            progress,
        };
        Ok(Self { model: Model::load(gguf, &load)?, footprint })
    }
}

/// Threads that have enough to do: each at least some megabytes of weights a pass. With less, handing out the work of a layer
/// takes as long as doing it.
fn threads_for(footprint: &Footprint) -> usize {
    const BYTES_A_THREAD: u64 = 6 << 20;
    footprint.trunk_bytes.div_ceil(BYTES_A_THREAD).clamp(1, 1 << 16) as usize
}

/// Bytes of a file's tensors.
pub(crate) fn file_bytes(gguf: &Gguf) -> u64 {
    gguf.tensors().iter().map(|tensor| tensor.n_bytes as u64).sum()
}

/// One progress over several files, loaded one after the other.
pub(crate) struct Progress<'a> {
    tell: &'a (dyn Fn(u64, u64) + Sync),
    total: u64,
    /// Bytes of the files before.
    before: AtomicU64,
}

impl<'a> Progress<'a> {
    /// Tells of `total` bytes.
    pub fn new(tell: &'a (dyn Fn(u64, u64) + Sync), total: u64) -> Self {
        Self { tell, total, before: AtomicU64::new(0) }
    }

    /// What to tell the loader of the next file, which has `bytes`.
    pub fn part(&self, bytes: u64) -> impl Fn(u64, u64) + Sync + '_ {
        let before = self.before.fetch_add(bytes, Ordering::Relaxed);
        move |read, _| (self.tell)(before + read, self.total)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn several_files_are_one_progress() {
        let told = Mutex::new(Vec::new());
        let tell = |read, total| told.lock().unwrap().push((read, total));
        let progress = Progress::new(&tell, 30);
        let first = progress.part(20);
        first(5, 20);
        first(20, 20);
        progress.part(10)(10, 10);
        assert_eq!(*told.lock().unwrap(), [(5, 30), (20, 30), (30, 30)]);
    }
}
