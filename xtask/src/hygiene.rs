//! Checks on the files themselves: what no compiler sees and every reader would.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::check::Result;

/// A text that may not appear, in which files, and why.
struct Rule {
    needle: &'static str,
    applies: fn(&str) -> bool,
    reason: &'static str,
}

const EVERYWHERE: fn(&str) -> bool = |_| true;
const RUST: fn(&str) -> bool = |path| path.ends_with(".rs");
const DECODE: fn(&str) -> bool = |path| path.starts_with("crates/foretoken-decode/src/");

const HOST: &str =
    "a registry's host name: say `cargo`, `pip` or `apt-get`, and let each machine's own settings say where";
const HOME: &str = "a path of one machine";
const UNFINISHED: &str = "unfinished work does not land";
const PURE: &str = "the decode crate has no files, threads, clock or network of its own";

/// The needles are split, so that this file passes its own check.
const RULES: &[Rule] = &[
    Rule { needle: concat!("crates", ".io"), applies: EVERYWHERE, reason: HOST },
    Rule { needle: concat!("pypi", ".org"), applies: EVERYWHERE, reason: HOST },
    Rule { needle: concat!("pythonhosted", ".org"), applies: EVERYWHERE, reason: HOST },
    Rule { needle: concat!("npmjs", ".org"), applies: EVERYWHERE, reason: HOST },
    Rule { needle: concat!("deb.debian", ".org"), applies: EVERYWHERE, reason: HOST },
    Rule { needle: concat!("/ro", "ot/"), applies: EVERYWHERE, reason: HOME },
    Rule { needle: concat!("/ho", "me/"), applies: EVERYWHERE, reason: HOME },
    Rule { needle: concat!("/Us", "ers/"), applies: EVERYWHERE, reason: HOME },
    Rule { needle: concat!("/wo", "rk/"), applies: EVERYWHERE, reason: HOME },
    Rule { needle: concat!("todo", "!("), applies: RUST, reason: UNFINISHED },
    Rule { needle: concat!("unimplemented", "!("), applies: RUST, reason: UNFINISHED },
    Rule {
        needle: concat!("#[ig", "nore]"),
        applies: RUST,
        reason: "a test that never runs; if it must, name the reason",
    },
    Rule { needle: concat!("dbg", "!("), applies: RUST, reason: UNFINISHED },
    Rule { needle: concat!("std", "::fs"), applies: DECODE, reason: PURE },
    Rule { needle: concat!("std", "::thread"), applies: DECODE, reason: PURE },
    Rule { needle: concat!("std", "::net"), applies: DECODE, reason: PURE },
    Rule { needle: concat!("Instant", "::now"), applies: DECODE, reason: PURE },
    Rule { needle: concat!("System", "Time"), applies: DECODE, reason: PURE },
];

/// Files above this size need a reason to be in the repository.
const LARGEST_FILE: u64 = 1 << 20;

/// Larger files that have one, and the most they may have: the model inside the program.
const LARGE_FILES: &[(&str, u64)] = &[("crates/foretoken-cli/models/python-bytes.gguf", 12 << 20)];

/// Checks every file that git knows or would add.
pub fn run() -> Result {
    let root = root();
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    if !listed.status.success() {
        return Err("git ls-files failed; the file checks need a git checkout".into());
    }
    let mut faults = Vec::new();
    let (mut code, mut promises) = (String::new(), String::new());
    for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        // A file deleted in the working tree is still listed.
        let Ok(bytes) = fs::read(root.join(path)) else { continue };
        faults.extend(faults_of(path, &bytes));
        match path {
            PROMISES => promises.push_str(&String::from_utf8_lossy(&bytes)),
            path if RUST(path) => code.push_str(&String::from_utf8_lossy(&bytes)),
            _ => {}
        }
    }
    faults.extend(missing_tests(&promises, &code));
    match faults.len() {
        0 => Ok(()),
        n => Err(format!("{n} fault(s)\n{}", faults.join("\n"))),
    }
}

fn faults_of(path: &str, bytes: &[u8]) -> Vec<String> {
    let mut faults = Vec::new();
    let most = LARGE_FILES.iter().find(|(large, _)| *large == path).map_or(LARGEST_FILE, |&(_, most)| most);
    if bytes.len() as u64 > most {
        faults.push(format!("  {path}: {} KiB; more than {} KiB do not belong here", bytes.len() >> 10, most >> 10));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !path.ends_with("Cargo.lock") => text,
        _ => return faults,
    };
    if path.ends_with(".rs") && !text.starts_with("//! ") {
        faults.push(format!("  {path}:1: the first line of a Rust file says what it is for (`//! ...`)"));
    }
    for (number, line) in text.lines().enumerate() {
        for rule in RULES.iter().filter(|rule| (rule.applies)(path) && line.contains(rule.needle)) {
            faults.push(format!("  {path}:{}: `{}`: {}", number + 1, rule.needle, rule.reason));
        }
    }
    faults
}

/// The page that says which test tries what.
const PROMISES: &str = "docs/faults.md";

/// Tests that the page names, in backticks and without a gap, and that no Rust file has.
fn missing_tests(page: &str, code: &str) -> Vec<String> {
    let is_name = |word: &&str| {
        word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
    };
    let names = page.split('`').skip(1).step_by(2).filter(is_name);
    names
        .filter(|name| !code.contains(&format!("fn {name}(")))
        .map(|name| format!("  {PROMISES}: `{name}` is no function here"))
        .collect()
}

/// The repository's root: the folder above this package.
pub fn root() -> PathBuf {
    let package = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().expect("the package lies in the workspace").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::{faults_of, missing_tests};

    #[test]
    fn a_clean_file_has_no_faults() {
        assert!(faults_of("crates/foretoken-decode/src/tree.rs", b"//! The tree.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn each_fault_names_file_line_and_reason() {
        let text = format!("// no purpose\nlet path = \"{}me/x\";\nlet now = {}::now();\n", "/ho", "Instant");
        let faults = faults_of("crates/foretoken-decode/src/clock.rs", text.as_bytes());
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[0].contains("clock.rs:1:") && faults[0].contains("what it is for"));
        assert!(faults[1].contains("clock.rs:2:") && faults[1].contains("one machine"));
        assert!(faults[2].contains("clock.rs:3:") && faults[2].contains("clock or network"));
        // The clock is free to other crates.
        assert_eq!(faults_of("crates/foretoken-engine/src/clock.rs", text.as_bytes()).len(), 2);
    }

    #[test]
    fn a_page_may_only_name_tests_that_are_there() {
        let page = "| a fault | `it_is_there`, `it_is_not`, `..._of_many`, `cargo test` |";
        let faults = missing_tests(page, "fn it_is_there() {}");
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("`it_is_not`"), "{faults:?}");
    }
}
