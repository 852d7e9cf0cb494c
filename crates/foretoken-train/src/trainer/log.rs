//! The run's log: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::write_atomically;
use crate::TrainError;
use crate::step::HeadResult;

/// The kinds of lines.
pub(super) const TRAIN: &str = "train";
pub(super) const HELD_OUT: &str = "held_out";

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// `train` or `held_out`.
    pub kind: String,
    /// Steps done.
    pub step: u64,
    /// Tokens seen.
    pub tokens: u64,
    /// Mean loss of each head since the line before, nats a token; 0 for a head that took no part.
    pub loss: Vec<f32>,
    /// Share of likeliest guesses that were right, by head.
    pub top_1: Vec<f32>,
    /// Held out: for heads 2 to n, the share of the drafts asked for that head 1 agreed with.
    #[serde(default)]
    pub accepted: Vec<f32>,
    /// The learning rate.
    pub rate: f32,
    /// Gradient norms of the trunk and of the heads, at the last step.
    pub norms: [f32; 2],
    /// Steps skipped so far because something was not finite.
    pub skipped: u64,
    /// Tokens a second since the line before.
    pub tokens_per_second: f32,
}

/// The file they go to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
}

impl Log {
    /// Opens the log of a run's folder; lines behind `step` are of a run that was killed, and go.
    pub fn open(folder: &Path, step: u64) -> Result<Self, TrainError> {
        let path = folder.join("log.jsonl");
        let old = if path.exists() {
            std::fs::read_to_string(&path).map_err(TrainError::io("read", &path))?
        } else {
            String::new()
        };
        let whole = old.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        let entries: Vec<_> = whole.filter(|entry| entry.step <= step).collect();
        let kept: String = entries.iter().map(line_of).collect();
        if kept != old {
            write_atomically(&path, kept.as_bytes())?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(TrainError::io("open", &path))?;
        Ok(Self { path, file, entries })
    }

    /// Appends a line.
    pub fn write(&mut self, entry: &Entry) -> Result<(), TrainError> {
        self.entries.push(entry.clone());
        self.file.write_all(line_of(entry).as_bytes()).map_err(TrainError::io("write", &self.path))
    }

    /// All lines, those of earlier parts of the run too.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

fn line_of(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("plain data") + "\n"
}

/// Means of results, by head, weighted by labels.
pub(super) fn means(results: &[Vec<HeadResult>], n: usize) -> (Vec<f32>, Vec<f32>) {
    let mean = |k: usize, figure: fn(&HeadResult) -> f32| {
        let of_head = results.iter().map(|heads| &heads[k]);
        let labels: usize = of_head.clone().map(|head| head.n_labels).sum();
        let sum: f64 = of_head.map(|head| f64::from(figure(head)) * head.n_labels as f64).sum();
        if labels == 0 { 0.0 } else { (sum / labels as f64) as f32 }
    };
    let loss = (0..n).map(|k| mean(k, |head| head.loss)).collect();
    (loss, (0..n).map(|k| mean(k, |head| head.top_1)).collect())
}
