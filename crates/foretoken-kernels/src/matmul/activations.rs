//! Activation rows in the forms the kernels read: f32, or bytes with one scale per 32 or 256, each row by itself.
//!
//! Rows lie in groups of as many as a kernel takes at once; inside a group they are interleaved (4 bytes of each row, or
//! one float of each), so that a kernel needs one pointer for all of them.

use super::quantise::{QuantisedBlock, quantise};
use crate::isa::Isa;
use crate::pool::Pool;
use crate::quant::WeightType;

/// The most rows a kernel takes at once, on any instruction set.
pub(crate) const MAX_GROUP_ROWS: usize = 8;

/// The form of activations that a weight type multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// f32 as given, for float weights. Words: x [n_in].
    Float,
    /// Bytes and a scale per 32. Words: bytes [n_in / 4], scale [n_in / 32], sum of the bytes [n_in / 32].
    By32,
    /// Bytes and a scale per 256. Words: bytes [n_in / 4], scale [n_in / 256], sums per 32 [n_in / 64] and per 16
    /// [n_in / 32], both as pairs of i16.
    By256,
}

impl Form {
    /// The form that weights stored as `ty` need.
    pub fn of(ty: WeightType) -> Form {
        match ty.block_len() {
            1 => Form::Float,
            32 => Form::By32,
            _ => Form::By256,
        }
    }

    /// 32-bit words per row.
    fn words(self, n_in: usize) -> usize {
        match self {
            Form::Float => n_in,
            Form::By32 => n_in / 4 + n_in / 32 + n_in / 32,
            Form::By256 => n_in / 4 + n_in / 256 + n_in / 64 + n_in / 32,
        }
    }
}

/// Rows of f32 activations `[n_rows][n_in]` prepared for products; keeps its memory from one use to the next.
#[derive(Debug)]
pub struct Activations {
    isa: Isa,
    n_rows: usize,
    n_in: usize,
    float: Prepared,
    by_32: Prepared,
    by_256: Prepared,
}

/// The rows in one form; the words stay allocated when they are out of date.
#[derive(Debug, Default)]
struct Prepared {
    words: Vec<u32>,
    ready: bool,
}

impl Default for Activations {
    fn default() -> Self {
        Activations::new()
    }
}

impl Activations {
    /// No rows.
    pub fn new() -> Self {
        let [float, by_32, by_256] = std::array::from_fn(|_| Prepared::default());
        Activations { isa: Isa::Scalar, n_rows: 0, n_in: 0, float, by_32, by_256 }
    }

    /// Takes `rows` `[n_rows][n_in]` in every form that products with weights stored as `types` need.
    ///
    /// Bytes are round(x * 127 / max |x|) over the block, the scale is max |x| / 127. A block with a NaN or an infinity
    /// gets the scale NaN, so that every output it touches is NaN. Products must run on the same `isa`.
    /// Panics unless `rows` is of that shape and `n_in` a multiple of the types' blocks.
    pub fn set(
        &mut self,
        pool: &Pool,
        isa: Isa,
        rows: &[f32],
        n_rows: usize,
        n_in: usize,
        types: impl Iterator<Item = WeightType>,
    ) {
        assert!(n_rows > 0 && n_in > 0 && rows.len() == n_rows * n_in, "{} floats as [{n_rows}][{n_in}]", rows.len());
        (self.isa, self.n_rows, self.n_in) = (isa, n_rows, n_in);
        for form in [Form::Float, Form::By32, Form::By256] {
            self.prepared_mut(form).ready = false;
        }
        for ty in types {
            assert!(n_in.is_multiple_of(ty.block_len()), "{n_in} activations for {ty:?} weights");
            let form = Form::of(ty);
            let prepared = self.prepared_mut(form);
            if !prepared.ready {
                prepared.words.resize(n_rows * form.words(n_in), 0);
                fill(pool, isa, form, rows, n_in, &mut prepared.words);
                prepared.ready = true;
            }
        }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Length of a row.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// The instruction set the rows are grouped for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Number of groups of rows.
    pub(crate) fn n_groups(&self) -> usize {
        self.n_rows.div_ceil(group_rows(self.isa))
    }

    /// Group `index` in `form`. Panics when the form was not asked for.
    pub(crate) fn group(&self, form: Form, index: usize) -> Group<'_> {
        let prepared = match form {
            Form::Float => &self.float,
            Form::By32 => &self.by_32,
            Form::By256 => &self.by_256,
        };
        assert!(prepared.ready, "activations were not prepared as {form:?}");
        let first = index * group_rows(self.isa);
        let width = group_rows(self.isa).min(self.n_rows - first);
        let words_a_row = form.words(self.n_in);
        Group::split(form, self.n_in, width, &prepared.words[first * words_a_row..][..width * words_a_row])
    }

    fn prepared_mut(&mut self, form: Form) -> &mut Prepared {
        match form {
            Form::Float => &mut self.float,
            Form::By32 => &mut self.by_32,
            Form::By256 => &mut self.by_256,
        }
    }
}

/// Rows that a kernel of this instruction set takes at once: as many as its registers hold.
pub(crate) fn group_rows(isa: Isa) -> usize {
    match isa {
        Isa::Scalar => 1,
        Isa::Avx2(_) => 4,
        Isa::Avx512(_) => 8,
    }
}

/// A group of rows as a kernel reads it: each part is [..][width], see [`Form`] for the parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    /// Rows in the group.
    pub width: usize,
    /// [`Form::Float`] only: the values.
    pub x: &'a [f32],
    /// Four bytes of a row to a word.
    pub bytes: &'a [u32],
    /// The scale of each block.
    pub scales: &'a [f32],
    /// Sums of 32 bytes: one to a word ([`Form::By32`]) or two ([`Form::By256`]).
    pub sums_32: &'a [u32],
    /// [`Form::By256`] only: sums of 16 bytes, two to a word.
    pub sums_16: &'a [u32],
}

impl<'a> Group<'a> {
    fn split(form: Form, n_in: usize, width: usize, words: &'a [u32]) -> Group<'a> {
        if form == Form::Float {
            let x = bytemuck::cast_slice(words);
            return Group { width, x, bytes: &[], scales: &[], sums_32: &[], sums_16: &[] };
        }
        let (n_scales, n_sums) = match form {
            Form::By256 => (n_in / 256, n_in / 64),
            _ => (n_in / 32, n_in / 32),
        };
        let (bytes, words) = words.split_at(width * n_in / 4);
        let (scales, words) = words.split_at(width * n_scales);
        let (sums_32, sums_16) = words.split_at(width * n_sums);
        Group { width, x: &[], bytes, scales: bytemuck::cast_slice(scales), sums_32, sums_16 }
    }
}

/// Prepares all rows in one form, a group per task.
fn fill(pool: &Pool, isa: Isa, form: Form, rows: &[f32], n_in: usize, words: &mut [u32]) {
    let group = group_rows(isa);
    let words_a_row = form.words(n_in);
    pool.chunks_mut(words, group * words_a_row, |_, index, words| {
        let width = words.len() / words_a_row;
        let rows = &rows[index * group * n_in..][..width * n_in];
        for (lane, row) in rows.chunks_exact(n_in).enumerate() {
            match form {
                Form::Float => scatter(words, width, lane, row.iter().map(|x| x.to_bits())),
                Form::By32 => fill_by_32(isa, row, words, width, lane),
                Form::By256 => fill_by_256(isa, row, words, width, lane),
            }
        }
    });
}

/// Writes the words of one row of a group.
#[inline]
fn scatter(words: &mut [u32], width: usize, lane: usize, values: impl Iterator<Item = u32>) {
    for (place, value) in words[lane..].iter_mut().step_by(width).zip(values) {
        *place = value;
    }
}

fn fill_by_32(isa: Isa, row: &[f32], words: &mut [u32], width: usize, lane: usize) {
    let (bytes, rest) = words.split_at_mut(width * row.len() / 4);
    let (scales, sums) = rest.split_at_mut(width * row.len() / 32);
    let mut block = QuantisedBlock::<32, 2>::default();
    for (b, x) in row.as_chunks::<32>().0.iter().enumerate() {
        quantise(isa, x, &mut block);
        scatter(&mut bytes[8 * b * width..][..8 * width], width, lane, block.words());
        scales[b * width + lane] = block.scale.to_bits();
        sums[b * width + lane] = (block.sums[0] + block.sums[1]) as u32;
    }
}

fn fill_by_256(isa: Isa, row: &[f32], words: &mut [u32], width: usize, lane: usize) {
    let (bytes, rest) = words.split_at_mut(width * row.len() / 4);
    let (scales, rest) = rest.split_at_mut(width * row.len() / 256);
    let (sums_32, sums_16) = rest.split_at_mut(width * row.len() / 64);
    let pair = |low: i32, high: i32| low as u32 & 0xffff | (high as u32) << 16;
    let mut block = QuantisedBlock::<256, 16>::default();
    for (b, x) in row.as_chunks::<256>().0.iter().enumerate() {
        quantise(isa, x, &mut block);
        scatter(&mut bytes[64 * b * width..][..64 * width], width, lane, block.words());
        scales[b * width + lane] = block.scale.to_bits();
        let sums = &block.sums;
        let pairs_32 = sums.chunks_exact(4).map(|s| pair(s[0] + s[1], s[2] + s[3]));
        scatter(&mut sums_32[4 * b * width..][..4 * width], width, lane, pairs_32);
        scatter(
            &mut sums_16[8 * b * width..][..8 * width],
            width,
            lane,
            sums.chunks_exact(2).map(|s| pair(s[0], s[1])),
        );
    }
}
