//! The output of one request: where it ends, and the text that may be shown.

use std::sync::Arc;

use crate::TokenId;
use crate::acceptors::Verdict;
use crate::request::{FinishReason, Request};
use crate::stop::StopMatcher;
use crate::tree::TokenTree;

/// Turns tokens into the bytes of their text.
pub trait Detokenize {
    /// Appends the bytes of `token`. A character may be split over tokens; a token without text adds nothing.
    fn append(&self, token: TokenId, text: &mut Vec<u8>);
}

/// Without text: no stop string is ever found.
impl Detokenize for () {
    fn append(&self, _token: TokenId, _text: &mut Vec<u8>) {}
}

/// The end conditions of a request and the text not yet delivered.
#[derive(Debug)]
pub(crate) struct Generation {
    end_tokens: Arc<[TokenId]>,
    matcher: StopMatcher,
    n_tokens: usize,
    min_tokens: usize,
    max_tokens: usize,
    /// Tokens that fit after the prompt.
    room: usize,
    /// Bytes not yet delivered: the beginning of a character or perhaps of a stop string.
    pending: Vec<u8>,
    /// Text to deliver now.
    pub text: String,
}

impl Generation {
    pub fn new(request: &Request, context_size: usize) -> Self {
        Self {
            end_tokens: if request.ignore_eos { Arc::new([]) } else { request.end_tokens.clone() },
            matcher: StopMatcher::new(&request.stop),
            n_tokens: 0,
            min_tokens: request.min_tokens,
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            room: context_size - request.prompt.len(),
            pending: Vec::new(),
            text: String::new(),
        }
    }

    /// Tokens written.
    pub fn written(&self) -> usize {
        self.n_tokens
    }

    /// Tokens that may still come.
    pub fn left(&self) -> usize {
        self.max_tokens.min(self.room) - self.n_tokens
    }

    /// Whether drawing `token` would end the text.
    pub fn ends(&self, token: TokenId) -> bool {
        self.end_tokens.contains(&token)
    }

    /// Takes a verdict's tokens and cuts it where the text ends: an end token, a stop string, length, context, in this
    /// order where several fall on one token. Leaves in `text` what may be shown.
    pub fn trim(
        &mut self,
        verdict: &mut Verdict,
        tree: &TokenTree,
        detokenize: &impl Detokenize,
    ) -> Option<FinishReason> {
        self.text.clear();
        let mut finish = None;
        for index in 0..verdict.tokens.len() {
            finish = self.take(verdict.tokens[index], detokenize);
            if finish.is_some() {
                verdict.truncate(tree, index + 1);
                break;
            }
        }
        let finish = finish.or_else(|| verdict.error.take().map(FinishReason::Sample));
        let shown = self.pending.len() - if finish.is_none() { self.matcher.held() } else { 0 };
        self.deliver(shown, finish.is_some());
        finish
    }

    /// Delivers what was held back, for a request that ends without a verdict.
    pub fn flush(&mut self) {
        self.text.clear();
        self.deliver(self.pending.len(), true);
    }

    fn take(&mut self, token: TokenId, detokenize: &impl Detokenize) -> Option<FinishReason> {
        self.n_tokens += 1;
        if self.ends(token) {
            return Some(FinishReason::EndToken(token));
        }
        let start = self.pending.len();
        detokenize.append(token, &mut self.pending);
        for end in start..self.pending.len() {
            if let Some((index, len)) = self.matcher.push(self.pending[end])
                && self.n_tokens >= self.min_tokens
            {
                // What was delivered cannot reach into the match: its beginning was held back.
                self.pending.truncate(end + 1 - len);
                return Some(FinishReason::StopString(index));
            }
        }
        match () {
            () if self.n_tokens == self.max_tokens => Some(FinishReason::Length),
            () if self.n_tokens == self.room => Some(FinishReason::ContextFull),
            () => None,
        }
    }

    /// Moves whole characters of the first `n` pending bytes to `text`, bytes that are none as U+FFFD. `last`: the
    /// beginning of a character that can no longer be completed is none.
    fn deliver(&mut self, n: usize, last: bool) {
        let mut done = 0;
        while done < n {
            match std::str::from_utf8(&self.pending[done..n]) {
                Ok(text) => {
                    self.text.push_str(text);
                    done = n;
                }
                Err(error) => {
                    let (valid, rest) = self.pending[done..n].split_at(error.valid_up_to());
                    self.text.push_str(std::str::from_utf8(valid).expect("checked just now"));
                    done += valid.len();
                    match error.error_len() {
                        None if !last => break,
                        bad => done += bad.unwrap_or(rest.len()),
                    }
                    self.text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
        self.pending.drain(..done);
    }
}
