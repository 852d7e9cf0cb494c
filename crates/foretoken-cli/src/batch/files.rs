//! The files of a batch: requests that are checked before anything runs, and answers that survive any interruption.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Answer, answer_line};
use crate::error::CliError;
use crate::prompt::{read_text, utf8};

/// Every line of answers begins so: see [`answer_line`].
const ANSWER_BEGINS: &str = "{\"id\":\"batch_req_";

/// What a batch may ask.
const URLS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// A request.
#[derive(Clone, Debug)]
pub struct Line {
    /// Names it in the answers.
    pub custom_id: String,
    /// What is asked.
    pub url: String,
    /// The request.
    pub body: Value,
}

/// Reads all requests; the first that is wrong is an error that names its line.
pub fn read(path: &Path) -> Result<Vec<Line>, CliError> {
    let text = read_text(path)?;
    let mut ids = HashSet::new();
    let mut lines = Vec::new();
    // Some editors begin files with a mark.
    let text = text.trim_start_matches('\u{feff}');
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line = parse(line).map_err(|why| bad(path, format!("line {}: {why}", index + 1)))?;
        if !ids.insert(line.custom_id.clone()) {
            let why = format!("line {}: the custom_id {:?} is that of a line before", index + 1, line.custom_id);
            return Err(bad(path, why));
        }
        lines.push(line);
    }
    Ok(lines)
}

fn bad(path: &Path, found: String) -> CliError {
    let wanted =
        "a line is {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {...}}";
    CliError::BadFile { path: path.into(), found, wanted: wanted.into() }
}

fn parse(line: &str) -> Result<Line, String> {
    let mut value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let custom_id = value["custom_id"].as_str().ok_or("custom_id is missing, or not a string")?.to_owned();
    let url = value["url"].as_str().ok_or("url is missing, or not a string")?.to_owned();
    if !URLS.contains(&url.as_str()) {
        return Err(format!("the url is {url:?}, and must be {}", URLS.join(" or ")));
    }
    if value["method"].as_str().is_some_and(|method| method != "POST") {
        return Err("the method must be POST".into());
    }
    let body = value["body"].take();
    match &body {
        Value::Object(fields) if fields.get("stream") == Some(&Value::Bool(true)) => {
            Err("stream is not for batches: leave it out".into())
        }
        Value::Object(_) => Ok(Line { custom_id, url, body }),
        _ => Err("body is missing, or not an object".into()),
    }
}

/// The answers, one whole line each.
#[derive(Debug)]
pub struct Answers {
    path: PathBuf,
    file: File,
    done: HashSet<String>,
}

impl Answers {
    /// Opens or makes the file. A last line that was cut off in the middle is removed: its request is asked again.
    pub fn open(path: &Path, lines: &[Line]) -> Result<Self, CliError> {
        let failed = |action| move |error| CliError::File { action, path: path.into(), error };
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = options.map_err(failed("open"))?;
        // A device might be read without an end.
        if !file.metadata().map_err(failed("read"))?.is_file() {
            return Err(not_begun(path, "it is no file that could be read again".into()));
        }
        if file.try_lock().is_err() {
            let error = io::Error::other("another batch is writing it");
            return Err(failed("write")(error));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let rest = bytes.split_off(whole);
        if !begins_an_answer(&rest) {
            return Err(not_begun(path, "its last line is no answer that was cut off".into()));
        }
        let asked: HashSet<&str> = lines.iter().map(|line| line.custom_id.as_str()).collect();
        let mut done = HashSet::new();
        for (index, line) in utf8(bytes, path.display())?.lines().enumerate() {
            let wrong = |found: String| not_begun(path, format!("line {}: {found}", index + 1));
            let value: Value = serde_json::from_str(line).map_err(|error| wrong(format!("not JSON: {error}")))?;
            let id = value["custom_id"].as_str().ok_or_else(|| wrong("it has no custom_id".into()))?;
            if value.get("response").is_none() || value.get("error").is_none() {
                return Err(wrong("it is no answer: response or error is missing".into()));
            }
            if !asked.contains(id) {
                return Err(wrong(format!("there is no request {id:?}")));
            }
            if !done.insert(id.to_owned()) {
                return Err(wrong(format!("{id:?} is answered twice")));
            }
        }
        // Only now is it certain that the file is ours to write.
        let cut = file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::Start(whole as u64)));
        cut.map_err(failed("write"))?;
        Ok(Self { path: path.into(), file, done })
    }

    /// Whether a request is answered.
    pub fn has(&self, custom_id: &str) -> bool {
        self.done.contains(custom_id)
    }

    /// Adds an answer, and returns when it is safe on the disk.
    pub fn write(&mut self, custom_id: &str, answer: Answer) -> Result<(), CliError> {
        let line = format!("{}\n", answer_line(custom_id, answer));
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| CliError::File { action: "write", path: self.path.clone(), error })?;
        self.done.insert(custom_id.to_owned());
        Ok(())
    }
}

/// A file that is somebody else's, such as the requests themselves, is left as it is.
fn not_begun(path: &Path, found: String) -> CliError {
    let wanted = "give a file that an earlier run of this batch has begun, or one that is not there yet";
    CliError::BadFile { path: path.into(), found, wanted: wanted.into() }
}

/// Whether bytes are the beginning of an answer's line.
fn begins_an_answer(bytes: &[u8]) -> bool {
    let known = &ANSWER_BEGINS.as_bytes()[..ANSWER_BEGINS.len().min(bytes.len())];
    bytes.starts_with(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use serde_json::json;

    fn line(id: &str) -> String {
        json!({ "custom_id": id, "method": "POST", "url": URLS[0], "body": { "messages": [] } }).to_string()
    }

    #[test]
    fn a_line_that_was_cut_off_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::write(&input, [line("a"), line("b"), String::new(), line("c")].join("\n")).unwrap();
        let lines = read(&input).unwrap();
        assert_eq!(lines.len(), 3);
        let mut answers = Answers::open(&output, &lines).unwrap();
        assert!(Answers::open(&output, &lines).is_err(), "one writer at a time");
        answers.write("a", Ok((StatusCode::OK, json!({ "id": "x" })))).unwrap();
        answers.write("b", Err("no".into())).unwrap();
        drop(answers);
        let whole = std::fs::read(&output).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&output, &whole[..cut]).unwrap();
            let mut answers = Answers::open(&output, &lines).unwrap();
            let n_lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!([answers.has("a"), answers.has("b")], [n_lines > 0, n_lines > 1]);
            for id in ["a", "b", "c"] {
                if !answers.has(id) {
                    answers.write(id, Err("no".into())).unwrap();
                }
            }
            drop(answers);
            let written = std::fs::read_to_string(&output).unwrap();
            assert_eq!(written.lines().count(), 3, "cut at {cut}");
        }
    }

    #[test]
    fn a_file_that_holds_no_answers_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        for text in [[line("a"), line("b")].join("\n"), line("a") + "\n", line("a"), "Dear diary".into()] {
            std::fs::write(&path, &text).unwrap();
            let lines = [Line { custom_id: "a".into(), url: URLS[0].into(), body: json!({}) }];
            let error = Answers::open(&path, &lines).unwrap_err().to_string();
            assert!(error.contains("no answer"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_mark_at_the_beginning_is_no_part_of_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, format!("\u{feff}{}\r\n\r\n{}\r\n", line("a"), line("b"))).unwrap();
        let ids: Vec<String> = read(&path).unwrap().into_iter().map(|line| line.custom_id).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    #[cfg(unix)]
    fn answers_go_to_files_only() {
        for device in ["/dev/null", "/dev/zero"] {
            let error = Answers::open(Path::new(device), &[]).unwrap_err().to_string();
            assert!(error.contains("it is no file"), "{error}");
        }
    }

    #[test]
    fn wrong_lines_are_named_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        let url = line("a").replace(URLS[0], "/v1/embeddings");
        let stream = line("a").replace("\"messages\":[]", "\"stream\":true");
        for (text, part) in [
            (format!("{}\n{{", line("a")), "line 2: not JSON"),
            (format!("{}\n{}", line("a"), line("a")), "line 2: the custom_id \"a\""),
            ("{}".into(), "custom_id is missing"),
            (url, "/v1/embeddings"),
            (stream, "stream"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
