//! `baseline`: an n-gram on the bytes that a run has seen, measured where its checkpoint is measured.

use std::path::PathBuf;

use foretoken_train::TrainError;
use foretoken_train::data::Prepared;
use foretoken_train::evaluation::baseline;
use foretoken_train::trainer::{Settings, Trainer};

/// Trains an order-16 Witten-Bell n-gram for each head's distance and measures it on the windows that `evaluate` takes.
///
/// It reads the bytes that the run's checkpoint has seen, or as many windows of the run as are named.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
    /// Windows of the run to train on, instead of those that the checkpoint has seen.
    #[arg(long)]
    train_windows: Option<u64>,
    /// Windows to measure, spread over the held-out file.
    #[arg(long, default_value_t = 512)]
    windows: usize,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let settings = Settings::read(&args.config)?;
    if settings.model.vocabulary != 256 {
        return Err(TrainError::setting(
            "model.vocabulary",
            settings.model.vocabulary,
            "256: the n-gram is one of bytes",
        ));
    }
    let seen = match args.train_windows {
        Some(windows) => windows,
        None => Trainer::open_trained(&settings)?.n_steps() * (settings.run.windows * settings.run.accumulate) as u64,
    };
    for (setting, value) in [("--windows", args.windows as u64), ("--train-windows", seen)] {
        if value == 0 {
            return Err(TrainError::setting(setting, 0, "at least 1"));
        }
    }
    let files = Prepared::in_folder(&settings.data.folder);
    let (n_bytes, figures) = baseline(&settings, &files, seen, args.windows)?;
    println!("order 16, {n_bytes} bytes");
    super::evaluate::table("distance", &figures);
    Ok(())
}
