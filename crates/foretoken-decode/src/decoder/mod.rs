//! The loop: draft, trim, verify, decide, trim, commit, observe, for many sequences at once.

mod buffers;
mod draft;
mod kept;
mod phases;
mod plan;
mod room;
mod seat;
mod why;

pub use seat::DrafterStats;

use std::cell::RefCell;
use std::mem;
use std::time::Duration;

use crate::TokenId;
use crate::acceptors::Rows;
use crate::budget::{AnswerLengths, Budget, CostModel, CostTable, DraftCost, SharedAcceptance};
use crate::clock::Clock;
use crate::drafters::{Drafter, Observation};
use crate::generation::Detokenize;
use crate::request::{FinishReason, Request, RequestError};
use crate::sampler::{Scratch, TokenLogprobs};
use crate::sequence::{RequestId, Sequence};
use crate::target::{Cache, Target, TargetError, Work};
use crate::trace::{Recorder, RequestStats};
use crate::tree::{NodeId, Source};
use buffers::{Buffers, emptied};
use kept::KeptRows;
use seat::Seat;
use why::Choice;

/// Sizes of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Most rows of a pass; long prompts are run in chunks of at most this.
    pub max_rows: usize,
    /// Most rows of prompts and guesses of a pass that has both and draws: others shall not wait long for their tokens.
    pub max_rows_beside: usize,
    /// Most guesses that a drafter may propose for a sequence, and most that a pass runs for all of them.
    pub max_draft: usize,
    /// Most requests under way at once; others wait.
    pub max_running: usize,
    /// Tokens of room beyond its text that a request is let in with, and that those under way are left.
    pub growth: usize,
    /// Most finished requests whose rows stay cached; a full cache gives them up earlier.
    pub max_kept: usize,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        Self { max_rows: 512, max_rows_beside: 64, max_draft: 32, max_running: 32, growth: 32, max_kept: 64 }
    }
}

/// What a pass brought for one request.
#[derive(Debug)]
pub struct Event<'a> {
    /// Whose.
    pub request: RequestId,
    /// New tokens: none while the prompt is run.
    pub tokens: &'a [TokenId],
    /// Who guessed each of them; [`Source::GIVEN`] for the one that every pass gives.
    pub sources: &'a [Source],
    /// New text, whole characters: may lag behind the tokens while it could become a stop string.
    pub text: &'a str,
    /// One per token when asked for.
    pub logprobs: &'a [TokenLogprobs],
    /// Counts so far.
    pub stats: &'a RequestStats,
    /// Set on the last event.
    pub finish: Option<&'a FinishReason>,
    /// Why the guesses of this pass were chosen, when the choice is another kind than the pass before.
    pub why: Option<&'a str>,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests under way.
    pub running: usize,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Finished requests whose rows are kept.
    pub kept: usize,
    /// Tokens that the cache has room for beside all that it holds.
    pub free_tokens: usize,
}

/// Decodes many requests over one target, plainly or with drafts: the text is the same.
pub struct Decoder<T: Target, D, C> {
    target: T,
    cache: T::Cache,
    detokenize: D,
    clock: C,
    options: DecoderOptions,
    seats: Vec<Seat<T>>,
    budget: Budget,
    recorder: Option<Box<dyn Recorder>>,
    kept: KeptRows,
    /// The highest priority first, then the oldest.
    sequences: Vec<Sequence>,
    /// Indices of the sequences in this pass.
    batch: Vec<usize>,
    scratch: RefCell<Scratch>,
    map: Vec<Option<NodeId>>,
    buffers: Buffers,
    choice: Choice,
    why: String,
    next_id: u64,
    last_end: Option<Duration>,
}

impl<T: Target, D: Detokenize, C: Clock> Decoder<T, D, C> {
    /// A decoder without drafters.
    pub fn new(target: T, cache: T::Cache, detokenize: D, clock: C, cost: CostModel) -> Self {
        Self {
            target,
            cache,
            detokenize,
            clock,
            options: DecoderOptions::default(),
            seats: Vec::new(),
            budget: Budget::new(cost),
            recorder: None,
            kept: KeptRows::default(),
            sequences: Vec::new(),
            batch: Vec::new(),
            scratch: RefCell::default(),
            map: Vec::new(),
            buffers: Buffers::default(),
            choice: Choice::default(),
            why: String::new(),
            next_id: 0,
            last_end: None,
        }
    }

    /// With these sizes.
    pub fn with_options(mut self, options: DecoderOptions) -> Self {
        assert!(options.max_rows > 0, "a pass has rows");
        self.options = options;
        self
    }

    /// Adds a drafter that requests ask unless they name others. The trees of several are merged.
    pub fn with_drafter(self, drafter: Box<dyn Drafter<T>>) -> Self {
        self.with_seat(drafter, true)
    }

    /// Adds a drafter that only requests which name it ask.
    pub fn with_drafter_by_name(self, drafter: Box<dyn Drafter<T>>) -> Self {
        self.with_seat(drafter, false)
    }

    fn with_seat(mut self, drafter: Box<dyn Drafter<T>>, by_default: bool) -> Self {
        assert!(self.sequences.is_empty(), "drafters are set before requests");
        let name = drafter.name();
        let seat = Seat::new(drafter, by_default, &self.budget.cost);
        assert!(self.seats.iter().all(|other| other.stats.name != name), "there are two drafters of name {name}");
        self.seats.push(seat);
        self
    }

    /// Hands every pass to a recorder.
    pub fn with_recorder(mut self, recorder: Box<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Takes a request in. It runs from the next step on, or when those before it have made room.
    pub fn admit(&mut self, request: Request) -> Result<RequestId, RequestError> {
        let context_size = self.target.context_size();
        request.validate(self.target.vocab_size(), context_size)?;
        let asks = self.asks(&request.drafters)?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let state = Sequence::new(id, self.cache.open(), request, context_size, asks);
        let place = self.sequences.partition_point(|other| other.priority >= state.priority);
        self.sequences.insert(place, state);
        Ok(id)
    }

    /// Which drafters a request with these names asks.
    fn asks(&self, names: &[String]) -> Result<Vec<bool>, RequestError> {
        let known = || self.seats.iter().map(|seat| seat.stats.name);
        if let Some(name) = names.iter().find(|name| known().all(|other| other != name.as_str())) {
            let known = known().collect::<Vec<_>>().join(", ");
            return Err(RequestError::UnknownDrafter { name: name.clone(), known });
        }
        let asked = |seat: &Seat<T>| match names {
            [] => seat.by_default,
            names => names.iter().any(|name| name == seat.stats.name),
        };
        Ok(self.seats.iter().map(asked).collect())
    }

    /// Ends a request at once; false when there is none of this id. Its last event comes with the next step.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let found = self.sequences.iter_mut().find(|s| s.id == id);
        found.map(|s| s.finish = Some(FinishReason::Cancelled)).is_some()
    }

    /// One pass over every sequence that fits, and its events; false when there is nothing to do. An error is a broken
    /// promise of the target: nothing has been committed.
    pub fn step(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool, TargetError> {
        self.end_cancelled(sink);
        if !self.plan() {
            return Ok(false);
        }
        let begun = self.clock.now();
        self.draft();
        let weighed = self.choose();
        self.make_way();
        self.explain(&weighed);
        let drafted = self.clock.now();
        let pass = loop {
            let mut work: Vec<Work<'_>> = mem::take(&mut self.buffers.work);
            work.extend(self.batch.iter().map(|&i| self.sequences[i].work()));
            let ran = self.target.verify(&mut self.cache, &work);
            self.buffers.work = emptied(work);
            let error = match ran {
                Ok(pass) => break pass,
                Err(error) => error,
            };
            let TargetError::CacheFull { needed, free } = error else { return Err(error) };
            if !self.kept.give_up(&mut self.cache) {
                room::make(&mut self.sequences, &mut self.batch, &mut self.cache, needed, free);
            }
            if self.batch.is_empty() {
                self.deliver_finished(sink);
                return Ok(true);
            }
        };
        let verified = self.clock.now();
        for (work, &index) in self.batch.iter().enumerate() {
            let sequence = &mut self.sequences[index];
            sequence.decide(Rows::new(pass, work), &mut self.scratch.borrow_mut());
            sequence.trim(&self.detokenize);
            self.cache.commit(sequence.sequence, &sequence.verdict.path);
            sequence.advance(&mut self.budget.shared);
        }
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let asking = self.sequences.iter_mut().filter(|s| s.asks[index]);
            let mut seen: Vec<Observation<'_>> = emptied(mem::take(&mut self.buffers.seen));
            seen.extend(asking.filter_map(|s| s.observation(pass, &self.scratch)));
            if !seen.is_empty() {
                seat.drafter.observe(&mut seen);
            }
            self.buffers.seen = emptied(seen);
        }
        self.account(begun, drafted, verified);
        self.deliver(sink);
        Ok(true)
    }

    /// Whether there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty()
    }

    /// How much there is to do.
    pub fn load(&self) -> Load {
        let waiting = self.sequences.iter().filter(|s| s.waiting).count();
        let running = self.sequences.len() - waiting;
        Load { running, waiting, kept: self.kept.len(), free_tokens: self.cache.free_tokens() }
    }

    /// Gives up the cached rows of every finished request.
    pub fn forget_kept(&mut self) {
        while self.kept.give_up(&mut self.cache) {}
    }

    /// Costs and acceptance as known now.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What came of each drafter, in the order of their sources.
    pub fn drafter_stats(&self) -> impl Iterator<Item = &DrafterStats> {
        self.seats.iter().map(|seat| &seat.stats)
    }

    /// Bytes of memory that each drafter holds, by name.
    pub fn drafter_bytes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.seats.iter().map(|seat| (seat.stats.name, seat.drafter.bytes()))
    }

    /// The drafters, in the order of their sources.
    pub fn drafters(&self) -> impl Iterator<Item = &dyn Drafter<T>> {
        self.seats.iter().map(|seat| &*seat.drafter)
    }

    /// What passes and drafting cost, as known now.
    pub fn costs(&self) -> CostTable {
        let draft = self.seats.iter().map(|seat| (seat.stats.name.to_owned(), seat.cost.cost()));
        let known = draft.filter(|(_, cost)| *cost != DraftCost::default());
        CostTable { draft: known.collect(), ..self.budget.cost.table().clone() }
    }

    /// Begins anew with this belief about costs and acceptance. Panics while there are requests.
    pub fn believe(&mut self, cost: CostModel, shared: SharedAcceptance) {
        assert!(self.is_idle(), "beliefs change between requests");
        for seat in &mut self.seats {
            seat.reset_cost(&cost);
        }
        self.budget = Budget::new(cost);
        self.budget.shared = shared;
    }

    /// Target and cache together, between steps: for measuring passes in sequences that are not the decoder's.
    pub fn target_and_cache(&mut self) -> (&mut T, &mut T::Cache) {
        (&mut self.target, &mut self.cache)
    }

    /// Makes every drafter drop what it learned from requests that are over, and forgets how long these were. Panics while
    /// there are others.
    pub fn unlearn(&mut self) {
        assert!(self.is_idle(), "drafters unlearn between requests");
        self.budget.lengths = AnswerLengths::default();
        self.seats.iter_mut().for_each(|seat| seat.drafter.unlearn());
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// The target, between steps.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.target
    }

    /// The cache.
    pub fn cache(&self) -> &T::Cache {
        &self.cache
    }

    /// The cache, between steps, for sequences that are not the decoder's.
    pub fn cache_mut(&mut self) -> &mut T::Cache {
        &mut self.cache
    }
}
