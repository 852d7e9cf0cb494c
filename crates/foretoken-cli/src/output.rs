//! Standard output that ends the program quietly when its reader has gone.

use std::fmt;
use std::io::{self, Write};

use comfy_table::Table;
use serde::Serialize;

use crate::error::CliError;

/// Writes text and flushes, so that a stream is seen as it comes.
pub fn text(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed)
}

/// Writes a line.
pub fn line(line: impl fmt::Display) -> Result<(), CliError> {
    writeln!(io::stdout().lock(), "{line}").map_err(failed)
}

/// Writes a table, without the spaces that fill up its last column.
pub fn table(table: &Table) -> Result<(), CliError> {
    table.lines().try_for_each(|row| line(row.trim_end()))
}

/// Writes one JSON value on one line.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value).expect("our values have string keys and finite numbers");
    line(text)
}

/// Says something on standard error; nobody may be listening.
pub fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn failed(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::Stdout(error),
    }
}
