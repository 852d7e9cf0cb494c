//! Weighs what several sources say about a token: logistic mixing, as compressors of text do (Mahoney 2005, PAQ).
//!
//! A source speaks through the log odds of how often tokens of this kind came true. A token's odds are a weighted sum of
//! them. The weights are learned on line, by gradient steps on the log loss: one set for each set of sources that name the
//! token, since sources that agree say less than their sum.

use crate::drafters::rates::HitRates;

/// Number of sources.
pub(super) const SOURCES: usize = 8;
/// Kinds of one source. The last is that the source knows what came at such a place, and it was never this token.
pub(super) const KINDS: usize = 65;
/// The kind of tokens that a source does not name.
pub(super) const UNNAMED: u8 = KINDS as u8 - 1;

/// What the sources say of one token: its kind for each source that knows anything here.
pub(super) type Votes = [Option<u8>; SOURCES];

/// Weighs votes.
#[derive(Debug)]
pub(super) struct Judge {
    rates: HitRates,
    /// Log odds of the rates.
    odds: Vec<f32>,
    /// By the set of sources that name a token, as bits: a weight for each source and one of its own.
    weights: Vec<[f32; SOURCES + 1]>,
}

impl Judge {
    /// Sources repeat each other, so together they weigh little more than one.
    const FIRST_WEIGHT: f32 = 0.2;
    const LEARNING_RATE: f32 = 0.02;

    /// A judge to whom the rates of each source's kinds are known as `prior(source, kind)`.
    pub fn new(prior: impl Fn(usize, u8) -> f32) -> Self {
        let priors = (0..SOURCES).flat_map(|source| (0..KINDS as u8).map(move |kind| (source, kind)));
        let rates = HitRates::new(priors.map(|(source, kind)| prior(source, kind)));
        let odds = (0..SOURCES * KINDS).map(|kind| log_odds(rates.p(kind))).collect();
        let mut weights = [Self::FIRST_WEIGHT; SOURCES + 1];
        weights[SOURCES] = 0.0;
        Self { rates, odds, weights: vec![weights; 1 << SOURCES] }
    }

    /// The chance of a token.
    pub fn p(&self, votes: &Votes) -> f32 {
        let weights = &self.weights[naming(votes)];
        let voices = votes.iter().enumerate().zip(weights);
        let sum: f32 =
            voices.filter_map(|((source, kind), weight)| Some(weight * self.odds[place(source, *kind)?])).sum();
        1.0 / (1.0 + libm::expf(-(sum + weights[SOURCES])))
    }

    /// Learns whether a token came.
    pub fn observe(&mut self, votes: &Votes, hit: bool) {
        let step = Self::LEARNING_RATE * (f32::from(u8::from(hit)) - self.p(votes));
        let weights = &mut self.weights[naming(votes)];
        weights[SOURCES] += step;
        for (source, kind) in votes.iter().enumerate() {
            if let Some(kind) = place(source, *kind) {
                weights[source] += step * self.odds[kind];
                self.rates.observe(kind, hit);
                self.odds[kind] = log_odds(self.rates.p(kind));
            }
        }
    }
}

/// The set of sources that name the token.
fn naming(votes: &Votes) -> usize {
    let names = |kind: &Option<u8>| kind.is_some_and(|kind| kind != UNNAMED);
    votes.iter().enumerate().map(|(source, kind)| usize::from(names(kind)) << source).sum()
}

/// A source's kind among those of all.
fn place(source: usize, kind: Option<u8>) -> Option<usize> {
    kind.map(|kind| source * KINDS + usize::from(kind))
}

fn log_odds(p: f32) -> f32 {
    let p = p.clamp(0.002, 0.998);
    libm::logf(p / (1.0 - p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_whom_to_believe() {
        // The first source is right whenever the second agrees, and else one time in four.
        let mut judge = Judge::new(|_, _| 0.5);
        let votes = |first: u8, second: Option<u8>| {
            let mut votes: Votes = [None; SOURCES];
            (votes[0], votes[1]) = (Some(first), second);
            votes
        };
        let (both, alone, neither) = (votes(0, Some(0)), votes(0, Some(UNNAMED)), votes(UNNAMED, Some(UNNAMED)));
        for i in 0..4000 {
            judge.observe(&both, true);
            judge.observe(&alone, i % 4 == 0);
            judge.observe(&neither, false);
        }
        let p = [both, alone, neither].map(|votes| judge.p(&votes));
        assert!(p[0] > 0.97 && (p[1] - 0.25).abs() < 0.08 && p[2] < 0.02, "{p:?}");
    }
}
