//! One chunk for all queries: scores, weights, weighted values.

use super::{AttentionState, KEY_CHUNK, KvChunk, KvType, SCALE_BLOCK};
use crate::ops::{exp, exp_lanes};
use crate::simd::{LANES, Simd, per_isa};

/// Queries that share each widened key and value in registers.
const MOST_QUERIES: usize = 6;

/// Sixteen-lane units of a chunk's positions, and of a scale's dimensions.
const UNITS: usize = KEY_CHUNK / LANES;

per_isa! {
    /// Lets each query see its part of the next chunk.
    ///
    /// `queries` is `[n_queries][head_dim]`, already scaled by `1 / sqrt(head_dim)`; `visible[i]` is the half-open range
    /// of the chunk's positions that query `i` sees, nothing when empty. A query that sees nothing keeps its state.
    /// Chunks come in ascending logical order. Neighbouring queries of the same range are computed together, so queries
    /// are best ordered by row, then by head. Panics when the shapes of chunk, queries and state differ.
    pub fn attend(chunk: KvChunk<'_>, queries: &[f32], visible: &[(u8, u8)], state: &mut AttentionState) = attend_lanes;
}

#[inline(always)]
fn attend_lanes<S: Simd>(
    simd: S,
    chunk: KvChunk<'_>,
    queries: &[f32],
    visible: &[(u8, u8)],
    state: &mut AttentionState,
) {
    let head_dim = chunk.head_dim();
    assert_eq!(state.head_dim, head_dim, "dimensions of the state");
    assert!(
        visible.len() == state.n_queries() && queries.len() == visible.len() * head_dim,
        "a query and a range for each of the state's {} queries",
        state.n_queries()
    );
    let mut first = 0;
    while let Some(&range) = visible.get(first) {
        let (start, end) = (usize::from(range.0), usize::from(range.1));
        assert!(end <= KEY_CHUNK, "position {end} of {KEY_CHUNK}");
        let n = visible[first..].iter().take(MOST_QUERIES).take_while(|&&other| other == range).count();
        if start < end {
            let run = Run { chunk, queries, first, start, end };
            match chunk.kv_type() {
                KvType::F16 => run.attend::<S, F16>(simd, n, state),
                KvType::Q8_0 => run.attend::<S, Q8>(simd, n, state),
            }
        }
        first += n;
    }
}

/// How one unit of values is stored.
trait Format {
    type Unit: Copy;
    /// Whether there are scales.
    const SCALED: bool;
    fn units(bytes: &[u8]) -> &[Self::Unit];
    fn load<S: Simd>(simd: S, unit: &Self::Unit) -> S::F;
}

struct F16;

impl Format for F16 {
    type Unit = [u8; 2 * LANES];
    const SCALED: bool = false;

    #[inline(always)]
    fn units(bytes: &[u8]) -> &[Self::Unit] {
        bytes.as_chunks().0
    }
    #[inline(always)]
    fn load<S: Simd>(simd: S, unit: &Self::Unit) -> S::F {
        simd.load_f16(unit)
    }
}

struct Q8;

impl Format for Q8 {
    type Unit = [u8; LANES];
    const SCALED: bool = true;

    #[inline(always)]
    fn units(bytes: &[u8]) -> &[Self::Unit] {
        bytes.as_chunks().0
    }
    #[inline(always)]
    fn load<S: Simd>(simd: S, unit: &Self::Unit) -> S::F {
        simd.load_i8(unit)
    }
}

/// The scales of the positions of one unit for each block of dimensions: `[head_dim / 32][UNITS]`.
#[inline(always)]
fn scales(bytes: &[u8]) -> &[[[u8; 2 * LANES]; UNITS]] {
    bytes.as_chunks::<{ 2 * LANES }>().0.as_chunks::<UNITS>().0
}

/// Neighbouring queries from `first` on that see the positions `start..end`.
#[derive(Clone, Copy)]
struct Run<'a> {
    chunk: KvChunk<'a>,
    queries: &'a [f32],
    first: usize,
    start: usize,
    end: usize,
}

/// The scores, then the weights, of `Q` queries.
type Weights<const Q: usize> = [[[f32; LANES]; UNITS]; Q];

impl Run<'_> {
    #[inline(always)]
    fn attend<S: Simd, T: Format>(self, simd: S, n: usize, state: &mut AttentionState) {
        match n {
            1 => self.attend_some::<S, T, 1>(simd, state),
            2 => self.attend_some::<S, T, 2>(simd, state),
            3 => self.attend_some::<S, T, 3>(simd, state),
            4 => self.attend_some::<S, T, 4>(simd, state),
            5 => self.attend_some::<S, T, 5>(simd, state),
            _ => self.attend_some::<S, T, MOST_QUERIES>(simd, state),
        }
    }

    #[inline(always)]
    fn attend_some<S: Simd, T: Format, const Q: usize>(self, simd: S, state: &mut AttentionState) {
        let mut weights = [[[0.0; LANES]; UNITS]; Q];
        let mut decays = [0.0; Q];
        if S::WIDE {
            self.score::<S, T, Q, 2>(simd, &mut weights);
        } else {
            self.score::<S, T, Q, 1>(simd, &mut weights);
        }
        for q in 0..Q {
            let (m, l) = (&mut state.m[self.first + q], &mut state.l[self.first + q]);
            decays[q] = self.weigh(simd, &mut weights[q], m, l);
        }
        let head_dim = self.chunk.head_dim();
        let acc = &mut state.acc[self.first * head_dim..(self.first + Q) * head_dim];
        if S::WIDE {
            self.add_values::<S, T, Q, 2>(simd, &weights, &decays, acc);
        } else {
            self.add_values::<S, T, Q, 1>(simd, &weights, &decays, acc);
        }
    }

    /// The scores of all positions of the chunk, `U` units at a time; those not seen are arbitrary.
    #[inline(always)]
    fn score<S: Simd, T: Format, const Q: usize, const U: usize>(self, simd: S, scores: &mut Weights<Q>) {
        let head_dim = self.chunk.head_dim();
        let (scale_bytes, k) = self.chunk.k_parts();
        let v = self.chunk.v_parts().1;
        let blocks = T::units(k).as_chunks::<UNITS>().0.as_chunks::<SCALE_BLOCK>().0;
        let queries: [&[[f32; SCALE_BLOCK]]; Q] =
            std::array::from_fn(|q| self.queries[(self.first + q) * head_dim..][..head_dim].as_chunks().0);
        let zero = simd.splat(0.0);
        for unit in (0..UNITS).step_by(U) {
            let mut sums = [[zero; U]; Q];
            for (index, block) in blocks.iter().enumerate() {
                let query: [&[f32; SCALE_BLOCK]; Q] = std::array::from_fn(|q| &queries[q][index]);
                let mut chains = if T::SCALED { [[zero; U]; Q] } else { sums };
                for (d, row) in block.iter().enumerate() {
                    if self.first == 0 && unit == 0 {
                        // K and V are of one size: V arrives while K is used.
                        simd.prefetch(&v[(index * SCALE_BLOCK + d) * size_of_val(row)..]);
                    }
                    let mut k = [zero; U];
                    for u in 0..U {
                        k[u] = T::load(simd, &row[unit + u]);
                    }
                    for q in 0..Q {
                        let x = simd.splat(query[q][d]);
                        for u in 0..U {
                            chains[q][u] = simd.fma(x, k[u], chains[q][u]);
                        }
                    }
                }
                if T::SCALED {
                    for u in 0..U {
                        let scale = simd.load_f16(&scales(scale_bytes)[index][unit + u]);
                        for q in 0..Q {
                            sums[q][u] = simd.fma(scale, chains[q][u], sums[q][u]);
                        }
                    }
                } else {
                    sums = chains;
                }
            }
            for q in 0..Q {
                for u in 0..U {
                    simd.store(sums[q][u], &mut scores[q][unit + u]);
                }
            }
        }
    }

    /// Turns one query's scores into weights, updates its maximum and sum, and returns by what its values decay.
    #[inline(always)]
    fn weigh<S: Simd>(self, simd: S, scores: &mut [[f32; LANES]; UNITS], m: &mut f32, l: &mut f32) -> f32 {
        let none = simd.splat(f32::NEG_INFINITY);
        let mut seen = [none; UNITS];
        for (unit, seen) in seen.iter_mut().enumerate() {
            let positions = simd.add_u(simd.splat_u((unit * LANES) as u32), simd.load_u(&IOTA));
            let score = simd.load(&scores[unit]);
            let score = simd.select(simd.le_u(simd.splat_u(self.start as u32), positions), score, none);
            *seen = simd.select(simd.le_u(positions, simd.splat_u(self.end as u32 - 1)), score, none);
        }
        // Taken against minus infinity a NaN drops out, so that the order of the rest does not matter.
        let greatest = simd.greatest(simd.max(simd.max(seen[0], none), simd.max(seen[1], none)));
        let old = *m;
        *m = if greatest > old { greatest } else { old };
        let decay = if *m == old { 1.0 } else { exp(old - *m) };
        let mut weights = seen;
        for (weights, scores) in weights.iter_mut().zip(scores) {
            *weights = exp_lanes(simd, simd.sub(*weights, simd.splat(*m)));
            simd.store(*weights, scores);
        }
        *l = l.mul_add(decay, simd.sum(simd.add(weights[0], weights[1])));
        decay
    }

    /// Decays `acc` `[Q][head_dim]` and adds the weighted values, `U` units of dimensions at a time.
    #[inline(always)]
    fn add_values<S: Simd, T: Format, const Q: usize, const U: usize>(
        self,
        simd: S,
        weights: &Weights<Q>,
        decays: &[f32; Q],
        acc: &mut [f32],
    ) {
        let n_units = self.chunk.head_dim() / LANES;
        let (scale_bytes, v) = self.chunk.v_parts();
        let rows = T::units(v);
        let acc = acc.as_chunks_mut::<LANES>().0;
        let mut scaled = *weights;
        for unit in (0..n_units).step_by(U) {
            if T::SCALED && unit % UNITS == 0 {
                for half in 0..UNITS {
                    let scale = simd.load_f16(&scales(scale_bytes)[unit / UNITS][half]);
                    for q in 0..Q {
                        simd.store(simd.mul(simd.load(&weights[q][half]), scale), &mut scaled[q][half]);
                    }
                }
            }
            let weights: [&[f32; KEY_CHUNK]; Q] =
                std::array::from_fn(|q| scaled[q].as_flattened().try_into().expect("all positions"));
            let zero = simd.splat(0.0);
            let mut sums = [[zero; U]; Q];
            for q in 0..Q {
                for u in 0..U {
                    sums[q][u] = simd.mul(simd.load(&acc[q * n_units + unit + u]), simd.splat(decays[q]));
                }
            }
            for position in self.start..self.end.min(KEY_CHUNK) {
                if self.first == 0
                    && let Some(line) = self.chunk.next_k_line(unit / U * KEY_CHUNK + position)
                {
                    simd.prefetch(line);
                }
                let row: &[T::Unit; U] = rows[position * n_units + unit..].first_chunk().expect("inside the row");
                let mut v = [zero; U];
                for u in 0..U {
                    v[u] = T::load(simd, &row[u]);
                }
                for q in 0..Q {
                    let w = simd.splat(weights[q][position]);
                    for u in 0..U {
                        sums[q][u] = simd.fma(w, v[u], sums[q][u]);
                    }
                }
            }
            for q in 0..Q {
                for u in 0..U {
                    simd.store(sums[q][u], &mut acc[q * n_units + unit + u]);
                }
            }
        }
    }
}

const IOTA: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
