//! Many requests over one target: what each has written so far, when, and what it leaves behind.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretoken_decode::acceptors::AcceptorKind;
use foretoken_decode::budget::{CostModel, CostTable, SharedAcceptance};
use foretoken_decode::target::{Target, TargetError};
use foretoken_decode::{
    self as decode, Clock, Decoder, Detokenize, DrafterStats, FinishReason, Load, RequestError, RequestId, TokenId,
};

use crate::error::EngineError;
use crate::request::{Event, Finish, Outcome, Request};
use crate::seed;
use crate::trouble::Told;

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

/// Runs requests and keeps their books. The decoder lets requests in as the cache has room and sends them back when it has
/// none; here they get their seeds, times and outcomes.
pub struct Scheduler<T: Target, D> {
    decoder: Decoder<T, D, WallClock>,
    clock: WallClock,
    end_tokens: Arc<[TokenId]>,
    active: HashMap<RequestId, Active>,
    told: Told,
}

/// A request under way.
struct Active {
    tokens: Vec<TokenId>,
    text: String,
    logprobs: Vec<decode::sampler::TokenLogprobs>,
    stop: Vec<String>,
    acceptor: AcceptorKind,
    seed: u64,
    submitted: Duration,
    deadline: Option<Duration>,
    /// When its first pass began.
    begun: Option<Duration>,
    /// When the first tokens came, and how many these were.
    first: Option<(Duration, usize)>,
}

impl<T: Target, D: Detokenize> Scheduler<T, D> {
    /// A scheduler over a decoder made with the same clock. `end_tokens` end every text unless a request ignores them.
    pub fn new(decoder: Decoder<T, D, WallClock>, clock: WallClock, end_tokens: Arc<[TokenId]>) -> Self {
        Self { decoder, clock, end_tokens, active: HashMap::new(), told: Told::default() }
    }

    /// Takes a request in. It runs from the next step on, or when those before it have made room.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, RequestError> {
        let seed = request.seed.unwrap_or_else(seed::draw);
        let (stop, acceptor, deadline) = (request.stop.clone(), request.acceptor, request.deadline);
        let id = self.decoder.admit(request.for_decoder(&self.end_tokens, seed))?;
        let submitted = self.clock.now();
        let active = Active {
            tokens: Vec::new(),
            text: String::new(),
            logprobs: Vec::new(),
            stop,
            acceptor,
            seed,
            submitted,
            deadline: deadline.map(|deadline| submitted + deadline),
            begun: None,
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
        let Self { decoder, clock, active, told, .. } = self;
        let begun = clock.now();
        for (&id, _) in active.iter().filter(|(_, state)| state.is_late(begun)) {
            decoder.cancel(id);
        }
        let more = decoder.step(&mut |event| {
            let request = event.request;
            let state = active.get_mut(&request).expect("every request of the decoder is here");
            state.advance(&event, begun, clock);
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
                let outcome = Box::new(state.outcome(&event, reason, begun, clock.now()));
                sink(Event::Finished { request, outcome });
            }
        })?;
        told.warn(decoder.drafter_stats());
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

    /// What came of each drafter, in the order of their sources.
    pub fn drafter_stats(&self) -> impl Iterator<Item = &DrafterStats> {
        self.decoder.drafter_stats()
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

    /// Gives up every cached row that no request uses.
    pub fn forget_cached(&mut self) {
        self.decoder.forget_kept();
    }

    /// How much there is to do, and how much room.
    pub fn load(&self) -> Load {
        self.decoder.load()
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
}

impl Active {
    fn is_late(&self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Takes in what a pass that began at `begun` brought.
    fn advance(&mut self, event: &decode::Event<'_>, begun: Duration, clock: &WallClock) {
        self.begun.get_or_insert(begun);
        self.tokens.extend(event.tokens);
        self.text.push_str(event.text);
        self.logprobs.extend_from_slice(event.logprobs);
        if self.first.is_none() && !event.tokens.is_empty() {
            self.first = Some((clock.now(), event.tokens.len()));
        }
    }

    fn outcome(self, event: &decode::Event<'_>, reason: &FinishReason, begun: Duration, now: Duration) -> Outcome {
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
            finish_reason: match reason {
                FinishReason::Cancelled if self.is_late(begun) => Finish::Deadline,
                reason => Finish::of(reason),
            },
            error,
            text: self.text,
            token_ids: self.tokens,
            logprobs: self.logprobs,
            prompt_tokens: stats.prompt_tokens,
            cached_tokens: stats.cached_tokens,
            passes: stats.passes,
            prompt_passes: stats.prompt_passes,
            preempted: stats.preempted,
            drafted: stats.drafted,
            accepted: stats.accepted,
            acceptance_length: stats.acceptance_length(),
            acceptance_by_depth: stats.acceptance_by_depth(),
            queue_seconds: (self.begun.unwrap_or(now) - self.submitted).as_secs_f64(),
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
