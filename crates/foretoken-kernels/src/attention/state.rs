//! What attention has gathered so far, for each query.

use crate::Isa;
use crate::ops::exp;
use crate::simd::{LANES, Simd, per_isa};

/// Maximum, sum and weighted values of the positions seen so far, for each query.
#[derive(Clone, Debug, Default)]
pub struct AttentionState {
    pub(super) head_dim: usize,
    /// The greatest score, `[n_queries]`.
    pub(super) m: Vec<f32>,
    /// The sum of `exp(score - m)`, `[n_queries]`; 0 while nothing was seen, else at least 1 or NaN.
    pub(super) l: Vec<f32>,
    /// The sum of `exp(score - m)` times the value, `[n_queries][head_dim]`.
    pub(super) acc: Vec<f32>,
}

impl AttentionState {
    /// A state of no queries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts over with queries that have seen nothing; keeps the allocation.
    pub fn reset(&mut self, n_queries: usize, head_dim: usize) {
        self.head_dim = head_dim;
        self.m.clear();
        self.m.resize(n_queries, f32::NEG_INFINITY);
        self.l.clear();
        self.l.resize(n_queries, 0.0);
        self.acc.clear();
        self.acc.resize(n_queries * head_dim, 0.0);
    }

    /// Number of queries.
    pub fn n_queries(&self) -> usize {
        self.m.len()
    }

    /// Dimensions of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }
}

/// Adds what the same queries saw at later positions.
///
/// A query that saw nothing on one side keeps the other side's state as it is.
pub fn combine(isa: Isa, state: &mut AttentionState, later: &AttentionState) {
    assert!(state.head_dim == later.head_dim && state.m.len() == later.m.len(), "states of the same queries");
    for query in 0..later.m.len() {
        let (old, new) = (state.m[query], later.m[query]);
        let range = query * state.head_dim..(query + 1) * state.head_dim;
        if later.l[query] == 0.0 {
            continue;
        }
        if state.l[query] == 0.0 {
            state.m[query] = new;
            state.l[query] = later.l[query];
            state.acc[range.clone()].copy_from_slice(&later.acc[range]);
            continue;
        }
        let m = if new > old { new } else { old };
        let weight = |x: f32| if x == m { 1.0 } else { exp(x - m) };
        let (a, b) = (weight(old), weight(new));
        state.m[query] = m;
        state.l[query] = state.l[query].mul_add(a, later.l[query] * b);
        weighted_sum(isa, &mut state.acc[range.clone()], a, &later.acc[range], b);
    }
}

per_isa! {
    /// `x = fma(x, a, y * b)`.
    fn weighted_sum(x: &mut [f32], a: f32, y: &[f32], b: f32) = weighted_sum_lanes;
}

#[inline(always)]
fn weighted_sum_lanes<S: Simd>(simd: S, x: &mut [f32], a: f32, y: &[f32], b: f32) {
    let (a, b) = (simd.splat(a), simd.splat(b));
    // Heads are multiples of 32.
    for (x, y) in x.as_chunks_mut::<LANES>().0.iter_mut().zip(y.as_chunks::<LANES>().0) {
        simd.store(simd.fma(simd.load(x), a, simd.mul(simd.load(y), b)), x);
    }
}

/// The result of every query: `out` is `[n_queries][head_dim]`.
pub fn finish(isa: Isa, state: &AttentionState, out: &mut [f32]) {
    assert_eq!(out.len(), state.acc.len(), "a head for each query");
    for (query, out) in out.chunks_exact_mut(state.head_dim.max(1)).enumerate() {
        finish_query(isa, state, query, out);
    }
}

/// The result `[head_dim]` of one query, `acc * (1 / l)`; zeros when it has seen nothing.
pub fn finish_query(isa: Isa, state: &AttentionState, query: usize, out: &mut [f32]) {
    assert_eq!(out.len(), state.head_dim, "one value for each dimension");
    let l = state.l[query];
    let inverse = if l == 0.0 { 0.0 } else { 1.0 / l };
    scaled(isa, &state.acc[query * state.head_dim..][..state.head_dim], inverse, out);
}

per_isa! {
    /// `out = x * factor`.
    fn scaled(x: &[f32], factor: f32, out: &mut [f32]) = scaled_lanes;
}

#[inline(always)]
fn scaled_lanes<S: Simd>(simd: S, x: &[f32], factor: f32, out: &mut [f32]) {
    for (x, out) in x.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut::<LANES>().0) {
        simd.store(simd.mul(simd.load(x), simd.splat(factor)), out);
    }
}
