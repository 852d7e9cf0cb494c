//! A weight matrix packed for the kernels: made from GGUF bytes tile by tile, in parallel, and readable row by row.

use std::ops::Range;

use rayon::prelude::*;

use super::layout::{Layout, TILE_ROWS};
use crate::arena::ArenaSlice;
use crate::quant::{Block, WeightType, decode, dequantize_row, quantize_q4_0_row};

/// Bytes of the file that one packing task reads at once.
const READ_BYTES: usize = 256 << 10;

/// Weights of shape `[n_out][n_in]`, packed in tiles of 16 output rows.
#[derive(Debug)]
pub struct Matrix {
    storage: WeightType,
    n_out: usize,
    n_in: usize,
    data: ArenaSlice,
}

impl Matrix {
    /// Bytes that [`Matrix::pack`] needs: at most 4 % more than the file's, plus the padding of `n_out` to 16.
    ///
    /// Panics unless `n_in` is a multiple of the type's block.
    pub fn packed_bytes(storage: WeightType, n_out: usize, n_in: usize) -> usize {
        assert!(n_in.is_multiple_of(storage.block_len()), "{storage:?} rows are multiples of {}", storage.block_len());
        n_out.div_ceil(TILE_ROWS) * Layout::of(storage).tile_bytes(n_in)
    }

    /// Packs weights of type `source`, reading them through `read`, on rayon's threads.
    ///
    /// `storage` is `source`, `F32` or `F16` to widen, or `Q4_0` to make it smaller. `dest` is zeroed and has [`Matrix::packed_bytes`] bytes. `read` fills its buffer with the
    /// GGUF bytes of the given weight rows; `done` hears how many of them have been packed. The first error of `read` is returned.
    /// Panics when `storage`, `n_in` or the size of `dest` do not fit.
    pub fn pack<E: Send>(
        storage: WeightType,
        source: WeightType,
        n_out: usize,
        n_in: usize,
        mut dest: ArenaSlice,
        read: impl Fn(Range<usize>, &mut [u8]) -> Result<(), E> + Sync,
        done: impl Fn(usize) + Sync,
    ) -> Result<Matrix, E> {
        let takes_any = matches!(storage, WeightType::F32 | WeightType::F16 | WeightType::Q4_0);
        assert!(storage == source || takes_any, "{source:?} cannot be stored as {storage:?}");
        assert_eq!(dest.len(), Matrix::packed_bytes(storage, n_out, n_in), "packed bytes");
        let row_bytes = source.row_bytes(n_in);
        let tile_bytes = Layout::of(storage).tile_bytes(n_in);
        if dest.is_empty() {
            return Ok(Matrix { storage, n_out, n_in, data: dest });
        }
        let tiles_a_task = (READ_BYTES / (TILE_ROWS * row_bytes).max(1)).max(1);
        dest.par_chunks_mut(tiles_a_task * tile_bytes).enumerate().try_for_each_init(
            || (Vec::new(), Vec::new(), Vec::new()),
            |(bytes, values, blocks), (task, tiles)| {
                let first = task * tiles_a_task * TILE_ROWS;
                let rows = first..(first + tiles_a_task * TILE_ROWS).min(n_out);
                bytes.resize(rows.len() * row_bytes, 0);
                read(rows, bytes)?;
                let file_tiles = bytes.chunks(TILE_ROWS * row_bytes);
                for (tile, rows) in tiles.chunks_exact_mut(tile_bytes).zip(file_tiles) {
                    if storage.is_float() {
                        pack_floats(storage, source, n_in, rows, tile, values);
                    } else if storage == source {
                        pack_blocks(storage, rows, row_bytes, tile);
                    } else {
                        requantise(source, n_in, rows, values, blocks);
                        pack_blocks(storage, blocks, storage.row_bytes(n_in), tile);
                    }
                }
                done(bytes.len());
                Ok(())
            },
        )?;
        Ok(Matrix { storage, n_out, n_in, data: dest })
    }

    /// Output rows.
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// Weights per row.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// How the weights are stored.
    pub fn storage(&self) -> WeightType {
        self.storage
    }

    /// Packed size: what one product reads from memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The values of row `row`, the bits of [`dequantize_row`]. Panics when `out` is not of length `n_in`.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n_out, "row {row} of {}", self.n_out);
        assert_eq!(out.len(), self.n_in);
        let (tile, r) = (self.tile(row / TILE_ROWS), row % TILE_ROWS);
        let layout = Layout::of(self.storage);
        if self.storage.is_float() {
            let size = self.storage.block_bytes();
            for (k, out) in out.iter_mut().enumerate() {
                dequantize_row(self.storage, &tile[(k * TILE_ROWS + r) * size..][..size], std::slice::from_mut(out));
            }
        } else {
            let mut block = Block::default();
            for (b, out) in out.chunks_exact_mut(self.storage.block_len()).enumerate() {
                layout.get_block(tile, b, r, &mut block);
                block.values(self.storage, out);
            }
        }
    }

    /// Tiles of 16 rows, the last one padded with zeros.
    pub(crate) fn n_tiles(&self) -> usize {
        self.n_out.div_ceil(TILE_ROWS)
    }

    /// Bytes of one tile.
    pub(crate) fn tile_bytes(&self) -> usize {
        Layout::of(self.storage).tile_bytes(self.n_in)
    }

    /// The bytes of tile `index`.
    pub(crate) fn tile(&self, index: usize) -> &[u8] {
        let bytes = self.tile_bytes();
        &self.data[index * bytes..][..bytes]
    }
}

/// Packs up to 16 rows of quantised blocks.
fn pack_blocks(ty: WeightType, rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
    let layout = Layout::of(ty);
    let mut block = Block::default();
    for b in 0..row_bytes / ty.block_bytes() {
        for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
            decode(ty, &row[b * ty.block_bytes()..][..ty.block_bytes()], &mut block);
            layout.put_block(tile, b, r, &block);
        }
    }
}

/// Turns rows of any type into rows of Q4_0 blocks; `values` is scratch.
fn requantise(source: WeightType, n_in: usize, rows: &[u8], values: &mut Vec<f32>, blocks: &mut Vec<u8>) {
    let (from, to) = (source.row_bytes(n_in), WeightType::Q4_0.row_bytes(n_in));
    values.resize(n_in, 0.0);
    blocks.resize(rows.len() / from * to, 0);
    for (row, blocks) in rows.chunks_exact(from).zip(blocks.chunks_exact_mut(to)) {
        dequantize_row(source, row, values);
        quantize_q4_0_row(values, blocks);
    }
}

/// Packs up to 16 rows as floats; `values` is scratch.
fn pack_floats(
    storage: WeightType,
    source: WeightType,
    n_in: usize,
    rows: &[u8],
    tile: &mut [u8],
    values: &mut Vec<f32>,
) {
    let size = storage.block_bytes();
    for (r, row) in rows.chunks_exact(source.row_bytes(n_in)).enumerate() {
        let places = tile[r * size..].chunks_mut(TILE_ROWS * size);
        if storage == source {
            for (place, bytes) in places.zip(row.chunks_exact(size)) {
                place[..size].copy_from_slice(bytes);
            }
            continue;
        }
        values.resize(n_in, 0.0);
        dequantize_row(source, row, values);
        for (place, &value) in places.zip(values.iter()) {
            match storage {
                WeightType::F32 => place[..4].copy_from_slice(&value.to_le_bytes()),
                _ => place[..2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
            }
        }
    }
}
