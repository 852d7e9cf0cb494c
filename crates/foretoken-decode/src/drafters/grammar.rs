//! Grammar: drafts the tokens that a request's grammar leaves no choice about, such as the keys of a JSON schema, after
//! the text and after what other drafters guess.
//!
//! They are guesses like any other, since the grammar may let the model write the same characters in other tokens. Without
//! a grammar it has nothing to say.

use super::{Draft, Drafter};
use crate::target::Target;
use crate::tree::NodeId;

/// Drafts forced tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grammar;

/// First estimate of a forced token's chance; the budget learns the true one.
const CONFIDENCE: f32 = 0.98;
/// Guesses of other drafters that are looked behind.
const MOST_LOOKED_BEHIND: usize = 24;

impl<T: Target> Drafter<T> for Grammar {
    fn name(&self) -> &'static str {
        "grammar"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let mut forced = Vec::new();
        for draft in drafts.iter_mut().filter(|draft| draft.draw.is_constrained()) {
            let anchor = draft.proposed.anchor();
            for node in (anchor..draft.proposed.len()).take(1 + MOST_LOOKED_BEHIND) {
                forced.clear();
                draft.draw.forced(draft.proposed, node, &mut forced);
                let depth = (draft.proposed.nodes()[node].depth - draft.proposed.nodes()[anchor].depth) as usize;
                let room = draft.limits.max_nodes.saturating_sub(draft.tree.len() - draft.tree.given() + depth);
                forced.truncate(room.min(draft.limits.max_depth.saturating_sub(depth)));
                if !forced.is_empty() {
                    let mut parent = copy(draft, node);
                    for &token in &forced {
                        parent = child(draft, parent, token, CONFIDENCE);
                    }
                }
            }
        }
    }
}

/// The place in our own draft of a guess that others have proposed, with what is before it.
fn copy(draft: &mut Draft<'_>, node: NodeId) -> NodeId {
    if node == draft.proposed.anchor() {
        return draft.tree.anchor();
    }
    let guess = draft.proposed.nodes()[node];
    let parent = copy(draft, guess.parent);
    child(draft, parent, guess.token, guess.p)
}

fn child(draft: &mut Draft<'_>, parent: NodeId, token: u32, p: f32) -> NodeId {
    draft.tree.child(parent, token).unwrap_or_else(|| draft.push(parent, token, p))
}
