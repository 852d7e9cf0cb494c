//! What can go wrong with a run's settings, data and files.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the trainer. Messages name the value and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A setting that contradicts another or makes no sense.
    #[error("{setting} = {value}: {wanted}")]
    Setting {
        /// The setting's name as in the TOML file.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What would be accepted.
        wanted: String,
    },
    /// The configuration file is not what it should be.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The parser's word.
        source: Box<toml::de::Error>,
    },
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A checkpoint, token file or recipe that is broken or belongs to another run.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Training stopped because losses or gradients were not finite several times in a row.
    #[error("the loss or a gradient was not finite in {skipped} steps in a row; the last good checkpoint is kept")]
    NotFinite {
        /// Steps skipped in a row.
        skipped: u32,
    },
}

impl TrainError {
    /// A setting's error.
    pub fn setting(setting: &'static str, value: impl ToString, wanted: impl Into<String>) -> Self {
        Self::Setting { setting, value: value.to_string(), wanted: wanted.into() }
    }

    /// For `map_err` on file operations.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// A broken or foreign file.
    pub fn file(path: &Path, message: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), message: message.into() }
    }
}
