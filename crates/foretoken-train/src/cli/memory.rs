//! `memory`: what more heads cost, in bytes and in time, one after another and all at once.

use std::process::Command;

use foretoken_train::TrainError;

use super::bench::Found;

/// Peak memory and step time for 1, 2, 4 and 8 heads, and the largest batch below a limit.
///
/// Each figure is a process of its own, since the peak that the system tells is that of a whole process.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Values in a hidden state.
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Layers.
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Tokens in the vocabulary.
    #[arg(long, default_value_t = 49_152)]
    vocabulary: usize,
    /// Tokens in a window.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Windows in a batch, where they are fixed.
    #[arg(long, default_value_t = 4)]
    windows: usize,
    /// Megabytes that a process may take when the largest batch is looked for.
    #[arg(long, default_value_t = 1000)]
    limit_mb: u64,
    /// Steps timed.
    #[arg(long, default_value_t = 3)]
    steps: usize,
}

/// Heads that are tried.
const HEADS: [usize; 4] = [1, 2, 4, 8];

pub fn run(args: &Args) -> Result<(), TrainError> {
    let Args { width, layers, vocabulary, context, windows, limit_mb, .. } = *args;
    let at_once = |at_once: bool| if at_once { "at once" } else { "one after another" };
    println!("width {width}, layers {layers}, vocabulary {vocabulary}, windows of {context}");
    println!("\n{windows} windows, residual blocks\nheads               logits  peak MB  step s");
    for all in [false, true] {
        for n in HEADS {
            let found = measure(args, n, windows, args.steps, &flags(all, false))?;
            let peak = found.peak_bytes as f64 / 1e6;
            println!("{n:>5}  {:>19}  {peak:7.0}  {:6.3}", at_once(all), found.step_s);
        }
    }
    println!("\nlargest batch below {limit_mb} MB, in windows\nheads  one after another  at once");
    for n in HEADS {
        let [one, all] = [largest(args, n, false)?, largest(args, n, true)?];
        println!("{n:>5}  {one:>17}  {all:>7}");
    }
    println!("\nheads that are layers, as many weights\nheads  step s  of 1 head");
    let deep = Args { layers: layers.max(5), ..*args };
    let mut first = 0.0;
    for n in [1, 2, 4] {
        let found = measure(&deep, n, windows, args.steps, &flags(false, true))?;
        first = if n == 1 { found.step_s } else { first };
        println!("{n:>5}  {:6.3}  {:9.2}", found.step_s, found.step_s / first);
    }
    Ok(())
}

fn flags(at_once: bool, from_trunk: bool) -> Vec<&'static str> {
    let mut flags = Vec::new();
    if at_once {
        flags.push("--at-once");
    }
    if from_trunk {
        flags.extend(["--kind", "transformer", "--from-trunk"]);
    }
    flags
}

/// The most windows of which a step stays below the limit.
fn largest(args: &Args, heads: usize, at_once: bool) -> Result<usize, TrainError> {
    let fits = |windows| {
        let found = measure(args, heads, windows, 1, &flags(at_once, false))?;
        Ok::<_, TrainError>(found.peak_bytes <= args.limit_mb * 1_000_000)
    };
    let mut low = 0;
    let mut high = 1;
    while fits(high)? {
        (low, high) = (high, 2 * high);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        match fits(middle)? {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(low)
}

fn measure(args: &Args, heads: usize, windows: usize, steps: usize, flags: &[&str]) -> Result<Found, TrainError> {
    let this = std::env::current_exe().map_err(TrainError::io("find", "the program".as_ref()))?;
    let numbers = [
        ("--width", args.width),
        ("--layers", args.layers),
        ("--vocabulary", args.vocabulary),
        ("--context", args.context),
        ("--heads", heads),
        ("--windows", windows),
        ("--steps", steps),
    ];
    let mut command = Command::new(&this);
    command.args(["bench", "--json"]).args(flags);
    for (name, value) in numbers {
        command.arg(name).arg(value.to_string());
    }
    let output = command.output().map_err(TrainError::io("run", &this))?;
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said).map_err(|_| {
        let error = String::from_utf8_lossy(&output.stderr);
        TrainError::file(&this, format!("`bench` with {windows} windows and {heads} heads: {} {error}", output.status))
    })
}
