//! The argmax of logits plus noise, by pruning: logarithms are taken only for tokens that could win.
//!
//! Exact scores are f64. What is skipped has an upper bound below the score to beat, so the winner is that of the
//! definition.

use foretoken_kernels::ops::{MAX_BLOCK, noise};

use super::noise::{NoiseKey, gumbel};
use super::row::Row;
use super::support::Candidate;
use crate::TokenId;

/// Above the rounding error of an f32 score wherever noise can decide, which is above z = -30.
const SLACK: f64 = 1e-4;

/// The best `k` so far, best first, and the score that the next has to reach.
struct Winners<'a> {
    best: &'a mut Vec<(f64, TokenId)>,
    k: usize,
    bound: f32,
}

impl<'a> Winners<'a> {
    fn new(best: &'a mut Vec<(f64, TokenId)>, k: usize) -> Self {
        Self { best, k, bound: f32::NEG_INFINITY }
    }

    /// Higher scores first; equal scores by id.
    fn offer(&mut self, score: f64, token: TokenId) {
        let place = self.best.partition_point(|&(s, t)| s > score || (s == score && t < token));
        if place < self.k {
            self.best.insert(place, (score, token));
            self.best.truncate(self.k);
            if self.best.len() == self.k {
                self.bound = (self.best[self.k - 1].0 - SLACK) as f32;
            }
        }
    }
}

/// The best `k` of an ordered candidate list.
pub(super) fn best_of_list(
    row: Row<'_>,
    ordered: &[Candidate],
    key: NoiseKey,
    k: usize,
    best: &mut Vec<(f64, TokenId)>,
) {
    let mut winners = Winners::new(best, k);
    for candidate in ordered {
        if !row.could_reach(candidate.logit, winners.bound) {
            break;
        }
        winners.offer(row.z_exact(candidate.logit) + key.gumbel(candidate.token), candidate.token);
    }
}

/// The best `k` of the row's tokens up to and including `last` in the order. Starting from the likeliest token makes the
/// bound tight at once.
pub(super) fn best_of_row(
    row: Row<'_>,
    last: Candidate,
    key: NoiseKey,
    k: usize,
    hits: &mut Vec<(u32, u32)>,
    best: &mut Vec<(f64, TokenId)>,
) {
    let mut winners = Winners::new(best, k);
    winners.offer(key.gumbel(row.argmax), row.argmax);
    let mut z = [0.0; MAX_BLOCK];
    for (first, max) in row.blocks() {
        if max < last.logit || !row.could_reach(max, winners.bound) {
            continue;
        }
        hits.clear();
        noise::contenders(row.isa, key.0, row.block_z(first, &mut z), first as TokenId, winners.bound, hits);
        for &(token, bits) in hits.iter() {
            let candidate = Candidate { token, logit: row.logits[token as usize] };
            let allowed = candidate.logit > f32::NEG_INFINITY && candidate.order(&last).is_le();
            if allowed && token != row.argmax {
                winners.offer(row.z_exact(candidate.logit) + gumbel(bits), token);
            }
        }
    }
}
