//! A toy target: its logits are a hash of the last tokens of a row's path, read from its cache and from nowhere else.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foretoken_decode::Clock;
use foretoken_decode::budget::CostTable;
use foretoken_decode::target::{EarlyExit, Heads, Pass, SequenceId, Target, TargetError, Want, Work};
use foretoken_decode::tree::NodeId;

use crate::rng::mix;
use crate::toy_cache::ToyCache;

/// A language model over a few tokens.
#[derive(Clone, Debug)]
pub struct ToyModel {
    /// Number of tokens.
    pub vocab_size: usize,
    /// Most tokens of a sequence.
    pub context_size: usize,
    /// The logits depend on this many of the latest tokens. With 1 or 2 and few tokens, greedy text repeats itself soon.
    pub order: usize,
    /// Logits lie between 0 and this: 0 is uniform, 20 all but decided.
    pub scale: f32,
    /// Positions at which the logits depend on the position too, so that nothing ever repeats.
    pub hostile: Range<usize>,
    /// A row whose next token stands here has this as its logit of token 1.
    pub poison: Option<(usize, f32)>,
    /// Tells models apart.
    pub seed: u64,
    /// Its prediction heads.
    pub heads: ToyHeads,
}

impl Default for ToyModel {
    fn default() -> Self {
        Self {
            vocab_size: 12,
            context_size: 4096,
            order: 2,
            scale: 6.0,
            hostile: 0..0,
            poison: None,
            seed: 1,
            heads: ToyHeads { n: 16, hits: 1.0, sequential: false },
        }
    }
}

/// The model with room for the results of a pass.
#[derive(Debug)]
pub struct ToyTarget {
    /// The model.
    pub model: ToyModel,
    /// Passes run.
    pub passes: usize,
    /// Rows run.
    pub rows: usize,
    /// Rows run through the first layer alone.
    pub early_rows: usize,
    /// Rows of the largest pass.
    pub most_rows: usize,
    /// Moves on by what each pass costs.
    pub clock: Option<(ToyClock, CostTable)>,
    scores: Vec<f32>,
    pass: ToyPass,
}

/// Scripted heads: they follow the model's likeliest tokens.
#[derive(Clone, Copy, Debug)]
pub struct ToyHeads {
    /// How many.
    pub n: usize,
    /// Share of rows in which a head is not mistaken.
    pub hits: f32,
    /// Whether each reads the guesses before it, instead of the likeliest tokens.
    pub sequential: bool,
}

/// A clock that only passes move.
#[derive(Clone, Debug, Default)]
pub struct ToyClock(Arc<AtomicU64>);

impl Clock for ToyClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The results of a pass.
#[derive(Debug, Default)]
pub struct ToyPass {
    vocab_size: usize,
    logits: Vec<f32>,
    hidden: Vec<f32>,
    /// `[work][node]`: index of the row's logits.
    rows: Vec<Vec<Option<usize>>>,
    read: Cell<usize>,
}

impl ToyTarget {
    /// A target for this model.
    pub fn new(model: ToyModel) -> Self {
        Self {
            model,
            passes: 0,
            rows: 0,
            early_rows: 0,
            most_rows: 0,
            clock: None,
            scores: Vec::new(),
            pass: ToyPass::default(),
        }
    }

    /// Rows of logits that were looked at, over all passes.
    pub fn rows_read(&self) -> usize {
        self.pass.read.get()
    }
}

impl ToyModel {
    /// Appends the logits of a row whose path ends with `latest`, latest first, and whose next token stands at `position`.
    pub fn logits(&self, latest: &[u32], position: usize, out: &mut Vec<f32>) {
        let mut key = mix(self.seed);
        for &token in latest.iter().take(self.order) {
            key = mix(key ^ u64::from(token).wrapping_add(1));
        }
        if self.hostile.contains(&position) {
            key = mix(key ^ (position as u64) << 32);
        }
        let first = out.len();
        out.extend((0..self.vocab_size as u64).map(|token| {
            let bits = mix(key ^ token << 20);
            (bits >> 40) as f32 / (1u64 << 24) as f32 * self.scale
        }));
        if let Some((at, logit)) = self.poison
            && at == position
        {
            out[first + 1] = logit;
        }
    }
}

impl Target for ToyTarget {
    type Cache = ToyCache;
    type Pass = ToyPass;

    fn vocab_size(&self) -> usize {
        self.model.vocab_size
    }

    fn context_size(&self) -> usize {
        self.model.context_size
    }

    fn verify(&mut self, cache: &mut ToyCache, work: &[Work<'_>]) -> Result<&ToyPass, TargetError> {
        self.run_all(cache, work, true)?;
        self.passes += 1;
        let n_rows = work.iter().map(|work| work.tree.len()).sum();
        self.rows += n_rows;
        self.most_rows = self.most_rows.max(n_rows);
        if let Some((clock, cost)) = &self.clock {
            let seconds = cost.trunk(n_rows);
            clock.0.fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
        }
        Ok(&self.pass)
    }
}

/// Of two layers, the first sees the latest token only.
impl EarlyExit for ToyTarget {
    fn layers(&self) -> usize {
        2
    }

    fn verify_first(
        &mut self,
        n_layers: usize,
        cache: &mut ToyCache,
        work: &[Work<'_>],
    ) -> Result<&ToyPass, TargetError> {
        self.run_all(cache, work, n_layers == 2)?;
        self.early_rows += work.iter().map(|work| work.tree.len()).sum::<usize>();
        Ok(&self.pass)
    }
}

impl ToyTarget {
    fn run_all(&mut self, cache: &mut ToyCache, work: &[Work<'_>], whole: bool) -> Result<(), TargetError> {
        use foretoken_decode::target::Cache;
        cache.drop_tentative();
        let vocab_size = self.model.vocab_size;
        let mut needed = 0;
        for work in work {
            assert_eq!(work.wants.len(), work.tree.len(), "one want per row");
            let committed = cache.committed(work.sequence);
            let deepest = work.tree.nodes().iter().map(|node| node.depth as usize + 1).max().unwrap_or(0);
            let limit = self.model.context_size;
            if committed + deepest > limit {
                return Err(TargetError::ContextFull { needed: committed + deepest, limit });
            }
            if let Some(node) = work.tree.nodes().iter().find(|node| node.token as usize >= vocab_size) {
                return Err(TargetError::UnknownToken { token: node.token, vocab_size });
            }
            needed += cache.pages_missing(work.sequence, work.tree.len());
        }
        if needed > cache.pages_free() {
            return Err(TargetError::CacheFull { needed, free: cache.pages_free() });
        }
        self.pass.reset(vocab_size);
        for work in work {
            cache.stage(work.sequence, work.tree, whole);
            let rows = (0..work.tree.len()).map(|node| self.run(cache, work, node, whole)).collect();
            self.pass.rows.push(rows);
        }
        Ok(())
    }

    fn run(&mut self, cache: &ToyCache, work: &Work<'_>, node: NodeId, whole: bool) -> Option<usize> {
        let seen = if whole { self.model.order } else { 1 };
        let latest = cache.path_back(work.sequence, node, seen, whole);
        if work.wants[node] < Want::Logits {
            return None;
        }
        let position = committed(cache, work.sequence) + work.tree.nodes()[node].depth as usize + 1;
        let row = self.pass.logits.len() / self.model.vocab_size;
        self.model.logits(&latest, position, &mut self.pass.logits);
        self.pass.hidden.push(position as f32);
        self.pass.hidden.extend(latest.iter().map(|&token| token as f32));
        self.pass.hidden.resize((row + 1) * self.hidden_len(), -1.0);
        Some(row)
    }
}

impl ToyTarget {
    /// The position and the latest tokens of the row.
    fn hidden_len(&self) -> usize {
        1 + self.model.order
    }
}

impl Heads for ToyTarget {
    fn n_heads(&self) -> usize {
        self.model.heads.n
    }

    fn score(&mut self, _cache: &mut ToyCache, n: usize, sequences: &[SequenceId], hidden: &[f32]) -> &[f32] {
        assert_eq!(hidden.len(), sequences.len() * self.hidden_len(), "a state for each sequence");
        assert!(n <= self.model.heads.n && !self.are_sequential(), "{n} of {} heads", self.model.heads.n);
        self.scores.clear();
        for head in 0..n {
            for row in hidden.chunks_exact(self.hidden_len()) {
                self.scores.extend(self.model.head(head, row));
            }
        }
        &self.scores
    }

    fn are_sequential(&self) -> bool {
        self.model.heads.sequential
    }

    fn follow(
        &mut self,
        cache: &mut ToyCache,
        n: usize,
        texts: &[(SequenceId, &[u32])],
        each: &mut dyn FnMut(usize, &[f32]) -> Option<u32>,
    ) {
        assert!(n <= self.model.heads.n && self.are_sequential(), "{n} of {} heads", self.model.heads.n);
        let mut open: Vec<(usize, Vec<u32>)> = Vec::new();
        for (index, &(sequence, tokens)) in texts.iter().enumerate() {
            let cached = cache.tokens(sequence);
            assert!(!cached.is_empty() && cached == tokens[..tokens.len() - 1], "every token but the last has a row");
            open.push((index, tokens.to_vec()));
        }
        for _ in 0..n {
            open.retain_mut(|(index, text)| {
                let latest: Vec<u32> = text.iter().rev().take(self.model.order).copied().collect();
                let token = each(*index, &self.model.module(&latest, text.len()));
                text.extend(token);
                token.is_some()
            });
        }
    }
}

impl ToyModel {
    /// What a head that has read a text says: the model's logits, or something else.
    fn module(&self, latest: &[u32], position: usize) -> Vec<f32> {
        let mut logits = Vec::new();
        self.logits(latest, position, &mut logits);
        if self.mistaken(mix(position as u64)) {
            logits.reverse();
        }
        logits
    }

    fn mistaken(&self, hash: u64) -> bool {
        (mix(hash) >> 40) as f32 / (1u64 << 24) as f32 >= self.heads.hits
    }

    /// What a head says about a row: the model's logits after the likeliest tokens, or something else.
    fn head(&self, head: usize, hidden: &[f32]) -> Vec<f32> {
        let mut position = hidden[0] as usize;
        let mut latest: Vec<u32> = hidden[1..].iter().filter(|&&x| x >= 0.0).map(|&x| x as u32).collect();
        let hash = latest.iter().fold(position as u64, |hash, &token| mix(hash ^ u64::from(token)));
        let mut logits = Vec::new();
        for ahead in 0..=head + 1 {
            logits.clear();
            self.logits(&latest, position, &mut logits);
            if ahead <= head {
                let likeliest = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
                latest.insert(0, likeliest.expect("a vocabulary") as u32);
                position += 1;
            }
        }
        if self.mistaken(hash + head as u64) {
            logits.reverse();
        }
        logits
    }
}

fn committed(cache: &ToyCache, sequence: SequenceId) -> usize {
    foretoken_decode::target::Cache::committed(cache, sequence)
}

impl ToyPass {
    fn reset(&mut self, vocab_size: usize) {
        self.vocab_size = vocab_size;
        self.logits.clear();
        self.hidden.clear();
        self.rows.clear();
    }

    fn row(&self, work: usize, node: NodeId) -> usize {
        self.rows[work][node].expect("the row asked for logits")
    }
}

impl Pass for ToyPass {
    fn logits(&self, work: usize, node: NodeId) -> &[f32] {
        self.read.set(self.read.get() + 1);
        let row = self.row(work, node);
        &self.logits[row * self.vocab_size..(row + 1) * self.vocab_size]
    }

    fn hidden(&self, work: usize, node: NodeId) -> &[f32] {
        let (row, len) = (self.row(work, node), self.hidden.len() * self.vocab_size / self.logits.len());
        &self.hidden[row * len..(row + 1) * len]
    }
}
