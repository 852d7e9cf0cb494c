//! The argmax of logits plus noise, by pruning: logarithms are taken only for tokens that could win.
//!
//! Exact scores are f64. A token is skipped only when an f32 upper bound of its score, with slack for the rounding of
//! the bound, is below the score to beat, so the winner is that of the definition.

use super::noise::{GUMBEL_MAX, NoiseKey, gumbel, gumbel_bound};
use super::support::{Candidate, Tempered, block_max};
use crate::TokenId;

/// Above the rounding error of an f32 bound wherever noise can decide, which is above z = -30.
const SLACK: f64 = 1e-3;

const BLOCK: usize = 64;

/// The best `k` so far, best first, and the score the next has to reach.
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
    row: Tempered<'_>,
    ordered: &[Candidate],
    key: NoiseKey,
    k: usize,
    best: &mut Vec<(f64, TokenId)>,
) {
    let mut winners = Winners::new(best, k);
    for candidate in ordered {
        let z = row.z(candidate.logit);
        if z + GUMBEL_MAX < winners.bound {
            break;
        }
        let bits = key.bits(candidate.token);
        if z + gumbel_bound(bits) >= winners.bound {
            winners.offer(row.z_exact(candidate.logit) + gumbel(bits), candidate.token);
        }
    }
}

/// The best `k` of the row's tokens up to and including `last` in the order. Starting from the likeliest token makes the
/// bound tight at once.
pub(super) fn best_of_row(
    row: Tempered<'_>,
    argmax: TokenId,
    last: Candidate,
    key: NoiseKey,
    k: usize,
    best: &mut Vec<(f64, TokenId)>,
) {
    let mut winners = Winners::new(best, k);
    winners.offer(key.gumbel(argmax), argmax);
    let mut bounds = [0.0f32; BLOCK];
    for (block, logits) in row.row.chunks(BLOCK).enumerate() {
        let top = block_max(logits);
        if top < last.logit || row.z(top) + GUMBEL_MAX < winners.bound {
            continue;
        }
        let first = (block * BLOCK) as TokenId;
        let mut highest = f32::NEG_INFINITY;
        for (lane, (bound, &logit)) in bounds.iter_mut().zip(logits).enumerate() {
            *bound = row.z(logit) + gumbel_bound(key.bits(first + lane as TokenId));
            highest = if *bound > highest { *bound } else { highest };
        }
        if highest < winners.bound {
            continue;
        }
        for (lane, &logit) in logits.iter().enumerate() {
            let candidate = Candidate { token: first + lane as TokenId, logit };
            let allowed = logit > f32::NEG_INFINITY && candidate.order(&last).is_le() && candidate.token != argmax;
            if bounds[lane] >= winners.bound && allowed {
                let noise = key.gumbel(candidate.token);
                winners.offer(row.z_exact(logit) + noise, candidate.token);
            }
        }
    }
}
