//! One quantised block taken apart into unsigned codes and scales: the form that values and packing both start from.

use half::f16;

use super::WeightType;

/// The codes and scales of one block, whatever its type.
///
/// A weight is scale x (code - offset) or scale x code - minimum, see [`Block::values`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    /// Unsigned codes in the order of the weights; 32 or 256 of them count.
    pub codes: [u8; 256],
    /// f16 bits of the block's scale.
    pub d: u16,
    /// f16 bits of the minimum of Q4_1 and Q5_1 (added), and of the scale of minimums of Q4_K and Q5_K (subtracted).
    pub m: u16,
    /// Scales inside a block of 256: one per 32 for Q4_K and Q5_K (6 bits), one per 16 for Q6_K (the bits of an i8).
    pub scales: [u8; 16],
    /// Minimums inside a block of 256, one per 32 (6 bits).
    pub mins: [u8; 8],
}

impl Default for Block {
    fn default() -> Self {
        Block { codes: [0; 256], d: 0, m: 0, scales: [0; 16], mins: [0; 8] }
    }
}

impl Block {
    /// The weights' values. The order of operations is ggml's, so that the bits agree.
    pub fn values(&self, ty: WeightType, out: &mut [f32]) {
        let d = f16::from_bits(self.d).to_f32();
        let m = f16::from_bits(self.m).to_f32();
        let codes = &self.codes[..out.len()];
        match ty {
            WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 => {
                let offset = offset(ty);
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = (i32::from(code) - offset) as f32 * d;
                }
            }
            WeightType::Q4_1 | WeightType::Q5_1 => {
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = f32::from(code) * d + m;
                }
            }
            WeightType::Q4_K | WeightType::Q5_K => {
                for (j, (out, codes)) in out.chunks_exact_mut(32).zip(codes.chunks_exact(32)).enumerate() {
                    let scale = d * f32::from(self.scales[j]);
                    let min = m * f32::from(self.mins[j]);
                    for (out, &code) in out.iter_mut().zip(codes) {
                        *out = scale * f32::from(code) - min;
                    }
                }
            }
            WeightType::Q6_K => {
                for (j, (out, codes)) in out.chunks_exact_mut(16).zip(codes.chunks_exact(16)).enumerate() {
                    let scale = d * f32::from(self.scales[j] as i8);
                    for (out, &code) in out.iter_mut().zip(codes) {
                        *out = scale * (i32::from(code) - offset(ty)) as f32;
                    }
                }
            }
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => unreachable!("{ty:?} has no blocks"),
        }
    }
}

/// What is subtracted from a code; 0 for types with a minimum.
pub(crate) const fn offset(ty: WeightType) -> i32 {
    match ty {
        WeightType::Q4_0 => 8,
        WeightType::Q5_0 => 16,
        WeightType::Q8_0 => 128,
        WeightType::Q6_K => 32,
        _ => 0,
    }
}

/// Takes a GGUF block of a quantised type apart.
pub(crate) fn decode(ty: WeightType, bytes: &[u8], block: &mut Block) {
    assert_eq!(bytes.len(), ty.block_bytes(), "one block of {ty:?}");
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    match ty {
        WeightType::Q4_0 => {
            block.d = word(0);
            nibbles_32(&bytes[2..], &mut block.codes);
        }
        WeightType::Q4_1 => {
            (block.d, block.m) = (word(0), word(2));
            nibbles_32(&bytes[4..], &mut block.codes);
        }
        WeightType::Q5_0 => {
            block.d = word(0);
            nibbles_32(&bytes[6..], &mut block.codes);
            fifth_bits_32(&bytes[2..6], &mut block.codes);
        }
        WeightType::Q5_1 => {
            (block.d, block.m) = (word(0), word(2));
            nibbles_32(&bytes[8..], &mut block.codes);
            fifth_bits_32(&bytes[4..8], &mut block.codes);
        }
        WeightType::Q8_0 => {
            block.d = word(0);
            for (code, &byte) in block.codes.iter_mut().zip(&bytes[2..]) {
                *code = byte ^ 0x80;
            }
        }
        WeightType::Q4_K => {
            (block.d, block.m) = (word(0), word(2));
            six_bit_scales(&bytes[4..16], block);
            nibbles_256(&bytes[16..], &mut block.codes);
        }
        WeightType::Q5_K => {
            (block.d, block.m) = (word(0), word(2));
            six_bit_scales(&bytes[4..16], block);
            nibbles_256(&bytes[48..], &mut block.codes);
            for (j, codes) in block.codes.chunks_exact_mut(32).enumerate() {
                for (code, &high) in codes.iter_mut().zip(&bytes[16..48]) {
                    *code |= (high >> j & 1) << 4;
                }
            }
        }
        WeightType::Q6_K => {
            let (low, rest) = bytes.split_at(128);
            let (high, rest) = rest.split_at(64);
            block.scales.copy_from_slice(&rest[..16]);
            block.d = word(208);
            six_bit_codes(low, high, &mut block.codes);
        }
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => unreachable!("{ty:?} has no blocks"),
    }
}

/// 16 bytes: the low nibbles are weights 0..16, the high ones 16..32.
fn nibbles_32(bytes: &[u8], codes: &mut [u8; 256]) {
    let (low, high) = codes[..32].split_at_mut(16);
    for ((low, high), &byte) in low.iter_mut().zip(high).zip(&bytes[..16]) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// 4 bytes: bit i is the fifth bit of weight i.
fn fifth_bits_32(bytes: &[u8], codes: &mut [u8; 256]) {
    let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for (i, code) in codes[..32].iter_mut().enumerate() {
        *code |= ((bits >> i & 1) as u8) << 4;
    }
}

/// Four times 32 bytes: the low nibbles are 32 weights, the high ones the next 32.
fn nibbles_256(bytes: &[u8], codes: &mut [u8; 256]) {
    for (codes, bytes) in codes.chunks_exact_mut(64).zip(bytes.chunks_exact(32)) {
        let (low, high) = codes.split_at_mut(32);
        for ((low, high), &byte) in low.iter_mut().zip(high).zip(bytes) {
            (*low, *high) = (byte & 15, byte >> 4);
        }
    }
}

/// Q6_K: per 128 weights 64 bytes of low nibbles and 32 bytes of upper bit pairs.
fn six_bit_codes(low: &[u8], high: &[u8], codes: &mut [u8; 256]) {
    for ((codes, low), high) in codes.chunks_exact_mut(128).zip(low.chunks_exact(64)).zip(high.chunks_exact(32)) {
        for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
            let low = &low[quarter % 2 * 32..][..32];
            let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
            for ((code, &low), &high) in codes.iter_mut().zip(low).zip(high) {
                *code = (low >> low_shift & 15) | (high >> high_shift & 3) << 4;
            }
        }
    }
}

/// 12 bytes with eight 6-bit scales and eight 6-bit minimums: the first four of each whole in a byte, the others split.
fn six_bit_scales(bytes: &[u8], block: &mut Block) {
    for j in 0..4 {
        block.scales[j] = bytes[j] & 63;
        block.mins[j] = bytes[j + 4] & 63;
        block.scales[j + 4] = bytes[j + 8] & 15 | bytes[j] >> 6 << 4;
        block.mins[j + 4] = bytes[j + 8] >> 4 | bytes[j + 4] >> 6 << 4;
    }
}
