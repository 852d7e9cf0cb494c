//! Rejection sampling (Leviathan et al. 2023, Chen et al. 2023): texts of the target's distribution, but not those of
//! plain decoding: they depend on the drafts.
//!
//! A token x that the drafter sampled from its own q is kept with probability `min(1, p(x) / q(x))`; otherwise the token
//! is drawn from `max(0, p - q)`, normalised. The sample is judged where it was drawn for, whether or not its row was
//! run: a sample that trimming or merging could take away for what it is would be no sample of q any more. Any other guess
//! is a point mass, and for it drawing the target's token and comparing is rejection sampling already.

use super::{Acceptor, Walk};
use crate::TokenId;
use crate::sampler::{Distribution, Purpose, Sample, SampleError};

/// Rejection sampling for sampled guesses, coupled sampling where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rejection;

impl Acceptor for Rejection {
    fn name(&self) -> &'static str {
        "rejection"
    }

    fn reproducible(&self) -> bool {
        false
    }

    fn takes_samples(&self) -> bool {
        true
    }

    fn decide(&mut self, mut walk: Walk<'_>) {
        let mut node = walk.tree.anchor();
        loop {
            let logits = walk.rows.logits(node);
            let token = match walk.sample() {
                None => walk.sampler.draw(logits, walk.scratch),
                Some(sample) => judge(&mut walk, sample, logits),
            };
            let token = match token {
                Ok(token) => token,
                Err(error) => return walk.fail(error),
            };
            walk.take(logits, token);
            let Some(child) = walk.tree.child(node, token) else { return };
            node = walk.follow(child);
        }
    }
}

/// The token for whose position `sample` was drawn, from the target's row.
fn judge(walk: &mut Walk<'_>, sample: &Sample, logits: &[f32]) -> Result<TokenId, SampleError> {
    let p = walk.sampler.distribution(logits, walk.scratch)?;
    let noise = |purpose| walk.sampler.noise(purpose).uniform();
    let kept = noise(Purpose::Accept) * sample.q.p(sample.token) < p.p(sample.token);
    Ok(if kept { sample.token } else { instead(&p, &sample.q, noise(Purpose::Residual)) })
}

/// A draw from `max(0, p - q)` by a uniform number. Where rounding leaves nothing of it, p and q are the same and p serves.
fn instead(p: &Distribution, q: &Distribution, uniform: f64) -> TokenId {
    let rest = p.iter().map(|(token, p)| (token, p - q.p(token))).filter(|&(_, rest)| rest > 0.0);
    Distribution::new(rest.collect()).as_ref().unwrap_or(p).pick(uniform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_residual_of_nothing_is_p() {
        let p = Distribution::new(vec![(2, 0.3), (5, 0.7)]).unwrap();
        assert_eq!([0.0, 0.29, 0.31, 0.999].map(|u| instead(&p, &p, u)), [2, 2, 5, 5]);
        let q = Distribution::new(vec![(2, 0.5), (5, 0.5)]).unwrap();
        assert_eq!([0.0, 0.5, 0.999].map(|u| instead(&p, &q, u)), [5, 5, 5]);
    }
}
