//! `evaluate`: losses, accuracies and acceptance of a checkpoint on held-out texts.

use std::path::PathBuf;

use foretoken_train::TrainError;
use foretoken_train::evaluation::{Figures, Generated, Joint, Report};
use foretoken_train::trainer::{Settings, Trainer};
use serde::Serialize;

/// First tokens that `--joint` sums over.
const FIRSTS: usize = 8;

/// Measures the run's checkpoint on texts of packages that it never saw.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
    /// Windows to measure, spread over the held-out file.
    #[arg(long, default_value_t = 512)]
    windows: usize,
    /// Held-out texts that the model continues by itself at temperature 0 and .8, from half a window on.
    #[arg(long, default_value_t = 0)]
    texts: usize,
    /// Tokens that it writes of each at most.
    #[arg(long, default_value_t = 128)]
    new: usize,
    /// Also write everything as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also measure, at one place of each window, how often tokens that are each likeliest alone do not go together; takes
    /// nine times as long.
    #[arg(long)]
    joint: bool,
    /// Also write the tokens of each window and every head's likeliest ones, a JSON object a line.
    #[arg(long)]
    guesses: Option<PathBuf>,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Figured<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    joint: Option<Joint>,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let settings = Settings::read(&args.config)?;
    if args.windows == 0 {
        return Err(TrainError::setting("--windows", 0, "at least 1"));
    }
    let longest = settings.model.context;
    if args.texts > 0 && !(1..=longest).contains(&args.new) {
        return Err(TrainError::setting("--new", args.new, format!("1 to {longest}, as model.context")));
    }
    let trainer = Trainer::open_trained(&settings)?;
    let n_heads = settings.model.heads.n;
    if args.joint && n_heads < 2 {
        return Err(TrainError::setting("model.heads.n", n_heads, "2 at least, for --joint"));
    }
    let mut report = trainer.evaluate(args.windows)?;
    if args.texts > 0 && settings.model.heads.n > 1 {
        let write = |temperature| trainer.write(args.texts, args.new, temperature);
        report.generated = [0.0, 0.8].into_iter().map(write).collect::<Result<_, _>>()?;
    }
    println!("step {}, {} tokens seen", trainer.n_steps(), trainer.n_steps() * settings.tokens_per_step());
    print(&report);
    if settings.data.bpe.is_some() {
        let bytes = trainer.bytes_per_token(args.windows)?;
        println!("head 1: {:.3} bits a byte, at {bytes:.2} bytes a token", report.heads[0].bits / bytes);
    }
    let joint = if args.joint { Some(trainer.joint(args.windows, FIRSTS)?) } else { None };
    if let Some(Joint { n, rejected, apart, drafted_apart, .. }) = joint {
        let share = |count| 100.0 * count as f64 / n.max(1) as f64;
        println!("{n} drafts of two tokens: {:.1} % rejected", share(rejected));
        println!("likeliest alone and not together: {:.1} %, drafted so {:.1} %", share(apart), share(drafted_apart));
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string(&Figured { report: &report, joint }).expect("plain data");
        std::fs::write(path, json).map_err(TrainError::io("write", path))?;
    }
    if let Some(path) = &args.guesses {
        let windows = trainer.guesses(args.windows)?;
        let lines: String =
            windows.iter().map(|window| serde_json::to_string(window).expect("plain data") + "\n").collect();
        std::fs::write(path, lines).map_err(TrainError::io("write", path))?;
    }
    Ok(())
}

/// The figures of each head or distance, a line each.
pub fn table(name: &str, figures: &[Figures]) {
    println!("{name}  bits a token  likeliest right");
    for (i, Figures { bits, top_1, .. }) in figures.iter().enumerate() {
        println!("{:>width$}  {bits:12.3}  {top_1:15.3}", i + 1, width = name.len());
    }
}

fn print(report: &Report) {
    table("head", &report.heads);
    println!("head 1 by the tokens it sees");
    for (i, figures) in report.by_context.iter().enumerate().filter(|(_, figures)| figures.n > 0) {
        let to = (1 << (i + 1)) - 1;
        println!("{:>4} to {to:>4}  {:12.3}  {:15.3}", 1 << i, figures.bits, figures.top_1);
    }
    let joined = |shares: Vec<f32>| shares.iter().map(|share| format!("{share:.2}")).collect::<Vec<_>>().join(" ");
    let acceptance = &report.acceptance;
    println!("drafts accepted on given text, heads 2 to n, of those asked: {}", joined(acceptance.shares()));
    println!("tokens a pass on given text: at least {:.2}", acceptance.tokens_per_pass());
    for written in &report.generated {
        let Generated { temperature, n_texts, n_loops, .. } = written;
        let rate = written.tokens_per_pass();
        println!("on text that it writes at temperature {temperature}: {}", joined(written.shares()));
        println!("  tokens a pass: {rate:.2}, {:+.2} against given text", rate - acceptance.tokens_per_pass());
        println!("  {n_loops} of {n_texts} texts run in circles and are left out, {:.1} %", 100.0 * written.loops());
    }
    println!("control, shifted by one: {:.1} % of drafts", 100.0 * acceptance.control());
}
