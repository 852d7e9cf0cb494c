//! The target's own first layers and its head guess what all layers will say (Elhoushi et al. 2024, LayerSkip, arXiv
//! 2404.16710; Zhang et al. 2023, arXiv 2309.08168, skip layers of a model that was not trained for it).
//!
//! The committed K/V rows of those layers are the target's own, so nothing has to be caught up. The draft's rows follow them
//! in the target's cache and are cut off before anybody else can read them.

use super::writer::{Reader, Writer};
use super::{Draft, Drafter, WriterOptions};
use crate::TokenId;
use crate::budget::DraftCost;
use crate::target::{Cache, EarlyExit, Pass, SequenceId, Want, Work};
use crate::tree::{NodeId, TokenTree};

/// Tokens that may lack rows. More of them is a prompt's end, which the pass at hand is about to run anyway.
const MAX_BEHIND: usize = 8;

/// Drafts with the first `n_layers` layers.
pub struct ExitEarly {
    n_layers: usize,
    cost: DraftCost,
    writer: Writer,
}

impl ExitEarly {
    /// A drafter that runs this many layers, at least one; `cost` is a first guess of what it takes.
    pub fn new(n_layers: usize, cost: DraftCost, options: WriterOptions) -> Self {
        assert!(n_layers > 0, "a model has layers");
        Self { n_layers, cost, writer: Writer::new(options) }
    }
}

impl<T: EarlyExit> Drafter<T> for ExitEarly {
    fn name(&self) -> &'static str {
        "early_exit"
    }

    fn cost(&self) -> DraftCost {
        self.cost
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut T, cache: &mut T::Cache) {
        let mut shallow = Shallow { target, cache, n_layers: self.n_layers, texts: Vec::new() };
        let mut which = Vec::new();
        for (index, draft) in drafts.iter().enumerate().filter(|(_, draft)| Writer::wants(draft)) {
            let start = shallow.cache.committed(draft.sequence);
            let pending = &draft.tokens[start..];
            if pending.len() <= MAX_BEHIND {
                which.push(index);
                shallow.texts.push(Text { sequence: draft.sequence, start, pending: pending.to_vec() });
            }
        }
        self.writer.write(drafts, which, &mut shallow);
        for text in &shallow.texts {
            shallow.cache.truncate(text.sequence, text.start);
        }
    }
}

/// The target's first layers at the end of several texts.
struct Shallow<'a, T: EarlyExit> {
    target: &'a mut T,
    cache: &'a mut T::Cache,
    n_layers: usize,
    texts: Vec<Text>,
}

struct Text {
    sequence: SequenceId,
    /// Rows that all layers have run.
    start: usize,
    /// Tokens without a row.
    pending: Vec<TokenId>,
}

impl<T: EarlyExit> Reader for Shallow<'_, T> {
    fn run(&mut self, sequences: &[SequenceId], mut each: impl FnMut(usize, &[f32])) {
        let rows: Vec<(TokenTree, Vec<Want>)> = (sequences.iter())
            .map(|&sequence| {
                let text = self.texts.iter_mut().find(|text| text.sequence == sequence).expect("it was set up");
                let mut wants = vec![Want::Nothing; text.pending.len() - 1];
                wants.push(Want::Logits);
                let tree = TokenTree::new(&text.pending);
                text.pending.clear();
                (tree, wants)
            })
            .collect();
        if rows.is_empty() {
            return;
        }
        let work: Vec<Work<'_>> =
            (sequences.iter().zip(&rows)).map(|(&sequence, (tree, wants))| Work { sequence, tree, wants }).collect();
        // A full cache is for the whole pass to mend; there may be room for a draft next time.
        let Ok(pass) = self.target.verify_first(self.n_layers, self.cache, &work) else { return };
        for (i, (tree, _)) in rows.iter().enumerate() {
            each(i, pass.logits(i, tree.anchor()));
        }
        for (&sequence, (tree, _)) in sequences.iter().zip(&rows) {
            let path: Vec<NodeId> = (0..tree.len()).collect();
            self.cache.commit(sequence, &path);
        }
    }

    fn append(&mut self, sequence: SequenceId, token: TokenId) -> bool {
        let text = self.texts.iter_mut().find(|text| text.sequence == sequence).expect("it was set up");
        text.pending.push(token);
        true
    }
}
