//! Log-probabilities of drawn tokens: of the model itself, before temperature, penalties and filters.

use super::support::{self, Candidate};
use crate::TokenId;

/// The log-probability of a drawn token, and the likeliest tokens of its row.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// `ln softmax(logits)[token]`, natural logarithm.
    pub logprob: f32,
    /// The likeliest tokens, best first, ties by id.
    pub top: Vec<(TokenId, f32)>,
}

impl TokenLogprobs {
    /// From a row of logits without NaN `[vocab_size]`.
    pub(crate) fn new(logits: &[f32], token: TokenId, n_top: usize, candidates: &mut Vec<Candidate>) -> Self {
        let max = f64::from(support::block_max(logits));
        let sum: f64 = logits.iter().map(|&logit| f64::from(libm::expf((f64::from(logit) - max) as f32))).sum();
        let log_sum = max + libm::log(sum);
        let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
        candidates.clear();
        if n_top > 0 {
            support::top_k(logits, n_top, candidates);
        }
        let top = candidates.iter().map(|c| (c.token, logprob(c.logit))).collect();
        Self { logprob: logprob(logits[token as usize]), top }
    }
}
