//! Where the bytes come from: positioned reads that survive a file cut short by someone else.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use crate::FormatError;

/// A file (never mapped: a mapping kills the process when another one truncates the file) or bytes in memory.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Bytes(Cow<'static, [u8]>),
}

impl Source {
    /// Opens a regular file and says how long it is now.
    pub(super) fn open(path: &Path) -> Result<(Self, u64), FormatError> {
        let io = |action| move |source| FormatError::Io { action, source };
        // Asked before opening, because opening a pipe without a writer waits for ever.
        let kind = std::fs::metadata(path).map_err(io("open the file"))?;
        if !kind.is_file() {
            let found = if kind.is_dir() { "a directory" } else { "a pipe or device" };
            return Err(FormatError::NotAFile { found });
        }
        let file = File::open(path).map_err(io("open the file"))?;
        let len = file.metadata().map_err(io("learn the file's length"))?.len();
        Ok((Self::File(file), len))
    }

    /// Fills `out` from `offset`. `what` names the bytes in the error.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8], what: impl Fn() -> String) -> Result<(), FormatError> {
        let needed = out.len() as u64;
        let gone = || FormatError::Shrunk { what: what(), offset, needed };
        match self {
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).map_err(|_| gone())?;
                let end = start.checked_add(out.len()).ok_or_else(gone)?;
                out.copy_from_slice(bytes.get(start..end).ok_or_else(gone)?);
                Ok(())
            }
            Self::File(file) => match read_exact_at(file, out, offset) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(gone()),
                Err(source) => Err(FormatError::Io { action: "read the file", source }),
            },
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                out = &mut out[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
