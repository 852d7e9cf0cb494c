//! The lookahead branch: guesses at the next positions, several Jacobi iterations deep, in which n-grams form.

use crate::TokenId;
use crate::drafters::{Draft, Observation};
use crate::tree::{NodeId, TokenTree};

/// `columns` positions from the anchor on, each with a trail of tokens drawn in the passes before.
///
/// The token of column c on level l stands c + l positions after the anchor. Level 0 is a chain from the anchor on (which is
/// column 0); the levels below hang on their column's token of level 0. So a row sees the text, the oldest guesses before
/// its column, and its own column's trail.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// `[level][column]`; the anchor's place on level 0 is not read.
    levels: Vec<Vec<TokenId>>,
}

/// Tokens that fill a window before anything has been drawn: any will do, and those of the text are plausible.
fn filler(text: &[TokenId], place: usize) -> TokenId {
    text[(text.len() + place).wrapping_mul(0x9e37_79b1) % text.len()]
}

/// The first guess below a node with this token, added when there is none.
pub(super) fn child(draft: &mut Draft<'_>, parent: NodeId, token: TokenId, p: f32) -> NodeId {
    draft.tree.child(parent, token).unwrap_or_else(|| draft.push(parent, token, p))
}

impl Window {
    /// Most rows that a window takes, the anchor's not counted.
    pub fn rows(columns: usize, ngram: usize) -> usize {
        columns - 1 + columns * (ngram - 2)
    }

    /// Adds the window's rows to a draft; more or fewer columns than before are filled up or left out.
    pub fn push(&mut self, draft: &mut Draft<'_>, columns: usize, p: f32) {
        if self.levels.is_empty() {
            self.levels.push(Vec::new());
        }
        for (level, tokens) in self.levels.iter_mut().enumerate() {
            tokens.truncate(columns);
            (tokens.len()..columns).for_each(|column| tokens.push(filler(draft.tokens, 31 * level + column)));
        }
        let deepest = draft.tree.nodes()[draft.tree.anchor()].depth as usize + draft.limits.max_depth;
        let fits = |draft: &Draft<'_>, node: NodeId| (draft.tree.nodes()[node].depth as usize) < deepest;
        let mut start = draft.tree.anchor();
        for column in 0..columns {
            if column > 0 && fits(draft, start) {
                start = child(draft, start, self.levels[0][column], p);
            }
            let mut node = start;
            for level in &self.levels[1..] {
                if fits(draft, node) {
                    node = child(draft, node, level[column], p);
                }
            }
        }
    }

    /// Draws after every column's trail, hands each complete n-gram to `found`, and moves on to the new anchor.
    pub fn advance(&mut self, seen: &mut Observation<'_>, ngram: usize, mut found: impl FnMut(&[TokenId])) {
        let Some(first) = self.levels.first() else { return };
        let tree: &TokenTree = seen.tree;
        let columns = first.len();
        let mut start = Some(tree.anchor());
        let mut drawn = Vec::with_capacity(columns);
        let mut gram = Vec::with_capacity(ngram);
        let complete = self.levels.len() + 1 == ngram;
        for column in 0..columns {
            if column > 0 {
                start = start.and_then(|node| tree.child(node, self.levels[0][column]));
            }
            let trail = self.levels[1..].iter().map(|level| level[column]);
            let end = trail.clone().try_fold(start, |node, token| node.map(|node| tree.child(node, token)));
            let token = end.flatten().and_then(|node| seen.draw.draw(tree, node, seen.rows.logits(node)).ok());
            if let (true, Some(token), Some(start)) = (complete, token, start) {
                gram.clear();
                gram.push(tree.nodes()[start].token);
                gram.extend(trail);
                gram.push(token);
                found(&gram);
            }
            drawn.push(token.unwrap_or_else(|| filler(seen.tokens, column)));
        }
        // Going one level down goes one position on: the oldest level leaves when all are there.
        let mut behind = seen.verdict.tokens.len();
        if complete {
            self.levels.remove(0);
            behind -= 1;
        }
        self.levels.push(drawn);
        self.levels.iter_mut().for_each(|level| drop(level.drain(..behind.min(columns))));
    }
}
