//! How often two tokens that are each likeliest alone do not go together.
//!
//! A parallel head knows the text up to here and not the token before its own, so the best it can learn is the second token's
//! distribution over all first tokens, `m(b) = sum over a of p(a) p(b | a)`. Where the likeliest `b` of `m` is not the likeliest
//! after the first token that is drafted, even a perfect parallel head drafts a pair that is rejected; a sequential head sees that
//! first token. (Mehra, Garcia and Mauch, arXiv 2502.09419, ask the same of models without heads.)

use serde::{Deserialize, Serialize};

use super::scores_by_head;
use crate::batch::{Batch, IGNORE};
use crate::model::Model;
use crate::ops::Ops;
use crate::params::Params;

/// Counts over drafts of two tokens, the first of which is head 1's likeliest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Joint {
    /// Drafts.
    pub n: u64,
    /// Head 2's token is not the one that head 1 finds likeliest after the first.
    pub rejected: u64,
    /// The second token that is likeliest alone is not the likeliest after the first: what no parallel head can avoid.
    pub apart: u64,
    /// Both at once: head 2 drafted the token that is likeliest alone, and it was rejected.
    pub drafted_apart: u64,
    /// The mean probability of the first tokens that `m` was summed over.
    pub covered: f64,
}

/// Counts one draft for each window, behind its last token but one. `m` is summed over the likeliest `n_first` first tokens.
pub fn joint(model: &Model, params: &Params, ops: Ops, windows: &Batch, n_first: usize) -> Joint {
    let mut found = Joint::default();
    let at = windows.n_tokens() - 2;
    for batch in windows.chunks(1) {
        if batch.labels(1)[at] == IGNORE {
            continue;
        }
        let p = &rows(model, params, ops, &batch, at, at)[0].0;
        let mut firsts: Vec<u32> = (0..p.len() as u32).collect();
        firsts.sort_by(|a, b| p[*b as usize].total_cmp(&p[*a as usize]));
        firsts.truncate(n_first);
        let branches = rows(model, params, ops, &batch.branches(0, at + 1, &firsts), at + 1, at);
        let mut alone = vec![0.0; p.len()];
        for (&first, (after, _)) in firsts.iter().zip(&branches) {
            alone.iter_mut().zip(after).for_each(|(sum, q)| *sum += p[first as usize] * q);
        }
        let (given, drafted) = (likeliest(&branches[0].0), likeliest(&branches[0].1));
        let alone = likeliest(&alone);
        found.n += 1;
        found.rejected += u64::from(drafted != given);
        found.apart += u64::from(alone != given);
        found.drafted_apart += u64::from(drafted == alone && alone != given);
        let covered: f64 = firsts.iter().map(|first| p[*first as usize]).sum();
        found.covered += (covered - found.covered) / found.n as f64;
    }
    found
}

/// For each window, the probabilities of head 1 at place `first` and of head 2 at place `second`.
fn rows(
    model: &Model,
    params: &Params,
    ops: Ops,
    batch: &Batch,
    first: usize,
    second: usize,
) -> Vec<(Vec<f64>, Vec<f64>)> {
    let mut found = vec![(Vec::new(), Vec::new()); batch.n_windows()];
    let vocabulary = model.config.vocabulary;
    scores_by_head(model, params, ops, batch, |k, logits| {
        let row = |window: usize, place: usize| {
            let at = (window * batch.n_tokens() + place) * vocabulary;
            probabilities(&logits[at..at + vocabulary])
        };
        for (window, pair) in found.iter_mut().enumerate() {
            match k {
                1 => pair.0 = row(window, first),
                2 => pair.1 = row(window, second),
                _ => {}
            }
        }
    });
    found
}

fn probabilities(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|logit| libm::exp(f64::from(logit - max))).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The lowest of equals.
fn likeliest(p: &[f64]) -> usize {
    (0..p.len()).fold(0, |best, i| if p[i] > p[best] { i } else { best })
}
