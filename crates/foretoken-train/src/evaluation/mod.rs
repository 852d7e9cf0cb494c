//! What a model does on texts that it never saw: losses and guesses by head, and how far its heads agree with itself.

mod acceptance;
mod baseline;
mod generated;
mod joint;
mod ngram;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use acceptance::Acceptance;
pub use baseline::baseline;
pub use generated::{Generated, Writing, free_running};
pub use joint::{Joint, joint};
pub use ngram::{Ngram, Question};

use crate::batch::{Batch, IGNORE};
use crate::model::Model;
use crate::ops::Ops;
use crate::params::Params;
use crate::step::logits_by_head;

/// Figures over some labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Mean loss in bits a token.
    pub bits: f64,
    /// The share of labels that were the likeliest guess.
    pub top_1: f64,
    /// Labels.
    pub n: u64,
}

impl Figures {
    /// Adds a label that was given this probability's logarithm, negated, in bits.
    fn add(&mut self, bits: f64, hit: bool) {
        self.n += 1;
        self.bits += (bits - self.bits) / self.n as f64;
        self.top_1 += (f64::from(u8::from(hit)) - self.top_1) / self.n as f64;
    }

    /// The figures over both.
    fn merge(self, other: Self) -> Self {
        let n = self.n + other.n;
        let mean = |a: f64, b: f64| (a * self.n as f64 + b * other.n as f64) / n.max(1) as f64;
        Self { bits: mean(self.bits, other.bits), top_1: mean(self.top_1, other.top_1), n }
    }
}

/// Everything that [`measure`] finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// By head.
    pub heads: Vec<Figures>,
    /// Head 1 by the number of tokens it sees: 1, 2 to 3, 4 to 7, and so on.
    pub by_context: Vec<Figures>,
    /// How far heads 2 to n agree with head 1 on given text.
    pub acceptance: Acceptance,
    /// The same on text that the model wrote, where that was asked for.
    #[serde(default)]
    pub generated: Vec<Generated>,
}

/// A head's guesses and losses at every position of a batch.
pub(super) struct Guesses {
    /// The likeliest token, the lowest of equals.
    pub likeliest: Vec<i32>,
    /// Bits that the label cost; 0 where there is none.
    bits: Vec<f64>,
}

impl Guesses {
    fn new(logits: &[f32], vocabulary: usize, labels: &[i32]) -> Self {
        let rows = logits.par_chunks_exact(vocabulary).zip(labels);
        let (likeliest, bits) = rows
            .map(|(row, &label)| {
                let (mut best, mut max) = (0, f32::NEG_INFINITY);
                for (token, &logit) in row.iter().enumerate() {
                    if logit > max {
                        (best, max) = (token, logit);
                    }
                }
                let sum: f64 = row.iter().map(|logit| libm::exp(f64::from(logit - max))).sum();
                let bits = match label {
                    IGNORE => 0.0,
                    label => libm::log2(sum) - f64::from(row[label as usize] - max) * std::f64::consts::LOG2_E,
                };
                (best as i32, bits)
            })
            .unzip();
        Self { likeliest, bits }
    }
}

/// The logits of heads 1 to n on a batch, `[windows x tokens][vocabulary]`, one head after another.
fn scores_by_head(model: &Model, params: &Params, ops: Ops, batch: &Batch, mut f: impl FnMut(usize, &[f32])) {
    logits_by_head(model, &model.pass(params, ops, batch), batch, |k, logits| {
        let logits: Vec<f32> = logits.into_data().try_into_vec().expect("logits are f32");
        f(k, &logits);
    });
}

/// A window and what each head makes of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guessed {
    /// The tokens that the model sees.
    pub tokens: Vec<i32>,
    /// By head: the likeliest token at each position.
    pub heads: Vec<Vec<i32>>,
}

/// What the heads of a model of [frozen](Params::frozen) weights find likeliest in each window, for figures of one's own.
pub fn guesses(model: &Model, params: &Params, ops: Ops, windows: &Batch) -> Vec<Guessed> {
    let each = |batch: Batch| {
        let mut heads = Vec::with_capacity(model.config.heads.n);
        scores_by_head(model, params, ops, &batch, |k, logits| {
            heads.push(Guesses::new(logits, model.config.vocabulary, &batch.labels(k)).likeliest);
        });
        Guessed { tokens: batch.tokens(0), heads }
    };
    windows.chunks(1).map(each).collect()
}

/// Measures a model of [frozen](Params::frozen) weights on windows, `at_a_time` of them in one pass.
pub fn measure(model: &Model, params: &Params, ops: Ops, windows: &Batch, at_a_time: usize) -> Report {
    let (n_heads, vocabulary) = (model.config.heads.n, model.config.vocabulary);
    let n_buckets = usize::BITS as usize - model.config.context.leading_zeros() as usize;
    let mut report = Report {
        heads: vec![Figures::default(); n_heads],
        by_context: vec![Figures::default(); n_buckets],
        acceptance: Acceptance::new(n_heads),
        generated: Vec::new(),
    };
    for batch in windows.chunks(at_a_time) {
        let mut heads = Vec::with_capacity(n_heads);
        scores_by_head(model, params, ops, &batch, |k, logits| {
            let labels = batch.labels(k);
            let guesses = Guesses::new(logits, vocabulary, &labels);
            for (i, &label) in labels.iter().enumerate().filter(|(_, label)| **label != IGNORE) {
                report.heads[k - 1].add(guesses.bits[i], guesses.likeliest[i] == label);
            }
            heads.push(guesses);
        });
        let first_keys = batch.first_keys();
        let labels = batch.labels(1);
        for (i, (&first, &label)) in first_keys.iter().zip(&labels).enumerate().filter(|(_, (_, l))| **l != IGNORE) {
            let seen = i % batch.n_tokens() - first as usize + 1;
            report.by_context[seen.ilog2() as usize].add(heads[0].bits[i], heads[0].likeliest[i] == label);
        }
        report.acceptance.add(&batch, &heads);
    }
    report
}

#[cfg(test)]
mod tests;
