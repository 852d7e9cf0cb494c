//! The default acceptor: draw the target's own token at each node and follow it while a guess holds it.

use super::{Acceptor, Rows, Verdict};
use crate::sampler::{Sampler, Scratch};
use crate::tree::TokenTree;

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

    fn decide(
        &mut self,
        tree: &TokenTree,
        rows: Rows<'_>,
        sampler: &mut Sampler,
        scratch: &mut Scratch,
        verdict: &mut Verdict,
    ) {
        let mut node = tree.anchor();
        while let Some(token) = verdict.draw(rows.logits(node), sampler, scratch) {
            let Some(child) = tree.child(node, token) else { return };
            verdict.path.push(child);
            node = child;
        }
    }
}
