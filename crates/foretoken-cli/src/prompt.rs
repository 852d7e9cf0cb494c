//! Where a prompt comes from: an argument, a file, or standard input.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use crate::error::CliError;

/// What is longer than this is not read to its end: it may have none.
pub const MAX_STDIN: u64 = 64 << 20;

/// The ways in which a text may have been given.
#[derive(Clone, Copy, Debug)]
pub struct PromptSource<'a> {
    /// On the command line; `-` means standard input.
    pub given: Option<&'a str>,
    /// As a file.
    pub file: Option<&'a Path>,
}

impl PromptSource<'_> {
    /// The text, exactly as it was given.
    pub fn read(self) -> Result<String, CliError> {
        match (self.given, self.file) {
            (Some(text), _) if text != "-" => Ok(text.to_owned()),
            (None, Some(path)) => read_text(path),
            (None, None) if io::stdin().is_terminal() => Err(CliError::NoPrompt),
            _ => {
                let mut bytes = Vec::new();
                io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes).map_err(CliError::Stdin)?;
                if bytes.len() as u64 > MAX_STDIN {
                    let found = format!("standard input has more than {} MB", MAX_STDIN >> 20);
                    return Err(CliError::Argument { found, wanted: "no context holds so long a prompt".into() });
                }
                utf8(bytes, "standard input")
            }
        }
    }
}

/// A whole text file.
pub fn read_text(path: &Path) -> Result<String, CliError> {
    let bytes = fs::read(path).map_err(|error| CliError::File { action: "read", path: path.into(), error })?;
    utf8(bytes, path.display())
}

/// The text in `bytes`, which are called `what` when they are none.
pub fn utf8(bytes: Vec<u8>, what: impl ToString) -> Result<String, CliError> {
    let wrong = |valid: usize| CliError::NotUtf8 { byte: valid + 1, what: what.to_string() };
    String::from_utf8(bytes).map_err(|error| wrong(error.utf8_error().valid_up_to()))
}
