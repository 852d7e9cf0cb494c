//! Causal attention over whole sequences, forward and backward, without keeping the scores.
//!
//! The forward pass keeps the maximum and the reciprocal of the sum of each row; the backward pass computes the
//! probabilities again from them, block of queries by block of queries. (Dao et al., "FlashAttention", arXiv 2205.14135,
//! for sequences whose keys fit the cache.) Nothing above the diagonal and nothing before a document's first token is
//! computed, but for the edges of blocks.

use super::product::{Strided, add_product};
use super::softmax::softmax_lanes;
use super::{dot, scale_assign};
use crate::Isa;
use crate::ops::{RopeStyle, exp_lanes, rope};
use crate::simd::{LANES, Simd, per_isa};

/// Queries whose scores are held at a time.
const BLOCK: usize = 32;

/// One sequence: `n_tokens` rows of `(n_heads + 2 n_kv_heads) head_dim` values, queries, keys, then values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Rows.
    pub n_tokens: usize,
    /// Heads of the queries, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Heads of the keys and of the values.
    pub n_kv_heads: usize,
    /// Values a head, a multiple of 16.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Values in a row of queries, keys and values.
    pub fn width(&self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.head_dim
    }

    /// Values in a row of the output.
    pub fn width_out(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Values that [`attention`] keeps for [`attention_backward`].
    pub fn n_stats(&self) -> usize {
        2 * self.n_heads * self.n_tokens
    }

    /// Tokens in whole lanes.
    fn padded(&self) -> usize {
        self.n_tokens.next_multiple_of(LANES)
    }
}

/// Rotary tables: `[n_tokens, head_dim / 2]` cosines, sines, and the sines of the inverse turn.
#[derive(Clone, Debug)]
pub struct Rotary {
    cos: Vec<f32>,
    sin: Vec<f32>,
    minus_sin: Vec<f32>,
    n_pairs: usize,
}

impl Rotary {
    /// Tables from the cosines and sines of each position's angles, `n_pairs` a position.
    pub fn new(cos: Vec<f32>, sin: Vec<f32>, n_pairs: usize) -> Self {
        assert!(cos.len() == sin.len() && cos.len().is_multiple_of(n_pairs), "an angle for each pair");
        let minus_sin = sin.iter().map(|s| -s).collect();
        Self { cos, sin, minus_sin, n_pairs }
    }

    /// Cosines and sines, `[n_tokens, n_pairs]`.
    pub fn tables(&self) -> (&[f32], &[f32]) {
        (&self.cos, &self.sin)
    }

    fn turn(&self, isa: Isa, x: &mut [f32], position: usize) {
        let at = position * self.n_pairs..(position + 1) * self.n_pairs;
        rope(isa, x, &self.cos[at.clone()], &self.sin[at], RopeStyle::Halves);
    }

    fn turn_back(&self, isa: Isa, x: &mut [f32], position: usize) {
        let at = position * self.n_pairs..(position + 1) * self.n_pairs;
        rope(isa, x, &self.cos[at.clone()], &self.minus_sin[at], RopeStyle::Halves);
    }
}

/// Attention of one sequence: queries and keys are turned by position in halves, row `i` sees keys
/// `first_key[i]..=i`, the scale is `1 / sqrt(head_dim)`.
///
/// `out` is `[n_tokens, n_heads head_dim]`; `stats` takes `n_stats` values for the backward pass.
pub fn attention(
    isa: Isa,
    shape: AttentionShape,
    qkv: &[f32],
    rotary: &Rotary,
    first_key: &[u32],
    out: &mut [f32],
    stats: &mut [f32],
) {
    let (n, dim, padded) = (shape.n_tokens, shape.head_dim, shape.padded());
    assert!(qkv.len() == n * shape.width() && out.len() == n * shape.width_out(), "a row a token");
    assert!(first_key.len() == n && stats.len() == shape.n_stats() && dim.is_multiple_of(LANES));
    let mut heads = Heads::new(shape);
    let mut scores = vec![0.0; BLOCK * padded];
    let mut sums = vec![0.0; BLOCK * dim];
    for head in 0..shape.n_heads {
        heads.load(isa, qkv, rotary, head);
        let stats = &mut stats[2 * head * n..2 * (head + 1) * n];
        for block in blocks(n, first_key) {
            heads.scores(isa, &block, &mut scores);
            for (row, i) in block.rows.clone().enumerate() {
                let row = &mut scores[row * padded..][..block.end];
                row[..first_key[i] as usize].fill(f32::NEG_INFINITY);
                row[i + 1..].fill(f32::NEG_INFINITY);
                let (max, sum) = softmax_unscaled_from(isa, row, block.start);
                stats[2 * i] = max;
                stats[2 * i + 1] = 1.0 / sum;
            }
            sums.fill(0.0);
            let probabilities = Strided { data: &scores[block.start..], row: padded, col: 1 };
            let size = [block.rows.len(), dim, block.end - block.start];
            add_product(isa, size, probabilities, &heads.values[block.start * dim..], dim, &mut sums, dim);
            for (row, i) in block.rows.clone().enumerate() {
                let sums = &mut sums[row * dim..][..dim];
                scale_assign(isa, sums, stats[2 * i + 1]);
                out[i * shape.width_out() + head * dim..][..dim].copy_from_slice(sums);
            }
        }
    }
}

/// Gradient of [`attention`] with respect to `qkv`, written to `d_qkv`, from its input, its output, its `stats` and the
/// gradient of the output.
#[allow(clippy::too_many_arguments)]
pub fn attention_backward(
    isa: Isa,
    shape: AttentionShape,
    qkv: &[f32],
    rotary: &Rotary,
    first_key: &[u32],
    out: &[f32],
    stats: &[f32],
    d_out: &[f32],
    d_qkv: &mut [f32],
) {
    let (n, dim, padded) = (shape.n_tokens, shape.head_dim, shape.padded());
    assert!(d_qkv.len() == n * shape.width() && d_out.len() == n * shape.width_out(), "a row a token");
    let group = shape.n_heads / shape.n_kv_heads;
    let scale = 1.0 / (dim as f32).sqrt();
    let mut heads = Heads::new(shape);
    let mut values_t = vec![0.0; dim * padded];
    let (mut scores, mut slopes) = (vec![0.0; BLOCK * padded], vec![0.0; BLOCK * padded]);
    let (mut d_keys, mut d_values) = (vec![0.0; padded * dim], vec![0.0; padded * dim]);
    let mut d_queries = vec![0.0; BLOCK * dim];
    let mut d_rows = vec![0.0; BLOCK * dim];
    for head in 0..shape.n_heads {
        heads.load(isa, qkv, rotary, head);
        if head.is_multiple_of(group) {
            transpose(&heads.values[..n * dim], dim, &mut values_t, padded);
            d_keys.fill(0.0);
            d_values.fill(0.0);
        }
        let stats = &stats[2 * head * n..2 * (head + 1) * n];
        for block in blocks(n, first_key) {
            let (rows, keys) = (block.rows.len(), block.end - block.start);
            for (row, i) in block.rows.clone().enumerate() {
                let from = &d_out[i * shape.width_out() + head * dim..][..dim];
                d_rows[row * dim..][..dim].copy_from_slice(from);
            }
            heads.scores(isa, &block, &mut scores);
            slopes.fill(0.0);
            let d = Strided { data: &d_rows, row: dim, col: 1 };
            let slope = &mut slopes[block.start..];
            add_product(isa, [rows, keys, dim], d, &values_t[block.start..], padded, slope, padded);
            for (row, i) in block.rows.clone().enumerate() {
                let p = &mut scores[row * padded..][..block.end];
                p[..first_key[i] as usize].fill(f32::NEG_INFINITY);
                p[i + 1..].fill(f32::NEG_INFINITY);
                let seen = &out[i * shape.width_out() + head * dim..][..dim];
                let mean = inner(isa, seen, &d_rows[row * dim..][..dim]);
                let slope = &mut slopes[row * padded + block.start..row * padded + block.end];
                probabilities_and_slopes(isa, &mut p[block.start..], slope, stats[2 * i], stats[2 * i + 1], mean);
            }
            let into = block.start * dim..block.end * dim;
            let p_t = Strided { data: &scores[block.start..], row: 1, col: padded };
            add_product(isa, [keys, dim, rows], p_t, &d_rows, dim, &mut d_values[into.clone()], dim);
            let s_t = Strided { data: &slopes[block.start..], row: 1, col: padded };
            let queries = &heads.queries[block.rows.start * dim..];
            add_product(isa, [keys, dim, rows], s_t, queries, dim, &mut d_keys[into], dim);
            d_queries.fill(0.0);
            let s = Strided { data: &slopes[block.start..], row: padded, col: 1 };
            add_product(isa, [rows, dim, keys], s, &heads.keys[block.start * dim..], dim, &mut d_queries, dim);
            for (row, i) in block.rows.clone().enumerate() {
                let d = &mut d_queries[row * dim..][..dim];
                scale_assign(isa, d, scale);
                rotary.turn_back(isa, d, i);
                d_qkv[i * shape.width() + head * dim..][..dim].copy_from_slice(d);
            }
        }
        if head % group == group - 1 {
            let kv = head / group;
            for i in 0..n {
                let row = &mut d_qkv[i * shape.width()..][..shape.width()];
                let key = &mut d_keys[i * dim..][..dim];
                rotary.turn_back(isa, key, i);
                row[(shape.n_heads + kv) * dim..][..dim].copy_from_slice(key);
                let value = &d_values[i * dim..][..dim];
                row[(shape.n_heads + shape.n_kv_heads + kv) * dim..][..dim].copy_from_slice(value);
            }
        }
    }
}

/// A block of queries and the keys that any of them sees, in whole lanes.
struct Block {
    rows: std::ops::Range<usize>,
    start: usize,
    end: usize,
}

fn blocks(n: usize, first_key: &[u32]) -> impl Iterator<Item = Block> {
    (0..n).step_by(BLOCK).map(move |from| {
        let rows = from..(from + BLOCK).min(n);
        let first = first_key[rows.clone()].iter().min().map_or(0, |&first| first as usize);
        Block { start: first / LANES * LANES, end: rows.end.next_multiple_of(LANES), rows }
    })
}

/// One head's queries (turned and scaled), keys (turned; also transposed) and values, each contiguous.
struct Heads {
    shape: AttentionShape,
    queries: Vec<f32>,
    keys: Vec<f32>,
    keys_t: Vec<f32>,
    values: Vec<f32>,
}

impl Heads {
    fn new(shape: AttentionShape) -> Self {
        let zeros = || vec![0.0; shape.padded() * shape.head_dim];
        Self { shape, queries: zeros(), keys: zeros(), keys_t: zeros(), values: zeros() }
    }

    /// Loads query head `head`, and its key and value head when it is the first of its group.
    fn load(&mut self, isa: Isa, qkv: &[f32], rotary: &Rotary, head: usize) {
        let AttentionShape { n_tokens, n_heads, n_kv_heads, head_dim: dim } = self.shape;
        let group = n_heads / n_kv_heads;
        let scale = 1.0 / (dim as f32).sqrt();
        for i in 0..n_tokens {
            let row = &qkv[i * self.shape.width()..][..self.shape.width()];
            let query = &mut self.queries[i * dim..][..dim];
            query.copy_from_slice(&row[head * dim..][..dim]);
            rotary.turn(isa, query, i);
            scale_assign(isa, query, scale);
            if head.is_multiple_of(group) {
                let kv = head / group;
                let key = &mut self.keys[i * dim..][..dim];
                key.copy_from_slice(&row[(n_heads + kv) * dim..][..dim]);
                rotary.turn(isa, key, i);
                let value = &row[(n_heads + n_kv_heads + kv) * dim..][..dim];
                self.values[i * dim..][..dim].copy_from_slice(value);
            }
        }
        if head.is_multiple_of(group) {
            transpose(&self.keys[..n_tokens * dim], dim, &mut self.keys_t, self.shape.padded());
        }
    }

    /// The scores of a block's queries, rows `padded` apart, at the block's keys.
    fn scores(&self, isa: Isa, block: &Block, scores: &mut [f32]) {
        let (dim, padded) = (self.shape.head_dim, self.shape.padded());
        scores.fill(0.0);
        let queries = Strided { data: &self.queries[block.rows.start * dim..], row: dim, col: 1 };
        let size = [block.rows.len(), block.end - block.start, dim];
        add_product(isa, size, queries, &self.keys_t[block.start..], padded, &mut scores[block.start..], padded);
    }
}

/// `[rows, dim]` to `[dim, stride]`; what lies behind the rows stays.
fn transpose(x: &[f32], dim: usize, out: &mut [f32], stride: usize) {
    for (i, row) in x.chunks_exact(dim).enumerate() {
        for (j, value) in row.iter().enumerate() {
            out[j * stride + i] = *value;
        }
    }
}

per_isa! {
    fn softmax_unscaled_from(row: &mut [f32], start: usize) -> (f32, f32) = softmax_from_lanes;
}

#[inline(always)]
fn softmax_from_lanes<S: Simd>(simd: S, row: &mut [f32], start: usize) -> (f32, f32) {
    softmax_lanes(simd, &mut row[start..])
}

per_isa! {
    fn inner(x: &[f32], y: &[f32]) -> f32 = dot;
}

per_isa! {
    /// From scores and gradients of probabilities: the probabilities, and the gradients of the scores.
    fn probabilities_and_slopes(scores: &mut [f32], slopes: &mut [f32], max: f32, rate: f32, mean: f32) = slope_lanes;
}

#[inline(always)]
fn slope_lanes<S: Simd>(simd: S, scores: &mut [f32], slopes: &mut [f32], max: f32, rate: f32, mean: f32) {
    let (max, rate, mean) = (simd.splat(max), simd.splat(rate), simd.splat(mean));
    let (scores, _) = scores.as_chunks_mut::<LANES>();
    let (slopes, _) = slopes.as_chunks_mut::<LANES>();
    for (score, slope) in scores.iter_mut().zip(slopes) {
        let p = simd.mul(exp_lanes(simd, simd.sub(simd.load(score), max)), rate);
        simd.store(p, score);
        simd.store(simd.mul(p, simd.sub(simd.load(slope), mean)), slope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::testing::{Rng, assert_same_bits};

    const SHAPE: AttentionShape = AttentionShape { n_tokens: 41, n_heads: 4, n_kv_heads: 2, head_dim: 16 };

    fn rotary() -> Rotary {
        let angles = (0..SHAPE.n_tokens * 8).map(|i| (i / 8) as f64 * libm::pow(100.0, -((i % 8) as f64) / 8.0));
        let (cos, sin) = angles.map(|a| (libm::cos(a) as f32, libm::sin(a) as f32)).unzip();
        Rotary::new(cos, sin, 8)
    }

    fn first_key() -> Vec<u32> {
        (0..41).map(|i| if i < 19 { 0 } else { 19 }).collect()
    }

    /// The definition in f64: the output, row by row.
    fn exact(qkv: &[f64], rotary: &Rotary, first_key: &[u32]) -> Vec<f64> {
        let (dim, width) = (SHAPE.head_dim, SHAPE.width());
        let (cos, sin) = rotary.tables();
        let turned = |i: usize, at: usize| -> Vec<f64> {
            let x = &qkv[i * width + at..][..dim];
            (0..dim)
                .map(|j| {
                    let (c, s) = (f64::from(cos[i * 8 + j % 8]), f64::from(sin[i * 8 + j % 8]));
                    if j < 8 { x[j] * c - x[j + 8] * s } else { x[j] * c + x[j - 8] * s }
                })
                .collect()
        };
        let mut out = vec![0.0; SHAPE.n_tokens * SHAPE.width_out()];
        for head in 0..4 {
            for (i, &first) in first_key.iter().enumerate() {
                let query = turned(i, head * dim);
                let keys = first as usize..=i;
                let weights: Vec<f64> = keys
                    .clone()
                    .map(|k| {
                        let key = turned(k, (4 + head / 2) * dim);
                        libm::exp(query.iter().zip(&key).map(|(a, b)| a * b).sum::<f64>() / 4.0)
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for (k, weight) in keys.zip(&weights) {
                    for j in 0..dim {
                        out[i * SHAPE.width_out() + head * dim + j] +=
                            weight / total * qkv[k * width + (6 + head / 2) * dim + j];
                    }
                }
            }
        }
        out
    }

    #[test]
    fn forward_near_the_definition_and_backward_near_its_differences() {
        let mut rng = Rng(1);
        let (rotary, first_key) = (rotary(), first_key());
        let qkv = rng.uniforms(SHAPE.n_tokens * SHAPE.width(), -1.5..1.5);
        let d_out = rng.uniforms(SHAPE.n_tokens * SHAPE.width_out(), -1.0..1.0);
        let wide: Vec<f64> = qkv.iter().map(|&x| f64::from(x)).collect();
        let mut results: Vec<[Vec<f32>; 2]> = Vec::new();
        for isa in Isa::available() {
            let (mut out, mut stats) = (vec![0.0; d_out.len()], vec![0.0; SHAPE.n_stats()]);
            attention(isa, SHAPE, &qkv, &rotary, &first_key, &mut out, &mut stats);
            let mut d_qkv = vec![f32::NAN; qkv.len()];
            attention_backward(isa, SHAPE, &qkv, &rotary, &first_key, &out, &stats, &d_out, &mut d_qkv);
            if let Some([first_out, first_d]) = results.first() {
                assert_same_bits(&out, first_out, isa.name());
                assert_same_bits(&d_qkv, first_d, isa.name());
            }
            results.push([out, d_qkv]);
        }
        let [out, d_qkv] = &results[0];
        for (y, exact) in out.iter().zip(exact(&wide, &rotary, &first_key)) {
            assert!((f64::from(*y) - exact).abs() < 2e-6, "{y} and not {exact}");
        }
        let loss = |x: &[f64]| -> f64 {
            exact(x, &rotary, &first_key).iter().zip(&d_out).map(|(y, d)| y * f64::from(*d)).sum()
        };
        for _ in 0..60 {
            let at = rng.below(qkv.len());
            let mut moved = wide.clone();
            moved[at] += 1e-4;
            let above = loss(&moved);
            moved[at] -= 2e-4;
            let slope = (above - loss(&moved)) / 2e-4;
            assert!((f64::from(d_qkv[at]) - slope).abs() < 2e-5, "{} and not {slope} at {at}", d_qkv[at]);
        }
    }
}
