//! Where packed weights lie: tiles of 16 output rows, interleaved so that one vector holds 4 weights of each row.
//!
//! A tile is a sequence of groups of one or two blocks; a group is the codes of its blocks, then their scales, padded to
//! a cache line, so that a pass reads every tile from its first byte to its last. Codes, per 32 weights of a row (k):
//!
//! - nibbles: four times 64 bytes; byte 4 r + i of the c-th holds code 8c + i of row r (low) and code 8c + 4 + i (high);
//! - one further bit (5-bit codes): 64 bytes; bit t of byte 4 r + i belongs to code 4t + i of row r;
//! - two further bits (6-bit codes): two times 64 bytes; bits 2t of byte 4 r + i of the h-th belong to code 16h + 4t + i;
//! - bytes (8-bit codes): eight times 64 bytes; byte 4 r + i of the t-th is code 4t + i of row r.
//!
//! Scales of a block, each for 16 rows: pairs of 8-bit scales (two bytes a row), pairs of minimums, f16 scales, f16
//! minimums, as far as the type has them. Floats: 16 rows of weight k, then of weight k + 1.

use std::ops::Range;

use crate::quant::{Block, WeightType};

/// Output rows per tile.
pub(crate) const TILE_ROWS: usize = 16;

/// Bytes of one f16 per row of a tile.
const HALVES: usize = 2 * TILE_ROWS;

/// The sizes that place the blocks of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    ty: WeightType,
    /// Bits of a code beyond the nibble: 0, 1, 2 or 4 (whole bytes).
    high_bits: usize,
    /// Blocks per group.
    group: usize,
    /// Bytes of the codes of one block (for floats, of one weight) of 16 rows.
    codes: usize,
    /// Pairs of 8-bit scales in a block.
    scale_pairs: usize,
    /// Pairs of 6-bit minimums in a block.
    min_pairs: usize,
    /// True when there is an f16 minimum beside the f16 scale.
    has_min: bool,
}

impl Layout {
    pub const fn of(ty: WeightType) -> Layout {
        use WeightType::*;
        let (high_bits, group, scale_pairs, min_pairs, has_min) = match ty {
            F32 | F16 | BF16 => (0, 1, 0, 0, false),
            Q4_0 => (0, 2, 0, 0, false),
            Q4_1 => (0, 1, 0, 0, true),
            Q5_0 => (1, 2, 0, 0, false),
            Q5_1 => (1, 1, 0, 0, true),
            Q8_0 => (4, 2, 0, 0, false),
            Q4_K => (0, 1, 4, 4, true),
            Q5_K => (1, 1, 4, 4, true),
            Q6_K => (2, 1, 8, 0, false),
        };
        let codes = match ty {
            F32 => 4 * TILE_ROWS,
            F16 | BF16 => 2 * TILE_ROWS,
            _ => ty.block_len() * (4 + high_bits) * TILE_ROWS / 8,
        };
        Layout { ty, high_bits, group, codes, scale_pairs, min_pairs, has_min }
    }

    /// Bytes of the scales of one block.
    pub const fn scales(&self) -> usize {
        match self.ty {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 0,
            _ => (self.scale_pairs + self.min_pairs + 1 + self.has_min as usize) * HALVES,
        }
    }

    /// Bytes from one group of blocks to the next.
    pub const fn group_bytes(&self) -> usize {
        let bytes = self.group * (self.codes + self.scales());
        if self.ty.is_float() { bytes } else { bytes.next_multiple_of(64) }
    }

    /// Bytes of a tile whose rows have `n_in` weights.
    pub const fn tile_bytes(&self, n_in: usize) -> usize {
        let n_blocks = n_in / self.ty.block_len();
        (n_blocks.div_ceil(self.group) * self.group_bytes()).next_multiple_of(64)
    }

    /// Offset in the tile of the codes of block `b` (for floats, of weight `b`).
    #[inline(always)]
    pub const fn codes_at(&self, b: usize) -> usize {
        b / self.group * self.group_bytes() + b % self.group * self.codes
    }

    /// Offset in the tile of the scales of block `b`.
    #[inline(always)]
    pub const fn scales_at(&self, b: usize) -> usize {
        b / self.group * self.group_bytes() + self.group * self.codes + b % self.group * self.scales()
    }

    /// Bytes of 32 codes of 16 rows.
    pub const fn step_bytes(&self) -> usize {
        32 * (4 + self.high_bits) * TILE_ROWS / 8
    }

    /// Bytes of the f16 scales, and of the minimums that follow them, in the scales of a block.
    fn halves(&self) -> (Range<usize>, Range<usize>) {
        let start = (self.scale_pairs + self.min_pairs) * HALVES;
        (start..start + HALVES, start + HALVES..start + 2 * HALVES)
    }

    /// Writes block `b` of row `row`.
    pub fn put_block(&self, tile: &mut [u8], b: usize, row: usize, block: &Block) {
        let steps = tile[self.codes_at(b)..][..self.codes].chunks_exact_mut(self.step_bytes());
        for (step, codes) in steps.zip(block.codes.chunks_exact(32)) {
            let words: [u32; 8] = std::array::from_fn(|t| word(codes, t));
            self.put_words(step, row, &words);
        }
        let scales = &mut tile[self.scales_at(b)..][..self.scales()];
        let (pairs, rest) = scales.split_at_mut(self.scale_pairs * HALVES);
        for (pairs, pair) in pairs.chunks_exact_mut(HALVES).zip(block.scales.chunks_exact(2)) {
            pairs[2 * row..][..2].copy_from_slice(pair);
        }
        let (pairs, rest) = rest.split_at_mut(self.min_pairs * HALVES);
        for (pairs, pair) in pairs.chunks_exact_mut(HALVES).zip(block.mins.chunks_exact(2)) {
            pairs[2 * row..][..2].copy_from_slice(pair);
        }
        let (d, m) = rest.split_at_mut(HALVES);
        d[2 * row..][..2].copy_from_slice(&block.d.to_le_bytes());
        if self.has_min {
            m[2 * row..][..2].copy_from_slice(&block.m.to_le_bytes());
        }
    }

    /// Writes 32 codes of a row, four to a word.
    #[inline(always)]
    fn put_words(&self, step: &mut [u8], row: usize, words: &[u32; 8]) {
        let mut put = |at: usize, word: u32| step[64 * at + 4 * row..][..4].copy_from_slice(&word.to_le_bytes());
        if self.high_bits == 4 {
            for (t, &word) in words.iter().enumerate() {
                put(t, word);
            }
            return;
        }
        for (c, pair) in words.chunks_exact(2).enumerate() {
            put(c, pair[0] & 0x0f0f_0f0f | (pair[1] & 0x0f0f_0f0f) << 4);
        }
        if self.high_bits == 1 {
            put(4, words.iter().enumerate().fold(0, |plane, (t, word)| plane | (word >> 4 & 0x0101_0101) << t));
        }
        if self.high_bits == 2 {
            for (h, half) in words.chunks_exact(4).enumerate() {
                let plane =
                    half.iter().enumerate().fold(0, |plane, (t, word)| plane | (word >> 4 & 0x0303_0303) << (2 * t));
                put(4 + h, plane);
            }
        }
    }

    /// Reads block `b` of row `row` back.
    pub fn get_block(&self, tile: &[u8], b: usize, row: usize, block: &mut Block) {
        let steps = tile[self.codes_at(b)..][..self.codes].chunks_exact(self.step_bytes());
        for (step, codes) in steps.zip(block.codes.chunks_exact_mut(32)) {
            for (t, codes) in codes.chunks_exact_mut(4).enumerate() {
                codes.copy_from_slice(&self.get_word(step, row, t).to_le_bytes());
            }
        }
        let scales = &tile[self.scales_at(b)..][..self.scales()];
        let (pairs, rest) = scales.split_at(self.scale_pairs * HALVES);
        for (pairs, pair) in pairs.chunks_exact(HALVES).zip(block.scales.chunks_exact_mut(2)) {
            pair.copy_from_slice(&pairs[2 * row..][..2]);
        }
        let (pairs, _) = rest.split_at(self.min_pairs * HALVES);
        for (pairs, pair) in pairs.chunks_exact(HALVES).zip(block.mins.chunks_exact_mut(2)) {
            pair.copy_from_slice(&pairs[2 * row..][..2]);
        }
        let half = |bytes: &[u8]| u16::from_le_bytes([bytes[2 * row], bytes[2 * row + 1]]);
        let (d, m) = self.halves();
        block.d = half(&scales[d]);
        block.m = if self.has_min { half(&scales[m]) } else { 0 };
    }

    /// Reads codes 4t..4t + 4 of a row out of 32.
    fn get_word(&self, step: &[u8], row: usize, t: usize) -> u32 {
        let get = |at: usize| word(&step[64 * at..], row);
        if self.high_bits == 4 {
            return get(t);
        }
        let low = get(t / 2) >> (t % 2 * 4) & 0x0f0f_0f0f;
        let high = match self.high_bits {
            1 => get(4) >> t & 0x0101_0101,
            2 => get(4 + t / 4) >> (t % 4 * 2) & 0x0303_0303,
            _ => 0,
        };
        low | high << 4
    }
}

/// The `at`-th four bytes.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_tiles_are_at_most_four_percent_larger_than_the_file() {
        for ty in WeightType::ALL {
            let (packed, file) = (Layout::of(ty).tile_bytes(1536), TILE_ROWS * ty.row_bytes(1536));
            assert!(packed >= file && packed as f64 <= 1.04 * file as f64, "{ty:?}: {packed} bytes for {file}");
        }
    }

    #[test]
    fn vectors_of_codes_never_cross_a_cache_line() {
        for ty in WeightType::ALL {
            let layout = Layout::of(ty);
            for b in 0..5 {
                let width = if layout.codes.is_multiple_of(64) { 64 } else { 32 };
                assert_eq!(layout.codes_at(b) % width, 0, "{ty:?}");
                assert_eq!(layout.scales_at(b) % 32, 0, "{ty:?}");
            }
        }
    }

    #[test]
    fn blocks_come_back_from_every_place() {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for ty in WeightType::ALL.into_iter().filter(|ty| !ty.is_float()) {
            let layout = Layout::of(ty);
            let mut tile = vec![0; layout.tile_bytes(3 * ty.block_len())];
            let mut blocks = Vec::new();
            for (b, row) in (0..3).flat_map(|b| (0..TILE_ROWS).map(move |row| (b, row))) {
                let bytes: Vec<u8> = (0..ty.block_bytes()).map(|_| random()).collect();
                let mut block = Block::default();
                crate::quant::decode(ty, &bytes, &mut block);
                layout.put_block(&mut tile, b, row, &block);
                blocks.push((b, row, block));
            }
            for (b, row, block) in blocks {
                let mut back = Block::default();
                layout.get_block(&tile, b, row, &mut back);
                assert_eq!(back, block, "{ty:?} block {b} row {row}");
            }
        }
    }
}
