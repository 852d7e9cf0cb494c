//! Scores the tokens of a prompt: the model writes it again, led by a constraint that leaves it no choice.
//!
//! A token's log-probability is the model's own, before any constraint, so it is what it would be in a prompt; and the
//! tokens, all forced, are drafted and checked many at a time.

use foretoken_decode::constraint::{Constraint, TokenMask};
use foretoken_decode::sampler::TokenLogprobs;
use foretoken_engine::{DraftPolicy, Outcome, Request, TokenId};

use crate::app::App;

/// Guesses a pass.
const WIDTH: usize = 32;

/// Allows one text, and then nothing.
#[derive(Clone, Debug)]
struct Only {
    tokens: Vec<TokenId>,
    taken: usize,
}

impl Constraint for Only {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<(), String> {
        if let Some(&next) = self.tokens.get(self.taken) {
            mask.allow(next);
        }
        Ok(())
    }

    fn allows(&mut self, token: TokenId) -> bool {
        self.tokens.get(self.taken) == Some(&token)
    }

    fn advance(&mut self, _token: TokenId) {
        self.taken += 1;
    }

    fn rollback(&mut self, n: usize) {
        self.taken -= n;
    }

    fn may_end(&mut self) -> bool {
        self.taken == self.tokens.len()
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        tokens.extend_from_slice(&self.tokens[self.taken.min(self.tokens.len())..]);
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// The request whose outcome has the log-probabilities of a prompt's tokens from the second on.
pub fn request(prompt: &[TokenId], n_top: usize, scope: u64, app: &App) -> Request {
    let (&first, rest) = prompt.split_first().expect("prompts are not empty");
    // Nothing but its length ends the text: not the model's own end tokens, which may stand in the midst of it.
    let mut absent = (0..).filter(|token| !rest.contains(token));
    let drafts = app.has_drafter("grammar");
    Request {
        ignore_eos: true,
        end_tokens: vec![absent.next().expect("there are more tokens than a prompt has")],
        // A prompt of one token has nothing to score; what the request writes then is not used.
        max_tokens: Some(rest.len().max(1)),
        constraint: (!rest.is_empty()).then(|| Box::new(Only { tokens: rest.to_vec(), taken: 0 }) as _),
        logprobs: Some(n_top),
        draft: if drafts { DraftPolicy::Width(WIDTH) } else { DraftPolicy::Off },
        drafters: if drafts { vec!["grammar".to_owned()] } else { Vec::new() },
        scope,
        reuse: false,
        seed: Some(0),
        ..Request::new(vec![first])
    }
}

/// The log-probabilities in an outcome of [`request`] for a prompt of `len` tokens, from its second token on.
pub fn scores(outcome: Outcome, len: usize) -> Vec<TokenLogprobs> {
    let mut scores = outcome.logprobs;
    scores.truncate(len - 1);
    scores
}
