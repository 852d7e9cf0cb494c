//! Log-probabilities of drawn tokens: of the model itself, before temperature, penalties and filters.

use foretoken_kernels::ops::{self, MAX_BLOCK};

use super::{Scratch, support};
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
    /// From a row of logits that could be drawn from `[vocab_size]`.
    pub(crate) fn new(logits: &[f32], token: TokenId, n_top: usize, scratch: &mut Scratch) -> Self {
        let Scratch { isa, maxima, buffer, candidates, .. } = scratch;
        let max = ops::scan(*isa, logits).max;
        buffer.resize(logits.len(), 0.0);
        ops::scale_logits(*isa, logits, max, 1.0, buffer);
        let log_sum = f64::from(max) + libm::log(ops::exp_sum(*isa, buffer));
        let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
        candidates.clear();
        if n_top > 0 {
            maxima.resize(logits.len().div_ceil(MAX_BLOCK), 0.0);
            ops::block_max(*isa, logits, maxima);
            support::top_k(logits, maxima, n_top, candidates, buffer);
        }
        let top = candidates.iter().map(|c| (c.token, logprob(c.logit))).collect();
        Self { logprob: logprob(logits[token as usize]), top }
    }
}
