//! `evaluate`: losses and accuracies of a checkpoint on held-out texts.

use std::path::PathBuf;

use foretoken_train::TrainError;
use foretoken_train::trainer::{Settings, Trainer};

/// Measures the run's checkpoint on texts of packages that it never saw.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
    /// Windows to measure, spread over the held-out file.
    #[arg(long, default_value_t = 512)]
    windows: usize,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let mut settings = Settings::read(&args.config)?;
    settings.run.evaluate_windows = args.windows;
    settings.run.evaluate_every = settings.run.evaluate_every.max(1);
    let trainer = Trainer::open(&settings)?;
    let Some(evaluation) = trainer.evaluate()? else { return Ok(()) };
    println!("step {}", trainer.n_steps());
    println!("head  bits a token  likeliest right");
    for (i, (loss, top_1)) in evaluation.loss.iter().zip(&evaluation.top_1).enumerate() {
        println!("{:4}  {:12.3}  {:.3}", i + 1, loss * std::f32::consts::LOG2_E, top_1);
    }
    Ok(())
}
