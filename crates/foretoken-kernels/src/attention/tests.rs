//! The chains as documented, in plain loops; f64; and a query's independence of its company.

#![expect(clippy::needless_range_loop, reason = "the loops are the formulas")]

use super::*;
use crate::Isa;
use crate::ops::exp;
use crate::simd::testing::{Rng, assert_same_bits};
use half::f16;

/// One kv head's chunk and what was stored in it, `[position][d]`.
struct Stored {
    kv_type: KvType,
    head_dim: usize,
    k: Vec<u8>,
    v: Vec<u8>,
}

impl Stored {
    fn garbage(kv_type: KvType, head_dim: usize, rng: &mut Rng) -> Self {
        let mut bytes = || (0..kv_type.chunk_bytes(head_dim)).map(|_| rng.next_u64() as u8).collect();
        Self { kv_type, head_dim, k: bytes(), v: bytes() }
    }

    /// Random rows at `positions`, garbage elsewhere.
    fn random(kv_type: KvType, head_dim: usize, positions: std::ops::Range<usize>, rng: &mut Rng) -> Self {
        let mut stored = Self::garbage(kv_type, head_dim, rng);
        for position in positions {
            let rows = [(); 2].map(|()| rng.uniforms(head_dim, -2.0..2.0));
            let mut chunk = stored.chunk_mut();
            chunk.store_k(Isa::best(), position, &rows[0]);
            chunk.store_v(Isa::best(), position, &rows[1]);
        }
        stored
    }

    fn chunk(&self) -> KvChunk<'_> {
        KvChunk::new(self.kv_type, self.head_dim, &self.k, &self.v)
    }

    fn chunk_mut(&mut self) -> KvChunkMut<'_> {
        KvChunkMut::new(self.kv_type, self.head_dim, &mut self.k, &mut self.v)
    }

    /// Scale (1 for f16) and value of the key or value of a position.
    fn read(&self, is_k: bool, position: usize, d: usize) -> (f32, f32) {
        let bytes = if is_k { &self.k } else { &self.v };
        let index = if is_k { d * KEY_CHUNK + position } else { position * self.head_dim + d };
        let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        match self.kv_type {
            KvType::F16 => (1.0, half(2 * index)),
            KvType::Q8_0 => {
                let scales = 2 * KEY_CHUNK * (self.head_dim / SCALE_BLOCK);
                (half(2 * (d / SCALE_BLOCK * KEY_CHUNK + position)), f32::from(bytes[scales + index] as i8))
            }
        }
    }

    fn value(&self, is_k: bool, position: usize, d: usize) -> f64 {
        let (scale, value) = self.read(is_k, position, d);
        f64::from(scale) * f64::from(value)
    }
}

/// The documented arithmetic of one query.
fn attend_plainly(stored: &Stored, query: &[f32], (start, end): (u8, u8), m: &mut f32, l: &mut f32, acc: &mut [f32]) {
    let (start, end) = (usize::from(start), usize::from(end));
    if start >= end {
        return;
    }
    let mut scores = [f32::NEG_INFINITY; KEY_CHUNK];
    for position in start..end {
        let mut score = 0.0f32;
        match stored.kv_type {
            KvType::F16 => {
                for d in 0..stored.head_dim {
                    score = query[d].mul_add(stored.read(true, position, d).1, score);
                }
            }
            KvType::Q8_0 => {
                for block in 0..stored.head_dim / SCALE_BLOCK {
                    let mut chain = 0.0f32;
                    for d in block * SCALE_BLOCK..(block + 1) * SCALE_BLOCK {
                        chain = query[d].mul_add(stored.read(true, position, d).1, chain);
                    }
                    score = stored.read(true, position, block * SCALE_BLOCK).0.mul_add(chain, score);
                }
            }
        }
        scores[position] = score;
    }
    let old = *m;
    *m = scores.iter().fold(old, |a, &s| if s > a { s } else { a });
    let decay = if *m == old { 1.0 } else { exp(old - *m) };
    let weights = scores.map(|s| exp(s - *m));
    let mut lanes: [f32; 16] = std::array::from_fn(|i| weights[i] + weights[i + 16]);
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|i| lanes[i] += lanes[i + half]);
    }
    *l = l.mul_add(decay, lanes[0]);
    for (d, acc) in acc.iter_mut().enumerate() {
        *acc *= decay;
        for position in start..end {
            let (scale, value) = stored.read(false, position, d);
            *acc = (weights[position] * scale).mul_add(value, *acc);
        }
    }
}

fn ranges(n: usize, rng: &mut Rng) -> Vec<(u8, u8)> {
    let mut ranges = Vec::new();
    while ranges.len() < n {
        let range = match rng.below(4) {
            0 => (0, 32),
            1 => (0, rng.below(33) as u8),
            2 => (rng.below(33) as u8, 32),
            _ => (rng.below(33) as u8, rng.below(33) as u8),
        };
        ranges.extend(std::iter::repeat_n(range, 1 + rng.below(9)));
    }
    ranges.truncate(n);
    ranges
}

/// All chunks through `attend`; queries `[n][head_dim]`, one list of ranges for each chunk.
fn run(isa: Isa, chunks: &[Stored], queries: &[f32], visible: &[Vec<(u8, u8)>]) -> AttentionState {
    let mut state = AttentionState::new();
    state.reset(visible[0].len(), chunks[0].head_dim);
    for (chunk, visible) in chunks.iter().zip(visible) {
        attend(isa, chunk.chunk(), queries, visible, &mut state);
    }
    state
}

#[track_caller]
fn assert_same_state(actual: &AttentionState, expected: &AttentionState, what: &str) {
    assert_same_bits(&actual.m, &expected.m, &format!("{what}: m"));
    assert_same_bits(&actual.l, &expected.l, &format!("{what}: l"));
    assert_same_bits(&actual.acc, &expected.acc, &format!("{what}: acc"));
}

#[test]
fn every_version_follows_the_documented_chains() {
    let mut rng = Rng(1);
    for round in 0..60 {
        let kv_type = [KvType::F16, KvType::Q8_0][round % 2];
        let head_dim = [32, 64, 96, 128, 256][round % 5];
        let n = [1, 2, 3, 4, 5, 6, 7, 12, 13, 0][round % 10];
        // Garbage is any bits: infinities, NaNs and denormals too.
        let seen = if round % 3 == 0 { 0..0 } else { 0..KEY_CHUNK };
        let chunks: Vec<Stored> = (0..3).map(|_| Stored::random(kv_type, head_dim, seen.clone(), &mut rng)).collect();
        let queries = rng.uniforms(n * head_dim, -1.0..1.0);
        let visible: Vec<_> = (0..3).map(|_| ranges(n, &mut rng)).collect();
        let mut expected = AttentionState::new();
        expected.reset(n, head_dim);
        for (chunk, visible) in chunks.iter().zip(&visible) {
            for q in 0..n {
                let row = q * head_dim..(q + 1) * head_dim;
                let (m, l, acc) = (&mut expected.m[q], &mut expected.l[q], &mut expected.acc[row.clone()]);
                attend_plainly(chunk, &queries[row], visible[q], m, l, acc);
            }
        }
        for isa in Isa::available() {
            let state = run(isa, &chunks, &queries, &visible);
            assert_same_state(&state, &expected, &format!("{isa} {kv_type:?} {head_dim} {n}"));
        }
    }
}

#[test]
fn near_softmax_in_f64_over_splits_and_windows() {
    let mut rng = Rng(2);
    for (kv_type, bound) in [(KvType::F16, 2e-6), (KvType::Q8_0, 2e-6)] {
        let (head_dim, n_chunks, n) = (64, 7, 3);
        let chunks: Vec<Stored> =
            (0..n_chunks).map(|_| Stored::random(kv_type, head_dim, 0..KEY_CHUNK, &mut rng)).collect();
        let queries = rng.uniforms(n * head_dim, -2.0..2.0);
        // A window of logical positions for each query.
        let windows = [(0, 224), (40, 101), (97, 98)];
        let visible: Vec<Vec<(u8, u8)>> = (0..n_chunks)
            .map(|chunk| {
                let local = |position: usize| position.saturating_sub(chunk * KEY_CHUNK).min(KEY_CHUNK) as u8;
                windows.iter().map(|&(start, end)| (local(start), local(end))).collect()
            })
            .collect();
        let mut state = run(Isa::best(), &chunks[..3], &queries, &visible[..3]);
        for split in [3..4, 4..7] {
            combine(Isa::best(), &mut state, &run(Isa::best(), &chunks[split.clone()], &queries, &visible[split]));
        }
        let mut out = vec![0.0; n * head_dim];
        finish(Isa::best(), &state, &mut out);
        for (q, (start, end)) in windows.into_iter().enumerate() {
            let query = &queries[q * head_dim..][..head_dim];
            let at = |position: usize| (&chunks[position / KEY_CHUNK], position % KEY_CHUNK);
            let score = |position| {
                let (chunk, p) = at(position);
                query.iter().enumerate().map(|(d, &x)| f64::from(x) * chunk.value(true, p, d)).sum::<f64>()
            };
            let scores: Vec<f64> = (start..end).map(score).collect();
            let max = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| libm::exp(s - max)).collect();
            for d in 0..head_dim {
                let value = |position| at(position).0.value(false, at(position).1, d);
                let sum: f64 = (start..end).zip(&weights).map(|(position, w)| w * value(position)).sum();
                let exact = sum / weights.iter().sum::<f64>();
                let actual = f64::from(out[q * head_dim + d]);
                assert!((actual - exact).abs() <= bound * 2.0, "{kv_type:?}: {actual} and not {exact}");
            }
        }
    }
}

#[test]
fn a_query_does_not_notice_its_company_or_what_it_cannot_see() {
    let mut rng = Rng(3);
    for round in 0..40 {
        let kv_type = [KvType::F16, KvType::Q8_0][round % 2];
        let (head_dim, n, n_chunks) = ([64, 128][round / 2 % 2], 1 + rng.below(40), 3);
        let isa = Isa::available()[round % Isa::available().len()];
        let chunks: Vec<Stored> =
            (0..n_chunks).map(|_| Stored::random(kv_type, head_dim, 0..KEY_CHUNK, &mut rng)).collect();
        let queries = rng.uniforms(n * head_dim, -1.0..1.0);
        let visible: Vec<_> = (0..n_chunks).map(|_| ranges(n, &mut rng)).collect();
        let all = run(isa, &chunks, &queries, &visible);

        // Any of them, in any order; everything that none of the chosen sees is replaced.
        let chosen: Vec<usize> = (0..1 + rng.below(n)).map(|_| rng.below(n)).collect();
        let pick = |list: &[(u8, u8)]| chosen.iter().map(|&q| list[q]).collect::<Vec<_>>();
        let some_visible: Vec<Vec<(u8, u8)>> = visible.iter().map(|list| pick(list)).collect();
        let some_queries: Vec<f32> =
            chosen.iter().flat_map(|&q| &queries[q * head_dim..(q + 1) * head_dim]).copied().collect();
        let mut other_chunks = Vec::new();
        for (chunk, ranges) in chunks.iter().zip(&some_visible) {
            let mut other = Stored::garbage(kv_type, head_dim, &mut rng);
            for position in 0..KEY_CHUNK {
                if ranges.iter().any(|&(start, end)| (start..end).contains(&(position as u8))) {
                    other.chunk_mut().copy_position(chunk.chunk(), position, position);
                }
            }
            other_chunks.push(other);
        }
        let some = run(isa, &other_chunks, &some_queries, &some_visible);
        for (i, &q) in chosen.iter().enumerate() {
            let what = format!("{isa} {kv_type:?}, query {q} of {n}");
            assert_same_bits(&some.m[i..=i], &all.m[q..=q], &what);
            assert_same_bits(&some.l[i..=i], &all.l[q..=q], &what);
            assert_same_bits(&some.acc[i * head_dim..][..head_dim], &all.acc[q * head_dim..][..head_dim], &what);
        }
    }
}

#[test]
fn combining_and_finishing_are_the_same_everywhere_and_keep_what_saw_nothing() {
    let mut rng = Rng(4);
    let (head_dim, n) = (96, 4);
    let mut side = |seen: [bool; 4]| {
        let chunks = [Stored::random(KvType::F16, head_dim, 0..KEY_CHUNK, &mut rng)];
        let visible = [seen.map(|seen| if seen { (0, 32) } else { (5, 5) }).to_vec()];
        run(Isa::best(), &chunks, &rng.uniforms(n * head_dim, -1.0..1.0), &visible)
    };
    let (early, late) = (side([true, true, false, false]), side([true, false, true, false]));
    let mut expected = early.clone();
    combine(Isa::Scalar, &mut expected, &late);
    assert_eq!(expected.acc[head_dim..2 * head_dim], early.acc[head_dim..2 * head_dim]);
    assert_eq!(expected.acc[2 * head_dim..3 * head_dim], late.acc[2 * head_dim..3 * head_dim]);
    let mut expected_out = vec![f32::NAN; n * head_dim];
    finish(Isa::Scalar, &expected, &mut expected_out);
    assert_eq!(expected_out[3 * head_dim..], vec![0.0; head_dim]);
    for isa in Isa::available() {
        let mut state = early.clone();
        combine(isa, &mut state, &late);
        assert_same_state(&state, &expected, isa.name());
        let mut out = vec![f32::NAN; n * head_dim];
        finish(isa, &state, &mut out);
        assert_same_bits(&out, &expected_out, isa.name());
    }
}

#[test]
fn a_bad_number_that_is_seen_shows() {
    let mut rng = Rng(5);
    for kv_type in [KvType::F16, KvType::Q8_0] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            for in_k in [true, false] {
                let mut stored = Stored::random(kv_type, 64, 0..KEY_CHUNK, &mut rng);
                let mut row = rng.uniforms(64, -1.0..1.0);
                row[40] = bad;
                let mut chunk = stored.chunk_mut();
                if in_k {
                    chunk.store_k(Isa::best(), 9, &row)
                } else {
                    chunk.store_v(Isa::best(), 9, &row)
                }
                let queries = vec![0.5; 64];
                let result = |range| {
                    let state = run(Isa::best(), std::slice::from_ref(&stored), &queries, &[vec![range]]);
                    let mut out = vec![0.0; 64];
                    finish(Isa::best(), &state, &mut out);
                    out
                };
                assert!(result((0, 9)).iter().all(|x| x.is_finite()));
                // A score of minus infinity is no weight at all, which is right.
                let is_minus_infinity = kv_type == KvType::F16 && in_k && bad == f32::NEG_INFINITY;
                assert_eq!(result((0, 32)).iter().any(|x| !x.is_finite()), !is_minus_infinity, "{kv_type:?} {bad}");
            }
        }
    }
}

#[test]
fn stored_rows_are_rounded_once_and_copied_exactly() {
    let mut rng = Rng(6);
    for kv_type in [KvType::F16, KvType::Q8_0] {
        for head_dim in [32, 64, 256] {
            let mut stored = Stored::garbage(kv_type, head_dim, &mut rng);
            let scale = [1e-3, 1.0, 300.0][rng.below(3)];
            let rows: Vec<[Vec<f32>; 2]> =
                (0..KEY_CHUNK).map(|_| [(); 2].map(|()| rng.uniforms(head_dim, -scale..scale))).collect();
            for (position, [k, v]) in rows.iter().enumerate() {
                stored.chunk_mut().store_k(Isa::best(), position, k);
                stored.chunk_mut().store_v(Isa::best(), position, v);
            }
            for (position, row) in rows.iter().enumerate() {
                for (row, is_k) in row.iter().zip([true, false]) {
                    for (d, &x) in row.iter().enumerate() {
                        let actual = stored.value(is_k, position, d);
                        let block = &row[d / SCALE_BLOCK * SCALE_BLOCK..][..SCALE_BLOCK];
                        let greatest = block.iter().fold(0.0f32, |a, x| a.max(x.abs()));
                        let bound = match kv_type {
                            KvType::F16 => (x.abs() / 2048.0).max(3e-8),
                            // Half a step, and the scale's own rounding at the limit; small scales are denormal.
                            KvType::Q8_0 => greatest * (0.5 / 127.0 + 1.0 / 2048.0) + 127.0 * 3e-8,
                        };
                        assert!((actual - f64::from(x)).abs() <= f64::from(bound), "{kv_type:?}: {actual} and not {x}");
                    }
                }
            }
            let mut copy = Stored::garbage(kv_type, head_dim, &mut rng);
            for position in 0..KEY_CHUNK {
                copy.chunk_mut().copy_position(stored.chunk(), position, KEY_CHUNK - 1 - position);
            }
            for position in 0..KEY_CHUNK / 2 {
                copy.chunk_mut().copy_within(KEY_CHUNK - 1 - position, position);
            }
            for (position, is_k, d) in (0..KEY_CHUNK).flat_map(|p| (0..head_dim).map(move |d| (p, d % 3 == 0, d))) {
                let source = position.min(KEY_CHUNK - 1 - position);
                assert_eq!(copy.read(is_k, position, d), stored.read(is_k, source, d));
            }
        }
    }
}
