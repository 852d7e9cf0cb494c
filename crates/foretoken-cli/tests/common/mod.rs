//! Runs the binary.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// SmolLM2, when it is there.
pub fn smollm2() -> Option<PathBuf> {
    foretoken_testkit::models::find("smollm2-135m")
}

/// The binary, with one thread and nothing on standard input.
pub fn foretoken<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    command.args(args).stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("FORETOKEN_MODEL");
    command
}

/// Runs it and waits.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    foretoken(args).output().expect("the binary runs")
}

/// Runs it and expects one JSON object and success.
#[track_caller]
pub fn json<S: AsRef<OsStr>>(args: &[S]) -> Value {
    let output = run(args);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("standard output is one JSON object")
}

/// What it said on standard error, on one line: messages are wrapped to the terminal's width.
pub fn stderr(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs it and expects an error whose message has these words.
#[track_caller]
pub fn fails<S: AsRef<OsStr>>(args: &[S], code: i32, words: &[&str]) {
    let output = run(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}
