//! Which windows a step sees: a function of the seed and the step alone, so that a run resumes by its step.

use std::ops::Range;

use super::{END_OF_TEXT, Repeated, Repeats, TokenFile};
use crate::TrainError;
use crate::batch::{Batch, Lesson};
use crate::rng::Rng;

/// Windows of a token file in a shuffled order, epoch after epoch.
#[derive(Debug)]
pub struct Windows {
    file: TokenFile,
    n_tokens: usize,
    n_heads: usize,
    seed: u64,
    repeats: Option<Repeats>,
    /// The epoch whose order is at hand.
    epoch: Option<(u64, usize, Vec<u32>)>,
}

impl Windows {
    /// Windows of `n_tokens` positions for `n_heads` heads. Errors when the file has not one of them twice over.
    pub fn new(file: TokenFile, n_tokens: usize, n_heads: usize, seed: u64) -> Result<Self, TrainError> {
        let needed = 2 * n_tokens + n_heads;
        if file.n_tokens() < needed {
            let wanted = format!("a corpus of at least {needed} tokens for windows of {n_tokens}");
            return Err(TrainError::setting("data", format!("{} tokens", file.n_tokens()), wanted));
        }
        Ok(Self { file, n_tokens, n_heads, seed, repeats: None, epoch: None })
    }

    /// The same windows, of which the run's batches have some texts of the model's own instead.
    pub fn with_repeats(self, repeats: Option<Repeats>) -> Self {
        Self { repeats, ..self }
    }

    /// The tokens underneath.
    pub fn file(&self) -> &TokenFile {
        &self.file
    }

    /// Windows in an epoch: each starts at a shift that the epoch draws, so that borders fall elsewhere every time.
    pub fn per_epoch(&self) -> usize {
        (self.file.n_tokens() - self.n_heads) / self.n_tokens - 1
    }

    /// The `index`-th window of the run.
    pub fn window(&mut self, index: u64) -> Result<(Vec<u32>, Vec<bool>), TrainError> {
        let range = self.range(index);
        self.file.window(range.start, range.len())
    }

    /// Where the `index`-th window of the run lies in the file.
    pub fn range(&mut self, index: u64) -> Range<usize> {
        let n = self.per_epoch();
        let (epoch, at) = (index / n as u64, (index % n as u64) as usize);
        if self.epoch.as_ref().is_none_or(|(known, ..)| *known != epoch) {
            let mut rng = Rng::new(self.seed, &format!("epoch {epoch}"));
            let shift = rng.below(self.n_tokens);
            self.epoch = Some((epoch, shift, rng.permutation(n)));
        }
        let (_, shift, order) = self.epoch.as_ref().expect("just made");
        let start = shift + order[at] as usize * self.n_tokens;
        start..start + self.n_tokens + self.n_heads
    }

    /// The bytes that the run's first `n` windows hold, in the file's order; where some between are missing, and at the end of
    /// a document, stands [`END_OF_TEXT`]. For tokens that are bytes; windows that repeats take the place of are among them.
    pub fn seen(&mut self, n: u64) -> Result<Vec<u8>, TrainError> {
        let mut ranges: Vec<_> = (0..n.min(self.per_epoch() as u64)).map(|index| self.range(index)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut bytes, mut end) = (Vec::new(), 0);
        for range in ranges {
            if range.start > end && bytes.last().is_some_and(|last| u16::from(*last) != END_OF_TEXT) {
                bytes.push(END_OF_TEXT as u8);
            }
            let start = range.start.max(end);
            let (tokens, _) = self.file.window(start, range.end - start)?;
            bytes.extend(tokens.iter().map(|&token| token as u8));
            end = range.end;
        }
        Ok(bytes)
    }

    /// The batch of windows `first..first + n` of the run.
    pub fn batch(&mut self, first: u64, n: usize) -> Result<Batch, TrainError> {
        let (mut windows, mut lessons) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for index in first..first + n as u64 {
            let own = self.repeats.as_ref().and_then(|repeats| repeats.window(index, self.n_tokens + self.n_heads));
            let window = match own {
                Some(window) => window,
                None => {
                    let (tokens, begins) = self.window(index)?;
                    Repeated { lessons: vec![Lesson::Follow; tokens.len()], tokens, begins }
                }
            };
            windows.push((window.tokens, window.begins));
            lessons.push(window.lessons);
        }
        Ok(Batch::new(self.n_tokens, self.n_heads, windows)
            .with_lessons(lessons, self.repeats.as_ref().map_or(1.0, Repeats::weight)))
    }

    /// Up to `n` windows spread evenly over the file, for evaluation.
    pub fn spread(&self, n: usize) -> Result<Batch, TrainError> {
        let possible = (self.file.n_tokens() - self.n_heads) / self.n_tokens;
        let n = n.min(possible);
        let windows = (0..n)
            .map(|i| self.file.window(i * possible / n * self.n_tokens, self.n_tokens + self.n_heads))
            .collect::<Result<_, _>>()?;
        Ok(Batch::new(self.n_tokens, self.n_heads, windows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::avoid;
    use crate::data::{RepeatsConfig, TokenWriter, Vocabulary};
    use std::collections::HashSet;

    fn windows(seed: u64) -> Windows {
        let folder = crate::scratch::Scratch::new();
        let path = folder.path().join("a.tokens");
        let mut writer = TokenWriter::default();
        writer.push(&(0..1000).map(|i| (i % 250 + 1) as u8).collect::<Vec<_>>());
        writer.write(&path).unwrap();
        Windows::new(TokenFile::open(&path).unwrap(), 16, 3, seed).unwrap()
    }

    #[test]
    fn an_epoch_has_each_window_once_and_the_seed_says_in_which_order() {
        let mut a = windows(1);
        let n = a.per_epoch() as u64;
        let epoch = |w: &mut Windows, e: u64| (0..n).map(|i| w.window(e * n + i).unwrap().0).collect::<Vec<_>>();
        let first = epoch(&mut a, 0);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), n as usize);
        assert_eq!(epoch(&mut windows(1), 0), first);
        assert_ne!(epoch(&mut windows(2), 0), first);
        assert_ne!(epoch(&mut a, 1), first);
        // Any window can be had out of order: that is how a run resumes.
        assert_eq!(windows(1).window(n + 3).unwrap(), a.window(n + 3).unwrap());
    }

    #[test]
    fn what_was_seen_is_in_the_files_order() {
        let mut windows = windows(1);
        let n = windows.per_epoch() as u64;
        let first = windows.range(0);
        let (tokens, _) = windows.window(0).unwrap();
        assert_eq!(windows.seen(1).unwrap(), tokens.iter().map(|&token| token as u8).collect::<Vec<_>>());
        // All windows of an epoch cover the file once, but for the shift and the rest.
        let all = windows.seen(10 * n).unwrap();
        assert_eq!(all.len(), n as usize * 16 + 3);
        assert!(first.len() == 19 && windows.seen(3).unwrap().len() <= 3 * 19 + 2);
    }

    #[test]
    fn batches_have_texts_of_the_models_own_with_their_lessons() {
        let folder = crate::scratch::Scratch::new();
        let texts = folder.path().join("own.jsonl");
        let line = serde_json::json!({"prompt": "", "text": "a b\n".repeat(9)}).to_string();
        std::fs::write(&texts, line).unwrap();
        let config = RepeatsConfig { texts, share: 1.0, weight: 2.5 };
        let repeats = Repeats::read(&config, &Vocabulary::bytes(), 256, 1).unwrap();
        let mut windows = Windows { n_tokens: 36, ..windows(1) }.with_repeats(Some(repeats));
        let batch = windows.batch(0, 1).unwrap();
        assert_eq!(batch.tokens(0)[..5], [97, 32, 98, 10, 97]);
        assert!(batch.labels(1).iter().all(|label| *label < 0) && batch.labels(1).contains(&avoid(97)));
        assert_eq!(batch.avoid_weight(), 2.5);
    }

    #[test]
    fn windows_carry_the_extra_tokens_and_small_corpora_are_refused() {
        let mut windows = windows(1);
        assert_eq!(windows.batch(0, 2).unwrap().tokens(3).len(), 32);
        assert_eq!(windows.spread(4).unwrap().n_windows(), 4);
        assert!(Windows::new(windows.file, 600, 3, 1).is_err());
    }
}
