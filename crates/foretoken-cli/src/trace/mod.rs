//! Traces of decoding: a file with a header line and a line for every pass. Written by `--trace`, read by `explain`.

mod format;
mod read;

pub use format::{Header, VERSION};
#[cfg(test)]
pub use read::tests;
pub use read::{Trace, read};

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use foretoken_decode::{PassTrace, Recorder};
use foretoken_formats::tokenizer::Tokenizer;
use serde::Serialize;

use crate::error::CliError;
use crate::whole::{Kind, WholeFile};
use format::PassLine;

/// A file with one JSON object for every pass, each there as soon as the pass is done: what is killed leaves them in
/// `FILE.part`.
///
/// Clones write to the same file.
#[derive(Clone)]
pub struct TraceFile {
    tokenizer: Arc<Tokenizer>,
    /// The first error ends the trace, since one with holes would mislead; `None` when it is finished.
    file: Arc<Mutex<Option<Result<WholeFile, CliError>>>>,
}

impl TraceFile {
    /// Begins the file. The header is due before the first pass.
    pub fn create(path: &Path, tokenizer: &Arc<Tokenizer>) -> Result<Self, CliError> {
        let file = WholeFile::create(path, Kind::Trace)?;
        Ok(Self { tokenizer: tokenizer.clone(), file: Arc::new(Mutex::new(Some(Ok(file)))) })
    }

    /// Writes the first line.
    pub fn begin(&self, header: &Header) {
        self.write(header);
    }

    /// Gives the file its name; fails when a line could not be written.
    pub fn finish(&self) -> Result<(), CliError> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        file.map_or(Ok(()), |file| file?.finish())
    }

    fn write(&self, value: &impl Serialize) {
        let mut line = serde_json::to_string(value).expect("a trace has string keys and finite numbers");
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk shall not end the text.
        if let Some(Ok(open)) = &mut *file
            && let Err(error) = open.write(line.as_bytes())
        {
            *file = Some(Err(error));
        }
    }
}

impl Recorder for TraceFile {
    fn pass(&mut self, trace: &PassTrace) {
        self.write(&PassLine::of(trace, |token| self.tokenizer.token_bytes(token)));
    }
}
