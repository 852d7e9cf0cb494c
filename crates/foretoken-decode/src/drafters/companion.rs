//! A second model that follows the target's texts in a cache of its own, as far behind as it is left.
//!
//! What is to do for a text is what of it is not yet cached. So catching up on a prompt and running one drafted token are
//! one path, and rolling back a draft is setting the text that came instead: the common beginning stays cached.

use std::collections::{HashMap, VecDeque};

use super::Retired;
use crate::target::{Cache, Pass, SequenceId, Target, TargetError, Want, Work};
use crate::tree::{NodeId, TokenTree};
use crate::{TokenId, common};

/// Texts that are over and stay cached at most.
const MAX_IDLE: usize = 16;

/// A model beside the target, its cache, and the texts it follows.
pub struct Companion<M: Target> {
    model: M,
    cache: M::Cache,
    max_rows: usize,
    bytes: usize,
    /// By the target's name for the sequence; `None`: given up.
    followed: HashMap<SequenceId, Option<Followed>>,
    /// Texts that are over, the oldest first: a later one may begin alike.
    idle: VecDeque<Followed>,
    retired: Vec<Retired>,
}

/// A text, and where its rows are: the companion's cache holds a beginning of it.
#[derive(Debug)]
struct Followed {
    own: SequenceId,
    /// Only texts of the same scope may start from its rows.
    scope: u64,
    text: Vec<TokenId>,
}

impl<M: Target> Companion<M> {
    /// A companion that runs at most `max_rows` rows in a pass, and whose model and cache take so many bytes.
    pub fn new(model: M, cache: M::Cache, max_rows: usize, bytes: usize) -> Self {
        assert!(max_rows > 0, "a pass has rows");
        Self { model, cache, max_rows, bytes, followed: HashMap::new(), idle: VecDeque::new(), retired: Vec::new() }
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Its cache.
    pub fn cache(&self) -> &M::Cache {
        &self.cache
    }

    /// Bytes that the model and its cache take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sequences given up, by reason.
    pub fn retired(&self) -> &[Retired] {
        &self.retired
    }

    /// Sets a sequence's text, at least one token, the last of which is to be run again even if it is cached. False when
    /// the sequence has been given up, which it is when the text does not fit the model. Texts of other scopes do not make
    /// it faster.
    pub fn set_text(&mut self, sequence: SequenceId, scope: u64, text: &[TokenId]) -> bool {
        if !self.followed.contains_key(&sequence) {
            let followed = self.start(scope, text);
            self.followed.insert(sequence, Some(followed));
        }
        let Some(followed) = self.followed.get_mut(&sequence).and_then(Option::as_mut) else { return false };
        let same = common(&followed.text, text);
        followed.text.truncate(same);
        followed.text.extend_from_slice(&text[same..]);
        self.cache.truncate(followed.own, same.min(text.len() - 1));
        let vocab_size = self.model.vocab_size();
        if text.len() > self.model.context_size() {
            self.give_up(sequence, "the text is longer than the draft model's context");
        } else if text[same..].iter().any(|&token| token as usize >= vocab_size) {
            self.give_up(sequence, "the text has a token that the draft model does not know");
        }
        self.text(sequence).is_some()
    }

    /// Tokens without a row before the last of a text's `n_tokens`.
    pub fn lag(&self, sequence: SequenceId, n_tokens: usize) -> usize {
        let followed = self.followed.get(&sequence).and_then(Option::as_ref);
        let cached = followed.map_or(0, |followed| self.cache.committed(followed.own));
        (n_tokens - 1).saturating_sub(cached)
    }

    /// The text of a sequence that is followed.
    pub fn text(&self, sequence: SequenceId) -> Option<&[TokenId]> {
        let followed = self.followed.get(&sequence)?.as_ref()?;
        Some(&followed.text)
    }

    /// Appends a token to a text that is followed; false when the context is full.
    pub fn append(&mut self, sequence: SequenceId, token: TokenId) -> bool {
        let Some(followed) = self.followed.get_mut(&sequence).and_then(Option::as_mut) else { return false };
        let fits = followed.text.len() < self.model.context_size() && (token as usize) < self.model.vocab_size();
        if fits {
            followed.text.push(token);
        }
        fits
    }

    /// Runs what is not yet cached of these sequences' texts, all together, and calls `each(i, logits)` for the last row of
    /// `sequences[i]`. Not for those that had to be given up on the way.
    pub fn run(&mut self, sequences: &[SequenceId], mut each: impl FnMut(usize, &[f32])) {
        let mut pending: Vec<usize> = (0..sequences.len()).collect();
        loop {
            pending.retain(|&i| self.text(sequences[i]).is_some());
            let mut rows_left = self.max_rows;
            let mut batch = Vec::new();
            for &i in &pending {
                let followed = self.followed[&sequences[i]].as_ref().expect("those given up are not pending");
                let missing = &followed.text[self.cache.committed(followed.own)..];
                let rows = missing.len().min(rows_left);
                if rows > 0 {
                    rows_left -= rows;
                    batch.push(Rows::new(i, followed.own, &missing[..rows], rows == missing.len()));
                }
            }
            if batch.is_empty() {
                return;
            }
            let work: Vec<Work<'_>> = batch.iter().map(Rows::work).collect();
            match self.model.verify(&mut self.cache, &work) {
                Ok(pass) => {
                    for (place, rows) in batch.iter().enumerate().filter(|(_, rows)| rows.last) {
                        each(rows.index, pass.logits(place, rows.tree.anchor()));
                    }
                }
                Err(error) => {
                    drop(work);
                    self.make_room(&batch, sequences, &error);
                    continue;
                }
            }
            for rows in &batch {
                let path: Vec<NodeId> = (0..rows.tree.len()).collect();
                self.cache.commit(rows.own, &path);
            }
            let done: Vec<usize> = batch.iter().filter(|rows| rows.last).map(|rows| rows.index).collect();
            pending.retain(|i| !done.contains(i));
        }
    }

    /// The sequence is over; its rows stay for a while.
    pub fn forget(&mut self, sequence: SequenceId) {
        if let Some(Some(followed)) = self.followed.remove(&sequence) {
            self.idle.push_back(followed);
            if self.idle.len() > MAX_IDLE {
                self.drop_idle();
            }
        }
    }

    /// Takes over the rows of the text that began most alike, or starts from none.
    fn start(&mut self, scope: u64, text: &[TokenId]) -> Followed {
        let ours = (0..self.idle.len()).filter(|&i| self.idle[i].scope == scope);
        let best = ours.max_by_key(|&i| common(&self.idle[i].text, text));
        let alike = best.filter(|&i| common(&self.idle[i].text, text) > 0);
        let taken = alike.and_then(|i| self.idle.remove(i));
        taken.unwrap_or_else(|| Followed { own: self.cache.open(), scope, text: Vec::new() })
    }

    /// After a pass that could not be run: drops the rows of texts that are over, then of those that are not to be run now,
    /// then gives up the latest of the batch. An error that less work would not mend costs all of it.
    fn make_room(&mut self, batch: &[Rows], sequences: &[SequenceId], error: &TargetError) {
        match error {
            TargetError::CacheFull { .. } if self.drop_idle() || self.drop_waiting(sequences) => {}
            TargetError::CacheFull { .. } => {
                let latest = batch.iter().map(|rows| rows.index).max().expect("the batch is not empty");
                self.give_up(sequences[latest], "the draft model's cache is full");
            }
            _ => batch.iter().for_each(|rows| self.give_up(sequences[rows.index], "the draft model failed")),
        }
    }

    /// Drops the rows of texts that are over.
    pub fn unlearn(&mut self) {
        while self.drop_idle() {}
    }

    fn drop_idle(&mut self) -> bool {
        self.idle.pop_front().map(|followed| self.cache.close(followed.own)).is_some()
    }

    /// Drops the most rows that a text has which is not one of `sequences`; false when none has any.
    fn drop_waiting(&mut self, sequences: &[SequenceId]) -> bool {
        let waiting = self.followed.iter().filter(|(id, _)| !sequences.contains(id));
        let rows =
            waiting.filter_map(|(id, followed)| followed.as_ref().map(|f| (self.cache.committed(f.own), id, f.own)));
        let Some((1.., _, own)) = rows.max_by_key(|&(rows, id, _)| (rows, id)) else { return false };
        self.cache.truncate(own, 0);
        true
    }

    fn give_up(&mut self, sequence: SequenceId, reason: &'static str) {
        if let Some(Some(followed)) = self.followed.insert(sequence, None) {
            self.cache.close(followed.own);
        }
        match self.retired.iter_mut().find(|retired| retired.reason == reason) {
            Some(retired) => retired.sequences += 1,
            None => self.retired.push(Retired { reason, sequences: 1 }),
        }
    }
}

/// The rows of one text in one pass.
struct Rows {
    /// Among the sequences asked for.
    index: usize,
    own: SequenceId,
    tree: TokenTree,
    wants: Vec<Want>,
    /// Whether they reach the end of the text.
    last: bool,
}

impl Rows {
    fn new(index: usize, own: SequenceId, tokens: &[TokenId], last: bool) -> Self {
        let mut wants = vec![Want::Nothing; tokens.len()];
        if last {
            wants[tokens.len() - 1] = Want::Logits;
        }
        Self { index, own, tree: TokenTree::new(tokens), wants, last }
    }

    fn work(&self) -> Work<'_> {
        Work { sequence: self.own, tree: &self.tree, wants: &self.wants }
    }
}
