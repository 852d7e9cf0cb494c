//! A full disk, in the shape of a limit on the size of files: what was there stays, and no half of what was not.
#![cfg(unix)]

#[allow(dead_code, reason = "the embedded model is enough here")]
mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::stderr;

#[test]
fn a_full_disk_leaves_files_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let [trace, page, prompts, profile] = ["t.jsonl", "t.html", "p.jsonl", "p.json"].map(path);
    let run = |limit: &str, args: &[&str]| {
        let shell = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &shell, env!("CARGO_BIN_EXE_foretoken")]).args(args).env("NO_COLOR", "1");
        command.env_remove("FORETOKEN_MODEL").stdin(Stdio::null()).output().expect("sh runs")
    };
    let ask = ["generate", "--threads", "1", "-n", "100", "--temperature", "0", "--trace", &trace, "def f(x):\n"];
    let lines = ["a", "b"].map(|name| format!(r#"{{"prompt": "def {name}(x):\n"}}"#)).join("\n");
    fs::write(&prompts, lines).expect("it can be written");
    let bench = ["bench", "decode", "--threads", "1", "--prompts", &prompts, "-n", "20", "--html", &page];
    let tune = ["tune", "--threads", "1", "--prompts", &prompts, "-n", "20", "--out", &profile];
    let explain = ["explain", &trace, "--html", &page];
    for (file, args) in [(&trace, &ask[..]), (&page, &bench), (&page, &explain), (&profile, &tune)] {
        let before = run("unlimited", args);
        assert!(before.status.success(), "{}", stderr(&before));
        let whole = fs::read(file).expect("it was written");
        let full = run("2", args);
        let said = stderr(&full);
        assert_eq!(full.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write") && said.contains("too large"), "{said}");
        assert_eq!(fs::read(file).expect("it is there"), whole, "{args:?}");
        assert!(!fs::exists(format!("{file}.part")).expect("it can be seen"), "{args:?}");
    }
}
