//! What happened: statistics of a request, and a trace of every pass for those who want one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::TokenId;
use crate::acceptors::Judgement;
use crate::budget::PassShape;
use crate::tree::TokenTree;

/// Counts of one request; nothing past its end is counted. `output_tokens == passes + accepted` always holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many were cached already.
    pub cached_tokens: usize,
    /// Tokens drawn, an end token included.
    pub output_tokens: usize,
    /// Passes that drew tokens.
    pub passes: usize,
    /// Passes over a part of the prompt that drew none.
    pub prompt_passes: usize,
    /// Guesses run.
    pub drafted: usize,
    /// Guesses that gave a token beyond the one that every pass gives.
    pub accepted: usize,
    /// `[d - 1]`: passes that ran a guess at depth d, and of these the passes that accepted one.
    pub by_depth: Vec<DepthCount>,
    /// Times the sequence was sent back to make room, its cache to be computed again.
    pub preempted: usize,
    /// How an acceptor that changes the distribution changed it.
    pub change: Option<Change>,
}

/// How far a text is from what the target would have written. Counts every token of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Tokens.
    pub tokens: usize,
    /// Of these, those that the coupled acceptor would have taken after the same text.
    pub agreed: usize,
    /// Log-probability of the text under the target, before temperature, penalties and filters.
    pub logprob: f64,
}

impl Change {
    /// Perplexity of the text under the target.
    pub fn perplexity(&self) -> f64 {
        libm::exp(-self.logprob / self.tokens as f64)
    }

    /// Share of the tokens that the coupled acceptor would have taken.
    pub fn agreement(&self) -> f64 {
        self.agreed as f64 / self.tokens as f64
    }
}

/// Guesses at one depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthCount {
    /// Passes that ran one.
    pub drafted: usize,
    /// Passes that accepted one.
    pub accepted: usize,
}

impl RequestStats {
    /// Tokens per pass: `1 + accepted / passes`.
    pub fn acceptance_length(&self) -> f64 {
        if self.passes == 0 { 0.0 } else { self.output_tokens as f64 / self.passes as f64 }
    }

    /// Share of the guesses at each depth that were accepted, from depth 1 on.
    pub fn acceptance_by_depth(&self) -> Vec<f64> {
        self.by_depth.iter().map(|d| d.accepted as f64 / d.drafted.max(1) as f64).collect()
    }

    /// Counts a token of an acceptor that changes the distribution.
    pub(crate) fn judge(&mut self, judgement: Judgement) {
        let change = self.change.get_or_insert_default();
        change.tokens += 1;
        change.agreed += usize::from(judgement.agrees);
        change.logprob += f64::from(judgement.logprob);
    }

    /// Counts a pass that ran `tree` and drew `n_tokens`, at least one.
    pub(crate) fn count(&mut self, tree: &TokenTree, n_tokens: usize) {
        let accepted = n_tokens - 1;
        self.passes += 1;
        self.output_tokens += n_tokens;
        self.drafted += tree.len() - tree.given();
        self.accepted += accepted;
        let anchor_depth = tree.nodes()[tree.anchor()].depth;
        let deepest = tree.nodes().iter().map(|node| node.depth - anchor_depth.min(node.depth)).max();
        let deepest = deepest.unwrap_or(0) as usize;
        if self.by_depth.len() < deepest {
            self.by_depth.resize(deepest, DepthCount::default());
        }
        for (depth, count) in self.by_depth.iter_mut().enumerate().take(deepest) {
            count.drafted += 1;
            count.accepted += usize::from(depth < accepted);
        }
    }
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassTrace {
    /// What was run.
    pub shape: PassShape,
    /// Guesses run.
    pub drafted: usize,
    /// Tokens drawn beyond one per sequence.
    pub accepted: usize,
    /// Time to propose and trim.
    pub draft: Duration,
    /// Of this, each drafter's, in the order of their sources.
    pub draft_by: Vec<Drafting>,
    /// Time of the target's pass.
    pub verify: Duration,
    /// Time from the end of the pass before to the end of this one, less `draft` and `verify`.
    pub rest: Duration,
    /// What `draft`, `verify` and `rest` together were expected to be, before the pass.
    pub predicted: Duration,
    /// Why these guesses were chosen, when the choice is another kind than the pass before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// One entry per sequence of the pass.
    pub sequences: Vec<SequenceTrace>,
}

/// One drafter's part in a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drafting {
    /// Time to propose.
    pub time: Duration,
    /// How deep its deepest path went; 0 when it had nothing or was not asked.
    pub depth: usize,
    /// Tokens that it first had to catch up with.
    pub lag: usize,
}

/// One sequence's part in a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SequenceTrace {
    /// Whose.
    pub request: u64,
    /// Tokens before the first row.
    pub start: usize,
    /// Rows of decided tokens.
    pub given: usize,
    /// All guesses proposed, whether run or not.
    pub proposed: Vec<GuessTrace>,
    /// Guesses beside these that the request's constraint forbids: they were cut before the pass.
    #[serde(default)]
    pub forbidden: usize,
    /// Tokens drawn.
    pub tokens: Vec<TokenId>,
}

/// One guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuessTrace {
    /// The token guessed.
    pub token: TokenId,
    /// Index of the guess it hangs below; `None` for the anchor.
    pub parent: Option<usize>,
    /// The drafter, by its place in the decoder's list from 1.
    pub source: u8,
    /// The drafter's own estimate.
    pub p: f32,
    /// Whether its row was run.
    pub run: bool,
}

/// What became of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It gave a token beyond the one that every pass gives.
    Accepted,
    /// Another token was drawn in its place.
    NotDrawn,
    /// It hangs below a guess that did not come true, so nothing was drawn in its place.
    Unreached,
    /// The text ended before its row was of use.
    PastEnd,
    /// Its row was not run: the budget did not expect it to pay.
    Trimmed,
    /// Its row was not run, and it would have come true.
    Missed,
}

impl Fate {
    /// Every fate, in the order of reports.
    pub const ALL: [Fate; 6] =
        [Self::Accepted, Self::NotDrawn, Self::Unreached, Self::PastEnd, Self::Trimmed, Self::Missed];
}

impl SequenceTrace {
    /// Indices into `proposed` of the accepted guesses, from the anchor down. They gave the first of `tokens`; the last
    /// token is the one that every pass gives.
    pub fn path(&self) -> Vec<usize> {
        let accepted = self.tokens.split_last().map_or(&[][..], |(_, accepted)| accepted);
        let mut path = Vec::with_capacity(accepted.len());
        for &token in accepted {
            path.extend(self.child(path.last().copied(), token));
        }
        path
    }

    /// The guess below `parent` that holds `token`.
    fn child(&self, parent: Option<usize>, token: TokenId) -> Option<usize> {
        self.proposed.iter().position(|guess| guess.parent == parent && guess.token == token)
    }

    /// What became of each of `proposed`.
    pub fn fates(&self) -> Vec<Fate> {
        let path = self.path();
        // A guess that equals the last token was either not run, or stood where the text ended.
        let last = self.tokens.last().and_then(|&token| self.child(path.last().copied(), token));
        let mut fates: Vec<Fate> = Vec::with_capacity(self.proposed.len());
        for (index, guess) in self.proposed.iter().enumerate() {
            let above = guess.parent.map_or(Fate::Accepted, |parent| fates[parent]);
            fates.push(match (guess.run, above) {
                (false, _) if last == Some(index) => Fate::Missed,
                (false, _) => Fate::Trimmed,
                (true, _) if path.contains(&index) => Fate::Accepted,
                (true, _) if last == Some(index) || self.tokens.is_empty() => Fate::PastEnd,
                (true, Fate::Accepted) => Fate::NotDrawn,
                (true, Fate::PastEnd) => Fate::PastEnd,
                (true, _) => Fate::Unreached,
            });
        }
        fates
    }

    /// Positions after the anchor of each of `proposed`, from 1.
    pub fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.proposed.len());
        for guess in &self.proposed {
            depths.push(1 + guess.parent.map_or(0, |parent| depths[parent]));
        }
        depths
    }
}

/// Receives every pass, to be written somewhere.
pub trait Recorder: Send {
    /// A pass is over.
    fn pass(&mut self, trace: &PassTrace);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses `(token, parent, run)`.
    fn sequence(guesses: &[(TokenId, Option<usize>, bool)], tokens: &[TokenId]) -> SequenceTrace {
        let guess = |&(token, parent, run)| GuessTrace { token, parent, source: 1, p: 0.5, run };
        SequenceTrace {
            proposed: guesses.iter().map(guess).collect(),
            tokens: tokens.to_vec(),
            ..SequenceTrace::default()
        }
    }

    #[test]
    fn every_guess_has_a_fate() {
        use Fate::{Accepted, Missed, NotDrawn, PastEnd, Trimmed, Unreached};
        // 1 - 2 - 3, 1 - 4 - 5, and 6 beside 1; the row of 3 is not run.
        let tree = [
            (1, None, true),
            (2, Some(0), true),
            (3, Some(1), false),
            (4, Some(0), true),
            (5, Some(3), true),
            (6, None, true),
        ];
        let check = |tokens: &[TokenId], path: &[usize], fates: [Fate; 6]| {
            let trace = sequence(&tree, tokens);
            assert_eq!((trace.path(), trace.fates()), (path.to_vec(), fates.to_vec()), "{tokens:?}");
        };
        check(&[1, 2, 3], &[0, 1], [Accepted, Accepted, Missed, NotDrawn, Unreached, NotDrawn]);
        check(&[1, 2, 9], &[0, 1], [Accepted, Accepted, Trimmed, NotDrawn, Unreached, NotDrawn]);
        check(&[9], &[], [NotDrawn, Unreached, Trimmed, Unreached, Unreached, NotDrawn]);
        // The text ends with 4, whose row is then of no use.
        check(&[1, 4], &[0], [Accepted, NotDrawn, Trimmed, PastEnd, PastEnd, NotDrawn]);
        check(&[], &[], [PastEnd, PastEnd, Trimmed, PastEnd, PastEnd, PastEnd]);
        assert_eq!(sequence(&tree, &[]).depths(), [1, 2, 3, 2, 3, 1]);
    }
}
