//! How a chunk of keys and values lies in memory, and how positions get into it.

use super::{KEY_CHUNK, MAX_HEAD_DIM, SCALE_BLOCK};
use crate::Isa;
use crate::ops::f32_to_f16;
use half::f16;

/// Bytes that memory hands over at a time.
const CACHE_LINE: usize = 64;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Half precision. K is `[head_dim][KEY_CHUNK]`, V is `[KEY_CHUNK][head_dim]`.
    F16,
    /// Signed bytes times one half-precision scale for each position and 32 dimensions. First the scales,
    /// `[head_dim / 32][KEY_CHUNK]`, then the bytes, K and V shaped as in [`KvType::F16`].
    Q8_0,
}

impl KvType {
    /// Bytes of one kv head's K, or of its V, for one chunk.
    pub fn chunk_bytes(self, head_dim: usize) -> usize {
        match self {
            KvType::F16 => 2 * head_dim * KEY_CHUNK,
            KvType::Q8_0 => head_dim * KEY_CHUNK + self.scale_bytes(head_dim),
        }
    }

    /// Bytes of the scales at the start.
    pub(super) fn scale_bytes(self, head_dim: usize) -> usize {
        match self {
            KvType::F16 => 0,
            KvType::Q8_0 => 2 * KEY_CHUNK * (head_dim / SCALE_BLOCK),
        }
    }

    /// Bytes of one value.
    fn value_bytes(self) -> usize {
        match self {
            KvType::F16 => 2,
            KvType::Q8_0 => 1,
        }
    }
}

/// One kv head's keys and values of one chunk, to be read.
#[derive(Clone, Copy, Debug)]
pub struct KvChunk<'a> {
    kv_type: KvType,
    head_dim: usize,
    k: &'a [u8],
    v: &'a [u8],
    next_k: &'a [u8],
}

impl<'a> KvChunk<'a> {
    /// Panics unless `head_dim` is a multiple of 32 up to 256 and `k` and `v` have [`KvType::chunk_bytes`].
    pub fn new(kv_type: KvType, head_dim: usize, k: &'a [u8], v: &'a [u8]) -> Self {
        check(kv_type, head_dim, k, v);
        Self { kv_type, head_dim, k, v, next_k: &[] }
    }

    /// The same chunk, and the one that will be read after it: its keys are fetched from memory while the values of this
    /// one are used. Only a hint.
    pub fn followed_by(self, next: KvChunk<'a>) -> Self {
        Self { next_k: next.k, ..self }
    }

    /// How the values are stored.
    pub fn kv_type(&self) -> KvType {
        self.kv_type
    }

    /// Dimensions of a key, and of a value.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// The scales and the values of K.
    pub(super) fn k_parts(&self) -> (&'a [u8], &'a [u8]) {
        self.k.split_at(self.kv_type.scale_bytes(self.head_dim))
    }

    /// A cache line of the next chunk's keys, if there are so many.
    #[inline(always)]
    pub(super) fn next_k_line(&self, line: usize) -> Option<&'a [u8]> {
        self.next_k.get(line * CACHE_LINE..)
    }

    /// The scales and the values of V.
    pub(super) fn v_parts(&self) -> (&'a [u8], &'a [u8]) {
        self.v.split_at(self.kv_type.scale_bytes(self.head_dim))
    }
}

/// One kv head's keys and values of one chunk, to be written.
#[derive(Debug)]
pub struct KvChunkMut<'a> {
    kv_type: KvType,
    head_dim: usize,
    k: &'a mut [u8],
    v: &'a mut [u8],
}

impl<'a> KvChunkMut<'a> {
    /// Panics unless `head_dim` is a multiple of 32 up to 256 and `k` and `v` have [`KvType::chunk_bytes`].
    pub fn new(kv_type: KvType, head_dim: usize, k: &'a mut [u8], v: &'a mut [u8]) -> Self {
        check(kv_type, head_dim, k, v);
        Self { kv_type, head_dim, k, v }
    }

    /// The same chunk, to be read.
    pub fn as_chunk(&self) -> KvChunk<'_> {
        KvChunk { kv_type: self.kv_type, head_dim: self.head_dim, k: self.k, v: self.v, next_k: &[] }
    }

    /// Rounds `row` `[head_dim]` into the key of `position`.
    pub fn store_k(&mut self, isa: Isa, position: usize, row: &[f32]) {
        assert_eq!(row.len(), self.head_dim, "one value for each dimension");
        Place::k(self.kv_type, self.head_dim, position).write(self.k, &Packed::round(isa, self.kv_type, row));
    }

    /// Rounds `row` `[head_dim]` into the value of `position`.
    pub fn store_v(&mut self, isa: Isa, position: usize, row: &[f32]) {
        assert_eq!(row.len(), self.head_dim, "one value for each dimension");
        Place::v(self.kv_type, self.head_dim, position).write(self.v, &Packed::round(isa, self.kv_type, row));
    }

    /// Copies the key and the value of a position of another chunk of the same shape, as stored.
    pub fn copy_position(&mut self, from: KvChunk<'_>, from_position: usize, to_position: usize) {
        let (kv_type, head_dim) = (self.kv_type, self.head_dim);
        assert!(from.kv_type == kv_type && from.head_dim == head_dim, "chunks of one shape");
        let k = Place::k(kv_type, head_dim, from_position).read(from.k);
        Place::k(kv_type, head_dim, to_position).write(self.k, &k);
        let v = Place::v(kv_type, head_dim, from_position).read(from.v);
        Place::v(kv_type, head_dim, to_position).write(self.v, &v);
    }

    /// Copies the key and the value of one position to another position of this chunk.
    pub fn copy_within(&mut self, from_position: usize, to_position: usize) {
        let (kv_type, head_dim) = (self.kv_type, self.head_dim);
        let k = Place::k(kv_type, head_dim, from_position).read(self.k);
        Place::k(kv_type, head_dim, to_position).write(self.k, &k);
        let v = Place::v(kv_type, head_dim, from_position).read(self.v);
        Place::v(kv_type, head_dim, to_position).write(self.v, &v);
    }
}

fn check(kv_type: KvType, head_dim: usize, k: &[u8], v: &[u8]) {
    assert!(
        head_dim > 0 && head_dim <= MAX_HEAD_DIM && head_dim.is_multiple_of(SCALE_BLOCK),
        "a head of {head_dim} dimensions: wanted a multiple of {SCALE_BLOCK} up to {MAX_HEAD_DIM}"
    );
    let bytes = kv_type.chunk_bytes(head_dim);
    assert!(k.len() == bytes && v.len() == bytes, "{} and {} bytes: wanted {bytes} each", k.len(), v.len());
}

/// One key or value as stored, without gaps.
struct Packed {
    values: [u8; 2 * MAX_HEAD_DIM],
    scales: [[u8; 2]; MAX_HEAD_DIM / SCALE_BLOCK],
}

impl Packed {
    fn new() -> Self {
        Self { values: [0; 2 * MAX_HEAD_DIM], scales: [[0; 2]; MAX_HEAD_DIM / SCALE_BLOCK] }
    }

    fn round(isa: Isa, kv_type: KvType, row: &[f32]) -> Self {
        let mut packed = Self::new();
        match kv_type {
            KvType::F16 => {
                let mut halves = [0; MAX_HEAD_DIM];
                f32_to_f16(isa, row, &mut halves[..row.len()]);
                for (value, half) in packed.values.as_chunks_mut().0.iter_mut().zip(halves) {
                    *value = half.to_le_bytes();
                }
            }
            KvType::Q8_0 => {
                let blocks = packed.values.as_chunks_mut().0.iter_mut().zip(&mut packed.scales);
                for ((values, scale), row) in blocks.zip(row.as_chunks().0) {
                    let (step, quants) = quantize(row);
                    *scale = step.to_le_bytes();
                    *values = quants.map(|quant| quant as u8);
                }
            }
        }
        packed
    }
}

/// Where one key or value lies in its chunk.
struct Place {
    head_dim: usize,
    position: usize,
    /// Of all scales, at the start of the chunk.
    scale_bytes: usize,
    value_bytes: usize,
    /// Of the first value, in bytes.
    first: usize,
    /// From one value to the next, in bytes.
    stride: usize,
}

impl Place {
    fn k(kv_type: KvType, head_dim: usize, position: usize) -> Self {
        assert!(position < KEY_CHUNK, "position {position} of {KEY_CHUNK}");
        let (scale_bytes, value_bytes) = (kv_type.scale_bytes(head_dim), kv_type.value_bytes());
        let (first, stride) = (scale_bytes + position * value_bytes, KEY_CHUNK * value_bytes);
        Self { head_dim, position, scale_bytes, value_bytes, first, stride }
    }

    fn v(kv_type: KvType, head_dim: usize, position: usize) -> Self {
        assert!(position < KEY_CHUNK, "position {position} of {KEY_CHUNK}");
        let (scale_bytes, value_bytes) = (kv_type.scale_bytes(head_dim), kv_type.value_bytes());
        let first = scale_bytes + position * head_dim * value_bytes;
        Self { head_dim, position, scale_bytes, value_bytes, first, stride: value_bytes }
    }

    fn read(&self, bytes: &[u8]) -> Packed {
        let mut packed = Packed::new();
        let n_bytes = self.head_dim * self.value_bytes;
        let (scales, values) = (&bytes[..self.scale_bytes], &bytes[self.first..]);
        for (packed, scales) in packed.scales.iter_mut().zip(scales.as_chunks().0.chunks(KEY_CHUNK)) {
            *packed = scales[self.position];
        }
        if self.stride == self.value_bytes {
            packed.values[..n_bytes].copy_from_slice(&values[..n_bytes]);
        } else if self.value_bytes == 2 {
            for (packed, value) in packed.values.as_chunks_mut::<2>().0.iter_mut().zip(values.chunks(self.stride)) {
                packed.copy_from_slice(&value[..2]);
            }
        } else {
            for (packed, value) in packed.values.iter_mut().zip(values.chunks(self.stride)) {
                *packed = value[0];
            }
        }
        packed
    }

    fn write(&self, bytes: &mut [u8], packed: &Packed) {
        let n_bytes = self.head_dim * self.value_bytes;
        let (scales, _) = bytes.split_at_mut(self.scale_bytes);
        for (packed, scales) in packed.scales.iter().zip(scales.as_chunks_mut().0.chunks_mut(KEY_CHUNK)) {
            scales[self.position] = *packed;
        }
        let values = &mut bytes[self.first..];
        if self.stride == self.value_bytes {
            values[..n_bytes].copy_from_slice(&packed.values[..n_bytes]);
        } else if self.value_bytes == 2 {
            for (packed, value) in packed.values.as_chunks::<2>().0.iter().zip(values.chunks_mut(self.stride)) {
                value[..2].copy_from_slice(packed);
            }
        } else {
            for (packed, value) in packed.values.iter().zip(values.chunks_mut(self.stride)) {
                value[0] = *packed;
            }
        }
    }
}

/// The scale `max |x| / 127`, rounded to half precision, and each value over that scale, rounded to nearest.
///
/// A NaN makes the scale NaN, a value beyond half precision makes it infinite: both are NaN when read.
fn quantize(values: &[f32; SCALE_BLOCK]) -> (f16, [i8; SCALE_BLOCK]) {
    let greatest = values.iter().fold(0.0f32, |a, x| if x.abs() > a || x.is_nan() { x.abs() } else { a });
    let greatest = if values.iter().any(|x| x.is_nan()) { f32::NAN } else { greatest };
    let scale = f16::from_f32(greatest / 127.0);
    let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
    // Adding and subtracting this rounds to the nearest integer, ties to even; the limit is for scales rounded down.
    const ROUND: f32 = 12_582_912.0;
    (scale, values.map(|x| ((x * inverse + ROUND) - ROUND).clamp(-127.0, 127.0) as i8))
}
