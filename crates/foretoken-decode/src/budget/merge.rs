//! One tree from the trees of several drafters, without what cannot be used.

use crate::TokenId;
use crate::drafters::Limits;
use crate::tree::{Node, NodeId, TokenTree};

/// Guesses left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cuts {
    /// Tokens outside the vocabulary, and chances that are no number.
    pub nonsense: usize,
    /// Too deep or too many.
    pub over_limit: usize,
}

/// Adds the guesses of `from` to `into`, which has the same anchor, with the probabilities that `estimate(guess, depth)`
/// gives. Equal (parent, token) become one node, of the drafter whose guess is likelier; end tokens are dropped silently,
/// since nothing is ever read after them.
pub(crate) fn merge(
    into: &mut TokenTree,
    from: &TokenTree,
    limits: Limits,
    ends: impl Fn(TokenId) -> bool,
    estimate: impl Fn(&Node, usize) -> f32,
    map: &mut Vec<Option<NodeId>>,
) -> Cuts {
    let mut cuts = Cuts::default();
    let anchor = from.anchor();
    let anchor_depth = from.nodes()[anchor].depth as usize;
    map.clear();
    map.resize(anchor, None);
    map.push(Some(into.anchor()));
    for (index, node) in from.nodes()[anchor + 1..].iter().enumerate() {
        cuts.nonsense += usize::from(node.p.is_nan());
        let sound = Node { p: if node.p.is_nan() { 0.0 } else { node.p.clamp(0.0, 1.0) }, ..*node };
        let depth = node.depth as usize - anchor_depth;
        let p = estimate(&sound, depth);
        let place = match map[node.parent] {
            None => None,
            Some(_) if node.token as usize >= limits.vocab_size => {
                cuts.nonsense += 1;
                None
            }
            Some(_) if ends(node.token) => None,
            Some(_) if index >= limits.max_nodes || depth > limits.max_depth => {
                cuts.over_limit += 1;
                None
            }
            Some(parent) => match into.child(parent, node.token) {
                Some(same) => {
                    into.raise(same, node.source, p);
                    Some(same)
                }
                None => Some(into.push(parent, node.token, node.source, p)),
            },
        };
        map.push(place);
    }
    cuts
}
