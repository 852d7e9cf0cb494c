//! `foretoken explain`: what a trace shows, on the terminal or as one HTML file.

mod html;
mod terminal;
mod tokens;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use foretoken_decode::Fate;

use crate::analysis::Analysis;
use crate::colour;
use crate::error::CliError;
use crate::output;
use crate::trace;
use crate::whole::{Kind, WholeFile};

/// Show where a text's tokens came from, and where the time went
///
/// Reads what `foretoken generate --trace FILE` wrote: which drafter guessed each token, how often guesses come true by
/// drafter and depth, what every role costs, how well the costs were foreseen, and why guesses were lost.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// The trace; of a program that was killed, FILE.part
    trace: PathBuf,

    /// Write a report with charts and every pass to one HTML file, which needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foretoken generate -m smollm2 --trace trace.jsonl 'Once upon a time'
  foretoken explain trace.jsonl
  foretoken explain trace.jsonl --html trace.html";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let trace = trace::read(&args.trace)?;
    let analysis = Analysis::of(&trace.passes, trace.header.drafters.len());
    if let Some(path) = &args.html {
        let mut page = WholeFile::create(path, Kind::Page)?;
        page.write(html::page(&trace, &analysis).render().as_bytes())?;
        page.finish()?;
        output::note(format_args!("wrote {}", path.display()));
    }
    if args.json {
        output::json(&analysis)?;
    } else if args.html.is_none() {
        output::text(&terminal::report(&trace, &analysis, colour::wanted(&io::stdout())))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What became of guesses, in words.
fn fate_words(fate: Fate) -> &'static str {
    match fate {
        Fate::Accepted => "accepted",
        Fate::NotDrawn => "another token was drawn",
        Fate::Unreached => "a guess before it was wrong",
        Fate::PastEnd => "past the end of the text",
        Fate::Trimmed => "not run: not expected to pay",
        Fate::Missed => "not run, but would have come true",
    }
}

/// Guesses by what became of them: words, count, share.
fn fate_rows(all: &Analysis) -> Vec<[String; 3]> {
    let counts = Fate::ALL.iter().filter_map(|fate| Some((fate_words(*fate), *all.fates.get(fate)?)));
    let cut = Some(("cut: a grammar forbids them", all.forbidden)).filter(|(_, count)| *count > 0);
    let counts: Vec<(&str, usize)> = counts.chain(cut).collect();
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let row = |(words, count): (&str, usize)| [words.into(), count.to_string(), percent(count as f64, total as f64)];
    counts.into_iter().map(row).collect()
}

/// A share in per cent.
fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "-".into() }
}
