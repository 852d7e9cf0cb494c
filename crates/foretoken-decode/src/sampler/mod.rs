//! Coupled sampling: the token at a position is a function of (logits, settings, seed, position) alone.
//!
//! It is the argmax over allowed tokens of `z + g`: `z = (logit - max) / T` after every processor, `g` Gumbel noise keyed
//! by position and token (the Gumbel-max trick; Daliri et al. 2024, arXiv 2408.07978, for its use as a coupling). How a
//! draft was made cannot matter, and a drafter that draws with the same noise agrees with the target most often.

mod distribution;
mod draw;
mod gumbel;
mod history;
mod logprobs;
mod noise;
mod row;
mod settings;
mod support;

use std::cell::RefCell;
use std::sync::Arc;

pub use distribution::{Distribution, Sample};
pub use draw::Draw;
pub use history::History;
pub(crate) use history::TokenHasher;
pub use logprobs::TokenLogprobs;
pub use noise::{NoiseKey, Purpose, gumbel};
pub use settings::{SamplerSettings, SettingsError};
pub use support::Candidate;

use crate::TokenId;
use crate::constraint::{Constraint, Follower, Masked};
use foretoken_kernels::{Isa, ops};
use row::Row;
use support::Support;

/// Why no token can be drawn from a row: an error of that request alone.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A logit is no number.
    #[error("the logit of token {token} at position {position} is NaN")]
    Nan {
        /// The first such token.
        token: TokenId,
        /// Where the next token would stand.
        position: usize,
    },
    /// A logit is positive infinity.
    #[error("the logit of token {token} at position {position} is infinite")]
    Infinite {
        /// The first such token.
        token: TokenId,
        /// Where the next token would stand.
        position: usize,
    },
    /// The constraint could not say what is allowed.
    #[error("the grammar gives no answer at position {position}: {reason}")]
    Constraint {
        /// Where the next token would stand.
        position: usize,
        /// Why.
        reason: String,
    },
    /// Every token is masked.
    #[error("no token is allowed at position {position}")]
    EmptySupport {
        /// Where the next token would stand.
        position: usize,
    },
}

/// Buffers for one draw at a time, shared by all sequences of a thread.
#[derive(Debug)]
pub struct Scratch {
    isa: Isa,
    row: Vec<f32>,
    maxima: Vec<f32>,
    buffer: Vec<f32>,
    hits: Vec<(u32, u32)>,
    candidates: Vec<Candidate>,
    best: Vec<(f64, TokenId)>,
}

impl Scratch {
    /// For draws on this instruction set; they are the same on each.
    pub fn new(isa: Isa) -> Self {
        Self {
            isa,
            row: Vec::new(),
            maxima: Vec::new(),
            buffer: Vec::new(),
            hits: Vec::new(),
            candidates: Vec::new(),
            best: Vec::new(),
        }
    }
}

impl Scratch {
    /// The `k` likeliest tokens of a row, best first; none when it cannot be drawn from.
    fn likeliest(&mut self, logits: &[f32], k: usize, out: &mut Vec<Candidate>) {
        self.maxima.resize(logits.len().div_ceil(ops::MAX_BLOCK), 0.0);
        ops::block_max(self.isa, logits, &mut self.maxima);
        support::top_k(logits, &self.maxima, k, out, &mut self.buffer);
        if out.first().is_some_and(|best| best.logit == f32::INFINITY) {
            out.clear();
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new(Isa::best())
    }
}

/// The sampler of one sequence: its settings and the text so far.
#[derive(Clone, Debug)]
pub struct Sampler {
    settings: SamplerSettings,
    history: History,
    /// Never drawn before position `banned_until`.
    banned: Arc<[TokenId]>,
    banned_until: usize,
    logprobs: Option<usize>,
    /// Moves when it is asked; what it answers depends on the text alone.
    follower: Option<RefCell<Follower>>,
}

impl Sampler {
    /// A sampler for what follows `prompt`. `settings` have been validated.
    pub fn new(settings: SamplerSettings, prompt: &[TokenId]) -> Self {
        let history = History::new(&settings, prompt);
        Self { settings, history, banned: Arc::new([]), banned_until: 0, logprobs: None, follower: None }
    }

    /// Masks `tokens` at positions before `until`: end tokens before the least number of tokens is reached.
    pub fn ban_until(mut self, tokens: Arc<[TokenId]>, until: usize) -> Self {
        (self.banned, self.banned_until) = (tokens, until);
        self
    }

    /// Reports the log-probability of each token drawn, and of this many of the likeliest beside it.
    pub fn with_logprobs(mut self, n_top: Option<usize>) -> Self {
        self.logprobs = n_top;
        self
    }

    /// Masks what a constraint does not allow after the prompt. Where it allows nothing more, `end_tokens` may be drawn
    /// even before their position.
    pub fn with_constraint(mut self, constraint: Option<Box<dyn Constraint>>, end_tokens: Arc<[TokenId]>) -> Self {
        self.follower = constraint.map(|constraint| RefCell::new(Follower::new(constraint, end_tokens)));
        self
    }

    /// Its settings.
    pub fn settings(&self) -> &SamplerSettings {
        &self.settings
    }

    /// Position of the token the next draw is for.
    pub fn position(&self) -> usize {
        self.history.position()
    }

    /// Moves on by a token.
    pub fn push(&mut self, token: TokenId) {
        self.history.push(token);
    }

    /// Takes the last token back.
    pub fn pop(&mut self) {
        self.history.pop();
    }

    /// The token at the current position, given its row of logits `[vocab_size]`.
    pub fn draw(&self, logits: &[f32], scratch: &mut Scratch) -> Result<TokenId, SampleError> {
        self.draw_best(logits, 1, scratch)?;
        Ok(scratch.best[0].1)
    }

    /// The `k` tokens with the highest noisy scores, best first, into `out`: the first is what [`Sampler::draw`] gives.
    /// Fewer when fewer are allowed.
    pub fn draw_top(
        &self,
        logits: &[f32],
        k: usize,
        scratch: &mut Scratch,
        out: &mut Vec<TokenId>,
    ) -> Result<(), SampleError> {
        self.draw_best(logits, k, scratch)?;
        out.clear();
        out.extend(scratch.best.iter().map(|&(_, token)| token));
        Ok(())
    }

    /// [`Sampler::draw_top`] when only some of the row is known: every other token counts as masked. Leaves in
    /// `candidates` the drawable ones by their noisy scores, best first, at most `k`; logits of NaN or infinity are not.
    pub fn draw_few(&self, k: usize, candidates: &mut Vec<Candidate>, scratch: &mut Scratch) {
        for candidate in candidates.iter_mut() {
            candidate.logit = self.process_one(*candidate);
        }
        candidates.retain(|c| c.logit.is_finite());
        candidates.sort_unstable_by(Candidate::order);
        let Some(&first) = candidates.first() else { return };
        if self.settings.temperature > 0.0 {
            let row = Row::of_list(scratch.isa, first, self.settings.temperature);
            support::filter_list(row, &self.settings, candidates);
            scratch.best.clear();
            gumbel::best_of_list(row, candidates, self.noise(Purpose::Token), k, &mut scratch.best);
            candidates.clear();
            candidates.extend(scratch.best.iter().map(|&(score, token)| Candidate { token, logit: score as f32 }));
        }
        candidates.truncate(k);
    }

    /// The `k` likeliest tokens that may be drawn, likeliest first, into `out`; returns the draw among these alone.
    pub fn draw_likeliest(
        &self,
        logits: &[f32],
        k: usize,
        scratch: &mut Scratch,
        out: &mut Vec<TokenId>,
    ) -> Result<TokenId, SampleError> {
        let Scratch { isa, row, maxima, buffer, candidates, best, .. } = scratch;
        let logits = self.process(*isa, logits, row)?;
        let scanned = row::scan(*isa, logits, self.position())?;
        let row = Row::new(*isa, logits, scanned, self.settings.temperature, maxima);
        let last = match self.settings.temperature {
            0.0 => None,
            _ => support::filter(row, &self.settings, candidates, buffer).last(candidates),
        };
        support::top_k(row.logits, row.maxima(), k, candidates, buffer);
        candidates.truncate(candidates.partition_point(|c| last.is_none_or(|last| c.order(&last).is_le())));
        out.clear();
        out.extend(candidates.iter().map(|c| c.token));
        if self.settings.temperature == 0.0 {
            return Ok(out[0]);
        }
        best.clear();
        gumbel::best_of_list(row, candidates, self.noise(Purpose::Token), 1, best);
        Ok(best[0].1)
    }

    /// What a draw is distributed as, given its row of logits `[vocab_size]`.
    pub fn distribution(&self, logits: &[f32], scratch: &mut Scratch) -> Result<Distribution, SampleError> {
        let Scratch { isa, row, maxima, buffer, candidates, .. } = scratch;
        let logits = self.process(*isa, logits, row)?;
        let scanned = row::scan(*isa, logits, self.position())?;
        if self.settings.temperature == 0.0 {
            return Ok(Distribution::point(scanned.1));
        }
        let row = Row::new(*isa, logits, scanned, self.settings.temperature, maxima);
        let support = support::filter(row, &self.settings, candidates, buffer);
        Ok(Distribution::of(row, support, candidates))
    }

    /// The noise of the current position for a purpose.
    pub fn noise(&self, purpose: Purpose) -> NoiseKey {
        NoiseKey::new(self.settings.seed, self.settings.choice, self.position() as u64, purpose)
    }

    /// Whether the constraint can take `token` here; it may still not be drawn.
    pub(crate) fn permits(&self, token: TokenId) -> bool {
        self.constraint().is_none_or(|(follower, output)| follower.borrow_mut().allows(output, token))
    }

    /// Whether there is a constraint.
    pub(crate) fn is_constrained(&self) -> bool {
        self.follower.is_some()
    }

    /// Appends guesses at what the constraint makes come next.
    pub(crate) fn forced(&self, tokens: &mut Vec<TokenId>) {
        if let Some((follower, output)) = self.constraint() {
            follower.borrow_mut().forced(output, tokens);
        }
    }

    /// The constraint and the text that it has to follow.
    fn constraint(&self) -> Option<(&RefCell<Follower>, &[TokenId])> {
        self.follower.as_ref().zip(self.history.output())
    }

    /// Log-probabilities of a token drawn from a row, when they were asked for.
    pub fn logprobs(&self, logits: &[f32], token: TokenId, scratch: &mut Scratch) -> Option<TokenLogprobs> {
        self.logprobs.map(|n_top| TokenLogprobs::new(logits, token, n_top, scratch))
    }

    /// Leaves the winners in `scratch.best`, at least one.
    fn draw_best(&self, logits: &[f32], k: usize, scratch: &mut Scratch) -> Result<(), SampleError> {
        let Scratch { isa, row, maxima, buffer, hits, candidates, best } = scratch;
        let logits = self.process(*isa, logits, row)?;
        let scanned = row::scan(*isa, logits, self.position())?;
        best.clear();
        if self.settings.temperature == 0.0 && k == 1 {
            best.push((0.0, scanned.1));
            return Ok(());
        }
        let row = Row::new(*isa, logits, scanned, self.settings.temperature, maxima);
        if self.settings.temperature == 0.0 {
            support::top_k(row.logits, row.maxima(), k, candidates, buffer);
            best.extend(candidates.iter().map(|c| (f64::from(c.logit), c.token)));
            return Ok(());
        }
        let key = self.noise(Purpose::Token);
        let filters_by_sum = self.settings.top_k == 0 && self.settings.top_p < 1.0;
        if filters_by_sum && k == 1 && support::is_flat(row) {
            // Most often the winner of all is among those kept, and then it is the winner of these. On rows with few likely
            // tokens, finding where top-p cuts is as quick.
            gumbel::best_of_row(row, Candidate::LAST, key, 1, hits, best);
            let token = best[0].1;
            if support::keeps(row, &self.settings, Candidate { token, logit: row.logits[token as usize] }) {
                return Ok(());
            }
            best.clear();
        }
        match support::filter(row, &self.settings, candidates, buffer) {
            Support::Listed => gumbel::best_of_list(row, candidates, key, k, best),
            Support::UpTo(last) => gumbel::best_of_row(row, last, key, k, hits, best),
        }
        Ok(())
    }

    /// One token's logit after bias, penalties and masks.
    fn process_one(&self, Candidate { token, logit }: Candidate) -> f32 {
        if self.position() < self.banned_until && self.banned.contains(&token) || !self.permits(token) {
            return f32::NEG_INFINITY;
        }
        let penalises = self.settings.penalises();
        let logit = if penalises { self.history.penalised(&self.settings, token, logit) } else { logit };
        let biases = self.settings.logit_bias.iter().filter(|bias| bias.0 == token);
        biases.fold(logit, |logit, bias| logit + bias.1)
    }

    /// The row after penalties, bias and masks: the row itself when there is nothing to do.
    fn process<'a>(&self, isa: Isa, logits: &'a [f32], buffer: &'a mut Vec<f32>) -> Result<&'a [f32], SampleError> {
        let position = self.position();
        let mut banning = position < self.banned_until && !self.banned.is_empty();
        let constraint = self.constraint();
        if !banning && constraint.is_none() && self.settings.logit_bias.is_empty() && !self.settings.penalises() {
            return Ok(logits);
        }
        // A mask shall not hide what is wrong with a row.
        row::scan(isa, logits, position)?;
        buffer.clear();
        buffer.extend_from_slice(logits);
        if self.settings.penalises() {
            self.history.penalise(&self.settings, buffer);
        }
        for &(token, bias) in &self.settings.logit_bias {
            buffer[token as usize] += bias;
        }
        if let Some((follower, output)) = constraint {
            let mut follower = follower.borrow_mut();
            let answer = follower.mask(output, logits.len());
            let (masked, mask) = answer.map_err(|reason| SampleError::Constraint { position, reason })?;
            mask.apply(buffer);
            banning &= masked == Masked::Open;
        }
        if banning {
            self.banned.iter().for_each(|&token| buffer[token as usize] = f32::NEG_INFINITY);
        }
        Ok(buffer)
    }
}
