//! What to do when the cache is full of requests under way: run fewer rows, then send the last one back, whose rows are
//! computed again later.

use crate::request::FinishReason;
use crate::sequence::Sequence;
use crate::target::{Cache, TargetError};

/// Makes the pass smaller or the cache emptier, one step at a time. A request that does not fit even alone ends; the
/// batch is empty when nothing is left to run in this pass.
pub(super) fn make<C: Cache>(
    sequences: &mut [Sequence],
    batch: &mut Vec<usize>,
    cache: &mut C,
    needed: usize,
    free: usize,
) {
    let drafted = batch.iter().any(|&i| sequences[i].tree.len() > sequences[i].tree.given());
    if drafted {
        batch.iter().for_each(|&i| sequences[i].drop_guesses());
        return;
    }
    let holds = |s: &Sequence, cache: &C| cache.committed(s.sequence) > 0;
    let oldest = sequences.iter().position(|s| !s.waiting).expect("the batch is not empty");
    let youngest = (oldest + 1..sequences.len()).rev().find(|&i| holds(&sequences[i], cache) || batch.contains(&i));
    match youngest {
        Some(index) => {
            let sequence = &mut sequences[index];
            cache.truncate(sequence.sequence, 0);
            sequence.waiting = true;
            sequence.stats.preempted += 1;
            sequence.sit_out();
            batch.retain(|&i| i != index);
            batch.iter().enumerate().for_each(|(place, &i)| sequences[i].place = Some(place));
        }
        None => {
            sequences[oldest].finish = Some(FinishReason::Target(TargetError::CacheFull { needed, free }));
            sequences[oldest].generation.flush();
            sequences[oldest].verdict.clear();
            sequences[oldest].sources.clear();
            batch.clear();
        }
    }
}
