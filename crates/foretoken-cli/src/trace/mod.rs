//! Traces of decoding: a file with a header line and a line for every pass. Written by `--trace`, read by `explain`.

mod format;
mod read;

pub use format::{Header, VERSION};
#[cfg(test)]
pub use read::tests;
pub use read::{Trace, read};

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use foretoken_decode::{PassTrace, Recorder};
use foretoken_formats::tokenizer::Tokenizer;
use serde::Serialize;

use crate::error::CliError;
use format::PassLine;

/// A file with one JSON object for every pass, each there as soon as the pass is done, however the program ends.
///
/// Clones write to the same file.
#[derive(Clone)]
pub struct TraceFile {
    path: PathBuf,
    tokenizer: Arc<Tokenizer>,
    /// The first error ends the trace: one with holes would mislead.
    file: Arc<Mutex<io::Result<File>>>,
}

impl TraceFile {
    /// Creates or empties the file. The header is due before the first pass.
    pub fn create(path: &Path, tokenizer: &Arc<Tokenizer>) -> Result<Self, CliError> {
        let file = File::create(path).map_err(|error| CliError::File { action: "write", path: path.into(), error })?;
        Ok(Self { path: path.into(), tokenizer: tokenizer.clone(), file: Arc::new(Mutex::new(Ok(file))) })
    }

    /// Writes the first line.
    pub fn begin(&self, header: &Header) {
        self.write(header);
    }

    /// Fails when a line could not be written.
    pub fn check(&self) -> Result<(), CliError> {
        let error = match &*self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(_) => return Ok(()),
            Err(error) => io::Error::new(error.kind(), error.to_string()),
        };
        Err(CliError::File { action: "write", path: self.path.clone(), error })
    }

    fn write(&self, value: &impl Serialize) {
        let mut line = serde_json::to_string(value).expect("a trace has string keys and finite numbers");
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk shall not end the text.
        if let Ok(open) = &mut *file
            && let Err(error) = open.write_all(line.as_bytes())
        {
            *file = Err(error);
        }
    }
}

impl Recorder for TraceFile {
    fn pass(&mut self, trace: &PassTrace) {
        self.write(&PassLine::of(trace, |token| self.tokenizer.token_bytes(token)));
    }
}
