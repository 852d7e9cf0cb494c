//! Figures for each category and way, and how sure they are.

use std::collections::BTreeMap;

use foretoken_decode::budget::CostTable;
use foretoken_decode::{PassTrace, Replay};
use foretoken_engine::{AcceptorKind, Method, Outcome};
use serde::Serialize;

use super::cells::Cell;
use super::measure::Run;
use crate::analysis::{Analysis, SourceCounts};

/// One way on one category.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub category: String,
    pub method: String,
    pub width: Option<usize>,
    pub temperature: f32,
    pub prompts: usize,
    pub tokens: usize,
    pub passes: usize,
    pub drafted: usize,
    pub accepted: usize,
    /// After the first token of each answer.
    pub tokens_per_second: f64,
    pub tokens_per_pass: f64,
    /// By the formula 1 + a1 + a1 a2 + ..., over the trees that were run.
    pub formula_tokens_per_pass: f64,
    /// Rows run for each token.
    pub rows_per_token: f64,
    /// Time of all threads together on a CPU, for each token.
    pub cpu_seconds_per_token: Option<f64>,
    /// Tables of the drafters, and models beside the target.
    pub memory_bytes: usize,
    /// Of the passes that ran a guess so deep, the share that accepted one.
    pub acceptance_by_depth: Vec<f64>,
    /// Each drafter's guesses, by name.
    pub drafters: BTreeMap<String, SourceCounts>,
    /// Against plain decoding on the same prompts, by the clock: total over total.
    pub speedup: f64,
    /// 95 %, by bootstrap over the prompts; `None` for a single prompt.
    pub speedup_interval: Option<[f64; 2]>,
    /// Geometric mean of the prompts' speed-ups.
    pub geometric_mean: f64,
    /// The same for it.
    pub geometric_mean_interval: Option<[f64; 2]>,
    /// Total over total with every pass at its cost in the table, measured drafting time included.
    pub replayed_speedup: f64,
    /// Whether every answer's tokens are those of plain decoding.
    pub identical: bool,
    pub acceptor: AcceptorKind,
    /// Perplexity of the answers under the model; where an acceptor that changes the distribution is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_perplexity: Option<f64>,
    /// Share of the tokens that the model would have written itself after the same text; under such an acceptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
}

/// One summary for each category and way, and for all categories together. `memory` has the bytes of each drafter.
pub fn results(
    runs: &[Run],
    cells: &[Cell],
    table: &CostTable,
    drafters: &[&str],
    memory: &BTreeMap<&'static str, usize>,
) -> Vec<Summary> {
    let mut by_category: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_category.entry(&run.category).or_default().push(run);
    }
    let mut groups: Vec<(&str, Vec<&Run>)> = by_category.into_iter().collect();
    if groups.len() > 1 {
        groups.push(("all", runs.iter().collect()));
    }
    let mut summaries = Vec::new();
    for (category, runs) in groups {
        let of = |cell: usize| runs.iter().copied().filter(|run| run.cell == cell).collect::<Vec<&Run>>();
        for (index, cell) in cells.iter().enumerate() {
            let figures = Figures { runs: of(index), plain: of(cell.plain), table, drafters };
            let memory_bytes = memory.iter().filter(|(name, _)| asks(&cell.method, name)).map(|(_, bytes)| bytes).sum();
            summaries.push(Summary {
                category: category.to_owned(),
                method: cell.method.to_string(),
                width: cell.width,
                temperature: cell.temperature,
                acceptor: cell.acceptor,
                memory_bytes,
                ..figures.summary()
            });
        }
    }
    summaries
}

/// Whether a drafter's memory is a method's. `auto` may ask any.
fn asks(method: &Method, drafter: &str) -> bool {
    match method {
        Method::None => false,
        Method::Auto => true,
        Method::Named(names) => names.iter().any(|name| name == drafter),
    }
}

/// What a summary is made of.
struct Figures<'a> {
    runs: Vec<&'a Run>,
    /// Plain decoding on the same prompts, in the same order.
    plain: Vec<&'a Run>,
    table: &'a CostTable,
    drafters: &'a [&'a str],
}

impl Figures<'_> {
    fn summary(&self) -> Summary {
        let Self { runs, table, drafters, .. } = self;
        let count = |of: fn(&Outcome) -> usize| runs.iter().map(|run| of(&run.outcome)).sum::<usize>();
        let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
        // What was drawn after the first pass of each answer is what `seconds` covers.
        let passes = || runs.iter().flat_map(|run| &run.passes);
        let replay = Replay::of(passes(), table, drafters);
        let analysis = Analysis::of(passes(), drafters.len());
        let cpu: Option<f64> = runs.iter().map(|run| run.cpu_seconds).sum();
        let (tokens, n_passes) = (count(|o| o.token_ids.len()), count(|o| o.passes));
        let by_name = drafters.iter().map(|name| (*name).to_owned()).zip(analysis.by_source.iter().cloned());
        // Seconds of plain decoding and of this, for each prompt.
        let pairs: Vec<(f64, f64)> = self.plain.iter().zip(runs).map(|(p, run)| (p.seconds, run.seconds)).collect();
        Summary {
            prompts: runs.len(),
            tokens,
            passes: n_passes,
            drafted: count(|o| o.drafted),
            accepted: count(|o| o.accepted),
            tokens_per_second: ratio(replay.tokens as f64, seconds),
            tokens_per_pass: ratio(tokens as f64, n_passes as f64),
            formula_tokens_per_pass: round(analysis.expected_per_pass()),
            rows_per_token: ratio(analysis.rows as f64, replay.tokens as f64),
            cpu_seconds_per_token: cpu.map(|cpu| cpu / (replay.tokens as f64).max(1.0)),
            acceptance_by_depth: by_depth(passes()),
            drafters: by_name.filter(|(_, counts)| counts.proposed > 0).collect(),
            speedup: round(total_ratio(&pairs)),
            speedup_interval: interval(&pairs, total_ratio),
            geometric_mean: round(geometric_mean(&pairs)),
            geometric_mean_interval: interval(&pairs, geometric_mean),
            replayed_speedup: ratio(replay.plain, replay.drafted),
            identical: runs.iter().all(|run| run.difference.is_none()),
            target_perplexity: perplexity(runs),
            agreement: agreement(runs),
            ..Summary::default()
        }
    }
}

/// Of the passes that ran a guess at a depth, the share that accepted it.
fn by_depth<'a>(passes: impl Iterator<Item = &'a PassTrace>) -> Vec<f64> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for sequence in passes.flat_map(|pass| &pass.sequences) {
        let run = sequence.proposed.iter().zip(sequence.depths()).filter(|(guess, _)| guess.run);
        let deepest = run.map(|(_, depth)| depth).max().unwrap_or(0);
        counts.resize(counts.len().max(deepest), (0, 0));
        for (depth, (run, accepted)) in counts[..deepest].iter_mut().enumerate() {
            *run += 1;
            *accepted += usize::from(depth + 1 < sequence.tokens.len());
        }
    }
    counts.into_iter().map(|(run, accepted)| ratio(accepted as f64, run as f64)).collect()
}

/// Of all answers together, when log-probabilities were asked for.
fn perplexity(runs: &[&Run]) -> Option<f64> {
    let logprobs = || runs.iter().flat_map(|run| &run.outcome.logprobs);
    let n = logprobs().count();
    let mean = logprobs().map(|token| f64::from(token.logprob)).sum::<f64>() / n as f64;
    (n > 0).then(|| round(libm::exp(-mean)))
}

/// Of all answers together, under an acceptor that changes the distribution.
fn agreement(runs: &[&Run]) -> Option<f64> {
    let tokens: usize = runs.iter().map(|run| run.outcome.token_ids.len()).sum();
    let agreed = |run: &&Run| run.outcome.agreement.map(|share| share * run.outcome.token_ids.len() as f64);
    let agreed: Option<f64> = runs.iter().map(agreed).sum();
    agreed.map(|agreed| ratio(agreed, tokens as f64))
}

/// Total seconds of plain decoding over those of a method.
fn total_ratio(pairs: &[(f64, f64)]) -> f64 {
    let (plain, other) = pairs.iter().fold((0.0, 0.0), |(a, b), pair| (a + pair.0, b + pair.1));
    if other > 0.0 { plain / other } else { 0.0 }
}

/// Geometric mean of the prompts' ratios; prompts with a single token took no time and say nothing.
fn geometric_mean(pairs: &[(f64, f64)]) -> f64 {
    let logs: Vec<f64> = pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| libm::log(a / b)).collect();
    if logs.is_empty() { 0.0 } else { libm::exp(logs.iter().sum::<f64>() / logs.len() as f64) }
}

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2000;

/// 95 % interval of a figure, by drawing as many prompts with replacement again and again (Efron 1979).
fn interval(pairs: &[(f64, f64)], figure: impl Fn(&[(f64, f64)]) -> f64) -> Option<[f64; 2]> {
    if pairs.len() < 2 {
        return None;
    }
    // Always the same draws, so that the same measurement gives the same interval.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pairs[(state >> 32) as usize % pairs.len()]
    };
    let mut sample = pairs.to_vec();
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.fill_with(&mut draw);
            figure(&sample)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    Some([round(figures[RESAMPLES / 40]), round(figures[RESAMPLES - 1 - RESAMPLES / 40])])
}

/// 0 when there is nothing to divide by.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { round(a / b) } else { 0.0 }
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_means_and_intervals() {
        let pairs: Vec<(f64, f64)> = (0..40).map(|i| (2.0, 1.0 + f64::from(i % 4) * 0.1)).collect();
        assert!((total_ratio(&pairs) - 2.0 / 1.15).abs() < 1e-12);
        assert!(geometric_mean(&pairs) > total_ratio(&pairs), "the mean of ratios leans to the fast prompts");
        let [low, high] = interval(&pairs, total_ratio).unwrap();
        assert!(low < 1.74 && 1.74 < high && high - low < 0.2, "{low} {high}");
        assert_eq!(interval(&pairs, total_ratio), Some([low, high]), "the same each time");
        assert_eq!(interval(&pairs[..1], total_ratio), None);
        assert_eq!(interval(&[(1.0, 0.5); 9], geometric_mean), Some([2.0, 2.0]));
    }
}
