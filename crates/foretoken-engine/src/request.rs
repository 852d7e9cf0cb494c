//! What goes in and what comes out: requests, events, outcomes.

use std::sync::Arc;
use std::time::Duration;

use foretoken_decode::acceptors::AcceptorKind;
use foretoken_decode::constraint::Constraint;
use foretoken_decode::sampler::{SamplerSettings, TokenLogprobs};
use foretoken_decode::tree::Source;
use foretoken_decode::{DraftPolicy, FinishReason, RequestError, RequestId, TokenId};
use serde::Serialize;

/// One text to continue.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one token, fewer than the context holds.
    pub prompt: Vec<TokenId>,
    /// How tokens are drawn. Its seed is not used: see the next field.
    pub sampler: SamplerSettings,
    /// Seed of the noise; drawn anew for every request that brings none, and reported in the outcome.
    pub seed: Option<u64>,
    /// Most tokens to write; `None` writes until the text ends or the context is full.
    pub max_tokens: Option<usize>,
    /// The text does not end before this many tokens.
    pub min_tokens: usize,
    /// Tokens that end the text, besides the model's own.
    pub end_tokens: Vec<TokenId>,
    /// Go on after the model's own end tokens.
    pub ignore_eos: bool,
    /// Strings that end the text and are not part of it.
    pub stop: Vec<String>,
    /// What the text has to look like: such as a schema or grammar.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Log-probabilities of each token, and of this many of the likeliest beside it.
    pub logprobs: Option<usize>,
    /// How much to draft. The text is the same under all policies.
    pub draft: DraftPolicy,
    /// Names of the drafters to ask; empty: those of `auto`.
    pub drafters: Vec<String>,
    /// What drafters learn from this request, and its cached rows, serve requests of the same scope alone.
    pub scope: u64,
    /// Who decides which guesses are kept. Under all but the default the text depends on the drafts.
    pub acceptor: AcceptorKind,
    /// Start from cached rows of another request of this scope where the prompt begins like it, and leave rows for later
    /// ones. The text is the same either way.
    pub reuse: bool,
    /// Requests of a higher priority go first when there is not room for all.
    pub priority: i32,
    /// Time from submission after which the request ends with what it has.
    pub deadline: Option<Duration>,
}

impl Request {
    /// A request with default settings and nothing that ends it but the model, length and context.
    pub fn new(prompt: Vec<TokenId>) -> Self {
        Self {
            prompt,
            sampler: SamplerSettings::default(),
            seed: None,
            max_tokens: None,
            min_tokens: 0,
            end_tokens: Vec::new(),
            ignore_eos: false,
            stop: Vec::new(),
            constraint: None,
            logprobs: None,
            draft: DraftPolicy::Budget,
            drafters: Vec::new(),
            scope: 0,
            acceptor: AcceptorKind::Coupled,
            reuse: false,
            priority: 0,
            deadline: None,
        }
    }

    /// Checks everything that can be wrong with a request, before a model is loaded for it.
    pub fn validate(&self, vocab_size: usize, context_size: usize) -> Result<(), RequestError> {
        // Which tokens end a text is the model's business; that some do is not checked here.
        self.clone().for_decoder(&[0].into(), 0).validate(vocab_size, context_size)
    }

    /// What the decoder is asked for. `end_tokens` are the model's own.
    pub(crate) fn for_decoder(self, end_tokens: &Arc<[TokenId]>, seed: u64) -> foretoken_decode::Request {
        let (end_tokens, ignore_eos) = match (self.end_tokens.is_empty(), self.ignore_eos) {
            (true, ignore_eos) => (end_tokens.clone(), ignore_eos),
            (false, true) => (self.end_tokens.into(), false),
            (false, false) => (end_tokens.iter().copied().chain(self.end_tokens).collect(), false),
        };
        foretoken_decode::Request {
            prompt: self.prompt,
            sampler: SamplerSettings { seed, ..self.sampler },
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens,
            end_tokens,
            ignore_eos,
            stop: self.stop,
            constraint: self.constraint,
            logprobs: self.logprobs,
            draft: self.draft,
            drafters: self.drafters,
            scope: self.scope,
            acceptor: self.acceptor,
            reuse: self.reuse,
            priority: self.priority,
        }
    }
}

/// What happened to a request in one step.
#[derive(Debug)]
pub enum Event<'a> {
    /// A pass was run for it.
    Progress {
        /// Whose.
        request: RequestId,
        /// New tokens: none while the prompt is run.
        tokens: &'a [TokenId],
        /// How many of these were guesses that came true; they are the first ones.
        accepted: usize,
        /// Who guessed each token: its place in [`crate::Engine::drafters`] from 1, and 0 for none of them.
        sources: &'a [Source],
        /// New text: whole characters, and nothing that may turn out to be part of a stop string.
        text: &'a str,
        /// One per token when asked for.
        logprobs: &'a [TokenLogprobs],
        /// Why the guesses of this pass were chosen, when the choice is another kind than the pass before.
        why: Option<&'a str>,
    },
    /// It is over.
    Finished {
        /// Whose.
        request: RequestId,
        /// All about it.
        outcome: Box<Outcome>,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its text. The end token is among the tokens and not in the text.
    EndToken,
    /// A stop string came.
    StopString,
    /// There are as many tokens as were asked for.
    Length,
    /// Prompt and text fill the context.
    ContextFull,
    /// The caller took the request back.
    Cancelled,
    /// Its time was over.
    Deadline,
    /// Something went wrong: see [`Outcome::error`].
    Failed,
}

/// A finished request. The counts obey `token_ids.len() == passes + accepted`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The text, without stop strings and control tokens.
    pub text: String,
    /// Its tokens, the end token included.
    pub token_ids: Vec<TokenId>,
    /// One per token when asked for.
    #[serde(skip)]
    pub logprobs: Vec<TokenLogprobs>,
    /// Why it ended.
    pub finish_reason: Finish,
    /// The stop string that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_string: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many were cached already.
    pub cached_tokens: usize,
    /// Passes that drew tokens.
    pub passes: usize,
    /// Passes over a part of the prompt that drew none.
    pub prompt_passes: usize,
    /// Times its cached rows were given up for others, to be computed again.
    pub preempted: usize,
    /// Guesses run.
    pub drafted: usize,
    /// Guesses that became tokens.
    pub accepted: usize,
    /// Tokens per pass.
    pub acceptance_length: f64,
    /// Of the passes that ran a guess 1, 2, ... tokens ahead, the share that accepted it.
    pub acceptance_by_depth: Vec<f64>,
    /// Seconds from submission to the first pass.
    pub queue_seconds: f64,
    /// Seconds from submission to the first tokens.
    pub prompt_seconds: f64,
    /// Seconds from the first tokens to the end.
    pub decode_seconds: f64,
    /// Tokens after the first pass, per second of `decode_seconds`; 0 when there are none.
    pub tokens_per_second: f64,
    /// The seed, given or drawn.
    pub seed: u64,
    /// The acceptor, with its parameters.
    pub acceptor: AcceptorKind,
    /// Whether the text depends on nothing but model, prompt, settings and seed.
    pub reproducible: bool,
    /// Perplexity of the text under the target, when the acceptor changes the distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_perplexity: Option<f64>,
    /// Share of the tokens that the coupled acceptor would have taken after the same text, when the acceptor changes the
    /// distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
}

impl Outcome {
    /// Whether the caller took the request back.
    pub fn was_cancelled(&self) -> bool {
        self.finish_reason == Finish::Cancelled
    }
}

impl Finish {
    pub(crate) fn of(reason: &FinishReason) -> Self {
        match reason {
            FinishReason::EndToken(_) => Self::EndToken,
            FinishReason::StopString(_) => Self::StopString,
            FinishReason::Length => Self::Length,
            FinishReason::ContextFull => Self::ContextFull,
            FinishReason::Cancelled => Self::Cancelled,
            FinishReason::Sample(_) | FinishReason::Target(_) => Self::Failed,
        }
    }
}
