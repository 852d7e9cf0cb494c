//! Where a prompt comes from: an argument, a file, or standard input.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use crate::error::CliError;

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
            (None, Some(path)) => {
                fs::read_to_string(path).map_err(|source| CliError::File { action: "read", path: path.into(), source })
            }
            (None, None) if io::stdin().is_terminal() => Err(CliError::NoPrompt),
            _ => {
                let mut text = String::new();
                io::stdin().lock().read_to_string(&mut text).map_err(CliError::Stdin)?;
                Ok(text)
            }
        }
    }
}
