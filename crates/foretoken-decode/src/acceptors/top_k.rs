//! Top-k acceptance (Stern et al. 2018, section 5.1): a guess passes when it is among the target's k likeliest tokens.
//! It changes the distribution; by how much is measured.

use super::{Acceptor, Walk};
use crate::TokenId;

/// Every token is among the `k` likeliest that may be drawn: where no guess is, it is drawn from these. With `k` = 1 the
/// text is that of greedy decoding, at any temperature.
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    /// At least 1.
    pub k: usize,
}

impl Acceptor for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn reproducible(&self) -> bool {
        false
    }

    fn decide(&mut self, mut walk: Walk<'_>) {
        let mut likeliest: Vec<TokenId> = Vec::with_capacity(self.k);
        let mut node = walk.tree.anchor();
        loop {
            let logits = walk.rows.logits(node);
            let own = match walk.sampler.draw_likeliest(logits, self.k, walk.scratch, &mut likeliest) {
                Ok(own) => own,
                Err(error) => return walk.fail(error),
            };
            let passing = || likeliest.iter().copied().find(|&token| walk.tree.child(node, token).is_some());
            let token = if walk.tree.child(node, own).is_some() { own } else { passing().unwrap_or(own) };
            walk.take_changed(logits, token);
            let Some(child) = walk.tree.child(node, token) else { return };
            node = walk.follow(child);
        }
    }
}
