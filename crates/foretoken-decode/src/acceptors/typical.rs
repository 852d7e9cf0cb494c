//! Typical acceptance (Cai et al. 2024, Medusa, section 2.3.1): a guess passes when the target finds it likely enough for
//! how sure it is. It changes the distribution; by how much is measured.

use super::{Acceptor, Walk};
use crate::TokenId;
use crate::sampler::{Distribution, SampleError};
use crate::tree::NodeId;

/// A guess passes with a probability above `min(epsilon, delta * e^-H)`, `H` the entropy of the target's distribution after
/// every processor. Where none does, the token is the coupled draw.
///
/// The paper's rule passes more as the parameters fall. Where one of them is 0 nothing is left of a threshold, and the
/// other end is meant: only the likeliest token passes, and is taken where no guess holds it, so the text is that of
/// greedy decoding. It is also that at temperature 0, whatever they are.
#[derive(Clone, Copy, Debug)]
pub struct Typical {
    /// 0..=1.
    pub epsilon: f32,
    /// 0..=1.
    pub delta: f32,
}

impl Acceptor for Typical {
    fn name(&self) -> &'static str {
        "typical"
    }

    fn reproducible(&self) -> bool {
        false
    }

    fn decide(&mut self, mut walk: Walk<'_>) {
        let mut node = walk.tree.anchor();
        loop {
            let logits = walk.rows.logits(node);
            let token = match self.choose(&mut walk, node, logits) {
                Ok(token) => token,
                Err(error) => return walk.fail(error),
            };
            walk.take_changed(logits, token);
            let Some(child) = walk.tree.child(node, token) else { return };
            node = walk.follow(child);
        }
    }
}

impl Typical {
    fn choose(&self, walk: &mut Walk<'_>, node: NodeId, logits: &[f32]) -> Result<TokenId, SampleError> {
        if self.epsilon == 0.0 || self.delta == 0.0 {
            return walk.sampler.draw_likeliest(logits, 1, walk.scratch, &mut Vec::new());
        }
        let own = walk.sampler.draw(logits, walk.scratch)?;
        if walk.tree.child(node, own).is_some() {
            return Ok(own);
        }
        let p = walk.sampler.distribution(logits, walk.scratch)?;
        let least = self.threshold(&p);
        let guesses = walk.tree.children(node).map(|child| walk.tree.nodes()[child].token);
        let passing = guesses.map(|token| (p.p(token), token)).filter(|&(p, _)| p > least);
        // The likeliest; of equals, the lowest id.
        let best = passing.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        Ok(best.map_or(own, |(_, token)| token))
    }

    fn threshold(&self, p: &Distribution) -> f64 {
        f64::from(self.epsilon).min(f64::from(self.delta) * libm::exp(-p.entropy()))
    }
}
