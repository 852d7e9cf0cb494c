//! Windows of tokens and the labels of each head.

/// The label of a position that a head does not learn from.
pub const IGNORE: i32 = -1;

/// The label of a position that a head learns not to predict `token` at.
pub const fn avoid(token: u32) -> i32 {
    -2 - token as i32
}

/// What [`avoid`] was given, or `None` of another label.
pub fn avoided(label: i32) -> Option<usize> {
    (label < IGNORE).then(|| (-2 - label) as usize)
}

/// What heads learn of a token that they could predict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lesson {
    /// To predict it.
    #[default]
    Follow,
    /// Nothing.
    Skip,
    /// Not to predict it.
    Avoid,
}

/// Windows of `n_tokens + n_heads` tokens: the last `n_heads` are only ever labels (or, in sequential heads, the tokens
/// between), so that every head has a label at every position of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    n_tokens: usize,
    n_heads: usize,
    windows: Vec<Vec<u32>>,
    /// For each token, the index in its window of its document's first token.
    starts: Vec<Vec<u32>>,
    /// What heads learn of each token.
    lessons: Vec<Vec<Lesson>>,
    /// What a token to avoid weighs.
    avoid_weight: f32,
}

impl Batch {
    /// From windows and, for each of their tokens, whether a document begins there.
    pub fn new(n_tokens: usize, n_heads: usize, windows: Vec<(Vec<u32>, Vec<bool>)>) -> Self {
        let starts = windows.iter().map(|(window, begins)| {
            assert!(window.len() == n_tokens + n_heads && begins.len() == window.len(), "a whole window");
            let mut start = 0;
            let starts = begins.iter().enumerate().map(|(i, begins)| {
                if *begins {
                    start = i as u32;
                }
                start
            });
            starts.collect()
        });
        let starts = starts.collect();
        let windows: Vec<_> = windows.into_iter().map(|(window, _)| window).collect();
        let lessons = vec![vec![Lesson::default(); n_tokens + n_heads]; windows.len()];
        Self { n_tokens, n_heads, windows, starts, lessons, avoid_weight: 1.0 }
    }

    /// The same windows with other lessons than to predict every token; what is to be avoided weighs `avoid_weight`.
    pub fn with_lessons(self, lessons: Vec<Vec<Lesson>>, avoid_weight: f32) -> Self {
        let whole = lessons.iter().all(|window| window.len() == self.n_tokens + self.n_heads);
        assert!(whole && lessons.len() == self.windows.len(), "one for each token");
        Self { lessons, avoid_weight, ..self }
    }

    /// The same windows in batches of at most `n`.
    pub fn chunks(&self, n: usize) -> impl Iterator<Item = Self> + '_ {
        let (n_tokens, n_heads, avoid_weight) = (self.n_tokens, self.n_heads, self.avoid_weight);
        let parts = self.windows.chunks(n).zip(self.starts.chunks(n)).zip(self.lessons.chunks(n));
        parts.map(move |((windows, starts), lessons)| Self {
            n_tokens,
            n_heads,
            windows: windows.to_vec(),
            starts: starts.to_vec(),
            lessons: lessons.to_vec(),
            avoid_weight,
        })
    }

    /// One window as often as there are `tokens`, each time with one of them at a place of its document.
    pub fn branches(&self, window: usize, place: usize, tokens: &[u32]) -> Self {
        let branch = |&token: &u32| {
            let mut changed = self.windows[window].clone();
            changed[place] = token;
            changed
        };
        let starts = vec![self.starts[window].clone(); tokens.len()];
        let lessons = vec![self.lessons[window].clone(); tokens.len()];
        Self { windows: tokens.iter().map(branch).collect(), starts, lessons, ..*self }
    }

    /// Windows.
    pub fn n_windows(&self) -> usize {
        self.windows.len()
    }

    /// Positions of a window that predict.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// What a label to [`avoid`] weighs, where one that is a token weighs 1.
    pub fn avoid_weight(&self) -> f32 {
        self.avoid_weight
    }

    /// The tokens `by` places behind each position, `[n_windows * n_tokens]`: 0 gives the model's input.
    pub fn tokens(&self, by: usize) -> Vec<i32> {
        assert!(by <= self.n_heads, "a window holds {} tokens more", self.n_heads);
        self.windows.iter().flat_map(|window| &window[by..by + self.n_tokens]).map(|&token| token as i32).collect()
    }

    /// The labels of head `k` (1 predicts the next token), `[n_windows * n_tokens]`: the token `k` places on, [`IGNORE`]
    /// where that lies in another document or is skipped, [`avoid`] where it is not to be predicted.
    pub fn labels(&self, k: usize) -> Vec<i32> {
        assert!((1..=self.n_heads).contains(&k), "head {k} of {}", self.n_heads);
        let windows = self.windows.iter().zip(&self.starts).zip(&self.lessons);
        let labels = windows.flat_map(|((window, starts), lessons)| {
            (0..self.n_tokens).map(move |i| match lessons[i + k] {
                _ if starts[i] != starts[i + k] => IGNORE,
                Lesson::Follow => window[i + k] as i32,
                Lesson::Skip => IGNORE,
                Lesson::Avoid => avoid(window[i + k]),
            })
        });
        labels.collect()
    }

    /// The first key that each position attends to: its document's first token in the window.
    pub fn first_keys(&self) -> Vec<u32> {
        self.starts.iter().flat_map(|starts| &starts[..self.n_tokens]).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cat_sat_on_the_mat_through_three_heads() {
        // the cat sat on the mat, then another document.
        let window = vec![1, 2, 3, 4, 1, 5, 7, 8, 9];
        let begins = [true, false, false, false, false, false, true, false, false];
        let batch = Batch::new(6, 3, vec![(window, begins.to_vec())]);
        assert_eq!(batch.tokens(0), [1, 2, 3, 4, 1, 5]);
        assert_eq!(batch.labels(1), [2, 3, 4, 1, 5, IGNORE]);
        assert_eq!(batch.labels(2), [3, 4, 1, 5, IGNORE, IGNORE]);
        assert_eq!(batch.labels(3), [4, 1, 5, IGNORE, IGNORE, IGNORE]);
        assert_eq!(batch.first_keys(), [0; 6]);
    }

    #[test]
    fn the_last_positions_have_far_labels_and_documents_begin_inside() {
        let window: Vec<u32> = (10..18).collect();
        let begins = [false, false, true, false, false, false, false, false];
        let batch = Batch::new(5, 3, vec![(window.clone(), begins.to_vec()), (window, vec![false; 8])]);
        assert_eq!(batch.labels(3)[..5], [IGNORE, IGNORE, 15, 16, 17]);
        assert_eq!(batch.labels(3)[5..], [13, 14, 15, 16, 17]);
        assert_eq!(batch.first_keys(), [0, 0, 2, 2, 2, 0, 0, 0, 0, 0]);
        assert_eq!(batch.tokens(2)[..5], [12, 13, 14, 15, 16]);
    }

    #[test]
    fn lessons_say_what_becomes_a_label() {
        let window: Vec<u32> = (10..18).collect();
        let (follow, skip) = (Lesson::Follow, Lesson::Skip);
        let lessons = [follow, follow, follow, skip, Lesson::Avoid, follow, follow, follow];
        let batch = Batch::new(5, 3, vec![(window, vec![false; 8])]).with_lessons(vec![lessons.to_vec()], 2.0);
        assert_eq!(batch.tokens(0), [10, 11, 12, 13, 14]);
        assert_eq!(batch.labels(1), [11, 12, IGNORE, avoid(14), 15]);
        assert_eq!(batch.labels(3), [IGNORE, avoid(14), 15, 16, 17]);
        assert_eq!([avoid(0), avoid(14), IGNORE, 3].map(avoided), [Some(0), Some(14), None, None]);
        assert_eq!(batch.chunks(1).next(), Some(batch.clone()));
    }
}
