//! Teacher-forced acceptance: how far the heads' drafts at a position agree with what head 1 picks at the places meant.
//!
//! It is the decoder's own test, on given text instead of the model's. A position counts when head 1 guesses the text's next
//! token, so that the text is what decoding would have produced; then heads 2, 3, ... are compared with head 1's guesses at
//! their places until one differs, or until an agreed token is not the text's and what follows cannot be known. So the mean is a
//! lower bound for this text.

use serde::{Deserialize, Serialize};

use super::Guesses;
use crate::batch::{Batch, IGNORE};

/// Agreement by head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    /// Positions that counted.
    pub n_positions: u64,
    /// By head, from head 2 on: drafts compared, and drafts that agreed.
    pub by_head: Vec<[u64; 2]>,
    /// The control: drafts compared with head 1's guess one place further on, and those that agreed; only where the two
    /// guesses differ, since in a run of one byte any shift agrees.
    pub shifted: [u64; 2],
}

impl Acceptance {
    pub(super) fn new(n_heads: usize) -> Self {
        Self { n_positions: 0, by_head: vec![[0; 2]; n_heads - 1], shifted: [0; 2] }
    }

    /// By head, from head 2 on: the share of the drafts compared that agreed.
    pub fn shares(&self) -> Vec<f32> {
        self.by_head.iter().map(|[n, agreed]| *agreed as f32 / (*n).max(1) as f32).collect()
    }

    /// Tokens that a pass gives when it drafts with all heads: its own and those accepted.
    pub fn tokens_per_pass(&self) -> f64 {
        let accepted: u64 = self.by_head.iter().map(|[_, agreed]| agreed).sum();
        1.0 + accepted as f64 / self.n_positions.max(1) as f64
    }

    /// The share of compared drafts that agreed with the guess one place too far: what chance and a mistaken shift give.
    pub fn control(&self) -> f64 {
        self.shifted[1] as f64 / self.shifted[0].max(1) as f64
    }

    /// Adds all positions of a batch from every head's guesses there.
    pub(super) fn add(&mut self, batch: &Batch, heads: &[Guesses]) {
        let n = batch.n_tokens();
        let labels: Vec<_> = (1..=heads.len()).map(|k| batch.labels(k)).collect();
        let first = &heads[0].likeliest;
        for i in 0..n * batch.n_windows() {
            if labels[0][i] == IGNORE || first[i] != labels[0][i] {
                continue;
            }
            self.n_positions += 1;
            let last = (i / n + 1) * n;
            for k in 2..=heads.len() {
                let place = i + k - 1;
                if place >= last || labels[k - 1][i] == IGNORE {
                    break;
                }
                let draft = heads[k - 1].likeliest[i];
                let agreed = draft == first[place];
                self.by_head[k - 2][0] += 1;
                self.by_head[k - 2][1] += u64::from(agreed);
                if place + 1 < last && first[place] != first[place + 1] {
                    self.shifted[0] += 1;
                    self.shifted[1] += u64::from(draft == first[place + 1]);
                }
                if !agreed || draft != labels[k - 1][i] {
                    break;
                }
            }
        }
    }
}
