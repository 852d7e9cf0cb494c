//! How often something came true, with forgetting.

use serde::{Deserialize, Serialize};

/// Decaying counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hits {
    pub hits: f32,
    pub trials: f32,
}

impl Hits {
    /// A first belief that counts as this many trials, and is forgotten like any other.
    pub fn believed(p: f32, trials: f32) -> Self {
        Self { hits: p * trials, trials }
    }

    /// Whether nothing is believed or known.
    pub fn is_blank(&self) -> bool {
        self.trials == 0.0
    }

    /// Learns from a trial; all before it keep this share of their weight.
    pub fn observe(&mut self, hit: bool, keep: f32) {
        self.hits = self.hits * keep + f32::from(u8::from(hit));
        self.trials = self.trials * keep + 1.0;
    }

    /// Share of hits; NaN when blank.
    pub fn mean(&self) -> f32 {
        self.hits / self.trials
    }
}
