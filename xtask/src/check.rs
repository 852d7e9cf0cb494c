//! The steps of `cargo xtask check`, in the order in which a mistake is found soonest.
use std::env;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::hygiene;

/// The package that has steps of its own.
const TRAINING: &str = "foretoken-train";

/// A step's failure, as a sentence.
pub type Result = std::result::Result<(), String>;

/// Runs every step; `long` widens the tests' matrices.
pub fn run(long: bool) -> Result {
    let started = Instant::now();
    step("hygiene", hygiene::run)?;
    step("format", || cargo(&["fmt", "--all", "--check"]))?;
    step("lints", || cargo(&lint(&["--workspace", "--exclude", TRAINING])))?;
    step("licences and sources", dependencies)?;
    step("docs", || {
        let words = ["doc", "--workspace", "--exclude", TRAINING, "--no-deps", "--locked"];
        checked(command(&words).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("doc tests", || tests(&["test", "--workspace", "--exclude", TRAINING, "--doc", "--locked"], long))?;
    step("interleavings of the worker pool", interleavings)?;
    // Apart from the rest: the first build of its tensor library takes minutes.
    step("training: lints", || cargo(&lint(&["--package", TRAINING])))?;
    step("training: tests", || suite(&["--package", TRAINING], long))?;
    // Last, so that the test runner's closing line stands at the end of the output.
    step("tests", || suite(&["--workspace", "--exclude", TRAINING], long))?;
    println!("\nxtask: all checks passed in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The words of clippy on some packages, warnings denied.
fn lint<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    [&["clippy"], packages, &["--all-targets", "--locked", "--", "-D", "warnings"]].concat()
}

/// The tests of some packages, by nextest where it is.
fn suite(packages: &[&str], long: bool) -> Result {
    let words: [&[&str]; 3] = match has("nextest") {
        true => [&["nextest", "run"], packages, &["--locked", "--no-fail-fast"]],
        false => [&["test"], packages, &["--all-targets", "--locked", "--no-fail-fast"]],
    };
    tests(&words.concat(), long)
}

fn step(name: &str, work: impl FnOnce() -> Result) -> Result {
    println!("\n== {name}");
    let started = Instant::now();
    let result = work();
    let seconds = started.elapsed().as_secs_f64();
    match result {
        Ok(()) => println!("== {name}: ok, {seconds:.1} s"),
        Err(message) => return Err(format!("{name} failed after {seconds:.1} s: {message}")),
    }
    Ok(())
}

/// cargo-deny on `deny.toml`. The advisories need a database from outside, so they are checked only where it can be had;
/// a missing cargo-deny is excused on a developer's machine and nowhere else.
fn dependencies() -> Result {
    if !has("deny") {
        let how = "cargo-deny is missing; `.ci/run` shows how to install it";
        return match env::var_os("CI") {
            Some(_) => Err(how.into()),
            None => {
                println!("skipped: {how}");
                Ok(())
            }
        };
    }
    cargo(&["deny", "--locked", "--log-level", "error", "check", "licenses", "bans", "sources"])?;
    let fetched =
        command(&["deny", "--log-level", "off", "fetch", "db"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !fetched.is_ok_and(|status| status.success()) {
        println!("advisories: skipped, their database cannot be reached from here");
        return Ok(());
    }
    cargo(&["deny", "--locked", "--log-level", "error", "check", "--disable-fetch", "advisories"])
}

/// The pool's protocol under loom, which tries every interleaving; in a target folder of its own, since it is another program.
fn interleavings() -> Result {
    let words = ["test", "--package", "foretoken-kernels", "--release", "--locked", "--test", "loom_pool"];
    let folder = hygiene::root().join("target/loom");
    checked(command(&words).env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", folder))
}

fn tests(words: &[&str], long: bool) -> Result {
    let mut tests = command(words);
    if long {
        tests.env("FORETOKEN_LONG", "1");
    }
    checked(&mut tests)
}

/// Whether `cargo NAME` exists.
fn has(name: &str) -> bool {
    command(&[name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn cargo(words: &[&str]) -> Result {
    checked(&mut command(words))
}

fn command(words: &[&str]) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(words).current_dir(hygiene::root());
    cargo
}

fn checked(command: &mut Command) -> Result {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ({status})", words_of(command))),
        Err(error) => Err(format!("{}: {error}", words_of(command))),
    }
}

fn words_of(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    format!("cargo {}", words.join(" "))
}
