//! Project tasks. `cargo xtask check` is exactly what CI runs.
mod check;
mod hygiene;
mod mutants;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask check [--long]    format, lints, file hygiene, licences, tests, docs; stops at the first failure
    --long                    the tests run their wide matrices (FORETOKEN_LONG=1), hours instead of minutes
cargo xtask mutants [WORDS]   breaks the decode loop on purpose, one way at a time (those whose name contains WORDS), and
                              shows that the tests notice; some minutes
cargo xtask hygiene           only the checks on the files themselves, in a second";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["check"] => check::run(false),
        ["check", "--long"] => check::run(true),
        ["mutants"] => mutants::run(""),
        ["mutants", ref words @ ..] => mutants::run(&words.join(" ")),
        ["hygiene"] => hygiene::run(),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nxtask: {message}");
            ExitCode::FAILURE
        }
    }
}
