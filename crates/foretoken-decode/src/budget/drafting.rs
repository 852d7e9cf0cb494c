//! What drafting itself takes: next to nothing for a look-up, a good part of a pass for a draft model.

use serde::{Deserialize, Serialize};

use super::cost::Recent;

/// Seconds that a drafter takes to propose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DraftCost {
    /// Per call.
    pub call: f64,
    /// Per depth that it drafts to.
    pub depth: f64,
    /// Per token of the text that it has yet to catch up with.
    pub lag: f64,
}

impl DraftCost {
    /// Seconds to draft so deep from so far behind.
    pub fn seconds(&self, depth: usize, lag: usize) -> f64 {
        self.call + self.depth * depth as f64 + self.lag * lag as f64
    }

    pub(super) fn numbers(&self) -> [f64; 3] {
        [self.call, self.depth, self.lag]
    }
}

/// A drafter's cost that learns: the prior's shape, scaled to what was measured.
#[derive(Clone, Debug)]
pub struct DraftCostModel {
    prior: DraftCost,
    fixed: bool,
    /// Measured over prior; seconds of a call where the prior is nothing.
    recent: Recent,
    calls: u64,
}

impl DraftCostModel {
    /// Starts from a prior and learns, unless it is `fixed`.
    pub fn new(prior: DraftCost, fixed: bool) -> Self {
        Self { prior, fixed, recent: Recent::default(), calls: 0 }
    }

    fn has_prior(&self) -> bool {
        self.prior.numbers().iter().any(|&seconds| seconds > 0.0)
    }

    /// From so many calls on they alone are believed. The first are slow, since nothing is where it will be used again, and
    /// who looks too slow is not asked again.
    const ENOUGH: u64 = 3;

    /// The cost as it is known now.
    pub fn cost(&self) -> DraftCost {
        let Some(low) = self.recent.low() else { return self.prior };
        match self.has_prior() {
            true => {
                let low = if self.calls < Self::ENOUGH { low.min(1.0) } else { low };
                let [call, depth, lag] = self.prior.numbers().map(|seconds| seconds * low);
                DraftCost { call, depth, lag }
            }
            false => DraftCost { call: low, ..DraftCost::default() },
        }
    }

    /// Learns from a call that drafted so deep from so far behind, unless it mostly caught up: what that takes says little
    /// about a guess.
    pub fn observe(&mut self, depth: usize, lag: usize, seconds: f64) {
        let caught_up = self.prior.lag * lag as f64 > self.prior.seconds(depth, 0);
        if self.fixed || seconds <= 0.0 || caught_up {
            return;
        }
        self.calls += 1;
        let expected = if self.has_prior() { self.prior.seconds(depth, lag) } else { 1.0 };
        if expected > 0.0 {
            self.recent.push(seconds / expected, self.calls);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prior_is_scaled_and_no_prior_is_measured() {
        let prior = DraftCost { call: 0.0, depth: 0.01, lag: 0.001 };
        let mut cost = DraftCostModel::new(prior, false);
        assert_eq!(cost.cost(), prior);
        cost.observe(3, 50, 4.0);
        assert_eq!(cost.cost(), prior, "it read a prompt");
        cost.observe(3, 10, 0.4);
        assert_eq!(cost.cost(), prior, "the first call is slow");
        (0..8).for_each(|_| cost.observe(3, 10, 0.08));
        assert!((cost.cost().seconds(3, 10) - 0.08).abs() < 1e-9);
        assert!((cost.cost().seconds(1, 0) - 0.02).abs() < 1e-9);
        let mut cost = DraftCostModel::new(DraftCost::default(), false);
        cost.observe(5, 0, 0.25);
        assert_eq!(cost.cost().seconds(2, 0), 0.25);
        let mut fixed = DraftCostModel::new(prior, true);
        fixed.observe(3, 10, 5.0);
        assert_eq!(fixed.cost(), prior);
    }
}
