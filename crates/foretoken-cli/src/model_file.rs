//! Finds the model file that the user means: a path, or parts of a name in the model folder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use foretoken_formats::gguf::Gguf;

use crate::embedded;
use crate::error::CliError;

/// `$FORETOKEN_MODELS`, or `~/.cache/foretoken/models`.
pub fn folder() -> PathBuf {
    match env::var_os("FORETOKEN_MODELS") {
        Some(folder) if !folder.is_empty() => folder.into(),
        _ => env::home_dir().unwrap_or_default().join(".cache/foretoken/models"),
    }
}

/// Opens what was given as `--model`.
pub fn open(name: &str) -> Result<Gguf, CliError> {
    Ok(match name {
        embedded::NAME => embedded::open()?,
        name => Gguf::open(find(name)?)?,
    })
}

/// The file of this path or name.
pub fn find(name: &str) -> Result<PathBuf, CliError> {
    find_in(&folder(), name)
}

fn find_in(folder: &Path, name: &str) -> Result<PathBuf, CliError> {
    let path = Path::new(name);
    if path.exists() || path.components().count() > 1 {
        // A path that is not there is best explained by whoever opens it.
        return Ok(path.to_owned());
    }
    let models = models_in(folder);
    let found: Vec<&String> = models.iter().filter(|file| has_parts(file, name)).collect();
    match found[..] {
        [file] => Ok(folder.join(file)),
        [] => {
            let there_is = match models.is_empty() {
                true => "the folder has no .gguf files: give the path of one".to_owned(),
                false => format!("there are: {}", models.join(", ")),
            };
            Err(CliError::NoModel { name: name.into(), folder: folder.into(), there_is })
        }
        _ => {
            let found = found.iter().map(|file| file.as_str()).collect::<Vec<_>>().join(", ");
            Err(CliError::AmbiguousModel { name: name.into(), found })
        }
    }
}

/// Whether the parts of `name` between dashes stand in the file's name, in this order, the first at its beginning.
fn has_parts(file: &str, name: &str) -> bool {
    let (file, name) = (file.to_lowercase(), name.to_lowercase());
    let mut parts = name.split(['-', '_', ' ']);
    let rest = parts.next().and_then(|first| file.strip_prefix(first));
    parts.try_fold(rest, |rest, part| rest?.split_once(part).map(|(_, after)| Some(after))).flatten().is_some()
}

/// Names of the `.gguf` files in a folder, in alphabetical order.
fn models_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut models: Vec<String> = names.filter(|name| name.to_lowercase().ends_with(".gguf")).collect();
    models.sort();
    models
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_name_find_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for file in ["Tiny-1B.Q4.gguf", "Tiny-2B.Q4.gguf", "notes.txt"] {
            fs::write(folder.path().join(file), "").expect("it can be written");
        }
        let find = |name: &str| find_in(folder.path(), name);
        for name in ["tiny-1b", "Tiny-1B.Q4.gguf", "ti-1", "tiny-1b-gguf"] {
            assert_eq!(find(name).unwrap(), folder.path().join("Tiny-1B.Q4.gguf"), "{name}");
        }
        assert!(matches!(find("1b-tiny"), Err(CliError::NoModel { .. })));
        assert_eq!(find("some/where.gguf").unwrap(), Path::new("some/where.gguf"));
        assert!(matches!(find("tiny"), Err(CliError::AmbiguousModel { .. })));
        let message = miette::Report::new(find("huge").unwrap_err());
        assert!(message.help().expect("there is help").to_string().contains("Tiny-1B.Q4.gguf, Tiny-2B.Q4.gguf"));
    }
}
