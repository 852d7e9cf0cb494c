//! How often guesses of a kind come true: the probability that a drafter puts on its guesses.

use crate::hits::Hits;

/// A table of kinds, each with its share of hits. What came long ago fades.
#[derive(Clone, Debug)]
pub(super) struct HitRates {
    cells: Vec<Hits>,
}

impl HitRates {
    /// What is believed at first weighs as much as this many trials.
    const PRIOR_TRIALS: f32 = 8.0;
    /// About the last 500 trials of a kind count.
    const KEEP: f32 = 0.998;

    /// One kind for each prior.
    pub fn new(priors: impl Iterator<Item = f32>) -> Self {
        Self { cells: priors.map(|p| Hits::believed(p, Self::PRIOR_TRIALS)).collect() }
    }

    /// The estimated chance of a guess of this kind.
    pub fn p(&self, kind: usize) -> f32 {
        self.cells[kind].mean()
    }

    /// Learns from a guess of this kind.
    pub fn observe(&mut self, kind: usize, hit: bool) {
        self.cells[kind].observe(hit, Self::KEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_move_from_the_prior_to_what_happens() {
        let mut rates = HitRates::new([0.5, 0.1].into_iter());
        assert_eq!((rates.p(0), rates.p(1)), (0.5, 0.1));
        (0..4000).for_each(|i| rates.observe(0, i % 4 == 0));
        assert!((rates.p(0) - 0.25).abs() < 0.01, "{}", rates.p(0));
        assert_eq!(rates.p(1), 0.1);
    }
}
