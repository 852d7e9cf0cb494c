//! A set of tokens, as bits.

use crate::TokenId;

/// One bit for each token of a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
    vocab_size: usize,
}

impl TokenMask {
    /// No tokens of a vocabulary.
    pub fn none(vocab_size: usize) -> Self {
        Self { words: vec![0; vocab_size.div_ceil(32)], vocab_size }
    }

    /// Takes all tokens out.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Puts a token in. Ids outside the vocabulary are passed over.
    pub fn allow(&mut self, token: TokenId) {
        if (token as usize) < self.vocab_size {
            self.words[token as usize / 32] |= 1 << (token % 32);
        }
    }

    /// Takes a token out.
    pub fn forbid(&mut self, token: TokenId) {
        if (token as usize) < self.vocab_size {
            self.words[token as usize / 32] &= !(1 << (token % 32));
        }
    }

    /// Puts in the tokens whose bits are set in `words`, 32 tokens each from token 0 on; those outside the vocabulary are
    /// passed over.
    pub fn allow_words(&mut self, words: &[u32]) {
        self.words.iter_mut().zip(words).for_each(|(word, more)| *word |= more);
        if let Some(last) = self.words.last_mut()
            && !self.vocab_size.is_multiple_of(32)
        {
            *last &= (1 << (self.vocab_size % 32)) - 1;
        }
    }

    /// Whether a token is in.
    pub fn allows(&self, token: TokenId) -> bool {
        (token as usize) < self.vocab_size && self.words[token as usize / 32] >> (token % 32) & 1 == 1
    }

    /// How many tokens are in.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no token is in.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Sets the logits `[vocab_size]` of all other tokens to minus infinity.
    pub fn apply(&self, logits: &mut [f32]) {
        assert_eq!(logits.len(), self.vocab_size, "a mask is made for one vocabulary");
        for (word, logits) in self.words.iter().zip(logits.chunks_mut(32)) {
            match *word {
                0 => logits.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                word => {
                    for (bit, logit) in logits.iter_mut().enumerate() {
                        *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_tokens() {
        for vocab_size in [1, 31, 32, 33, 70] {
            let mut mask = TokenMask::none(vocab_size);
            assert!(mask.is_empty());
            mask.allow(0);
            mask.allow(vocab_size as u32 - 1);
            mask.allow(vocab_size as u32);
            let mut logits = vec![1.0; vocab_size];
            mask.apply(&mut logits);
            let kept: Vec<usize> = (0..vocab_size).filter(|&token| logits[token] == 1.0).collect();
            let mut expected = vec![0, vocab_size - 1];
            expected.dedup();
            assert_eq!(kept, expected);
            assert_eq!(mask.count(), expected.len());
            assert!(kept.iter().all(|&token| mask.allows(token as u32)) && !mask.allows(vocab_size as u32));
            mask.allow_words(&[u32::MAX; 9]);
            assert_eq!(mask.count(), vocab_size);
            mask.forbid(0);
            assert_eq!(mask.count(), vocab_size - 1);
            mask.clear();
            assert!(mask.is_empty());
        }
    }
}
