//! Top-k, top-p and min-p: which tokens of a row may be drawn.
//!
//! Every filter keeps a prefix of one order, logit descending and id ascending (-0 equals +0), so what is left is
//! described by the last token kept.

use std::cmp::Ordering;

use super::SamplerSettings;
use crate::TokenId;

/// A token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The id.
    pub token: TokenId,
    /// Its logit, after penalties and bias.
    pub logit: f32,
}

impl Candidate {
    /// Likelier first, then the lower id. Logits are not NaN.
    pub fn order(&self, other: &Self) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit).expect("a scanned row has no NaN");
        by_logit.then(self.token.cmp(&other.token))
    }
}

/// A row divided by the temperature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tempered<'a> {
    pub row: &'a [f32],
    pub max: f32,
    pub temperature: f32,
    /// Capped, so that zero times it is zero at the smallest temperatures.
    pub inverse: f32,
}

impl<'a> Tempered<'a> {
    pub fn new(row: &'a [f32], max: f32, temperature: f32) -> Self {
        Self { row, max, temperature, inverse: (1.0 / temperature).min(f32::MAX) }
    }

    /// `(logit - max) / T` in f32: what filters and bounds use. Monotone in the logit.
    #[inline]
    pub fn z(&self, logit: f32) -> f32 {
        (logit - self.max) * self.inverse
    }

    /// The same in f64: what the draw compares.
    #[inline]
    pub fn z_exact(&self, logit: f32) -> f64 {
        (f64::from(logit) - f64::from(self.max)) / f64::from(self.temperature)
    }
}

/// What the filters left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Support {
    /// The candidate list, in order.
    Listed,
    /// Every token of the row up to and including this one in the order; minus infinity never counts.
    UpTo(Candidate),
}

/// Applies top-k, top-p and min-p in this order. `listed` holds the candidates when the answer is [`Support::Listed`].
pub(super) fn filter(row: Tempered<'_>, settings: &SamplerSettings, listed: &mut Vec<Candidate>) -> Support {
    let min_z = if settings.min_p > 0.0 { libm::logf(settings.min_p) } else { f32::NEG_INFINITY };
    if settings.top_k > 0 && settings.top_k < row.row.len() {
        top_k(row.row, settings.top_k, listed);
        if settings.top_p < 1.0 {
            let total = listed.iter().map(|c| weight(row.z(c.logit))).sum::<f64>();
            listed.truncate(crossing(row, listed, f64::from(settings.top_p) * total, 0.0) + 1);
        }
        listed.truncate(listed.partition_point(|c| row.z(c.logit) >= min_z).max(1));
        return Support::Listed;
    }
    let mut last = Candidate { token: TokenId::MAX, logit: f32::MIN };
    if settings.top_p < 1.0 {
        last = top_p(row, settings.top_p, listed);
    }
    if row.z(last.logit) < min_z {
        last = Candidate { token: TokenId::MAX, logit: lowest_logit(row, min_z) };
    }
    Support::UpTo(last)
}

/// The lowest logit whose z reaches `min_z`: filters compare z, the draw compares logits.
fn lowest_logit(row: Tempered<'_>, min_z: f32) -> f32 {
    let mut logit = row.max + min_z * row.temperature;
    while row.z(logit) < min_z {
        logit = logit.next_up();
    }
    while row.z(logit.next_down()) >= min_z {
        logit = logit.next_down();
    }
    logit
}

/// Exactly the first `k` of the order, sorted; fewer when fewer are above minus infinity.
pub(super) fn top_k(row: &[f32], k: usize, best: &mut Vec<Candidate>) {
    const BLOCK: usize = 64;
    best.clear();
    let room = 2 * k + BLOCK;
    best.reserve(room);
    // Ids ascend: once k are known, a later token equal to the last of them comes after it in the order.
    let mut floor = f32::NEG_INFINITY;
    for (block, logits) in row.chunks(BLOCK).enumerate() {
        if block_max(logits) <= floor {
            continue;
        }
        for (lane, &logit) in logits.iter().enumerate() {
            if logit > floor {
                best.push(Candidate { token: (block * BLOCK + lane) as TokenId, logit });
            }
        }
        if best.len() > room - BLOCK {
            best.select_nth_unstable_by(k - 1, Candidate::order);
            best.truncate(k);
            floor = best[k - 1].logit;
        }
    }
    best.sort_unstable_by(Candidate::order);
    best.truncate(k);
}

/// `e^z` as a multiple of 2^-35. A row's sum stays below 2^18, so f64 sums of weights are exact in any order: "summed in
/// the order of the tokens" costs no sort.
#[inline]
pub(super) fn weight(z: f32) -> f64 {
    const ROUND: f64 = 1.5 * 131_072.0; // 1.5 * 2^(52 - 35): adding it leaves no bits below 2^-35
    f64::from(libm::expf(z)) + ROUND - ROUND
}

/// Below this z a weight rounds to zero: `2^-36 = e^-24.95`.
const WEIGHTLESS: f32 = -25.0;

/// Index of the first candidate, in order, at which the sum from `before` on reaches `wanted`.
fn crossing(row: Tempered<'_>, ordered: &[Candidate], wanted: f64, before: f64) -> usize {
    let mut sum = before;
    let reached = ordered.iter().position(|c| {
        sum += weight(row.z(c.logit));
        sum >= wanted
    });
    reached.unwrap_or(ordered.len() - 1)
}

/// The token at which the cumulative probability of the whole row reaches `p`. Masses of narrow ranges of z find the
/// range where it does; only that one is sorted.
fn top_p(row: Tempered<'_>, p: f32, listed: &mut Vec<Candidate>) -> Candidate {
    const BLOCK: usize = 64;
    const RANGES: usize = 400;
    let range_of = |z: f32| (z * (RANGES as f32 / WEIGHTLESS)) as usize; // 0 holds the maximum
    let mut masses = [0.0f64; RANGES + 1];
    for logits in row.row.chunks(BLOCK) {
        if row.z(block_max(logits)) < WEIGHTLESS {
            continue;
        }
        for &logit in logits {
            let z = row.z(logit);
            if z >= WEIGHTLESS {
                masses[range_of(z)] += weight(z);
            }
        }
    }
    let wanted = f64::from(p) * masses.iter().sum::<f64>();
    let mut before = 0.0;
    let range = masses.iter().position(|mass| {
        before += mass;
        before >= wanted && *mass > 0.0
    });
    let range = range.expect("the row's own sum reaches a fraction of itself");
    before -= masses[range];

    listed.clear();
    for (token, &logit) in row.row.iter().enumerate() {
        let z = row.z(logit);
        if z >= WEIGHTLESS && range_of(z) == range {
            listed.push(Candidate { token: token as TokenId, logit });
        }
    }
    listed.sort_unstable_by(Candidate::order);
    listed[crossing(row, listed, wanted, before)]
}

/// The largest of a block; never called on NaN.
#[inline]
pub(super) fn block_max(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    let (eights, rest) = logits.as_chunks::<8>();
    for eight in eights {
        for (lane, &logit) in lanes.iter_mut().zip(eight) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: sort everything, cut.
    fn reference(row: Tempered<'_>, settings: &SamplerSettings) -> Vec<TokenId> {
        let mut all: Vec<_> =
            row.row.iter().enumerate().map(|(i, &logit)| Candidate { token: i as u32, logit }).collect();
        all.retain(|c| c.logit > f32::NEG_INFINITY);
        all.sort_by(Candidate::order);
        if settings.top_k > 0 {
            all.truncate(settings.top_k);
        }
        if settings.top_p < 1.0 {
            let total: f64 = all.iter().map(|c| weight(row.z(c.logit))).sum();
            let mut sum = 0.0;
            let keep = all.iter().position(|c| {
                sum += weight(row.z(c.logit));
                sum >= f64::from(settings.top_p) * total
            });
            all.truncate(keep.unwrap() + 1);
        }
        if settings.min_p > 0.0 {
            let keep = all.iter().position(|c| row.z(c.logit) < libm::logf(settings.min_p)).unwrap_or(all.len());
            all.truncate(keep.max(1));
        }
        let mut kept: Vec<_> = all.iter().map(|c| c.token).collect();
        kept.sort_unstable();
        kept
    }

    fn kept(row: Tempered<'_>, settings: &SamplerSettings) -> Vec<TokenId> {
        let mut listed = Vec::new();
        let mut kept: Vec<_> = match filter(row, settings, &mut listed) {
            Support::Listed => listed.iter().map(|c| c.token).collect(),
            Support::UpTo(last) => {
                let all = row.row.iter().enumerate().map(|(i, &logit)| Candidate { token: i as u32, logit });
                all.filter(|c| c.logit > f32::NEG_INFINITY && c.order(&last).is_le()).map(|c| c.token).collect()
            }
        };
        kept.sort_unstable();
        kept
    }

    #[test]
    fn filters_keep_what_sorting_would() {
        let mut rng = 1u64;
        let mut next = move || {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (rng >> 40) as f32 / (1u64 << 24) as f32
        };
        for case in 0..3000 {
            let n = 1 + (next() * 300.0) as usize;
            let spread = [0.0, 1.0, 5.0, 40.0][case % 4];
            // Rounded logits give ties, zeros of both signs among them.
            let mut row: Vec<f32> = (0..n).map(|_| (next() * spread * 4.0).round() / 4.0 - spread / 2.0).collect();
            for _ in 0..n / 10 {
                row[(next() * n as f32) as usize] = f32::NEG_INFINITY;
                row[(next() * n as f32) as usize] = -0.0;
            }
            let max = block_max(&row);
            if max == f32::NEG_INFINITY {
                continue;
            }
            let settings = SamplerSettings {
                temperature: [0.3, 0.8, 1.0, 1.5, 1e-30, 100.0][(next() * 6.0) as usize],
                top_k: [0, 1, 2, 7, 40, 1000][(next() * 6.0) as usize],
                top_p: [1.0, 0.0, 0.1, 0.5, 0.95, 0.999_99][(next() * 6.0) as usize],
                min_p: [0.0, 0.05, 0.3, 1.0][(next() * 4.0) as usize],
                ..SamplerSettings::default()
            };
            let row = Tempered::new(&row, max, settings.temperature);
            assert_eq!(kept(row, &settings), reference(row, &settings), "case {case}: {settings:?} {:?}", row.row);
        }
    }

    #[test]
    fn sums_of_weights_are_exact_in_any_order() {
        let zs: Vec<f32> = (0..152_000).map(|i| -((i * 7919) % 25_000) as f32 / 1000.0).collect();
        let forward: f64 = zs.iter().map(|&z| weight(z)).sum();
        let backward: f64 = zs.iter().rev().map(|&z| weight(z)).sum();
        assert_eq!(forward, backward);
        assert_eq!(weight(WEIGHTLESS), 0.0);
    }
}
