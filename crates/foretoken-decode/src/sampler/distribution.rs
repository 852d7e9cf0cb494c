//! The distribution that a row is drawn from, written out: for acceptors that compare two of them.

use foretoken_kernels::ops::{self, MAX_BLOCK};

use super::row::Row;
use super::support::{Candidate, Support};
use crate::TokenId;

/// Tokens with their probabilities, which are above 0 and sum to 1, by id.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution(Vec<(TokenId, f64)>);

/// A token that a drafter sampled, and what from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The guesses before it, from below the anchor on. It is a sample for the position after these whether or not a
    /// guess of the tree holds it.
    pub path: Vec<TokenId>,
    /// The token.
    pub token: TokenId,
    /// The drafter's distribution, after the target's processors.
    pub q: Distribution,
}

impl Distribution {
    /// From weights by id, each above 0; `None` when there are none.
    pub fn new(mut weights: Vec<(TokenId, f64)>) -> Option<Self> {
        let total: f64 = weights.iter().map(|&(_, weight)| weight).sum();
        weights.iter_mut().for_each(|(_, weight)| *weight /= total);
        (!weights.is_empty()).then_some(Self(weights))
    }

    /// All on one token.
    pub(super) fn point(token: TokenId) -> Self {
        Self(vec![(token, 1.0)])
    }

    /// The softmax of what the filters left of a row.
    pub(super) fn of(row: Row<'_>, support: Support, listed: &[Candidate]) -> Self {
        let mut weights: Vec<(TokenId, f64)> = Vec::new();
        let mut add = |token, exp: f32| weights.extend((exp > 0.0).then_some((token, f64::from(exp))));
        match support {
            Support::Listed => listed.iter().for_each(|c| add(c.token, ops::exp(row.z(c.logit)))),
            Support::UpTo(last) => {
                let mut buffer = [0.0; MAX_BLOCK];
                for (first, _) in row.blocks().filter(|&(_, max)| max >= last.logit) {
                    let exps = row.block_z(first, &mut buffer);
                    ops::exp_assign(row.isa, exps);
                    for (lane, (&exp, &logit)) in exps.iter().zip(row.block(first)).enumerate() {
                        let candidate = Candidate { token: (first + lane) as TokenId, logit };
                        if candidate.order(&last).is_le() {
                            add(candidate.token, exp);
                        }
                    }
                }
            }
        }
        weights.sort_unstable_by_key(|&(token, _)| token);
        Self::new(weights).expect("the likeliest token has a weight")
    }

    /// A token's probability.
    pub fn p(&self, token: TokenId) -> f64 {
        self.0.binary_search_by_key(&token, |&(token, _)| token).map_or(0.0, |place| self.0[place].1)
    }

    /// Tokens and probabilities, by id.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, f64)> + '_ {
        self.0.iter().copied()
    }

    /// The token at a quantile in [0, 1).
    pub fn pick(&self, quantile: f64) -> TokenId {
        let mut sum = 0.0;
        let reached = self.0.iter().find(|&&(_, p)| {
            sum += p;
            sum > quantile
        });
        reached.unwrap_or(&self.0[self.0.len() - 1]).0
    }

    /// In nats.
    pub fn entropy(&self) -> f64 {
        -self.0.iter().map(|&(_, p)| p * libm::log(p)).sum::<f64>()
    }
}
