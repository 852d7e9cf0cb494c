//! The `foretoken` binary: one file per subcommand.

mod analysis;
mod answer;
mod batch;
mod bench;
mod chat;
mod colour;
mod demo;
mod embedded;
mod error;
mod explain;
mod generate;
mod inspect;
mod interrupt;
mod machine;
mod model_file;
mod options;
mod output;
mod profile;
mod progress;
mod prompt;
mod report;
mod serve;
mod structure;
mod tokenize;
mod trace;
mod tune;
mod whole;

use std::process::ExitCode;

use clap::{ArgAction, Command as Words, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use error::CliError;

/// Runs language models several tokens at a time, without changing their text.
///
/// foretoken guesses the next tokens cheaply, checks all guesses in one pass of the model, and keeps those that the
/// model would have written anyway. The text depends on the model, prompt, sampling options and seed alone: drafting
/// options change the speed only.
#[derive(Parser, Debug)]
#[command(name = "foretoken", version, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  foretoken demo                                            watch two ways to decode
  foretoken generate 'def fibonacci(n):'                    continue code with the embedded model
  foretoken generate -m smollm2 'Once upon a time'          continue a text
  foretoken generate -m smollm2 --chat 'Why is the sky blue?'  ask a question
  foretoken chat -m qwen2.5-coder-1.5b                      talk
  foretoken serve -m qwen2.5-coder-1.5b                     answer OpenAI's clients at http://127.0.0.1:8080/v1
  foretoken inspect model.gguf                              what is in a file, and the memory it needs
  foretoken generate -m smollm2 --trace t.jsonl 'Once upon a time'; foretoken explain t.jsonl  who guessed what
  foretoken bench decode -m qwen2.5-coder-0.5b --prompts prompts.jsonl  what drafting gains

Exit codes:
  0  done
  1  an error: a message on standard error says what and what to do
  2  wrong options
  3  a benchmark found text that differs from plain decoding
  130  ended by Ctrl-C";

#[derive(Subcommand, Debug)]
enum Command {
    Generate(generate::Args),
    Demo(demo::Args),
    Chat(chat::Args),
    Serve(serve::Args),
    Batch(batch::Args),
    Inspect(inspect::Args),
    Tokenize(tokenize::Args),
    Explain(explain::Args),
    Tune(tune::Args),
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let words = taking_negative_numbers(Cli::command()).get_matches();
    let command = Cli::from_arg_matches(&words).unwrap_or_else(|error| error.exit()).command;
    log(&command);
    interrupt::install();
    let result = match command {
        Command::Generate(args) => generate::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Batch(args) => batch::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Bench(bench) => bench::run(&bench),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            let code = error.exit_code();
            if !matches!(error, CliError::OutputClosed) {
                output::note(format_args!("{:?}", miette::Report::new(error)));
            }
            code.into()
        }
    }
}

/// A number below zero is a value, perhaps a wrong one, and no option that does not exist.
fn taking_negative_numbers(words: Words) -> Words {
    let words = words.mut_args(|arg| match arg.get_action() {
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    });
    words.mut_subcommands(taking_negative_numbers)
}

/// Sets up the log: a server tells of every request, the others of trouble only.
fn log(command: &Command) {
    let (level, json) = match command {
        Command::Serve(args) => ("info", args.log_json()),
        _ => ("warn", false),
    };
    let filter = EnvFilter::try_from_env("FORETOKEN_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json { log.json().init() } else { log.init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        taking_negative_numbers(Cli::command()).debug_assert();
    }
}
