//! Documents from folders of texts and from JSONL files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::TrainError;

/// One place that texts come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A folder, or a `.jsonl` file whose lines are objects with `text` and, if they like, `package`.
    pub path: PathBuf,
    /// Licence of the texts, for the recipe and the model card.
    pub licence: String,
    /// Endings of the files to take, without the dot; for folders.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// Files whose path below the folder holds one of these are left out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// The package, for splitting; without it, the first folder below `path` (or the file there).
    #[serde(default)]
    pub package: Option<String>,
}

/// A text and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Path below the source, or the line's number.
    pub name: String,
    /// What is held out or kept together.
    pub package: String,
    /// The text.
    pub text: Vec<u8>,
}

/// All documents of a source, ordered by name.
pub fn documents(source: &Source) -> Result<Vec<Document>, TrainError> {
    if source.path.extension().is_some_and(|extension| extension == "jsonl") {
        return lines(source);
    }
    let mut paths = Vec::new();
    walk(&source.path, &mut paths)?;
    paths.sort_unstable();
    let mut found = Vec::new();
    for path in paths {
        let below = path.strip_prefix(&source.path).expect("found below it");
        let name = below.to_string_lossy().into_owned();
        let wanted = path.extension().is_some_and(|e| source.extensions.iter().any(|wanted| e == wanted.as_str()));
        if !wanted || source.exclude.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let first = below.iter().next().expect("a file has a name").to_string_lossy().into_owned();
        let text = std::fs::read(&path).map_err(TrainError::io("read", &path))?;
        found.push(Document { package: source.package.clone().unwrap_or(first), name, text });
    }
    Ok(found)
}

/// Every regular file below a folder; links are not followed.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), TrainError> {
    for entry in std::fs::read_dir(folder).map_err(TrainError::io("list", folder))? {
        let entry = entry.map_err(TrainError::io("list", folder))?;
        let kind = entry.file_type().map_err(TrainError::io("list", folder))?;
        if kind.is_dir() {
            walk(&entry.path(), found)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Line {
    text: String,
    #[serde(default)]
    package: Option<String>,
}

fn lines(source: &Source) -> Result<Vec<Document>, TrainError> {
    let path = &source.path;
    let content = std::fs::read_to_string(path).map_err(TrainError::io("read", path))?;
    let named = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    named
        .map(|(i, line)| {
            let name = format!("line {}", i + 1);
            let line: Line = serde_json::from_str(line)
                .map_err(|error| TrainError::file(path, format!("{name}: {error}; an object with `text` is wanted")))?;
            let package = line.package.or(source.package.clone()).unwrap_or_else(|| name.clone());
            Ok(Document { name, package, text: line.text.into_bytes() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: PathBuf) -> Source {
        let (extensions, exclude) = (vec!["py".into()], vec!["/tests/".into()]);
        Source { path, licence: "MIT".into(), extensions, exclude, package: None }
    }

    #[test]
    fn folders_give_the_wanted_files_by_package() {
        let folder = crate::scratch::Scratch::new();
        for name in ["b/x.py", "a/y.py", "a/tests/t.py", "a/z.txt", "top.py"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let found = documents(&source(folder.path().into())).unwrap();
        let names: Vec<_> = found.iter().map(|d| (d.name.as_str(), d.package.as_str())).collect();
        assert_eq!(names, [("a/y.py", "a"), ("b/x.py", "b"), ("top.py", "top.py")]);
        assert_eq!(found[0].text, b"a/y.py");
    }

    #[test]
    fn jsonl_gives_a_document_a_line_and_errors_name_the_line() {
        let folder = crate::scratch::Scratch::new();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"text\": \"one\", \"package\": \"p\"}\n\n{\"text\": \"two\"}\n").unwrap();
        let found = documents(&source(path.clone())).unwrap();
        assert_eq!((found[0].package.as_str(), found[1].package.as_str()), ("p", "line 3"));
        std::fs::write(&path, "{\"txt\": 1}\n").unwrap();
        assert!(documents(&source(path)).unwrap_err().to_string().contains("line 1"));
    }
}
