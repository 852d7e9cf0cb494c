//! What a caller asks for, why it can be refused, and how it ends.

use std::sync::Arc;

use crate::TokenId;
use crate::acceptors::AcceptorKind;
use crate::constraint::Constraint;
use crate::sampler::{SampleError, SamplerSettings, SettingsError};
use crate::target::TargetError;

/// One text to continue.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one token, fewer than the context holds.
    pub prompt: Vec<TokenId>,
    /// How tokens are drawn.
    pub sampler: SamplerSettings,
    /// Ends with [`FinishReason::Length`] after this many tokens; `None`: when the context is full.
    pub max_tokens: Option<usize>,
    /// End tokens are masked and stop strings ignored until this many tokens are there, unless a constraint allows nothing
    /// but an end token.
    pub min_tokens: usize,
    /// Tokens that end the text: the model's end-of-generation ids and the caller's own.
    pub end_tokens: Arc<[TokenId]>,
    /// End tokens do not end the text.
    pub ignore_eos: bool,
    /// Strings that end the text and are not part of it.
    pub stop: Vec<String>,
    /// What the text has to look like, in its initial state. The text ends with an end token where it is complete.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Log-probabilities of each token, and of this many of the likeliest beside it.
    pub logprobs: Option<usize>,
    /// How much to draft.
    pub draft: DraftPolicy,
    /// Names of the drafters to ask; empty: the decoder's own choice.
    pub drafters: Vec<String>,
    /// What drafters learn from this request, and its cached rows, serve requests of the same scope alone: speed must not
    /// tell one user what another's text was.
    pub scope: u64,
    /// Who decides which guesses are kept. All but the default make the text depend on the drafts, so with them drafters
    /// and width are named.
    pub acceptor: AcceptorKind,
    /// Start from cached rows of another request of this scope whose text begins alike, and leave rows for later ones. The
    /// text is the same either way.
    pub reuse: bool,
    /// Requests of a higher priority are let in, get prompt rows and keep their rows before others.
    pub priority: i32,
}

/// How many guesses a request runs per pass. The text is the same under all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftPolicy {
    /// None, and no drafter is asked.
    Off,
    /// As many as pay, by the cost table and the acceptance seen.
    Budget,
    /// Up to this many, the likeliest first, whatever they cost.
    Width(usize),
}

impl Request {
    /// A request with default settings and nothing that ends it but length and context.
    pub fn new(prompt: Vec<TokenId>) -> Self {
        Self {
            prompt,
            sampler: SamplerSettings::default(),
            max_tokens: None,
            min_tokens: 0,
            end_tokens: Arc::new([]),
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
        }
    }

    /// Checks everything that can be wrong before the first pass.
    pub fn validate(&self, vocab_size: usize, context_size: usize) -> Result<(), RequestError> {
        let unknown = |tokens: &[TokenId]| tokens.iter().copied().find(|&token| token as usize >= vocab_size);
        if self.prompt.is_empty() {
            return Err(RequestError::EmptyPrompt);
        }
        if self.prompt.len() >= context_size {
            return Err(RequestError::PromptTooLong { len: self.prompt.len(), limit: context_size });
        }
        if let Some(token) = unknown(&self.prompt) {
            return Err(RequestError::UnknownToken { token, vocab_size });
        }
        if let Some(token) = unknown(&self.end_tokens) {
            return Err(RequestError::UnknownToken { token, vocab_size });
        }
        if self.max_tokens == Some(0) {
            return Err(RequestError::NoTokens);
        }
        if self.max_tokens.is_some_and(|max| self.min_tokens > max) {
            let max = self.max_tokens.unwrap_or(0);
            return Err(RequestError::MinAboveMax { min: self.min_tokens, max });
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(RequestError::EmptyStop);
        }
        if self.constraint.is_some() && (self.ignore_eos || self.end_tokens.is_empty()) {
            return Err(RequestError::ConstraintWithoutEnd);
        }
        self.acceptor.validate().map_err(RequestError::Acceptor)?;
        let fixed = match self.draft {
            DraftPolicy::Off => true,
            DraftPolicy::Budget => false,
            DraftPolicy::Width(_) => !self.drafters.is_empty(),
        };
        if !self.acceptor.reproducible() && !fixed {
            return Err(RequestError::NotFixed { acceptor: self.acceptor.name() });
        }
        self.sampler.validate(vocab_size)?;
        Ok(())
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// Nothing to continue.
    #[error("the prompt is empty, and must have at least one token")]
    EmptyPrompt,
    /// No room for a single new token.
    #[error("the prompt has {len} tokens, and the context of {limit} must have room for at least one more")]
    PromptTooLong {
        /// Tokens in the prompt.
        len: usize,
        /// The context size.
        limit: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        token: TokenId,
        /// The vocabulary's size.
        vocab_size: usize,
    },
    /// No tokens asked for.
    #[error("max_tokens is 0, and must be at least 1")]
    NoTokens,
    /// More tokens needed than allowed.
    #[error("min_tokens is {min}, and must be at most max_tokens, which is {max}")]
    MinAboveMax {
        /// Least number.
        min: usize,
        /// Greatest number.
        max: usize,
    },
    /// A stop string that every text ends with.
    #[error("a stop string is empty, and must have at least one character")]
    EmptyStop,
    /// A drafter that the decoder does not have.
    #[error("there is no drafter {name:?} here; there are: {known}")]
    UnknownDrafter {
        /// The name asked for.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// A constraint, and no end tokens or `ignore_eos`.
    #[error("a text with a grammar ends where the grammar does, so it needs an end token that is not ignored")]
    ConstraintWithoutEnd,
    /// A parameter of the acceptor, in words.
    #[error("{0}")]
    Acceptor(String),
    /// An acceptor whose text depends on the drafts, and drafting that adapts to the clock.
    #[error(
        "the acceptor {acceptor} makes the text depend on the drafts, so it needs a drafter and a width that are named"
    )]
    NotFixed {
        /// The acceptor.
        acceptor: &'static str,
    },
    /// A sampler setting.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Why a request ended.
#[derive(Debug)]
pub enum FinishReason {
    /// An end token was drawn. It is among the tokens and not in the text.
    EndToken(TokenId),
    /// The stop string of this index. The text ends before it; the token that completed it is the last.
    StopString(usize),
    /// `max_tokens` was reached.
    Length,
    /// Prompt and output fill the context.
    ContextFull,
    /// The caller took it back.
    Cancelled,
    /// The model's row could not be drawn from.
    Sample(SampleError),
    /// The cache cannot hold the sequence even alone.
    Target(TargetError),
}
