//! The training run: steps, evaluation, checkpoints; everything that a resumed run needs is the settings and the step.

mod checkpoint;
mod claim;
mod log;
mod peers;
mod report;
mod run;
mod settings;

pub use checkpoint::{Checkpoint, CheckpointFile};
pub(crate) use checkpoint::{replace, write_atomically};
pub use claim::Claim;
pub use log::{Entry, Log};
#[cfg(feature = "mpi")]
pub use peers::Mpi;
pub use peers::{Alone, Peers};
pub use run::{Outcome, Trainer, train};
pub use settings::{DeviceName, MOST_TOKENS, PrecisionName, RunConfig, Settings};

#[cfg(test)]
mod tests;
