//! Top-k, top-p and min-p: which tokens of a row may be drawn.
//!
//! Every filter keeps a prefix of one order, logit descending and id ascending (-0 equals +0), so what is left is
//! described by the last token kept.

use std::cmp::Ordering;

use foretoken_kernels::ops::{self, MAX_BLOCK};

use super::SamplerSettings;
use super::row::Row;
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
    /// Comes after all tokens that may be drawn.
    pub(super) const LAST: Self = Self { token: TokenId::MAX, logit: f32::MIN };

    /// Likelier first, then the lower id. Logits are not NaN.
    pub fn order(&self, other: &Self) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit).expect("a scanned row has no NaN");
        by_logit.then(self.token.cmp(&other.token))
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

impl Support {
    /// The last token kept; `None` when nothing is.
    pub fn last(self, listed: &[Candidate]) -> Option<Candidate> {
        match self {
            Self::Listed => listed.last().copied(),
            Self::UpTo(last) => Some(last),
        }
    }
}

/// A candidate list of this length is drawn from directly; through a longer one, the whole row is faster.
const SHORT: usize = 256;

/// Applies top-k, top-p and min-p in this order. `listed` holds the candidates when the answer is [`Support::Listed`].
pub(super) fn filter(
    row: Row<'_>,
    settings: &SamplerSettings,
    listed: &mut Vec<Candidate>,
    buffer: &mut Vec<f32>,
) -> Support {
    let min_z = if settings.min_p > 0.0 { libm::logf(settings.min_p) } else { f32::NEG_INFINITY };
    if settings.top_k > 0 && settings.top_k < row.logits.len() {
        top_k(row.logits, row.maxima(), settings.top_k, listed, buffer);
        cut_list(row, settings.top_p, min_z, listed);
        return if listed.len() <= SHORT { Support::Listed } else { Support::UpTo(listed[listed.len() - 1]) };
    }
    let mut last = Candidate::LAST;
    if settings.top_p < 1.0 {
        last = top_p(row, settings.top_p, listed);
    }
    if row.z(last.logit) < min_z {
        last = Candidate { token: TokenId::MAX, logit: lowest_logit(row, min_z) };
    }
    Support::UpTo(last)
}

/// Top-k, top-p and min-p of a short list, not empty and in order, as if it were the whole row.
pub(super) fn filter_list(row: Row<'_>, settings: &SamplerSettings, listed: &mut Vec<Candidate>) {
    if settings.top_k > 0 {
        listed.truncate(settings.top_k);
    }
    let min_z = if settings.min_p > 0.0 { libm::logf(settings.min_p) } else { f32::NEG_INFINITY };
    cut_list(row, settings.top_p, min_z, listed);
}

/// Keeps the candidates up to the one that crosses `top_p` of their sum, and of these those from `min_z` on.
fn cut_list(row: Row<'_>, top_p: f32, min_z: f32, listed: &mut Vec<Candidate>) {
    if top_p < 1.0 {
        let total = listed.iter().map(|c| weight(row.z(c.logit))).sum::<f64>();
        listed.truncate(crossing(row, listed, f64::from(top_p) * total, 0.0) + 1);
    }
    listed.truncate(listed.partition_point(|c| row.z(c.logit) >= min_z).max(1));
}

/// The lowest logit whose z reaches `min_z`: filters compare z, the draw compares logits.
fn lowest_logit(row: Row<'_>, min_z: f32) -> f32 {
    let mut logit = row.max + min_z * row.temperature;
    while row.z(logit) < min_z {
        logit = logit.next_up();
    }
    while row.z(logit.next_down()) >= min_z {
        logit = logit.next_down();
    }
    logit
}

/// Exactly the first `k` of the order, sorted; fewer when fewer are above minus infinity. The k-th largest block maximum is
/// a floor that at least k logits reach, so only blocks that reach it are looked into.
pub(super) fn top_k(logits: &[f32], maxima: &[f32], k: usize, best: &mut Vec<Candidate>, buffer: &mut Vec<f32>) {
    let mut floor = f32::MIN;
    if k < maxima.len() {
        buffer.clear();
        buffer.extend_from_slice(maxima);
        floor = *buffer.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1;
        floor = floor.max(f32::MIN);
    }
    best.clear();
    for (block, logits) in logits.chunks(MAX_BLOCK).enumerate() {
        if maxima[block] >= floor {
            let first = block * MAX_BLOCK;
            let reach = logits.iter().enumerate().filter(|(_, logit)| **logit >= floor);
            best.extend(reach.map(|(lane, &logit)| Candidate { token: (first + lane) as TokenId, logit }));
        }
    }
    if best.len() > k {
        best.select_nth_unstable_by(k - 1, Candidate::order);
        best.truncate(k);
    }
    best.sort_unstable_by(Candidate::order);
}

/// `e^z` as a multiple of 2^-35. A row's sum stays below 2^18, so f64 sums of weights are exact in any order: "summed in
/// the order of the tokens" costs no sort.
#[inline]
fn weight(z: f32) -> f64 {
    rounded(ops::exp(z))
}

#[inline]
fn rounded(exp: f32) -> f64 {
    const ROUND: f64 = 1.5 * 131_072.0; // 1.5 * 2^(52 - 35): adding it leaves no bits below 2^-35
    f64::from(exp) + ROUND - ROUND
}

/// The exact sum of weights, in eight lanes.
fn sum(exps: &[f32]) -> f64 {
    let mut lanes = [0.0; 8];
    let (eights, rest) = exps.as_chunks::<8>();
    for eight in eights {
        lanes.iter_mut().zip(eight).for_each(|(lane, &exp)| *lane += rounded(exp));
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&exp| rounded(exp)).sum::<f64>()
}

/// Below this z a weight rounds to zero: `2^-36 = e^-24.95`.
const WEIGHTLESS: f32 = -25.0;

/// Index of the first candidate, in order, at which the sum from `before` on reaches `wanted`.
fn crossing(row: Row<'_>, ordered: &[Candidate], wanted: f64, before: f64) -> usize {
    let mut sum = before;
    let reached = ordered.iter().position(|c| {
        sum += weight(row.z(c.logit));
        sum >= wanted
    });
    reached.unwrap_or(ordered.len() - 1)
}

/// The token at which the cumulative probability of the whole row reaches `p`. Masses of narrow ranges of z find the
/// range where it does; only that one is sorted.
fn top_p(row: Row<'_>, p: f32, listed: &mut Vec<Candidate>) -> Candidate {
    let likely = Crossing::find(&masses(row, LIKELY), p).filter(|crossing| crossing.range < range_of(LIKELY));
    let Crossing { range, before, wanted } =
        likely.or_else(|| Crossing::find(&masses(row, WEIGHTLESS), p)).expect("a sum reaches its fraction");

    listed.clear();
    let mut z_buffer = [0.0; MAX_BLOCK];
    for (first, _) in row.blocks().filter(|&(_, max)| range_of(row.z(max)) <= range) {
        let z = row.block_z(first, &mut z_buffer);
        let inside = z.iter().enumerate().filter(|&(_, &z)| range_of(z) == range);
        listed.extend(inside.map(|(lane, _)| {
            let token = first + lane;
            Candidate { token: token as TokenId, logit: row.logits[token] }
        }));
    }
    listed.sort_unstable_by(Candidate::order);
    listed[crossing(row, listed, wanted, before)]
}

/// Whether a good part of the row is likely enough to matter to top-p.
pub(super) fn is_flat(row: Row<'_>) -> bool {
    row.blocks().filter(|&(_, max)| row.z(max) >= LIKELY).count() * 4 > row.maxima().len()
}

/// Whether top-p and min-p, without a top-k, keep a token. It costs less than to find out where they cut: a token is kept
/// when those before it do not reach the sum.
pub(super) fn keeps(row: Row<'_>, settings: &SamplerSettings, candidate: Candidate) -> bool {
    let min_z = if settings.min_p > 0.0 { libm::logf(settings.min_p) } else { f32::NEG_INFINITY };
    if candidate.token == row.argmax || settings.top_p >= 1.0 {
        return candidate.token == row.argmax || row.z(candidate.logit) >= min_z;
    }
    let (mut total, mut before) = (0.0, 0.0);
    let mut exps = [0.0; MAX_BLOCK];
    for (first, max) in row.blocks().filter(|&(_, max)| row.z(max) >= WEIGHTLESS) {
        let exps = row.block_z(first, &mut exps);
        ops::exp_assign(row.isa, exps);
        total += sum(exps);
        if max < candidate.logit {
            continue;
        }
        let logits = row.block(first);
        for (exp, &logit) in exps.iter_mut().zip(logits) {
            *exp = if logit > candidate.logit { *exp } else { 0.0 };
        }
        before += sum(exps);
        let earlier = (candidate.token as usize).saturating_sub(first).min(logits.len());
        let ties = logits[..earlier].iter().filter(|&&logit| logit == candidate.logit).count();
        before += ties as f64 * weight(row.z(candidate.logit));
    }
    before < f64::from(settings.top_p) * total && row.z(candidate.logit) >= min_z
}

/// The first range at which the cumulative weight reaches a fraction of the whole.
struct Crossing {
    range: usize,
    /// The weight of the ranges before it.
    before: f64,
    /// The weight to reach.
    wanted: f64,
}

impl Crossing {
    fn find(masses: &[f64; RANGES + 1], fraction: f32) -> Option<Self> {
        let wanted = f64::from(fraction) * masses.iter().sum::<f64>();
        let mut before = 0.0;
        masses.iter().enumerate().find_map(|(range, &mass)| {
            let found = Self { range, before, wanted };
            before += mass;
            (before >= wanted && mass > 0.0).then_some(found)
        })
    }
}

/// Ranges of z from 0 down to where nothing weighs anything.
const RANGES: usize = 400;

/// The range of a z: 0 holds the maximum, the last all that weighs nothing. Adding 2^23 leaves the nearest integer in the
/// low bits of a float, which vector units do for many at once.
#[inline]
fn range_of(z: f32) -> usize {
    let range = (z * (RANGES as f32 / WEIGHTLESS)).min(RANGES as f32);
    (range + 8_388_608.0).to_bits() as usize & 0x7f_ffff
}

/// What crosses a usual top-p is above this z.
const LIKELY: f32 = -8.0;

/// The weight of each range down to `floor`; below it, some in its range and some in the last. Neighbouring lanes add to
/// tables of their own, or each would wait for the one before.
fn masses(row: Row<'_>, floor: f32) -> [f64; RANGES + 1] {
    let mut tables = [[0.0; RANGES + 1]; 4];
    let mut below = 0.0;
    let (mut z_buffer, mut exps, mut ranges) = ([0.0; MAX_BLOCK], [0.0; MAX_BLOCK], [0; MAX_BLOCK]);
    for (first, max) in row.blocks().filter(|&(_, max)| row.z(max) >= WEIGHTLESS) {
        let z = row.block_z(first, &mut z_buffer);
        let exps = &mut exps[..z.len()];
        exps.copy_from_slice(z);
        ops::exp_assign(row.isa, exps);
        if row.z(max) < floor {
            below += sum(exps);
            continue;
        }
        ranges.iter_mut().zip(&*z).for_each(|(range, &z)| *range = range_of(z));
        for (lane, (exp, &range)) in exps.iter().zip(&ranges).enumerate() {
            tables[lane % 4][range] += rounded(*exp);
        }
    }
    let [mut masses, rest @ ..] = tables;
    masses[RANGES] += below;
    rest.iter().for_each(|table| masses.iter_mut().zip(table).for_each(|(sum, mass)| *sum += mass));
    masses
}

#[cfg(test)]
mod tests {
    use foretoken_kernels::Isa;

    use super::super::row::scan;
    use super::*;

    /// The definition: sort everything, cut.
    fn reference(row: Row<'_>, settings: &SamplerSettings) -> Vec<TokenId> {
        let mut all: Vec<_> =
            row.logits.iter().enumerate().map(|(i, &logit)| Candidate { token: i as u32, logit }).collect();
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

    fn kept(row: Row<'_>, settings: &SamplerSettings) -> Vec<TokenId> {
        let mut listed = Vec::new();
        let mut kept: Vec<_> = match filter(row, settings, &mut listed, &mut Vec::new()) {
            Support::Listed => listed.iter().map(|c| c.token).collect(),
            Support::UpTo(last) => {
                let all = row.logits.iter().enumerate().map(|(i, &logit)| Candidate { token: i as u32, logit });
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
            // Sorted rows have blocks of likely and of unlikely tokens.
            if case % 3 == 0 {
                row.sort_by(f32::total_cmp);
            }
            for _ in 0..n / 10 {
                row[(next() * n as f32) as usize] = f32::NEG_INFINITY;
                row[(next() * n as f32) as usize] = -0.0;
            }
            let isa = Isa::available()[case % Isa::available().len()];
            let Ok(scanned) = scan(isa, &row, 0) else { continue };
            let settings = SamplerSettings {
                temperature: [0.3, 0.8, 1.0, 1.5, 1e-30, 100.0][(next() * 6.0) as usize],
                top_k: [0, 1, 2, 7, 40, 1000][(next() * 6.0) as usize],
                top_p: [1.0, 0.0, 0.1, 0.5, 0.95, 0.999_99][(next() * 6.0) as usize],
                min_p: [0.0, 0.05, 0.3, 1.0][(next() * 4.0) as usize],
                ..SamplerSettings::default()
            };
            let mut maxima = Vec::new();
            let row = Row::new(isa, &row, scanned, settings.temperature, &mut maxima);
            let expected = reference(row, &settings);
            assert_eq!(kept(row, &settings), expected, "case {case}: {settings:?} {:?}", row.logits);
            if settings.top_k == 0 {
                for (token, &logit) in (0..).zip(row.logits).filter(|(_, logit)| **logit > f32::NEG_INFINITY) {
                    let keeps = keeps(row, &settings, Candidate { token, logit });
                    assert_eq!(keeps, expected.contains(&token), "case {case}: token {token}");
                }
            }
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
