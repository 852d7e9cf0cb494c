//! `train`: begins a run or goes on with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foretoken_train::TrainError;
use foretoken_train::params::Group;
use foretoken_train::trainer::{Alone, Claim, Entry, Outcome, Peers, Settings, Trainer, train};
use indicatif::{ProgressBar, ProgressStyle};

/// Begins a run, or resumes it where its checkpoint is. Ctrl-C saves and ends.
///
/// Built with the feature `mpi`, `mpirun -n 2 foretoken-train train ...` shares every step among two processes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
    /// Stop at this step, as if by Ctrl-C; the schedule stays that of the whole run. 0 saves what it begins with, to be
    /// evaluated or exported.
    #[arg(long)]
    until: Option<u64>,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let settings = Settings::read(&args.config)?;
    let peers = peers();
    let _claim = (peers.rank() == 0).then(|| Claim::on(&settings.run.folder)).transpose()?;
    let mut trainer = Trainer::open_among(&settings, peers)?;
    let is_first = trainer.is_first();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    // Without a handler Ctrl-C still ends the run, at the last checkpoint.
    if let Err(error) = ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed)) {
        eprintln!("no Ctrl-C handler: {error}");
    }
    let [trunk, heads] = [Group::Trunk, Group::Heads].map(|group| trainer.params().n_values(group));
    if is_first {
        let (n, step) = (settings.model.heads.n, trainer.n_steps());
        eprintln!("{trunk} weights in the trunk, {heads} in heads 2 to {n}; from step {step}");
    }

    let bar = if is_first { ProgressBar::new(settings.run.steps) } else { ProgressBar::hidden() };
    let bar = bar.with_style(
        ProgressStyle::with_template("{bar:24} step {pos} of {len}, {eta} left  {msg}").expect("the template is ours"),
    );
    bar.set_position(trainer.n_steps());
    bar.reset_eta();
    if args.until.is_some_and(|until| trainer.n_steps() >= until) {
        stop.store(true, Ordering::Relaxed);
    }
    let outcome = train(&mut trainer, &stop, &mut |step, entry| {
        bar.set_position(step);
        if let Some(entry) = entry {
            if entry.kind == "train" {
                bar.set_message(line(entry));
            } else {
                bar.println(format!("step {step}, held out: {}", line(entry)));
            }
        }
        if args.until.is_some_and(|until| step >= until) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    bar.abandon();
    match outcome? {
        _ if !is_first => {}
        Outcome::Finished if trainer.n_skipped() > 0 => {
            let skipped = trainer.n_skipped();
            eprintln!(
                "finished; {skipped} of {} steps skipped: the loss or a gradient was not finite",
                trainer.n_steps()
            );
        }
        Outcome::Finished => eprintln!("finished"),
        Outcome::Stopped => eprintln!("saved at step {}; the same command goes on", trainer.n_steps()),
    }
    Ok(())
}

/// The other processes of the run, if it was started with some.
fn peers() -> Box<dyn Peers> {
    #[cfg(feature = "mpi")]
    if let Some(mpi) = foretoken_train::trainer::Mpi::start() {
        return Box::new(mpi);
    }
    Box::new(Alone)
}

/// Head 1's loss in bits, and each head's share of right guesses.
fn line(entry: &Entry) -> String {
    let bits = entry.loss[0] * std::f32::consts::LOG2_E;
    let top_1: Vec<_> = entry.top_1.iter().map(|share| format!("{:.0}", 100.0 * share)).collect();
    let speed = match entry.tokens_per_second > 0.0 {
        true => format!(", {:.0} tokens/s", entry.tokens_per_second),
        false => String::new(),
    };
    let accepted: Vec<_> = entry.accepted.iter().map(|share| format!("{:.0}", 100.0 * share)).collect();
    let accepted = match accepted.is_empty() {
        true => String::new(),
        false => format!(", accepted {} %", accepted.join(" ")),
    };
    format!("{bits:.3} bits a token, right {} %{accepted}{speed}", top_1.join(" "))
}
