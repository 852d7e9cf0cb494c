//! A file that is written whole or not at all: whatever happens, its name stands for the old content or for the new.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// What a file holds, told by how it begins. What holds anything else is not ours to replace.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A page of HTML.
    Page,
    /// A profile.
    Profile,
    /// A trace.
    Trace,
}

impl Kind {
    fn begins(self) -> &'static str {
        match self {
            Self::Page => "<!doctype html>",
            Self::Profile => "{\n  \"foretoken_profile\":",
            Self::Trace => "{\"foretoken_trace\":",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Page => "a page of HTML",
            Self::Profile => "a profile",
            Self::Trace => "a trace",
        }
    }
}

/// A file under way. What is written goes into its neighbour `NAME.part`, which takes its name when all is there.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// The neighbour and the name it takes; `None` where bytes go straight to what the path names, a pipe or a device.
    part: Option<[PathBuf; 2]>,
    file: File,
}

impl WholeFile {
    /// Begins a file. What is there stays as it is until the new one is whole, and for good if it is of another kind.
    pub fn create(path: &Path, kind: Kind) -> Result<Self, CliError> {
        let part = match fs::metadata(path) {
            Ok(there) if there.is_file() => {
                may_replace(path, kind)?;
                // The file that a link names is replaced, not the link.
                Some(fs::canonicalize(path).map_err(failed(path))?)
            }
            Ok(_) => None,
            Err(_) => Some(path.to_owned()),
        };
        let part = part.map(|whole| {
            let mut name = whole.clone().into_os_string();
            name.push(".part");
            [name.into(), whole]
        });
        let file = File::create(part.as_ref().map_or(path, |[part, _]| part)).map_err(failed(path))?;
        Ok(Self { path: path.into(), part, file })
    }

    /// Adds to it, with one call of the system where it takes all at once.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.file.write_all(bytes).map_err(failed(&self.path))
    }

    /// Gives it its name.
    pub fn finish(mut self) -> Result<(), CliError> {
        if let Some([part, whole]) = &self.part {
            self.file.sync_all().and_then(|()| fs::rename(part, whole)).map_err(failed(&self.path))?;
            self.part = None;
        }
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some([part, _]) = &self.part {
            // What cannot be removed does no harm.
            let _ = fs::remove_file(part);
        }
    }
}

fn may_replace(path: &Path, kind: Kind) -> Result<(), CliError> {
    let mut there = Vec::new();
    let begins = kind.begins().as_bytes();
    File::open(path).and_then(|file| file.take(begins.len() as u64).read_to_end(&mut there)).map_err(failed(path))?;
    match there.is_empty() || there == begins {
        true => Ok(()),
        false => Err(CliError::BadFile {
            path: path.into(),
            found: format!("there is a file that is not {}, and it is left as it is", kind.name()),
            wanted: "give a path where nothing is yet, or remove the file".into(),
        }),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    move |error| CliError::File { action: "write", path: path.into(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_the_old_content_or_the_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let write = |line: &str| {
            let mut file = WholeFile::create(&path, Kind::Trace).unwrap();
            file.write(b"{\"foretoken_trace\":1,").unwrap();
            file.write(line.as_bytes()).unwrap();
            file
        };
        drop(write("given up"));
        assert_eq!(names(), 0);
        write("first").finish().unwrap();
        let under_way = write("second");
        assert!(fs::read_to_string(&path).unwrap().ends_with("first"));
        assert!(fs::read_to_string(folder.path().join("trace.jsonl.part")).unwrap().ends_with("second"));
        under_way.finish().unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("second"));
        assert_eq!(names(), 1);
    }

    #[test]
    fn what_is_something_else_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thing");
        for (text, kind) in [("GGUF", Kind::Trace), ("{\"foretoken_trace\":1}", Kind::Page), ("{}", Kind::Profile)] {
            fs::write(&path, text).unwrap();
            let error = WholeFile::create(&path, kind).unwrap_err().to_string();
            assert!(error.contains("left as it is") && error.contains(kind.name()), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, "").unwrap();
        WholeFile::create(&path, Kind::Page).unwrap().finish().unwrap();
        assert!(WholeFile::create(folder.path(), Kind::Page).is_err(), "a folder");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut page = WholeFile::create(&link, Kind::Page).unwrap();
        page.write(b"<!doctype html>").unwrap();
        page.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "<!doctype html>");
        let mut nothing = WholeFile::create(Path::new("/dev/null"), Kind::Page).unwrap();
        nothing.write(b"<!doctype html>").unwrap();
        nothing.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
