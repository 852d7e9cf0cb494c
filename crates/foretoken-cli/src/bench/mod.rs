//! `foretoken bench`: measure passes and whole answers. The answer is checked before the time counts.

mod decode;
mod forward;
pub mod prompts;

pub use decode::Passes;

use std::process::ExitCode;

use crate::error::CliError;

/// Measure passes of a model, or what drafting gains
#[derive(clap::Subcommand, Debug)]
pub enum Bench {
    Forward(forward::Args),
    Decode(Box<decode::Args>),
}

/// Runs the subcommand.
pub fn run(bench: &Bench) -> Result<ExitCode, CliError> {
    match bench {
        Bench::Forward(args) => forward::run(args),
        Bench::Decode(args) => decode::run(args),
    }
}
