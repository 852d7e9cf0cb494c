//! The one draft type: a chain, a Medusa or EAGLE tree, a Jacobi window and a lookahead comb are all token trees.

use crate::TokenId;

/// Index of a node in its tree; parents come before children.
pub type NodeId = usize;

/// Names the drafter that put a node into a tree; given tokens have [`Source::GIVEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(pub u8);

impl Source {
    /// The token is decided text, not a guess.
    pub const GIVEN: Source = Source(0);
}

/// One row of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// The token whose row this is.
    pub token: TokenId,
    /// The node before it; the first node is its own parent.
    pub parent: NodeId,
    /// Positions after the tree's first node.
    pub depth: u32,
    /// Who guessed it.
    pub source: Source,
    /// Estimated probability that the target draws `token` after the parent, given that the parent was accepted.
    pub p: f32,
}

/// Tokens to run for one sequence: a chain of *given* tokens (decided, not yet cached) and the guesses that hang below.
///
/// The last given node is the *anchor*: its row predicts the first undecided token. A prompt chunk is a tree of given
/// nodes only; plain decoding is a tree of one.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTree {
    nodes: Vec<Node>,
    given: usize,
}

impl TokenTree {
    /// A tree of given tokens only. Panics when `given` is empty.
    pub fn new(given: &[TokenId]) -> Self {
        let mut tree = Self { nodes: Vec::with_capacity(given.len() + 16), given: 0 };
        tree.reset(given);
        tree
    }

    /// Starts over with these given tokens and keeps the allocation. Panics when `given` is empty.
    pub fn reset(&mut self, given: &[TokenId]) {
        assert!(!given.is_empty(), "a tree has an anchor");
        self.nodes.clear();
        self.given = given.len();
        let given = given.iter().enumerate().map(|(i, &token)| Node {
            token,
            parent: i.saturating_sub(1),
            depth: i as u32,
            source: Source::GIVEN,
            p: 1.0,
        });
        self.nodes.extend(given);
    }

    /// Adds a guess below `parent`, which must be the anchor or a guess.
    pub fn push(&mut self, parent: NodeId, token: TokenId, source: Source, p: f32) -> NodeId {
        assert!((self.anchor()..self.nodes.len()).contains(&parent), "guesses hang below the anchor");
        let depth = self.nodes[parent].depth + 1;
        self.nodes.push(Node { token, parent, depth, source, p });
        self.nodes.len() - 1
    }

    /// Becomes a copy of `other` and keeps the allocation.
    pub fn copy_from(&mut self, other: &TokenTree) {
        self.nodes.clone_from(&other.nodes);
        self.given = other.given;
    }

    /// Drops the guesses for which `keep` is false, given the guesses before them and their token, and what hangs below
    /// these; says how many.
    pub fn retain_guesses(&mut self, mut keep: impl FnMut(&[TokenId], TokenId) -> bool) -> usize {
        let before = self.nodes.len();
        let guesses = self.nodes.split_off(self.given);
        let mut places: Vec<Option<NodeId>> = vec![None; self.anchor()];
        places.push(Some(self.anchor()));
        let mut path = Vec::new();
        for guess in guesses {
            let kept = places[guess.parent].filter(|&parent| {
                path.clear();
                path.extend(self.path(parent)[self.given..].iter().map(|&node| self.nodes[node].token));
                keep(&path, guess.token)
            });
            places.push(kept.map(|parent| self.push(parent, guess.token, guess.source, guess.p)));
        }
        before - self.nodes.len()
    }

    /// Drops the guesses.
    pub fn keep_given(&mut self) {
        self.nodes.truncate(self.given);
    }

    /// Gives a guess to whoever is surer of it.
    pub fn raise(&mut self, node: NodeId, source: Source, p: f32) {
        let node = &mut self.nodes[node];
        if p > node.p {
            (node.source, node.p) = (source, p);
        }
    }

    /// The last given node.
    pub fn anchor(&self) -> NodeId {
        self.given - 1
    }

    /// How many nodes are given.
    pub fn given(&self) -> usize {
        self.given
    }

    /// All nodes, parents before children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of rows.
    #[expect(clippy::len_without_is_empty, reason = "a tree has an anchor")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The children of `node` in the order they were pushed.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        (node + 1..self.nodes.len()).filter(move |&n| self.nodes[n].parent == node)
    }

    /// The first child of `node` that holds `token`.
    pub fn child(&self, node: NodeId, token: TokenId) -> Option<NodeId> {
        self.children(node).find(|&n| self.nodes[n].token == token)
    }

    /// Nodes from the first given node to `node`, both included: the attention mask row of `node`.
    pub fn path(&self, mut node: NodeId) -> Vec<NodeId> {
        let mut path = vec![node];
        while node != 0 {
            node = self.nodes[node].parent;
            path.push(node);
        }
        path.reverse();
        path
    }
}
