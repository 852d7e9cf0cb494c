//! Checks the options against the file and loads the model.

use std::thread;

use foretoken_formats::gguf::Gguf;
use foretoken_model::{LoadOptions, Model};

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
    /// Loads the model of a file whose header was read.
    pub fn load(gguf: &Gguf, options: &EngineOptions<'_>) -> Result<Self, EngineError> {
        let threads = match options.threads {
            None => thread::available_parallelism().map_or(1, usize::from),
            Some(0) => return Err(EngineError::option("threads", 0, "at least 1")),
            Some(threads) => threads,
        };
        if options.prompt_rows == 0 {
            return Err(EngineError::option("prompt_rows", 0, "at least 1"));
        }
        let footprint = Footprint::of(gguf, options.weights, options.kv_type)?;
        let load = LoadOptions {
            weights: options.weights,
            kv_type: options.kv_type,
            threads,
            isa: options.isa,
            context: context_size(gguf, options.context)?,
            progress: options.progress,
        };
        Ok(Self { model: Model::load(gguf, &load)?, footprint })
    }
}
