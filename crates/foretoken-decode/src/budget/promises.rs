//! What guesses that cost no time promise one text, and how much of it comes: they guess what is common, and know nothing of a
//! text that has just begun.

use crate::TokenId;
use crate::tree::{NodeId, TokenTree};

/// Promises of this pass, and what came of those before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    /// Guesses of the proposal, parents first, with the chance that each and all above it come true.
    open: Vec<(NodeId, f64)>,
    promised: f64,
    kept: f64,
}

impl Promises {
    /// Share of what is remembered that is left after a pass.
    const KEEP: f64 = 0.95;
    /// Tokens that count as promised in vain at first.
    const DOUBT: f64 = 2.0;

    /// Drops the promises of the pass before.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Guess `node` of the proposal is worth its row. Its parent was noted before it.
    pub fn note(&mut self, proposal: &TokenTree, node: NodeId) {
        let guess = proposal.nodes()[node];
        let above = self.open.iter().find(|(other, _)| *other == guess.parent).map_or(1.0, |(_, p)| *p);
        self.open.push((node, above * f64::from(guess.p)));
    }

    /// Tokens promised for this pass that are not to be expected, by what came of promises before.
    pub fn doubted(&self) -> f64 {
        let kept = (self.kept / (self.promised + Self::DOUBT)).min(1.0);
        self.open.iter().map(|(_, p)| p * (1.0 - kept)).sum()
    }

    /// Looks what came true, as far as the tokens tell.
    pub fn check(&mut self, proposal: &TokenTree, tokens: &[TokenId]) {
        if self.open.is_empty() || tokens.is_empty() {
            return;
        }
        let nodes = proposal.nodes();
        let anchor = proposal.anchor();
        let told = nodes[anchor].depth as usize + tokens.len();
        let promised = self.open.iter().filter(|(node, _)| nodes[*node].depth as usize <= told).map(|(_, p)| p);
        self.promised = self.promised * Self::KEEP + promised.sum::<f64>();
        let (mut at, mut kept) = (anchor, 0.0);
        for &token in tokens {
            let is_next = |node: NodeId| nodes[node].parent == at && nodes[node].token == token;
            let Some(&(next, _)) = self.open.iter().find(|(node, _)| is_next(*node)) else { break };
            (at, kept) = (next, kept + 1.0);
        }
        self.kept = self.kept * Self::KEEP + kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Source;

    /// A chain of three guesses, each as likely as not, of which the first two are worth their rows.
    fn pass(promises: &mut Promises, tokens: &[TokenId]) -> f64 {
        let mut proposal = TokenTree::new(&[0]);
        let mut at = proposal.anchor();
        promises.clear();
        for token in 1..4 {
            at = proposal.push(at, token, Source(1), 0.5);
            if token < 3 {
                promises.note(&proposal, at);
            }
        }
        let doubted = promises.doubted();
        promises.check(&proposal, tokens);
        doubted
    }

    #[test]
    fn promises_are_believed_as_far_as_they_were_kept() {
        let mut promises = Promises::default();
        assert_eq!(pass(&mut promises, &[1, 2, 3, 4]), 0.75, "nothing is known yet");
        let doubted: Vec<f64> = (0..20).map(|_| pass(&mut promises, &[1, 2, 3, 4])).collect();
        assert!(doubted.is_sorted_by(|a, b| a >= b) && doubted[19] == 0.0, "{doubted:?}");
        let doubted: Vec<f64> = (0..60).map(|_| pass(&mut promises, &[7])).collect();
        assert!(doubted.is_sorted() && doubted[59] > 0.65, "{doubted:?}");
    }

    #[test]
    fn what_the_tokens_do_not_tell_is_not_counted() {
        let (mut told, mut cut) = (Promises::default(), Promises::default());
        pass(&mut told, &[1, 7]);
        pass(&mut cut, &[1]);
        assert_eq!((told.promised, told.kept), (0.75, 1.0));
        assert_eq!((cut.promised, cut.kept), (0.5, 1.0));
        pass(&mut cut, &[]);
        assert_eq!(cut.promised, 0.5);
    }
}
