//! What a trace shows: who guessed what came true, where the time went, and how well both were foreseen.
//!
//! With a_k the share of guesses k ahead that come true when all before them did, a chain of n guesses gives
//! 1 + a1 + a1 a2 + ... + a1...an tokens a pass (Leviathan et al. 2023 have it for equal a). A tree gives 1 and, for each
//! of its guesses, the product of the shares on the way down to it.

use std::collections::BTreeMap;
use std::time::Duration;

use foretoken_decode::{Fate, PassTrace, SequenceTrace};
use serde::Serialize;

/// Guesses of one drafter at one depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DepthCount {
    /// Rows run.
    pub run: usize,
    /// Of these, those below an accepted guess: they were put to the test.
    pub tested: usize,
    /// Of these, those that came true.
    pub accepted: usize,
}

impl DepthCount {
    /// The share a_k of the formula; 0 when none was put to the test.
    pub fn share(&self) -> f64 {
        self.accepted as f64 / self.tested.max(1) as f64
    }
}

/// What one drafter did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceCounts {
    /// Guesses proposed.
    pub proposed: usize,
    /// Guesses whose rows were run.
    pub run: usize,
    /// Guesses that gave a token.
    pub accepted: usize,
    /// Accepted guesses that the formula expects from the shares below and the trees that were run.
    pub expected: f64,
    /// From depth 1 on.
    pub by_depth: Vec<DepthCount>,
}

impl SourceCounts {
    /// Tokens a pass from a chain of n guesses of this drafter alone, for n from 1 on.
    pub fn chain(&self) -> Vec<f64> {
        let mut product = 1.0;
        let mut tokens = 1.0;
        let longer = self.by_depth.iter().map(|depth| {
            product *= depth.share();
            tokens += product;
            tokens
        });
        longer.collect()
    }
}

/// Seconds by role.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Roles {
    /// Proposing and trimming.
    pub draft: f64,
    /// Of `draft`, each drafter's part.
    pub draft_by: Vec<f64>,
    /// The target's passes.
    pub verify: f64,
    /// Drawing, delivering and everything else.
    pub rest: f64,
}

impl Roles {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.draft + self.verify + self.rest
    }
}

/// How well times of passes were foreseen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Passes with a prediction.
    pub passes: usize,
    /// Median of |predicted - measured| / measured.
    pub median_error: f64,
    /// Nine in ten are below this.
    pub error_90: f64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    /// Passes that drew tokens and ran no more of a prompt than a token; the rest of this is about them.
    pub passes: usize,
    /// The other passes.
    pub prompt_passes: usize,
    /// Tokens drawn.
    pub tokens: usize,
    /// Rows run.
    pub rows: usize,
    /// One for each drafter.
    pub by_source: Vec<SourceCounts>,
    /// Guesses by what became of them.
    pub fates: BTreeMap<Fate, usize>,
    /// Guesses beside these that a grammar forbids, cut before the pass.
    pub forbidden: usize,
    /// Where the time went.
    pub seconds: Roles,
    /// `None` when nothing was predicted.
    pub forecast: Option<Forecast>,
}

impl Analysis {
    /// Of these passes; sources count from 1 to `drafters`.
    pub fn of<'a>(passes: impl IntoIterator<Item = &'a PassTrace>, drafters: usize) -> Self {
        let (passes, prompts): (Vec<_>, Vec<_>) = passes.into_iter().partition(|pass| is_decoding(pass));
        let mut all = Self {
            passes: passes.len(),
            prompt_passes: prompts.len(),
            by_source: vec![SourceCounts::default(); drafters],
            forecast: forecast(&passes),
            ..Self::default()
        };
        all.seconds.draft_by = vec![0.0; drafters];
        for pass in &passes {
            all.rows += pass.shape.rows;
            all.time(pass);
            pass.sequences.iter().for_each(|sequence| all.count(sequence));
        }
        let sequences = passes.iter().flat_map(|pass| &pass.sequences);
        sequences.for_each(|sequence| all.expect(sequence));
        all
    }

    /// Tokens a pass.
    pub fn tokens_per_pass(&self) -> f64 {
        self.tokens as f64 / self.passes.max(1) as f64
    }

    /// Tokens a pass by the formula: what the trees that were run give at the shares seen.
    pub fn expected_per_pass(&self) -> f64 {
        let accepted: usize = self.by_source.iter().map(|source| source.accepted).sum();
        let expected: f64 = self.by_source.iter().map(|source| source.expected).sum();
        self.tokens_per_pass() + (expected - accepted as f64) / self.passes.max(1) as f64
    }

    fn time(&mut self, pass: &PassTrace) {
        self.seconds.draft += pass.draft.as_secs_f64();
        self.seconds.verify += pass.verify.as_secs_f64();
        self.seconds.rest += pass.rest.as_secs_f64();
        for (sum, spent) in self.seconds.draft_by.iter_mut().zip(&pass.draft_by) {
            *sum += spent.time.as_secs_f64();
        }
    }

    fn count(&mut self, sequence: &SequenceTrace) {
        self.tokens += sequence.tokens.len();
        self.forbidden += sequence.forbidden;
        let guesses = sequence.proposed.iter().zip(sequence.fates()).zip(sequence.depths());
        for ((guess, fate), depth) in guesses {
            *self.fates.entry(fate).or_default() += 1;
            let source = &mut self.by_source[usize::from(guess.source) - 1];
            source.proposed += 1;
            source.run += usize::from(guess.run);
            source.accepted += usize::from(fate == Fate::Accepted);
            if source.by_depth.len() < depth && guess.run {
                source.by_depth.resize(depth, DepthCount::default());
            }
            if let Some(count) = source.by_depth.get_mut(depth - 1) {
                count.run += usize::from(guess.run);
                count.tested += usize::from(matches!(fate, Fate::Accepted | Fate::NotDrawn));
                count.accepted += usize::from(fate == Fate::Accepted);
            }
        }
    }

    /// Adds what the formula expects of a tree. Guesses past the end had no chance and are left out.
    fn expect(&mut self, sequence: &SequenceTrace) {
        let mut chances: Vec<f64> = Vec::with_capacity(sequence.proposed.len());
        let guesses = sequence.proposed.iter().zip(sequence.fates()).zip(sequence.depths());
        for ((guess, fate), depth) in guesses {
            let source = &mut self.by_source[usize::from(guess.source) - 1];
            let above = guess.parent.map_or(1.0, |parent| chances[parent]);
            let share = source.by_depth.get(depth - 1).map_or(0.0, DepthCount::share);
            let chance = if guess.run && fate != Fate::PastEnd { above * share } else { 0.0 };
            source.expected += chance;
            chances.push(chance);
        }
    }
}

/// Whether a pass drew tokens and ran no more of a prompt than its last token.
pub fn is_decoding(pass: &PassTrace) -> bool {
    pass.sequences.iter().all(|sequence| sequence.given <= 1 && !sequence.tokens.is_empty())
}

/// A pass from its beginning to the next one's.
pub fn whole(pass: &PassTrace) -> Duration {
    pass.draft + pass.verify + pass.rest
}

fn forecast(passes: &[&PassTrace]) -> Option<Forecast> {
    let predicted = passes.iter().filter(|pass| !pass.predicted.is_zero() && !whole(pass).is_zero());
    let error = |pass: &&&PassTrace| (pass.predicted.as_secs_f64() / whole(pass).as_secs_f64() - 1.0).abs();
    let mut errors: Vec<f64> = predicted.map(|pass| error(&pass)).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors.get((errors.len() as f64 * share) as usize).copied();
    Some(Forecast { passes: errors.len(), median_error: at(0.5)?, error_90: at(0.9)? })
}

#[cfg(test)]
mod tests {
    use foretoken_decode::GuessTrace;

    use super::*;

    /// Passes of a chain of `run` guesses, of which `accepted` came true.
    fn passes(counts: &[(usize, usize)]) -> Vec<PassTrace> {
        let pass = |&(run, accepted): &(usize, usize)| {
            let guess = |depth: usize| GuessTrace {
                token: depth as u32,
                parent: depth.checked_sub(1),
                source: 1,
                p: 0.5,
                run: true,
            };
            let proposed = (0..run).map(guess).collect();
            let tokens = (0..accepted as u32).chain([99]).collect();
            PassTrace {
                sequences: vec![SequenceTrace { proposed, tokens, given: 1, ..Default::default() }],
                ..Default::default()
            }
        };
        counts.iter().map(pass).collect()
    }

    #[test]
    fn at_one_width_the_formula_gives_the_tokens_per_pass() {
        let chains = passes(&[(3, 0), (3, 1), (3, 3), (3, 2), (3, 3)]);
        let all = Analysis::of(&chains, 1);
        assert_eq!((all.passes, all.tokens), (5, 5 + 9));
        let shares: Vec<f64> = all.by_source[0].by_depth.iter().map(DepthCount::share).collect();
        assert_eq!(shares, [4.0 / 5.0, 3.0 / 4.0, 2.0 / 3.0]);
        assert!((all.expected_per_pass() - all.tokens_per_pass()).abs() < 1e-12);
        let chain = all.by_source[0].chain();
        assert!((chain[2] - 14.0 / 5.0).abs() < 1e-12, "{chain:?}");
    }

    #[test]
    fn deep_drafts_where_they_come_true_beat_the_formula() {
        // Drafts are long exactly where they are right, so more tokens come than equal chances promise.
        let all = Analysis::of(&passes(&[(1, 0), (1, 0), (4, 4), (1, 0), (4, 4)]), 1);
        assert!(
            all.tokens_per_pass() > all.expected_per_pass() + 0.5,
            "{} {}",
            all.tokens_per_pass(),
            all.expected_per_pass()
        );
    }
}
