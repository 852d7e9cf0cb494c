//! The TOML file of a run.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::{Deserialize, Deserializer, Serialize};

use crate::TrainError;
use crate::config::ModelConfig;
use crate::data::{DataConfig, RepeatsConfig};
use crate::loss::LossConfig;
use crate::ops::{Ops, Precision};
use crate::optim::OptimiserConfig;

/// All settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How long, how much at a time, where to.
    pub run: RunConfig,
    /// The model.
    pub model: ModelConfig,
    /// The heads' weights.
    pub loss: LossConfig,
    /// The optimiser.
    pub optimiser: OptimiserConfig,
    /// The texts.
    pub data: DataConfig,
    /// What the model wrote and should not have; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RepeatsConfig>,
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a file's path, or a list of them")]
    enum Files {
        One(PathBuf),
        Several(Vec<PathBuf>),
    }
    Ok(match Files::deserialize(deserializer)? {
        Files::One(file) => vec![file],
        Files::Several(files) => files,
    })
}

/// How long a run is, how much it does at a time and where its files go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The folder for the checkpoint and the log.
    pub folder: PathBuf,
    /// Optimiser steps of the whole run.
    pub steps: u64,
    /// Windows that go through the model at a time.
    pub windows: usize,
    /// Batches of `windows` whose gradients make one step.
    #[serde(default = "one")]
    pub accumulate: usize,
    /// A GGUF file as `export` writes it, heads included, whose weights the run begins with as long as it has no checkpoint, or
    /// several, whose mean it begins with. The optimiser begins anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_several")]
    pub start: Vec<PathBuf>,
    /// Decides the first weights and the order of windows.
    #[serde(default)]
    pub seed: u64,
    /// Where it runs.
    #[serde(default)]
    pub device: DeviceName,
    /// How products round their operands.
    #[serde(default)]
    pub precision: PrecisionName,
    /// Steps between lines of the log.
    #[serde(default = "log_every")]
    pub log_every: u64,
    /// Steps between evaluations on held-out texts; 0 for none.
    #[serde(default = "evaluate_every")]
    pub evaluate_every: u64,
    /// Held-out windows of an evaluation.
    #[serde(default = "evaluate_windows")]
    pub evaluate_windows: usize,
    /// Steps between checkpoints.
    #[serde(default = "checkpoint_every")]
    pub checkpoint_every: u64,
    /// Steps in a row whose loss or gradient was not finite, after which the run stops.
    #[serde(default = "give_up_after")]
    pub give_up_after: u32,
}

fn one() -> usize {
    1
}
fn log_every() -> u64 {
    10
}
fn evaluate_every() -> u64 {
    500
}
fn evaluate_windows() -> usize {
    64
}
fn checkpoint_every() -> u64 {
    200
}
fn give_up_after() -> u32 {
    5
}

/// A back end. Those of GPUs are features of this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceName {
    /// The CPU, with fused operations.
    #[default]
    Cpu,
    /// CUDA, the first device.
    Cuda,
    /// Any GPU that WebGPU finds.
    Wgpu,
}

/// How products round their operands, on the CPU; weights, gradients and sums are `f32` either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrecisionName {
    /// Not at all.
    #[default]
    F32,
    /// To bfloat16 where the CPU multiplies it in hardware (twice as fast), else not at all.
    Bf16,
}

impl DeviceName {
    /// The device and the version of the layers' parts that runs there.
    pub fn open(self, precision: PrecisionName) -> Result<(Device, Ops), TrainError> {
        let precision = match precision {
            PrecisionName::F32 => Precision::F32,
            PrecisionName::Bf16 => Precision::Bf16,
        };
        match self {
            Self::Cpu => Ok((Device::flex(), Ops::Fused(precision))),
            #[cfg(feature = "cuda")]
            Self::Cuda => Ok((Device::cuda(0), Ops::Composed)),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Ok((Device::wgpu(Default::default()), Ops::Composed)),
            #[allow(unreachable_patterns)]
            other => {
                let name = format!("{other:?}").to_lowercase();
                let wanted = format!("a foretoken-train built with `--features {name}`");
                Err(TrainError::setting("run.device", name, wanted))
            }
        }
    }
}

/// Tokens that go through the model at a time at most. Their hidden states alone are gigabytes then.
pub const MOST_TOKENS: usize = 1 << 22;

/// Tokens of a step at most: a thousand times as many as go through the model at a time.
const MOST_TOKENS_A_STEP: u64 = 1 << 32;

impl Settings {
    /// Reads and checks a TOML file.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let text = std::fs::read_to_string(path).map_err(TrainError::io("read", path))?;
        let settings: Self = toml::from_str(&text)
            .map_err(|source| TrainError::Config { path: path.to_path_buf(), source: Box::new(source) })?;
        settings.check()?;
        Ok(settings)
    }

    /// Checks that the settings fit each other.
    pub fn check(&self) -> Result<(), TrainError> {
        self.model.check()?;
        self.loss.check(self.model.heads.n)?;
        self.optimiser.check()?;
        self.data.check(self.model.vocabulary)?;
        self.repeats.as_ref().map_or(Ok(()), RepeatsConfig::check)?;
        let run = &self.run;
        for (setting, folder) in [("run.folder", &run.folder), ("data.folder", &self.data.folder)] {
            if folder.as_os_str().is_empty() {
                return Err(TrainError::setting(setting, "\"\"", "a folder's path"));
            }
        }
        let counts = [
            ("run.steps", run.steps),
            ("run.windows", run.windows as u64),
            ("run.accumulate", run.accumulate as u64),
            ("run.log_every", run.log_every),
            ("run.checkpoint_every", run.checkpoint_every),
            ("run.give_up_after", u64::from(run.give_up_after)),
        ];
        for (setting, value) in counts {
            if value == 0 {
                return Err(TrainError::setting(setting, 0, "at least 1"));
            }
        }
        if run.windows.saturating_mul(self.model.context) > MOST_TOKENS {
            let wanted = format!(
                "with model.context = {} at most {} windows: {MOST_TOKENS} tokens go through the model at a time; \
                 run.accumulate makes larger steps",
                self.model.context,
                MOST_TOKENS / self.model.context
            );
            return Err(TrainError::setting("run.windows", run.windows, wanted));
        }
        let per_step = (run.windows * self.model.context) as u64;
        if per_step.checked_mul(run.accumulate as u64).is_none_or(|tokens| tokens > MOST_TOKENS_A_STEP) {
            let wanted = format!(
                "at most {}: a step learns from {MOST_TOKENS_A_STEP} tokens at most",
                MOST_TOKENS_A_STEP / per_step
            );
            return Err(TrainError::setting("run.accumulate", run.accumulate, wanted));
        }
        if run.steps.checked_mul(self.tokens_per_step()).is_none() {
            let wanted =
                format!("at most {}: the tokens of the run have to be countable", u64::MAX / self.tokens_per_step());
            return Err(TrainError::setting("run.steps", run.steps, wanted));
        }
        if run.evaluate_every > 0 && run.evaluate_windows == 0 {
            let wanted = "at least 1, or run.evaluate_every = 0 for no evaluations";
            return Err(TrainError::setting("run.evaluate_windows", 0, wanted));
        }
        Ok(())
    }

    /// Tokens that a step learns from.
    pub fn tokens_per_step(&self) -> u64 {
        (self.run.windows * self.run.accumulate * self.model.context) as u64
    }
}
