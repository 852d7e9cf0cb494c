//! The text before a row, as the penalties see it: counts that grow and shrink along a walk of the tree.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::SamplerSettings;
use crate::TokenId;

/// How often a token is in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    anywhere: u32,
    in_output: u32,
}

/// Prompt and output up to the row being drawn. `push` and `pop` are exact inverses and cost O(1).
#[derive(Clone, Debug)]
pub struct History {
    tokens: Vec<TokenId>,
    prompt_len: usize,
    window: usize,
    counts: HashMap<TokenId, Count, BuildHasherDefault<TokenHasher>>,
    counting: bool,
}

impl History {
    pub(super) fn new(settings: &SamplerSettings, prompt: &[TokenId]) -> Self {
        let mut history = Self {
            tokens: Vec::with_capacity(prompt.len() + 64),
            prompt_len: prompt.len(),
            window: settings.penalty_window.unwrap_or(usize::MAX),
            counts: HashMap::default(),
            counting: settings.penalises(),
        };
        prompt.iter().for_each(|&token| history.push(token));
        history
    }

    /// Number of tokens, which is the absolute position of the next.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens after the prompt; `None` before its end.
    pub(super) fn output(&self) -> Option<&[TokenId]> {
        self.tokens.get(self.prompt_len..)
    }

    /// Appends a token.
    pub fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        if self.counting {
            self.enter(self.tokens.len() - 1);
            if let Some(oldest) = self.tokens.len().checked_sub(self.window).and_then(|n| n.checked_sub(1)) {
                self.leave(oldest);
            }
        }
    }

    /// Takes the last token back.
    pub fn pop(&mut self) {
        if self.counting {
            if let Some(oldest) = self.tokens.len().checked_sub(self.window).and_then(|n| n.checked_sub(1)) {
                self.enter(oldest);
            }
            self.leave(self.tokens.len() - 1);
        }
        self.tokens.pop();
    }

    fn enter(&mut self, position: usize) {
        let count = self.counts.entry(self.tokens[position]).or_default();
        count.anywhere += 1;
        count.in_output += u32::from(position >= self.prompt_len);
    }

    fn leave(&mut self, position: usize) {
        let token = self.tokens[position];
        let count = self.counts.get_mut(&token).expect("a token in the window is counted");
        count.anywhere -= 1;
        count.in_output -= u32::from(position >= self.prompt_len);
        if count.anywhere == 0 {
            self.counts.remove(&token);
        }
    }

    /// Applies the penalties to a row `[vocab_size]`; touches only tokens in the window.
    pub(super) fn penalise(&self, settings: &SamplerSettings, row: &mut [f32]) {
        for (&token, count) in &self.counts {
            let logit = &mut row[token as usize];
            *logit = count.penalised(settings, *logit);
        }
    }

    /// The logit of one token after the penalties.
    pub(super) fn penalised(&self, settings: &SamplerSettings, token: TokenId, logit: f32) -> f32 {
        self.counts.get(&token).map_or(logit, |count| count.penalised(settings, logit))
    }
}

impl Count {
    fn penalised(self, settings: &SamplerSettings, logit: f32) -> f32 {
        let repetition = settings.repetition_penalty;
        let repeated = if logit > 0.0 { logit / repetition } else { logit * repetition };
        if self.in_output == 0 {
            return repeated;
        }
        repeated - (settings.presence_penalty + settings.frequency_penalty * self.in_output as f32)
    }
}

/// Token ids need no protection from crafted collisions: one multiplication spreads them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn penalised(history: &History, settings: &SamplerSettings) -> Vec<f32> {
        let mut row = vec![1.0, -1.0, 2.0, 0.5, 3.0];
        history.penalise(settings, &mut row);
        row
    }

    #[test]
    fn penalties_follow_their_formulas() {
        let settings = SamplerSettings {
            repetition_penalty: 2.0,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            ..SamplerSettings::default()
        };
        let mut history = History::new(&settings, &[0, 1]);
        assert_eq!(penalised(&history, &settings), [0.5, -2.0, 2.0, 0.5, 3.0]);
        history.push(1);
        history.push(4);
        history.push(4);
        assert_eq!(penalised(&history, &settings), [0.5, -2.75, 2.0, 0.5, 1.5 - 0.25 - 1.0]);
    }

    #[test]
    fn a_window_forgets_and_pop_undoes_push() {
        for window in [None, Some(0), Some(1), Some(2), Some(3), Some(50)] {
            let settings = SamplerSettings {
                repetition_penalty: 1.5,
                frequency_penalty: 0.25,
                penalty_window: window,
                ..SamplerSettings::default()
            };
            let text = [0, 1, 2, 1, 4, 4, 4, 0, 3, 1];
            let mut grown = History::new(&settings, &text[..2]);
            for len in 2..text.len() {
                let rebuilt = {
                    // Only the window's tokens matter: a history that never saw the others is the same.
                    let start = len.saturating_sub(window.unwrap_or(len));
                    let mut history = History::new(&SamplerSettings { penalty_window: None, ..settings.clone() }, &[]);
                    history.prompt_len = 2usize.saturating_sub(start);
                    text[start..len].iter().for_each(|&t| history.push(t));
                    history
                };
                assert_eq!(penalised(&grown, &settings), penalised(&rebuilt, &settings), "{window:?} {len}");
                let before = grown.counts.clone();
                text[..5].iter().for_each(|&t| grown.push(t));
                (0..5).for_each(|_| grown.pop());
                assert_eq!(grown.counts, before, "{window:?} {len}");
                grown.push(text[len]);
            }
        }
    }
}
