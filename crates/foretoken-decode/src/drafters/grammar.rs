//! Grammar: drafts the tokens that a request's grammar leaves no choice about, such as the keys of a JSON schema.
//!
//! They are guesses like any other, since the model may write the same characters in other tokens where the grammar lets
//! it. Without a grammar it has nothing to say.

use super::{Draft, Drafter};
use crate::target::Target;

/// Drafts forced tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grammar;

/// First estimate of a forced token's chance; the budget learns the true one.
const CONFIDENCE: f32 = 0.98;

impl<T: Target> Drafter<T> for Grammar {
    fn name(&self) -> &'static str {
        "grammar"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let mut forced = Vec::new();
        for draft in drafts {
            let mut parent = draft.tree.anchor();
            forced.clear();
            draft.draw.forced(draft.tree, parent, &mut forced);
            for &token in forced.iter().take(draft.limits.max_nodes.min(draft.limits.max_depth)) {
                parent = draft.push(parent, token, CONFIDENCE);
            }
        }
    }
}
