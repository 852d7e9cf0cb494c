//! The baseline that heads have to beat: a Witten-Bell n-gram of bytes for each distance.
//!
//! `P_m(b) = (count_m(b) + T_m P_{m-1}(b)) / (N_m + T_m)`, where `m` bytes of context were seen `N_m` times, `T_m` different
//! bytes followed at the distance asked for, and `P_{-1}` is uniform. (Witten and Bell, "The zero-frequency problem", 1991.)
//!
//! No table of contexts is built. The positions of the text are sorted by the bytes before them, so that the occurrences of
//! a context are neighbours; the questions are sorted likewise, and each context that occurs in them is counted once. Memory
//! is five bytes for each byte of text, whatever the order.

use rayon::prelude::*;

use super::Figures;
use crate::data::END_OF_TEXT;

/// The longest context, in bytes: the order less one.
const CONTEXT: usize = 15;

/// Byte values.
const BYTES: usize = 256;

/// A text, and its positions sorted by what stands before them.
#[derive(Debug)]
pub struct Ngram {
    text: Vec<u8>,
    order: Vec<u32>,
}

/// A context and the bytes that followed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The bytes before, the nearest in the highest byte; see [`context`].
    context: u128,
    /// How many of them are known.
    len: usize,
    /// The byte at each distance, from 1 on, where there is one.
    answers: Vec<Option<u8>>,
}

impl Question {
    /// From the bytes before, the nearest last, and what follows them.
    pub fn new(before: &[u8], answers: Vec<Option<u8>>) -> Self {
        Self { context: context(before), len: before.len().min(CONTEXT), answers }
    }
}

/// The last bytes of a text as a number that sorts by the nearest byte first; bytes that are missing are zero, as at the end
/// of a document.
fn context(before: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let near = &before[before.len().saturating_sub(CONTEXT)..];
    bytes[16 - near.len()..].copy_from_slice(near);
    u128::from_le_bytes(bytes)
}

/// The first `len` bytes of a context.
fn prefix(context: u128, len: usize) -> u128 {
    context.checked_shr(8 * (16 - len as u32)).unwrap_or(0)
}

impl Ngram {
    /// Sorts a text of fewer than 2^32 bytes; its documents end in [`END_OF_TEXT`].
    pub fn new(text: Vec<u8>) -> Self {
        let n = u32::try_from(text.len()).expect("a text of fewer than 2^32 bytes");
        let mut order: Vec<u32> = (0..n).collect();
        order.par_sort_unstable_by_key(|position| context(&text[..*position as usize]));
        Self { text, order }
    }

    /// Loss and guesses at each distance from 1 to `distances`.
    pub fn ask(&self, mut questions: Vec<Question>, distances: usize) -> Vec<Figures> {
        questions.par_sort_unstable_by_key(|question| question.context);
        let pieces: Vec<Vec<Figures>> = questions
            .par_chunks(questions.len().div_ceil(16).max(1))
            .map(|questions| Walk::new(self, distances).answer(questions))
            .collect();
        let none = vec![Figures::default(); distances];
        pieces.into_iter().fold(none, |sums, piece| sums.into_iter().zip(piece).map(|(a, b)| a.merge(b)).collect())
    }
}

/// The contexts of the question at hand, from none to the longest that occurs.
struct Walk<'a> {
    ngram: &'a Ngram,
    levels: Vec<Level>,
    /// Levels that are of the question at hand.
    depth: usize,
}

/// A context: where it occurs, and what follows it at each distance.
struct Level {
    occurrences: std::ops::Range<usize>,
    /// `[distance][byte]`.
    counts: Vec<[u32; BYTES]>,
    probabilities: Vec<[f64; BYTES]>,
}

impl<'a> Walk<'a> {
    fn new(ngram: &'a Ngram, distances: usize) -> Self {
        let level = || Level {
            occurrences: 0..0,
            counts: vec![[0; BYTES]; distances],
            probabilities: vec![[1.0 / BYTES as f64; BYTES]; distances],
        };
        let mut walk = Self { ngram, levels: (0..=CONTEXT).map(|_| level()).collect(), depth: 0 };
        walk.levels[0].occurrences = 0..ngram.order.len();
        walk.count(0);
        walk
    }

    /// Questions must be sorted by context.
    fn answer(mut self, questions: &[Question]) -> Vec<Figures> {
        let mut figures = vec![Figures::default(); self.levels[0].counts.len()];
        let mut before = 0;
        for question in questions {
            let shared = ((before ^ question.context).leading_zeros() / 8) as usize;
            self.depth = self.depth.min(shared);
            while self.depth < question.len.min(CONTEXT) && self.descend(question.context) {}
            before = question.context;
            let level = &self.levels[self.depth.min(question.len)];
            for ((answer, probabilities), figures) in
                question.answers.iter().zip(&level.probabilities).zip(&mut figures)
            {
                let Some(answer) = *answer else { continue };
                let p = probabilities[usize::from(answer)];
                let best = probabilities.iter().fold(0.0, |a: f64, b| a.max(*b));
                figures.add(-libm::log2(p), p >= best);
            }
        }
        figures
    }

    /// One byte further back; false when that context does not occur.
    fn descend(&mut self, context_of: u128) -> bool {
        let (ngram, len) = (self.ngram, self.depth + 1);
        let parent = self.levels[self.depth].occurrences.clone();
        let wanted = prefix(context_of, len);
        let at = |position: &u32| prefix(context(&ngram.text[..*position as usize]), len);
        let within = &ngram.order[parent.clone()];
        let start = parent.start + within.partition_point(|position| at(position) < wanted);
        let end = parent.start + within.partition_point(|position| at(position) <= wanted);
        if start == end {
            return false;
        }
        self.depth = len;
        self.levels[len].occurrences = start..end;
        self.count(len);
        true
    }

    /// Counts what follows a level's context, and mixes with the level above.
    fn count(&mut self, depth: usize) {
        let (above, below) = self.levels.split_at_mut(depth);
        let (above, level) = (above.last(), &mut below[0]);
        match above {
            Some(above) if above.occurrences == level.occurrences => level.counts.clone_from(&above.counts),
            _ => {
                level.counts.iter_mut().for_each(|counts| counts.fill(0));
                for &position in &self.ngram.order[level.occurrences.clone()] {
                    for (&byte, counts) in self.ngram.text[position as usize..].iter().zip(&mut level.counts) {
                        counts[usize::from(byte)] += 1;
                        if u16::from(byte) == END_OF_TEXT {
                            break;
                        }
                    }
                }
            }
        }
        for (i, (counts, probabilities)) in level.counts.iter().zip(&mut level.probabilities).enumerate() {
            let total: u32 = counts.iter().sum();
            let types = counts.iter().filter(|count| **count > 0).count() as f64;
            let rate = 1.0 / (f64::from(total) + types).max(1.0);
            for (byte, (p, count)) in probabilities.iter_mut().zip(counts).enumerate() {
                let shorter = above.map_or(1.0 / BYTES as f64, |above| above.probabilities[i][byte]);
                *p = if total == 0 { shorter } else { (f64::from(*count) + types * shorter) * rate };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The formula as it stands, by scanning the text; before its start all bytes are zero.
    fn by_hand(text: &[u8], before: &[u8], distance: usize) -> Vec<f64> {
        let text = [&[0; CONTEXT], text].concat();
        let mut p = vec![1.0 / 256.0; 256];
        for m in 0..=before.len().min(CONTEXT) {
            let tail = &before[before.len() - m..];
            let mut counts = vec![0.0; 256];
            for at in CONTEXT..text.len() {
                let ahead = &text[at..];
                if text[at - m..at] == *tail && ahead.len() >= distance && !ahead[..distance - 1].contains(&0) {
                    counts[usize::from(ahead[distance - 1])] += 1.0;
                }
            }
            let total: f64 = counts.iter().sum();
            let types = counts.iter().filter(|count| **count > 0.0).count() as f64;
            if total > 0.0 {
                p = counts.iter().zip(&p).map(|(c, p)| (c + types * p) / (total + types)).collect();
            }
        }
        p
    }

    #[test]
    fn what_no_context_has_seen_costs_much_and_not_everything() {
        // Every level halves or worse what a byte that never came has, and a single precision number would end at zero.
        let ngram = Ngram::new(b"abcdefghijklmnopqrstuvwxyz".repeat(4000));
        let found = ngram.ask(vec![Question::new(b"klmnopqrstuvwxyz", vec![Some(b'?')])], 1);
        assert!(found[0].bits.is_finite() && found[0].bits > 150.0, "{found:?}");
    }

    #[test]
    fn probabilities_are_those_of_the_formula() {
        let mut rng = Rng::new(1, "ngram");
        let text: Vec<u8> = (0..400).map(|_| b"ab\0cab"[rng.below(6)]).collect();
        let ngram = Ngram::new(text.clone());
        let mut questions = Vec::new();
        let mut expected = [Figures::default(); 3];
        for _ in 0..60 {
            let start = rng.below(300);
            let before = text[start..start + rng.below(20)].to_vec();
            let answers: Vec<_> = (0..3).map(|_| (rng.below(4) > 0).then(|| b"abcx"[rng.below(4)])).collect();
            for (i, answer) in answers.iter().enumerate() {
                let Some(answer) = *answer else { continue };
                let p = by_hand(&text, &before, i + 1);
                let best = p.iter().fold(0.0, |a: f64, b| a.max(*b));
                expected[i].add(-libm::log2(p[usize::from(answer)]), p[usize::from(answer)] >= best * (1.0 - 1e-6));
            }
            questions.push(Question::new(&before, answers));
        }
        for (found, expected) in ngram.ask(questions, 3).iter().zip(expected) {
            assert!((found.bits - expected.bits).abs() < 1e-4, "{found:?} {expected:?}");
            assert!((found.top_1 - expected.top_1).abs() < 0.05 && found.n == expected.n);
        }
    }
}
