//! How long answers are: catching up with a prompt is spread over what is still to come.

use std::collections::VecDeque;

/// Lengths of the latest answers, in tokens.
#[derive(Clone, Debug)]
pub(crate) struct AnswerLengths(VecDeque<usize>);

impl Default for AnswerLengths {
    fn default() -> Self {
        Self(VecDeque::with_capacity(Self::KEPT))
    }
}

impl AnswerLengths {
    /// Answers that are remembered.
    const KEPT: usize = 32;
    /// Tokens that an answer is believed to have at first.
    const SHORT_ANSWER: usize = 26;
    /// Answers that this belief counts as.
    const BELIEF: f64 = 2.0;

    /// An answer has ended.
    pub fn observe(&mut self, tokens: usize) {
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back(tokens);
    }

    /// Tokens expected to come after so many: what answers had left that went on from there, and as many again as have
    /// come, since most answers end long before they have to, and the longer one has gone on the longer it will.
    pub fn to_come(&self, written: usize) -> f64 {
        let left = self.0.iter().filter_map(|tokens| tokens.checked_sub(written).filter(|&left| left > 0));
        let (n, sum) = left.fold((0, 0), |(n, sum), left| (n + 1, sum + left));
        let believed = (written + Self::SHORT_ANSWER) as f64;
        (sum as f64 + Self::BELIEF * believed) / (f64::from(n) + Self::BELIEF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_expected_to_be_like_the_latest_ones() {
        let mut lengths = AnswerLengths::default();
        assert_eq!([lengths.to_come(0), lengths.to_come(100)], [26.0, 126.0]);
        (0..1000).for_each(|_| lengths.observe(8));
        let [new, longer] = [lengths.to_come(0), lengths.to_come(9)];
        assert!((8.0..11.0).contains(&new) && longer == 35.0, "{new} {longer}");
        (0..16).for_each(|_| lengths.observe(500));
        assert!((200.0..300.0).contains(&lengths.to_come(0)) && lengths.to_come(9) > 400.0);
        assert_eq!(lengths.0.len(), AnswerLengths::KEPT);
    }
}
