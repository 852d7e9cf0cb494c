//! The `foretoken-train` binary: one file per subcommand.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Trains models that predict several tokens ahead.
///
/// A run is one TOML file: `prepare` makes its token files, `train` begins or resumes it, `evaluate` measures its
/// checkpoint and `baseline` what it has to beat, `prompts` writes functions to complete, `export` writes it as GGUF or
/// safetensors. `import` makes a GGUF file of Meta's models; `bench` and `memory` measure the trainer.
#[derive(Parser, Debug)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Prepare(cli::prepare::Args),
    Train(cli::train::Args),
    Evaluate(cli::evaluate::Args),
    Baseline(cli::baseline::Args),
    Prompts(cli::prompts::Args),
    Export(cli::export::Args),
    Bench(cli::bench::Args),
    Memory(cli::memory::Args),
    Import(cli::import::Args),
}

fn main() -> ExitCode {
    foretoken_kernels::train::keep_freed_memory();
    let result = match Cli::parse().command {
        Command::Prepare(args) => cli::prepare::run(&args),
        Command::Train(args) => cli::train::run(&args),
        Command::Evaluate(args) => cli::evaluate::run(&args),
        Command::Baseline(args) => cli::baseline::run(&args),
        Command::Prompts(args) => cli::prompts::run(&args),
        Command::Export(args) => cli::export::run(&args),
        Command::Bench(args) => cli::bench::run(&args),
        Command::Memory(args) => cli::memory::run(&args),
        Command::Import(args) => cli::import::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
