//! Attention of a few queries over one kv head's keys and values, a chunk of positions at a time.
//!
//! Softmax is taken online (Milakov and Gimelshein, arXiv 1805.02867), over chunks of [`KEY_CHUNK`] logical positions in
//! ascending order. K and V are read once for all queries, that is all rows and all query heads of the group, and widened
//! in registers. For a query `q` that sees the positions `p` of `start..end` of a chunk:
//!
//! - `s[p]` is one chain of fused multiply-adds over `d`: `s = fma(q[d], K[d][p], s)` from zero. In `q8_0` there is one
//!   such chain for each 32 dimensions, and `s = fma(scale, chain, s)` joins them.
//! - `m' = max(m, s[p]...)`, NaNs left out; `a = exp(m - m')`, 1 when equal; `w[p] = exp(s[p] - m')`, 0 for a position not seen.
//! - `l' = fma(l, a, sum of w)`: the sum of `w[i] + w[i + 16]` in sixteen lanes, combined in a fixed tree.
//! - `acc[d] = acc[d] * a`, then over `p` from `start` to `end` `acc[d] = fma(w[p], V[p][d], acc[d])`; in `q8_0` with
//!   `w[p] * scale` for `w[p]`.
//!
//! No other query, and nothing that lies in a position not seen, takes part. A score that is NaN or infinite makes its
//! query's result NaN.

mod attend;
mod chunk;
mod state;
#[cfg(test)]
mod tests;

pub use attend::attend;
pub use chunk::{KvChunk, KvChunkMut, KvType};
pub use state::{AttentionState, combine, finish, finish_query};

/// Logical positions of a chunk.
pub const KEY_CHUNK: usize = 32;

/// Dimensions of a head that share one scale in `q8_0`; every head's dimension is a multiple.
pub const SCALE_BLOCK: usize = 32;

/// The greatest dimension of a head.
pub const MAX_HEAD_DIM: usize = 256;
