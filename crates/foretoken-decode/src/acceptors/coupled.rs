//! The default acceptor: draw the target's own token at each node and follow it while a guess holds it.

use super::{Acceptor, Walk};

/// Coupled sampling; with temperature 0 it is greedy verification. The text is that of plain decoding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coupled;

impl Acceptor for Coupled {
    fn name(&self) -> &'static str {
        "coupled"
    }

    fn reproducible(&self) -> bool {
        true
    }

    fn decide(&mut self, mut walk: Walk<'_>) {
        let mut node = walk.tree.anchor();
        loop {
            let logits = walk.rows.logits(node);
            let token = match walk.sampler.draw(logits, walk.scratch) {
                Ok(token) => token,
                Err(error) => return walk.fail(error),
            };
            walk.take(logits, token);
            let Some(child) = walk.tree.child(node, token) else { return };
            node = walk.follow(child);
        }
    }
}
