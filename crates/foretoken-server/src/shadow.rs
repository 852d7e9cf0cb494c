//! Shadows: a share of the requests is run again without drafts, when there is nothing else to do. The text has to be the
//! same, and the times say what drafting was worth.

use std::collections::VecDeque;

use foretoken_engine::{DraftPolicy, Finish, Outcome, Request, TokenId};

/// Requests that wait for their shadow at most; more are let go.
const MAX_WAITING: usize = 16;

/// A request that is to be run again.
#[derive(Debug)]
pub struct Shadow {
    /// Without drafts, and without anybody's cached rows.
    pub request: Request,
    /// What was written with drafts.
    tokens: Vec<TokenId>,
    /// How long that took, when nobody else was there.
    seconds: Option<f64>,
}

/// What a shadow found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The texts are the same.
    pub same: bool,
    /// Seconds without drafts and with them, of requests that were alone.
    pub seconds: Option<(f64, f64)>,
}

/// Chooses requests, and keeps those that wait.
#[derive(Debug)]
pub struct Shadows {
    share: f64,
    /// Grows by the share with each request; one is chosen whenever it reaches 1.
    credit: f64,
    waiting: VecDeque<Shadow>,
}

impl Shadows {
    /// Of the requests with drafts, `share` are run again: 0 to 1.
    pub fn new(share: f64) -> Self {
        Self { share, credit: 0.0, waiting: VecDeque::new() }
    }

    /// The request without drafts, if it is one of those that are run again.
    pub fn choose(&mut self, request: &Request) -> Option<Request> {
        if request.draft == DraftPolicy::Off || !request.acceptor.reproducible() {
            return None;
        }
        self.credit += self.share;
        if self.credit < 1.0 {
            return None;
        }
        self.credit -= 1.0;
        let plain =
            Request { draft: DraftPolicy::Off, drafters: Vec::new(), reuse: false, deadline: None, ..request.clone() };
        Some(plain)
    }

    /// Takes in a chosen request that has ended. `alone`: no other was under way meanwhile.
    pub fn ended(&mut self, request: Request, outcome: &Outcome, alone: bool) {
        let complete = match outcome.finish_reason {
            Finish::EndToken | Finish::StopString | Finish::Length | Finish::ContextFull => true,
            Finish::Cancelled | Finish::Deadline | Finish::Failed => false,
        };
        if complete && self.waiting.len() < MAX_WAITING {
            // The seed may have been drawn.
            let request = Request { seed: Some(outcome.seed), ..request };
            let seconds = alone.then_some(outcome.decode_seconds);
            self.waiting.push_back(Shadow { request, tokens: outcome.token_ids.clone(), seconds });
        }
    }

    /// The next to run again.
    pub fn next(&mut self) -> Option<Shadow> {
        self.waiting.pop_front()
    }

    /// Takes back one that was given up: it is the next.
    pub fn again(&mut self, shadow: Shadow) {
        self.waiting.push_front(shadow);
    }

    /// Whether any waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Shadow {
    /// Compares with what was written without drafts; nothing when that was given up.
    pub fn compare(&self, outcome: &Outcome) -> Option<Finding> {
        let given_up = matches!(outcome.finish_reason, Finish::Cancelled);
        let same = outcome.token_ids == self.tokens;
        let seconds = self.seconds.map(|drafted| (outcome.decode_seconds, drafted));
        (!given_up).then_some(Finding { same, seconds })
    }
}
