//! What a pass costs: a table from a prior, refined by the passes that were run.
//!
//! `T(rows) + logits_row x rows with logits + context x sum of context lengths + overhead`. Refinement takes a low quantile
//! of the latest passes per row count, so that a stall teaches nothing, and keeps T monotone in rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DraftCost;

/// Seconds that the parts of a pass take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostTable {
    /// `rows[n - 1]`: the trunk over n rows. At least one entry; beyond the last it goes on with the average of the last half.
    pub rows: Vec<f64>,
    /// The output head, for each row that wants logits.
    #[serde(default)]
    pub logits_row: f64,
    /// Attention, for each row and token of its context.
    #[serde(default)]
    pub context: f64,
    /// Everything around the pass but drafting: drawing, delivering.
    #[serde(default)]
    pub overhead: f64,
    /// Drafting, by drafter; those not listed keep to what they say of themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub draft: BTreeMap<String, DraftCost>,
}

/// What one pass does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassShape {
    /// Rows run.
    pub rows: usize,
    /// Rows with logits.
    pub logits_rows: usize,
    /// Sum of the rows' context lengths.
    pub context: usize,
}

impl PassShape {
    /// With so many more rows that want logits, and the sum of their context lengths.
    pub(crate) fn with_guesses(self, rows: usize, context: usize) -> Self {
        Self { rows: self.rows + rows, logits_rows: self.logits_rows + rows, context: self.context + context }
    }
}

/// Numbers from which a table can be guessed before any pass has run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prior {
    /// Bytes of the trunk's weights, read once a pass.
    pub trunk_bytes: f64,
    /// Multiply-adds of the trunk, per row.
    pub trunk_macs: f64,
    /// Bytes of the output head.
    pub head_bytes: f64,
    /// Multiply-adds of the output head, per row.
    pub head_macs: f64,
    /// Bytes of K and V per position, over all layers.
    pub kv_bytes: f64,
    /// Bytes per second from memory.
    pub bytes_per_second: f64,
    /// Multiply-adds per second.
    pub macs_per_second: f64,
    /// Seconds of a pass that neither bytes nor multiply-adds explain.
    pub overhead: f64,
}

impl CostTable {
    /// Row counts that a prior covers and refinement learns.
    pub const MAX_ROWS: usize = 64;

    /// The larger of reading and computing, for each row count.
    pub fn from_prior(prior: &Prior) -> Self {
        let read = (prior.trunk_bytes + prior.head_bytes) / prior.bytes_per_second;
        let logits_row = prior.head_macs / prior.macs_per_second;
        let trunk_row = prior.trunk_macs / prior.macs_per_second;
        // The head's own time is in `logits_row`, so the trunk hides behind reading both less that.
        let trunk = |n: usize| (read - n as f64 * logits_row).max(n as f64 * trunk_row).max(0.0);
        let mut rows: Vec<f64> = (1..=Self::MAX_ROWS).map(trunk).collect();
        make_monotone(&mut rows, &mut Vec::new());
        Self {
            rows,
            logits_row,
            context: prior.kv_bytes / prior.bytes_per_second,
            overhead: prior.overhead,
            draft: BTreeMap::new(),
        }
    }

    /// A table in which every row costs the same and nothing is free; for tests and replays.
    pub fn linear(fixed: f64, per_row: f64) -> Self {
        let rows = (1..=Self::MAX_ROWS).map(|n| fixed + per_row * n as f64).collect();
        Self { rows, logits_row: 0.0, context: 0.0, overhead: 0.0, draft: BTreeMap::new() }
    }

    /// Checks that a table read from a file can be used.
    pub fn validate(&self) -> Result<(), String> {
        let drafting = self.draft.values().flat_map(DraftCost::numbers);
        let beside = [self.logits_row, self.context, self.overhead];
        let numbers = self.rows.iter().copied().chain(beside).chain(drafting);
        let bad = numbers.into_iter().find(|s| !s.is_finite() || *s < 0.0);
        match () {
            () if self.rows.is_empty() => Err("rows is empty, and must hold the seconds of at least one row".into()),
            () if bad.is_some() => {
                let bad = bad.expect("just seen");
                Err(format!("a time is {bad}, and must be a number of seconds, 0 or more"))
            }
            () if self.rows[0] <= 0.0 => Err("the time of one row is 0, and must be above 0".into()),
            () if !self.rows.is_sorted() => Err("rows must not fall: more rows never take less time".into()),
            () => Ok(()),
        }
    }

    /// Seconds of the trunk over `n` rows.
    pub fn trunk(&self, n: usize) -> f64 {
        match n {
            0 => 0.0,
            n if n <= self.rows.len() => self.rows[n - 1],
            n => {
                let (last, half) = (self.rows.len(), self.rows.len() / 2);
                let slope = match half {
                    0 => self.rows[0],
                    _ => (self.rows[last - 1] - self.rows[half - 1]) / (last - half) as f64,
                };
                self.rows[last - 1] + slope * (n - last) as f64
            }
        }
    }

    /// Seconds of a pass, with what is around it.
    pub fn seconds(&self, shape: PassShape) -> f64 {
        self.trunk(shape.rows) + self.beside_trunk(shape) + self.overhead
    }

    fn beside_trunk(&self, shape: PassShape) -> f64 {
        self.logits_row * shape.logits_rows as f64 + self.context * shape.context as f64
    }
}

/// A table that learns. Times that are zero teach nothing.
#[derive(Clone, Debug)]
pub struct CostModel {
    prior: CostTable,
    table: CostTable,
    fixed: bool,
    seen: Vec<Recent>,
    around: Recent,
    passes: u64,
    measured: Vec<(usize, f64)>,
    blocks: Vec<(f64, usize)>,
}

/// The latest measurements of one quantity, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    seconds: [f64; Self::LEN],
    count: usize,
    last_pass: u64,
}

impl Recent {
    const LEN: usize = 16;

    pub(super) fn push(&mut self, seconds: f64, pass: u64) {
        self.seconds[self.count % Self::LEN] = seconds;
        self.count += 1;
        self.last_pass = pass;
    }

    /// The lower quartile.
    pub(super) fn low(&self) -> Option<f64> {
        let len = self.count.min(Self::LEN);
        let mut sorted = self.seconds;
        sorted[..len].sort_unstable_by(f64::total_cmp);
        (len > 0).then(|| sorted[len / 4])
    }
}

impl CostModel {
    /// A row count not run for this many passes is forgotten: what was measured may no longer hold, and only running it
    /// again can tell.
    const FORGET_AFTER: u64 = 1000;
    const PROBE_EVERY: u64 = 32;
    /// From so many measurements on a row count is believed, since one may have been a stall; before that only as long as
    /// nothing better is known.
    const ENOUGH: usize = 3;
    /// Row counts believed to take no longer than this many times one row are bound by reading the weights.
    const FLAT: f64 = 1.05;

    /// Starts from a prior and learns.
    pub fn learning(prior: CostTable) -> Self {
        Self::new(prior, false)
    }

    /// Keeps to the table, so that every pass can be repeated exactly.
    pub fn fixed(table: CostTable) -> Self {
        Self::new(table, true)
    }

    fn new(prior: CostTable, fixed: bool) -> Self {
        let seen = vec![Recent::default(); prior.rows.len().min(CostTable::MAX_ROWS)];
        Self {
            table: prior.clone(),
            prior,
            fixed,
            seen,
            around: Recent::default(),
            passes: 0,
            measured: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The table as it is now.
    pub fn table(&self) -> &CostTable {
        &self.table
    }

    /// Whether it never learns.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Whether a pass of so many rows should be run only to learn what it costs: now and then, for a row count that no
    /// recent pass has tried, since what it seems to cost may be wrong.
    pub fn wants_probe(&self, rows: usize) -> bool {
        let due = !self.fixed && self.passes % Self::PROBE_EVERY == Self::PROBE_EVERY - 1;
        due && self.seen.get(rows - 1).is_some_and(|recent| recent.count < Self::ENOUGH)
    }

    /// Learns from a pass: seconds to verify, and seconds of everything else but drafting since the pass before.
    pub fn observe(&mut self, shape: PassShape, verify: f64, around: f64) {
        if self.fixed || verify <= 0.0 || shape.rows == 0 || shape.rows > self.seen.len() {
            return;
        }
        self.passes += 1;
        let trunk = (verify - self.prior.beside_trunk(shape)).max(verify * 0.1);
        self.seen[shape.rows - 1].push(trunk, self.passes);
        self.around.push(around, self.passes);
        self.table.overhead = self.around.low().unwrap_or(self.prior.overhead);
        self.refit();
    }

    /// Measured row counts keep their quantile; the others scale their prior like the nearest measured ones that are bound by
    /// the same. Memory that is slower than believed says nothing about rows that are bound by computing, and the other way
    /// round: of those nothing is known but what is believed, and that more rows never take less time.
    fn refit(&mut self) {
        for recent in &mut self.seen {
            if recent.count > 0 && self.passes - recent.last_pass > Self::FORGET_AFTER {
                *recent = Recent::default();
            }
        }
        let least = if self.seen.iter().any(|r| r.count >= Self::ENOUGH) { Self::ENOUGH } else { 1 };
        let known = self.seen.iter().enumerate().filter(|(_, r)| r.count >= least);
        let measured = &mut self.measured;
        measured.clear();
        measured.extend(known.filter_map(|(i, r)| Some((i, r.low()?))));
        let mut above = 0;
        for i in 0..self.table.rows.len() {
            while above < measured.len() && measured[above].0 < i {
                above += 1;
            }
            let computes = |j: usize| self.prior.rows[j] > self.prior.rows[0] * Self::FLAT;
            let alike = |&(j, _): &(usize, f64)| computes(j) == computes(i);
            let ratio = |(j, seconds): (usize, f64)| seconds / self.prior.rows[j];
            let prior = self.prior.rows[i];
            let (below, over) = (above.checked_sub(1).map(|b| measured[b]), measured.get(above).copied());
            self.table.rows[i] = match (below.filter(alike), over.filter(alike)) {
                (_, Some((j, seconds))) if j == i => seconds,
                (Some(b), Some(a)) => {
                    let t = (i - b.0) as f64 / (a.0 - b.0) as f64;
                    prior * (ratio(b) * (1.0 - t) + ratio(a) * t)
                }
                (Some(one), None) | (None, Some(one)) => prior * ratio(one),
                (None, None) => {
                    let (least, most) = (below.map_or(0.0, |b| b.1), over.map_or(f64::INFINITY, |a| a.1));
                    prior.max(least).min(most)
                }
            };
        }
        make_monotone(&mut self.table.rows, &mut self.blocks);
    }
}

/// The closest non-decreasing sequence (pool adjacent violators).
fn make_monotone(rows: &mut [f64], blocks: &mut Vec<(f64, usize)>) {
    blocks.clear();
    for &row in rows.iter() {
        let mut block = (row, 1);
        while let Some(&(mean, len)) = blocks.last()
            && mean > block.0
        {
            blocks.pop();
            let total = mean * len as f64 + block.0 * block.1 as f64;
            block = (total / (len + block.1) as f64, len + block.1);
        }
        blocks.push(block);
    }
    let flat = blocks.iter().flat_map(|&(mean, len)| std::iter::repeat_n(mean, len));
    rows.iter_mut().zip(flat).for_each(|(row, mean)| *row = mean);
}
