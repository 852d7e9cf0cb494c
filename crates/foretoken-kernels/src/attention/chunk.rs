//! How a chunk of keys and values lies in memory, and how positions get into it.

use super::{KEY_CHUNK, MAX_HEAD_DIM, SCALE_BLOCK};
use crate::Isa;
use crate::ops::f32_to_f16;
use half::f16;

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
}

impl<'a> KvChunk<'a> {
    /// Panics unless `head_dim` is a multiple of 32 up to 256 and `k` and `v` have [`KvType::chunk_bytes`].
    pub fn new(kv_type: KvType, head_dim: usize, k: &'a [u8], v: &'a [u8]) -> Self {
        check(kv_type, head_dim, k, v);
        Self { kv_type, head_dim, k, v }
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
        KvChunk { kv_type: self.kv_type, head_dim: self.head_dim, k: self.k, v: self.v }
    }

    /// Rounds `row` `[head_dim]` into the key of `position`.
    pub fn store_k(&mut self, isa: Isa, position: usize, row: &[f32]) {
        let place = Place::k(self.kv_type, self.head_dim, position);
        place.store(isa, self.k, row);
    }

    /// Rounds `row` `[head_dim]` into the value of `position`.
    pub fn store_v(&mut self, isa: Isa, position: usize, row: &[f32]) {
        let place = Place::v(self.kv_type, self.head_dim, position);
        place.store(isa, self.v, row);
    }

    /// Copies the key and the value of a position of another chunk of the same shape, as stored.
    pub fn copy_position(&mut self, from: KvChunk<'_>, from_position: usize, to_position: usize) {
        let (kv_type, head_dim) = (self.kv_type, self.head_dim);
        assert!(from.kv_type == kv_type && from.head_dim == head_dim, "chunks of one shape");
        Place::k(kv_type, head_dim, from_position).copy(from.k, &Place::k(kv_type, head_dim, to_position), self.k);
        Place::v(kv_type, head_dim, from_position).copy(from.v, &Place::v(kv_type, head_dim, to_position), self.v);
    }

    /// Copies the key and the value of one position to another position of this chunk.
    pub fn copy_within(&mut self, from_position: usize, to_position: usize) {
        let (kv_type, head_dim) = (self.kv_type, self.head_dim);
        Place::k(kv_type, head_dim, from_position).copy_within(&Place::k(kv_type, head_dim, to_position), self.k);
        Place::v(kv_type, head_dim, from_position).copy_within(&Place::v(kv_type, head_dim, to_position), self.v);
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

/// Where the values of one position lie: value `d` at `first + d * stride`, in bytes.
struct Place {
    kv_type: KvType,
    head_dim: usize,
    position: usize,
    first: usize,
    stride: usize,
}

impl Place {
    fn k(kv_type: KvType, head_dim: usize, position: usize) -> Self {
        assert!(position < KEY_CHUNK, "position {position} of {KEY_CHUNK}");
        let size = kv_type.value_bytes();
        let first = kv_type.scale_bytes(head_dim) + position * size;
        Self { kv_type, head_dim, position, first, stride: KEY_CHUNK * size }
    }

    fn v(kv_type: KvType, head_dim: usize, position: usize) -> Self {
        assert!(position < KEY_CHUNK, "position {position} of {KEY_CHUNK}");
        let size = kv_type.value_bytes();
        let first = kv_type.scale_bytes(head_dim) + position * head_dim * size;
        Self { kv_type, head_dim, position, first, stride: size }
    }

    /// Start and length of each piece, in the same order for every place of one type and shape: the values, the scales.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let size = self.kv_type.value_bytes();
        let (first, stride, position) = (self.first, self.stride, self.position);
        let values = (0..self.head_dim).map(move |d| (first + d * stride, size));
        let n_scales = self.kv_type.scale_bytes(self.head_dim) / (2 * KEY_CHUNK);
        values.chain((0..n_scales).map(move |block| (2 * (block * KEY_CHUNK + position), 2)))
    }

    fn copy(&self, from: &[u8], to_place: &Place, to: &mut [u8]) {
        for ((source, len), (target, _)) in self.pieces().zip(to_place.pieces()) {
            to[target..target + len].copy_from_slice(&from[source..source + len]);
        }
    }

    fn copy_within(&self, to_place: &Place, bytes: &mut [u8]) {
        for ((source, len), (target, _)) in self.pieces().zip(to_place.pieces()) {
            bytes.copy_within(source..source + len, target);
        }
    }

    fn store(&self, isa: Isa, bytes: &mut [u8], row: &[f32]) {
        assert_eq!(row.len(), self.head_dim, "one value for each dimension");
        match self.kv_type {
            KvType::F16 => {
                let mut halves = [0; MAX_HEAD_DIM];
                f32_to_f16(isa, row, &mut halves[..row.len()]);
                for (d, half) in halves[..row.len()].iter().enumerate() {
                    bytes[self.first + d * self.stride..][..2].copy_from_slice(&half.to_le_bytes());
                }
            }
            KvType::Q8_0 => {
                for (block, values) in row.as_chunks::<SCALE_BLOCK>().0.iter().enumerate() {
                    let (scale, quants) = quantize(values);
                    bytes[2 * (block * KEY_CHUNK + self.position)..][..2].copy_from_slice(&scale.to_le_bytes());
                    for (d, quant) in quants.iter().enumerate() {
                        bytes[self.first + (block * SCALE_BLOCK + d) * self.stride] = *quant as u8;
                    }
                }
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
