//! Times passes of several sizes and puts them together into a cost table.

use std::time::Instant;

use foretoken_decode::budget::CostTable;
use foretoken_decode::target::{Cache, SequenceId, Target, Want, Work};
use foretoken_decode::tree::{Source, TokenTree};
use foretoken_engine::{Engine, TokenId};
use foretoken_model::Model;

use crate::error::CliError;
use crate::machine::median;
use crate::progress;

/// Rows of the passes that are timed; the numbers between lie on lines.
const ROWS: [usize; 11] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32];
/// Each is timed so often, after once to warm up.
const REPEATS: usize = 5;
/// Tokens before the rows: few, and enough to see what they cost.
const CONTEXTS: [usize; 2] = [32, 512];

/// Times passes on an engine that has nothing else to do.
pub fn measure(engine: &mut Engine) -> Result<CostTable, CliError> {
    let overhead = engine.cost_table().overhead;
    let most = engine.context_size().saturating_sub(ROWS[ROWS.len() - 1]);
    let [near, far] = CONTEXTS.map(|context| context.min(most));
    let (model, cache) = engine.scheduler().target_and_cache();
    let sequence = cache.open();
    let mut probe = Probe { model, cache, sequence, len: 0 };
    let bar = progress::items(ROWS.len() + 2, "passes");
    probe.extend(near)?;
    let mut times = Vec::with_capacity(ROWS.len());
    for rows in ROWS {
        times.push(probe.time(rows, rows)?);
        bar.inc(1);
    }
    let rows_8 = times[ROWS.iter().position(|&rows| rows == 8).expect("one of them")];
    let logits_row = ((rows_8 - probe.time(8, 1)?) / 7.0).max(0.0);
    probe.extend(far)?;
    let context = ((probe.time(8, 8)? - rows_8) / (8.0 * (far - near).max(1) as f64)).max(0.0);
    bar.finish_and_clear();
    probe.cache.close(sequence);
    Ok(CostTable {
        rows: rows_of(&times, near, logits_row, context),
        logits_row,
        context,
        overhead,
        draft: Default::default(),
    })
}

/// The trunk's seconds for 1 to 32 rows: the times without heads and contexts, on lines between those measured, never
/// falling.
fn rows_of(times: &[f64], near: usize, logits_row: f64, context: f64) -> Vec<f64> {
    let beside = |rows: usize| rows as f64 * (logits_row + context * near as f64);
    let trunk: Vec<f64> = ROWS.iter().zip(times).map(|(&rows, time)| (time - beside(rows)).max(time * 0.1)).collect();
    let mut all = Vec::with_capacity(ROWS[ROWS.len() - 1]);
    for (pair, ends) in ROWS.windows(2).zip(trunk.windows(2)) {
        let steps = pair[1] - pair[0];
        all.extend((0..steps).map(|i| ends[0] + (ends[1] - ends[0]) * i as f64 / steps as f64));
    }
    all.extend(trunk.last());
    let mut most = 0.0f64;
    all.iter_mut().for_each(|seconds| {
        most = most.max(*seconds);
        *seconds = most;
    });
    all
}

struct Probe<'a> {
    model: &'a mut Model,
    cache: &'a mut <Model as Target>::Cache,
    sequence: SequenceId,
    /// Tokens cached.
    len: usize,
}

impl Probe<'_> {
    /// Some tokens: which ones takes no more or less time.
    fn token(&self, position: usize) -> TokenId {
        (position * 7919 % self.model.vocab_size()) as TokenId
    }

    /// Caches tokens up to a length.
    fn extend(&mut self, len: usize) -> Result<(), CliError> {
        while self.len < len {
            let end = len.min(self.len + 128);
            let tokens: Vec<TokenId> = (self.len..end).map(|position| self.token(position)).collect();
            let tree = TokenTree::new(&tokens);
            let wants = vec![Want::Nothing; tokens.len()];
            let work = [Work { sequence: self.sequence, tree: &tree, wants: &wants }];
            self.model.verify(self.cache, &work).map_err(foretoken_engine::EngineError::from)?;
            self.cache.commit(self.sequence, &(0..tokens.len()).collect::<Vec<_>>());
            self.len = end;
        }
        Ok(())
    }

    /// Median seconds of a pass of an anchor and a chain of guesses, which is rolled back; logits for the last rows.
    fn time(&mut self, rows: usize, logits_rows: usize) -> Result<f64, CliError> {
        let mut tree = TokenTree::new(&[self.token(self.len)]);
        for row in 1..rows {
            tree.push(row - 1, self.token(self.len + row), Source(1), 1.0);
        }
        let wants: Vec<Want> =
            (0..rows).map(|row| if row + logits_rows >= rows { Want::Logits } else { Want::Nothing }).collect();
        let mut times = Vec::with_capacity(REPEATS);
        for round in 0..=REPEATS {
            let work = [Work { sequence: self.sequence, tree: &tree, wants: &wants }];
            let start = Instant::now();
            self.model.verify(self.cache, &work).map_err(foretoken_engine::EngineError::from)?;
            let seconds = start.elapsed().as_secs_f64();
            self.cache.commit(self.sequence, &[]);
            times.extend((round > 0).then_some(seconds));
        }
        Ok(median(&times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_gives_the_times_back() {
        let of = |rows: usize| 0.02 + 0.001 * rows as f64;
        let (near, logits_row, context) = (32, 0.0005, 1e-6);
        let beside = |rows: usize| rows as f64 * (logits_row + context * near as f64);
        let times: Vec<f64> = ROWS.iter().map(|&rows| of(rows) + beside(rows)).collect();
        let rows = rows_of(&times, near, logits_row, context);
        assert_eq!(rows.len(), 32);
        for (index, seconds) in rows.iter().enumerate() {
            assert!((seconds - of(index + 1)).abs() < 1e-12, "{index}: {seconds}");
        }
        // A stall of one measurement does not make more rows cheaper.
        let stalled: Vec<f64> = times.iter().enumerate().map(|(i, t)| if i == 3 { 1.0 } else { *t }).collect();
        assert!(rows_of(&stalled, near, logits_row, context).is_sorted());
    }
}
