//! GGUF's weight types: block sizes, and the plain f32 values that a row of blocks stands for.

mod blocks;
mod requantise;

pub(crate) use blocks::{Block, decode, offset};
pub use requantise::quantize_q4_0_row;

/// How weights are stored, in the file (GGUF layouts) and packed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(non_camel_case_types, reason = "GGUF's own names")]
pub enum WeightType {
    /// 32-bit floats.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// 4-bit codes minus 8, times one f16 scale per 32.
    Q4_0,
    /// 4-bit codes times an f16 scale plus an f16 minimum per 32.
    Q4_1,
    /// 5-bit codes minus 16, times one f16 scale per 32.
    Q5_0,
    /// 5-bit codes times an f16 scale plus an f16 minimum per 32.
    Q5_1,
    /// Signed bytes times one f16 scale per 32.
    Q8_0,
    /// 4-bit codes; 6-bit scale and minimum per 32 within an f16 scale and minimum per 256.
    Q4_K,
    /// 5-bit codes; 6-bit scale and minimum per 32 within an f16 scale and minimum per 256.
    Q5_K,
    /// 6-bit codes minus 32; signed 8-bit scale per 16 within an f16 scale per 256.
    Q6_K,
}

impl WeightType {
    /// Every type.
    pub const ALL: [WeightType; 11] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        WeightType::Q8_0,
        WeightType::Q4_K,
        WeightType::Q5_K,
        WeightType::Q6_K,
    ];

    /// Weights per block; a row's length must be a multiple of it.
    pub const fn block_len(self) -> usize {
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 1,
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q8_0 => 32,
            WeightType::Q4_K | WeightType::Q5_K | WeightType::Q6_K => 256,
        }
    }

    /// Bytes per block in a GGUF file.
    pub const fn block_bytes(self) -> usize {
        match self {
            WeightType::F32 => 4,
            WeightType::F16 | WeightType::BF16 => 2,
            WeightType::Q4_0 => 2 + 16,
            WeightType::Q4_1 => 4 + 16,
            WeightType::Q5_0 => 2 + 4 + 16,
            WeightType::Q5_1 => 4 + 4 + 16,
            WeightType::Q8_0 => 2 + 32,
            WeightType::Q4_K => 4 + 12 + 128,
            WeightType::Q5_K => 4 + 12 + 32 + 128,
            WeightType::Q6_K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of a row of `n_in` weights in a GGUF file. Panics when `n_in` is not a multiple of the block.
    pub const fn row_bytes(self, n_in: usize) -> usize {
        assert!(n_in.is_multiple_of(self.block_len()), "a row is a whole number of blocks");
        n_in / self.block_len() * self.block_bytes()
    }

    /// True for the types that are products of f32 activations; the others multiply quantised activations.
    pub const fn is_float(self) -> bool {
        matches!(self, WeightType::F32 | WeightType::F16 | WeightType::BF16)
    }
}

/// Writes the values of a row of GGUF blocks. This is the definition of every type.
///
/// Panics unless `bytes` holds exactly `out.len()` weights. Any bit pattern is accepted; odd scales give odd values.
pub fn dequantize_row(ty: WeightType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(bytes.len(), ty.row_bytes(out.len()), "{ty:?} row of {} weights", out.len());
    let from_u16 = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    let blocks = bytes.chunks_exact(ty.block_bytes());
    match ty {
        WeightType::F32 => {
            for (out, b) in out.iter_mut().zip(blocks) {
                *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        WeightType::F16 => {
            for (out, b) in out.iter_mut().zip(blocks) {
                *out = half::f16::from_bits(from_u16(b)).to_f32();
            }
        }
        WeightType::BF16 => {
            for (out, b) in out.iter_mut().zip(blocks) {
                *out = half::bf16::from_bits(from_u16(b)).to_f32();
            }
        }
        _ => {
            let mut block = Block::default();
            for (out, bytes) in out.chunks_exact_mut(ty.block_len()).zip(blocks) {
                decode(ty, bytes, &mut block);
                block.values(ty, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
