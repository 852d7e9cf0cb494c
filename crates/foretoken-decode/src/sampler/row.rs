//! One row of logits, scanned and divided by the temperature.

use foretoken_kernels::Isa;
use foretoken_kernels::ops::{self, MAX_BLOCK};

use super::SampleError;
use super::noise::GUMBEL_MAX;
use super::support::Candidate;
use crate::TokenId;

/// A row that can be drawn from: no NaN, not all masked. Blocks of [`MAX_BLOCK`] tokens carry their maximum, so that most
/// of a row is passed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub isa: Isa,
    pub logits: &'a [f32],
    pub max: f32,
    /// The lowest id with the largest logit.
    pub argmax: TokenId,
    pub temperature: f32,
    maxima: &'a [f32],
}

/// The largest logit and the lowest id that has it.
pub(super) fn scan(isa: Isa, logits: &[f32], position: usize) -> Result<(f32, TokenId), SampleError> {
    let scan = ops::scan(isa, logits);
    match scan {
        _ if scan.nan => {
            let token = logits.iter().position(|logit| logit.is_nan()).expect("just seen") as TokenId;
            Err(SampleError::Nan { token, position })
        }
        _ if scan.pos_inf => Err(SampleError::Infinite { token: scan.argmax, position }),
        _ if scan.max == f32::NEG_INFINITY => Err(SampleError::EmptySupport { position }),
        _ => Ok((scan.max, scan.argmax)),
    }
}

impl<'a> Row<'a> {
    /// A scanned row at a temperature above 0.
    pub fn new(
        isa: Isa,
        logits: &'a [f32],
        (max, argmax): (f32, TokenId),
        temperature: f32,
        maxima: &'a mut Vec<f32>,
    ) -> Self {
        maxima.resize(logits.len().div_ceil(MAX_BLOCK), 0.0);
        ops::block_max(isa, logits, maxima);
        Self { isa, logits, max, argmax, temperature, maxima }
    }

    /// Stands for a row of which only a list of candidates is known, the likeliest of them `best`.
    pub fn of_list(isa: Isa, best: Candidate, temperature: f32) -> Self {
        Self { isa, logits: &[], max: best.logit, argmax: best.token, temperature, maxima: &[] }
    }

    /// `(logit - max) / T` in f32: what filters and bounds use. Monotone in the logit.
    #[inline]
    pub fn z(&self, logit: f32) -> f32 {
        (logit - self.max) / self.temperature
    }

    /// The same in f64: what a draw compares.
    #[inline]
    pub fn z_exact(&self, logit: f32) -> f64 {
        (f64::from(logit) - f64::from(self.max)) / f64::from(self.temperature)
    }

    /// Each block's first token and maximum.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, f32)> + '_ {
        self.maxima.iter().enumerate().map(|(block, &max)| (block * MAX_BLOCK, max))
    }

    /// The block maxima.
    pub fn maxima(&self) -> &[f32] {
        self.maxima
    }

    /// The logits of the block that begins with token `first`.
    pub fn block(&self, first: usize) -> &'a [f32] {
        &self.logits[first..self.logits.len().min(first + MAX_BLOCK)]
    }

    /// z of each logit of the block that begins with token `first`, into the start of `z`.
    pub fn block_z<'z>(&self, first: usize, z: &'z mut [f32; MAX_BLOCK]) -> &'z mut [f32] {
        let block = self.block(first);
        let z = &mut z[..block.len()];
        ops::scale_logits(self.isa, block, self.max, self.temperature, z);
        z
    }

    /// Whether noise could lift a token with this logit to `score`.
    #[inline]
    pub fn could_reach(&self, logit: f32, score: f32) -> bool {
        self.z(logit) + GUMBEL_MAX >= score
    }
}
