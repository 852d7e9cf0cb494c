//! Steps, evaluations and checkpoints in their order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::log::{HELD_OUT, TRAIN, means};
use super::peers::{Alone, Peers, gather};
use super::report;
use super::{Checkpoint, CheckpointFile, Entry, Log, Settings, write_atomically};
use crate::TrainError;
use crate::data::{Prepared, Repeats, TokenFile, Vocabulary, Windows};
use crate::evaluation::{Generated, Guessed, Joint, Report, Writing, free_running, guesses, joint, measure};
use crate::import::start_from;
use crate::model::Model;
use crate::ops::Ops;
use crate::optim::{Optimiser, StepReport};
use crate::params::{Gradients, Params};
use crate::step::{HeadResult, gradients};

/// A model in training.
pub struct Trainer {
    peers: Box<dyn Peers>,
    settings: Settings,
    ops: Ops,
    model: Model,
    params: Params,
    optimiser: Optimiser,
    windows: Windows,
    held_out: Windows,
    checkpoint: CheckpointFile,
    state: Checkpoint,
    skipped_in_a_row: u32,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// It was asked to stop; the checkpoint holds all steps done.
    Stopped,
}

impl Trainer {
    /// A run from its checkpoint, or from the start when there is none.
    pub fn open(settings: &Settings) -> Result<Self, TrainError> {
        Self::open_among(settings, Box::new(Alone))
    }

    /// A run that has a checkpoint, to be measured or exported.
    pub fn open_trained(settings: &Settings) -> Result<Self, TrainError> {
        let folder = &settings.run.folder;
        if !CheckpointFile::in_folder(folder).exists() {
            let wanted = "a folder with a checkpoint; `foretoken-train train` makes one";
            return Err(TrainError::setting("run.folder", folder.display(), wanted));
        }
        // The texts that it learns from need not be there any more.
        Self::open(&Settings { repeats: None, ..settings.clone() })
    }

    /// The same run, shared among processes, each of which takes some of a step's batches.
    pub fn open_among(settings: &Settings, peers: Box<dyn Peers>) -> Result<Self, TrainError> {
        settings.check()?;
        if !settings.run.accumulate.is_multiple_of(peers.count()) {
            let wanted = format!("a multiple of the {} processes, which share a step's batches", peers.count());
            return Err(TrainError::setting("run.accumulate", settings.run.accumulate, wanted));
        }
        let (device, ops) = settings.run.device.open(settings.run.precision)?;
        let files = Prepared::in_folder(&settings.data.folder);
        let (context, n_heads) = (settings.model.context, settings.model.heads.n);
        if !files.train.exists() || !files.held_out.exists() {
            let wanted = "a folder with train.tokens and held-out.tokens; `foretoken-train prepare` makes them";
            return Err(TrainError::setting("data.folder", settings.data.folder.display(), wanted));
        }
        let [train, held_out] = [TokenFile::open(&files.train)?, TokenFile::open(&files.held_out)?];
        for file in [&train, &held_out] {
            file.check_below(settings.model.vocabulary)?;
        }
        let repeats = match &settings.repeats {
            Some(config) => {
                let vocabulary = Vocabulary::in_folder(&settings.data.folder, settings.data.bpe)?;
                Some(Repeats::read(config, &vocabulary, settings.model.vocabulary, settings.run.seed)?)
            }
            None => None,
        };
        let windows = Windows::new(train, context, n_heads, settings.run.seed)?.with_repeats(repeats);
        let held_out = Windows::new(held_out, context, n_heads, 0)?;
        let (model, mut params) = Model::new(&settings.model, &device, settings.run.seed)?;
        let folder = &settings.run.folder;
        std::fs::create_dir_all(folder).map_err(TrainError::io("create", folder))?;
        let checkpoint = CheckpointFile::in_folder(folder);
        let mut optimiser = Optimiser::new(&params);
        let state = match checkpoint.exists() {
            true => checkpoint.load(&settings.model, &mut params, Some(&mut optimiser))?,
            false => {
                start_from(&settings.run.start, &model, &mut params)?;
                Checkpoint::default()
            }
        };
        let settings = settings.clone();
        Ok(Self {
            peers,
            settings,
            ops,
            model,
            params,
            optimiser,
            windows,
            held_out,
            checkpoint,
            state,
            skipped_in_a_row: 0,
        })
    }

    /// Whether this process is the one that logs, evaluates and saves.
    pub fn is_first(&self) -> bool {
        self.peers.rank() == 0
    }

    /// Whether any process says so.
    fn any(&self, here: bool) -> bool {
        let mut says = [f32::from(here)];
        self.peers.sum(&mut says);
        says[0] > 0.0
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its weights.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Its weights, to be changed between steps.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// Steps done.
    pub fn n_steps(&self) -> u64 {
        self.state.step
    }

    /// Steps skipped because a loss or gradient was not finite.
    pub fn n_skipped(&self) -> u64 {
        self.state.skipped
    }

    /// One optimiser step; the results of each batch, by head.
    pub fn step(&mut self) -> Result<(Vec<Vec<HeadResult>>, StepReport), TrainError> {
        let run = &self.settings.run;
        let n_heads = self.settings.model.heads.n;
        let progress = self.state.step as f32 / run.steps.max(1) as f32;
        let weights = self.settings.loss.at(progress, n_heads);
        let mut sums = Gradients::new(&self.params);
        let mut results = Vec::with_capacity(run.accumulate);
        for i in (self.peers.rank() as u64..run.accumulate as u64).step_by(self.peers.count()) {
            let first = (self.state.step * run.accumulate as u64 + i) * run.windows as u64;
            let batch = self.windows.batch(first, run.windows)?;
            let pass = self.model.pass(&self.params, self.ops, &batch);
            results.push(gradients(&self.model, &pass, &batch, &weights, &mut sums));
        }
        let results = gather(&*self.peers, results, run.accumulate, n_heads);
        if self.peers.count() > 1 {
            sums.each_on_host(&self.params, |values| self.peers.sum(values));
        }
        let rate = self.settings.optimiser.rate(self.state.step, run.steps);
        let finite = results.iter().flatten().all(|head| head.loss.is_finite());
        let report = match finite {
            true => {
                let scale = 1.0 / run.accumulate as f32;
                self.optimiser.step(&self.settings.optimiser, rate, &mut self.params, &mut sums, scale)
            }
            false => StepReport { norms: [f32::NAN; 2], applied: false },
        };
        self.state.step += 1;
        if report.applied {
            self.skipped_in_a_row = 0;
        } else {
            self.state.skipped += 1;
            self.skipped_in_a_row += 1;
            if self.skipped_in_a_row >= run.give_up_after {
                return Err(TrainError::NotFinite { skipped: self.skipped_in_a_row });
            }
        }
        Ok((results, report))
    }

    /// Figures of `n` held-out windows, spread over their file.
    pub fn evaluate(&self, n: usize) -> Result<Report, TrainError> {
        let windows = self.held_out.spread(n)?;
        Ok(measure(&self.model, &self.params.frozen(), self.ops, &windows, self.settings.run.windows))
    }

    /// What the heads find likeliest in `n` held-out windows.
    pub fn guesses(&self, n: usize) -> Result<Vec<Guessed>, TrainError> {
        Ok(guesses(&self.model, &self.params.frozen(), self.ops, &self.held_out.spread(n)?))
    }

    /// How often tokens that are each likeliest alone do not go together, from one place in each of `n` held-out windows and
    /// its likeliest `n_first` first tokens. Of a model with two heads at least.
    pub fn joint(&self, n: usize, n_first: usize) -> Result<Joint, TrainError> {
        Ok(joint(&self.model, &self.params.frozen(), self.ops, &self.held_out.spread(n)?, n_first))
    }

    /// Bytes that a token of `n` held-out windows stands for, on average; the end of a text counts as one.
    pub fn bytes_per_token(&self, n: usize) -> Result<f64, TrainError> {
        let data = &self.settings.data;
        let vocabulary = Vocabulary::in_folder(&data.folder, data.bpe)?;
        let tokens = self.held_out.spread(n)?.tokens(1);
        let bytes: usize = tokens.iter().map(|token| vocabulary.decode(&[*token as u32]).len().max(1)).sum();
        Ok(bytes as f64 / tokens.len() as f64)
    }

    /// What the model writes after half of each of `n` held-out windows, at most `n_new` tokens, and how its heads foresee it.
    pub fn write(&self, n: usize, n_new: usize, temperature: f64) -> Result<Generated, TrainError> {
        let data = &self.settings.data;
        let vocabulary = Vocabulary::in_folder(&data.folder, data.bpe)?;
        let writing = Writing { prompt: self.settings.model.context.div_ceil(2), n_new, temperature, seed: 0 };
        let windows = self.held_out.spread(n)?;
        Ok(free_running(&self.model, &self.params.frozen(), self.ops, &vocabulary, &windows, writing))
    }

    /// Writes the checkpoint, in the first process.
    pub fn save(&self) -> Result<(), TrainError> {
        if !self.is_first() {
            return Ok(());
        }
        self.checkpoint.save(self.state, &self.settings.model, &self.params, &self.optimiser)
    }
}

/// Runs until all steps are done or `stop` is set, then saves. `told` hears every line of the log; between them, the step. Of
/// several processes the first alone writes and evaluates, and `stop` in any of them stops all.
pub fn train(
    trainer: &mut Trainer,
    stop: &AtomicBool,
    told: &mut dyn FnMut(u64, Option<&Entry>),
) -> Result<Outcome, TrainError> {
    let run = trainer.settings.run.clone();
    let n_heads = trainer.settings.model.heads.n;
    let per_step = trainer.settings.tokens_per_step();
    let is_first = trainer.is_first();
    let mut log = if is_first { Some(Log::open(&run.folder, trainer.n_steps())?) } else { None };
    let (mut since, mut clock) = (Vec::new(), Instant::now());
    let mut first = trainer.n_steps();
    while trainer.n_steps() < run.steps {
        if trainer.any(stop.load(Ordering::Relaxed)) {
            trainer.save()?;
            return Ok(Outcome::Stopped);
        }
        let rate = trainer.settings.optimiser.rate(trainer.n_steps(), run.steps);
        let (results, step) = trainer.step()?;
        since.extend(results);
        let done = trainer.n_steps();
        let last = done == run.steps;
        let mut entry = |kind: &str, loss, top_1, accepted, tokens_per_second| {
            let entry = Entry {
                kind: kind.to_owned(),
                step: done,
                tokens: done * per_step,
                loss,
                top_1,
                accepted,
                rate,
                norms: step.norms.map(|norm| if norm.is_finite() { norm } else { 0.0 }),
                skipped: trainer.n_skipped(),
                tokens_per_second,
            };
            if let Some(log) = &mut log {
                log.write(&entry)?;
            }
            told(done, Some(&entry));
            Ok::<_, TrainError>(())
        };
        if done.is_multiple_of(run.log_every) || last {
            let speed = ((done - first) * per_step) as f32 / clock.elapsed().as_secs_f32();
            let (loss, top_1) = means(&since, n_heads);
            entry(TRAIN, loss, top_1, Vec::new(), speed)?;
            since.clear();
            (first, clock) = (done, Instant::now());
        }
        if is_first && run.evaluate_every > 0 && (done.is_multiple_of(run.evaluate_every) || last) {
            let started = Instant::now();
            let found = trainer.evaluate(run.evaluate_windows)?;
            let loss = found.heads.iter().map(|head| (head.bits * std::f64::consts::LN_2) as f32).collect();
            let top_1 = found.heads.iter().map(|head| head.top_1 as f32).collect();
            entry(HELD_OUT, loss, top_1, found.acceptance.shares(), 0.0)?;
            clock += started.elapsed();
        }
        if done.is_multiple_of(run.checkpoint_every) || last {
            trainer.save()?;
            if let Some(log) = &log {
                let name = run.folder.file_name().map_or_else(|| "a run".into(), |name| name.to_string_lossy());
                write_atomically(&run.folder.join("report.html"), report::page(&name, log.entries()).as_bytes())?;
            }
        }
        told(done, None);
    }
    Ok(Outcome::Finished)
}
