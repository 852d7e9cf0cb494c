//! Which requests take part in a pass, and with which rows of their texts.

use super::{Decoder, DecoderOptions};
use crate::clock::Clock;
use crate::common;
use crate::generation::Detokenize;
use crate::sequence::Sequence;
use crate::target::{Cache, Target};

/// Fewer common tokens are not worth waiting for until another request has run them.
const WORTH_WAITING: usize = 16;
/// Fewer rows of a prompt are not worth a place in a pass, unless they are all.
const LEAST_ROWS: usize = 16;

impl<T: Target, D: Detokenize, C: Clock> Decoder<T, D, C> {
    /// Fills the batch: sequences with one token to run first, then prompts as far as rows are left. False when there is
    /// nothing to run.
    pub(super) fn plan(&mut self) -> bool {
        self.let_in();
        self.share_under_way();
        self.batch.clear();
        self.sequences.iter_mut().for_each(Sequence::sit_out);
        let DecoderOptions { max_rows, max_rows_beside, .. } = self.options;
        let mut prompts = Vec::new();
        for (index, sequence) in self.sequences.iter_mut().enumerate().filter(|(_, s)| !s.waiting) {
            let cached = self.cache.committed(sequence.sequence);
            if sequence.tokens.len() - cached > 1 {
                prompts.push(index);
            } else if self.batch.len() < max_rows {
                sequence.plan(self.batch.len(), cached, 1);
                self.batch.push(index);
            }
        }
        let mut rows = max_rows - self.batch.len();
        if !self.batch.is_empty() {
            rows = rows.min(max_rows_beside);
        }
        self.plan_prompts(prompts, rows);
        if self.batch.is_empty() {
            self.last_end = None;
        }
        !self.batch.is_empty()
    }

    /// Shares `rows` out: within a priority the shortest rest of a prompt first, each as many as are left for everyone of
    /// them. So no prompt waits for a longer one, and none stands still.
    fn plan_prompts(&mut self, mut prompts: Vec<usize>, mut rows: usize) {
        let Self { sequences, cache, batch, .. } = self;
        let rest = |s: &Sequence| s.tokens.len() - cache.committed(s.sequence);
        prompts.retain(|&i| !waits_for_another(sequences, i, cache));
        prompts.sort_by_key(|&i| (-i64::from(sequences[i].priority), rest(&sequences[i]), i));
        for (place, &index) in prompts.iter().enumerate() {
            let priority = sequences[index].priority;
            let alike = prompts[place..].iter().take_while(|&&i| sequences[i].priority == priority).count();
            let share = (rows / alike).max(LEAST_ROWS).min(rows);
            if share == 0 {
                break;
            }
            let sequence = &mut sequences[index];
            sequence.plan(batch.len(), cache.committed(sequence.sequence), share);
            rows -= sequence.tree.len();
            batch.push(index);
        }
    }

    /// Takes rows back from prompts for the guesses that were chosen, so that nobody's next token waits longer for them. Not
    /// from those that end in this pass: a first token is worth as much.
    pub(super) fn make_way(&mut self) {
        let Self { sequences, cache, batch, options, .. } = self;
        let drawing = batch.iter().filter(|&&i| sequences[i].decides()).count();
        let rows = batch.iter().map(|&i| sequences[i].tree.len()).sum::<usize>();
        let mut excess = (rows - drawing).saturating_sub(options.max_rows_beside);
        if drawing == 0 {
            return;
        }
        for &index in batch.iter().rev() {
            let sequence = &mut sequences[index];
            let rows = sequence.tree.len();
            let taken = excess.min(rows.saturating_sub(LEAST_ROWS));
            if let Some(place) = sequence.place
                && taken > 0
                && !sequence.decides()
            {
                sequence.plan(place, cache.committed(sequence.sequence), rows - taken);
                excess -= taken;
            }
        }
    }

    /// Lets waiting requests in, in order, while there is room for their texts. One that does not fit is not overtaken, or
    /// it might wait forever; the first is let in when it is alone, to run or to fail.
    fn let_in(&mut self) {
        let mut running = self.sequences.iter().filter(|s| !s.waiting).count();
        for index in 0..self.sequences.len() {
            if !self.sequences[index].waiting {
                continue;
            }
            if running >= self.options.max_running {
                return;
            }
            self.start_from_kept(index);
            let Self { sequences, cache, kept, options, .. } = self;
            let rest = |s: &Sequence| s.tokens.len() - cache.committed(s.sequence) + options.growth;
            let under_way = sequences.iter().filter(|s| !s.waiting);
            let needed = under_way.map(rest).sum::<usize>() + rest(&sequences[index]);
            while needed > cache.free_tokens() && kept.give_up(cache) {}
            if needed > cache.free_tokens() && running > 0 {
                cache.truncate(sequences[index].sequence, 0);
                return;
            }
            let sequence = &mut sequences[index];
            sequence.waiting = false;
            sequence.starts_from(cache.committed(sequence.sequence));
            running += 1;
        }
    }

    /// Gives a sequence without rows those of a finished request. The last token's row has to be run for its logits.
    fn start_from_kept(&mut self, index: usize) {
        let Self { sequences, cache, kept, .. } = self;
        let sequence = &sequences[index];
        if sequence.reuse
            && let Some((from, len)) = kept.find(sequence.scope, &sequence.tokens)
        {
            cache.share(from, len.min(sequence.tokens.len() - 1), sequence.sequence);
        }
    }

    /// Gives sequences that have not begun the rows that another one under way has of the same text.
    fn share_under_way(&mut self) {
        let Self { sequences, cache, .. } = self;
        for index in 0..sequences.len() {
            let sequence = &sequences[index];
            if sequence.waiting || !sequence.reuse || cache.committed(sequence.sequence) > 0 {
                continue;
            }
            let cached = |other: &Sequence| alike(sequence, other).min(cache.committed(other.sequence));
            let best = sequences.iter().enumerate().filter(|(i, other)| *i != index && !other.waiting);
            let Some((from, len)) = best.map(|(i, other)| (i, cached(other))).max_by_key(|&(_, len)| len) else {
                continue;
            };
            // What another is still running is better waited for.
            if len > 0 && !waits_for_another(sequences, index, cache) {
                cache.share(sequences[from].sequence, len, sequence.sequence);
                sequences[index].starts_from(len);
            }
        }
    }
}

impl Sequence {
    /// Counts the rows that were cached before its first pass; what was computed for it already is none of these.
    fn starts_from(&mut self, cached: usize) {
        if self.stats.preempted == 0 {
            self.stats.cached_tokens = cached;
        }
    }
}

/// Tokens that a sequence can take over from another: the last one's row has to be run for its logits.
fn alike(sequence: &Sequence, other: &Sequence) -> usize {
    if !(sequence.reuse && other.reuse) || sequence.scope != other.scope {
        return 0;
    }
    common(&sequence.tokens, &other.tokens).min(sequence.tokens.len() - 1)
}

/// Whether a sequence that has not begun shares a beginning with one before it that is still running it.
fn waits_for_another<C: Cache>(sequences: &[Sequence], index: usize, cache: &C) -> bool {
    let sequence = &sequences[index];
    let before = sequences[..index].iter().filter(|other| !other.waiting);
    sequence.reuse
        && cache.committed(sequence.sequence) == 0
        && before.into_iter().any(|other| alike(sequence, other) >= cache.committed(other.sequence) + WORTH_WAITING)
}
