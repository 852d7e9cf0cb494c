//! Many requests over one target: what each has written so far, when, and what it leaves behind.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foretoken_decode::acceptors::AcceptorKind;
use foretoken_decode::budget::{CostModel, CostTable, SharedAcceptance};
use foretoken_decode::target::{Cache, SequenceId, Target, TargetError};
use foretoken_decode::{self as decode, Clock, Decoder, Detokenize, FinishReason, RequestError, RequestId, TokenId};

use crate::error::EngineError;
use crate::prefix::{Kept, Prefixes};
use crate::request::{Event, Finish, Outcome, Request};
use crate::seed;

/// Time since it was made. No other part of the engine, and none of the crates below it, reads a clock.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(Instant);

impl WallClock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for WallClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Runs requests and keeps their books. Requests are taken in as the cache has room and sent back when it has none (the
/// decoder does both); cached rows that no request uses are given up first.
pub struct Scheduler<T: Target, D> {
    decoder: Decoder<T, D, WallClock>,
    clock: WallClock,
    end_tokens: Arc<[TokenId]>,
    prefixes: Arc<Mutex<Prefixes>>,
    active: HashMap<RequestId, Active>,
}

/// Sequences that stay cached at most; a full cache gives them up earlier.
const MAX_KEPT: usize = 64;

/// A request under way.
struct Active {
    prompt: Vec<TokenId>,
    tokens: Vec<TokenId>,
    text: String,
    logprobs: Vec<decode::sampler::TokenLogprobs>,
    stop: Vec<String>,
    acceptor: AcceptorKind,
    seed: u64,
    submitted: Duration,
    /// When the first tokens came, and how many these were.
    first: Option<(Duration, usize)>,
}

impl<T: Target, D: Detokenize> Scheduler<T, D>
where
    T::Cache: 'static,
{
    /// A scheduler over a decoder made with the same clock. `end_tokens` end every text unless a request ignores them.
    pub fn new(decoder: Decoder<T, D, WallClock>, clock: WallClock, end_tokens: Arc<[TokenId]>) -> Self {
        let prefixes = Arc::new(Mutex::new(Prefixes::default()));
        let kept = prefixes.clone();
        let give_up = move |cache: &mut T::Cache, _pages: usize| {
            let kept = lock(&kept).give_up();
            kept.map(|kept| cache.close(kept.sequence)).is_some()
        };
        let decoder = decoder.with_reclaim(Box::new(give_up));
        Self { decoder, clock, end_tokens, prefixes, active: HashMap::new() }
    }

    /// Takes a request in. It runs from the next step on, or when those before it have made room.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, RequestError> {
        let seed = request.seed.unwrap_or_else(seed::draw);
        let (prompt, stop, reuse) = (request.prompt.clone(), request.stop.clone(), request.reuse);
        let acceptor = request.acceptor;
        let mut wanted = request.for_decoder(&self.end_tokens, seed);
        // A request that is refused shall not use up a cached sequence.
        wanted.validate(self.target().vocab_size(), self.target().context_size())?;
        if reuse {
            wanted.cached = self.take_cached(&prompt);
        }
        let id = self.decoder.admit(wanted)?;
        let active = Active {
            prompt,
            tokens: Vec::new(),
            text: String::new(),
            logprobs: Vec::new(),
            stop,
            acceptor,
            seed,
            submitted: self.clock.now(),
            first: None,
        };
        self.active.insert(id, active);
        Ok(id)
    }

    /// Takes a request back; false when it is not (or no longer) there. Its outcome comes with the next step.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.decoder.cancel(id)
    }

    /// One pass over every request that fits, and what it brought; false when there is nothing to do.
    pub fn step(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<bool, TargetError> {
        let Self { decoder, clock, active, prefixes, .. } = self;
        let mut outgrown = Vec::new();
        let more = decoder.step(&mut |event| {
            let request = event.request;
            let state = active.get_mut(&request).expect("every request of the decoder is here");
            state.advance(&event, clock);
            sink(Event::Progress {
                request,
                tokens: event.tokens,
                accepted: event.tokens.len().saturating_sub(1),
                sources: event.sources,
                text: event.text,
                logprobs: event.logprobs,
                why: event.why,
            });
            if let Some(reason) = event.finish {
                let state = active.remove(&request).expect("it was there a moment ago");
                if let Some(sequence) = event.kept {
                    outgrown.extend(keep(&mut lock(prefixes), state.cached_tokens(sequence, event.cached)));
                }
                let outcome = Box::new(state.outcome(&event, reason, clock.now()));
                sink(Event::Finished { request, outcome });
            }
        })?;
        outgrown.into_iter().for_each(|kept| decoder.cache_mut().close(kept.sequence));
        Ok(more)
    }

    /// Runs a request to its end. `on_event` sees every event (of other requests too, when there are some) and may take
    /// the request back.
    pub fn run(
        &mut self,
        request: Request,
        mut on_event: impl FnMut(&Event<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome, EngineError> {
        let id = self.submit(request)?;
        let mut outcome = None;
        while outcome.is_none() {
            let mut flow = ControlFlow::Continue(());
            let more = self.step(&mut |event| {
                if flow.is_continue() {
                    flow = on_event(&event);
                }
                match event {
                    Event::Finished { request, outcome: finished } if request == id => outcome = Some(*finished),
                    _ => {}
                }
            })?;
            if flow.is_break() {
                self.cancel(id);
            }
            assert!(more || outcome.is_some(), "a request ends with an outcome");
        }
        Ok(outcome.expect("the loop ends with one"))
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.decoder.is_idle()
    }

    /// What passes cost, as far as is known.
    pub fn cost_table(&self) -> &CostTable {
        self.decoder.budget().cost.table()
    }

    /// Names of the drafters, by their place in the decoder's list.
    pub fn drafters(&self) -> Vec<&'static str> {
        self.decoder.drafter_stats().map(|stats| stats.name).collect()
    }

    /// The target.
    pub fn target(&self) -> &T {
        self.decoder.target()
    }

    /// The cache.
    pub fn cache(&self) -> &T::Cache {
        self.decoder.cache()
    }

    /// Gives up every cached sequence that no request uses.
    pub fn forget_cached(&mut self) {
        while let Some(kept) = { lock(&self.prefixes).give_up() } {
            self.decoder.cache_mut().close(kept.sequence);
        }
    }

    /// Bytes of memory that each drafter holds, by name.
    pub fn drafter_bytes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.decoder.drafter_bytes()
    }

    /// What passes and drafting cost, as known now.
    pub fn costs(&self) -> CostTable {
        self.decoder.costs()
    }

    /// What is known about passes, and how it is learned.
    pub fn cost_model(&self) -> &CostModel {
        &self.decoder.budget().cost
    }

    /// How often guesses come true, over all texts so far.
    pub fn acceptance(&self) -> &SharedAcceptance {
        &self.decoder.budget().shared
    }

    /// Begins anew with this belief about costs and acceptance. Panics while there are requests.
    pub fn believe(&mut self, cost: CostModel, acceptance: SharedAcceptance) {
        self.decoder.believe(cost, acceptance);
    }

    /// Target and cache, between steps: for measuring passes in sequences of one's own.
    pub fn target_and_cache(&mut self) -> (&mut T, &mut T::Cache) {
        self.decoder.target_and_cache()
    }

    /// Makes the drafters drop what they learned from requests that are over: for measuring. Panics while there are others.
    pub fn unlearn(&mut self) {
        self.decoder.unlearn();
    }

    fn take_cached(&mut self, prompt: &[TokenId]) -> Option<SequenceId> {
        let (kept, shared) = lock(&self.prefixes).take(prompt)?;
        self.decoder.cache_mut().truncate(kept.sequence, shared);
        Some(kept.sequence)
    }
}

/// Keeps a sequence; returns one that has to go for it.
fn keep(prefixes: &mut Prefixes, kept: Kept) -> Option<Kept> {
    prefixes.keep(kept);
    if prefixes.len() > MAX_KEPT { prefixes.give_up() } else { None }
}

/// A panic elsewhere leaves the list as good as it was.
fn lock(prefixes: &Mutex<Prefixes>) -> MutexGuard<'_, Prefixes> {
    prefixes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Active {
    fn advance(&mut self, event: &decode::Event<'_>, clock: &WallClock) {
        self.tokens.extend(event.tokens);
        self.text.push_str(event.text);
        self.logprobs.extend_from_slice(event.logprobs);
        if self.first.is_none() && !event.tokens.is_empty() {
            self.first = Some((clock.now(), event.tokens.len()));
        }
    }

    /// The tokens whose rows `sequence` holds.
    fn cached_tokens(&self, sequence: SequenceId, len: usize) -> Kept {
        let tokens = self.prompt.iter().chain(&self.tokens).copied().take(len).collect();
        Kept { sequence, tokens }
    }

    fn outcome(self, event: &decode::Event<'_>, reason: &FinishReason, now: Duration) -> Outcome {
        let stats = event.stats;
        let (first, first_tokens) = self.first.unwrap_or((now, 0));
        let decode_seconds = (now - first).as_secs_f64();
        let later_tokens = self.tokens.len() - first_tokens;
        let tokens_per_second = if later_tokens > 0 { later_tokens as f64 / decode_seconds } else { 0.0 };
        let error = match reason {
            FinishReason::Sample(error) => Some(error.to_string()),
            FinishReason::Target(error) => Some(error.to_string()),
            _ => None,
        };
        Outcome {
            stop_string: match reason {
                FinishReason::StopString(index) => self.stop.get(*index).cloned(),
                _ => None,
            },
            finish_reason: Finish::of(reason),
            error,
            text: self.text,
            token_ids: self.tokens,
            logprobs: self.logprobs,
            prompt_tokens: stats.prompt_tokens,
            cached_tokens: stats.cached_tokens,
            passes: stats.passes,
            prompt_passes: stats.prompt_passes,
            drafted: stats.drafted,
            accepted: stats.accepted,
            acceptance_length: stats.acceptance_length(),
            acceptance_by_depth: stats.acceptance_by_depth(),
            prompt_seconds: (first - self.submitted).as_secs_f64(),
            decode_seconds,
            tokens_per_second,
            seed: self.seed,
            acceptor: self.acceptor,
            reproducible: self.acceptor.reproducible(),
            target_perplexity: stats.change.map(|change| change.perplexity()),
            agreement: stats.change.map(|change| change.agreement()),
        }
    }
}
