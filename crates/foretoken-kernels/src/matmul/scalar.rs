//! The definition of the products: exact integers per block, then one chain of f32 operations per output.

use super::activations::{Form, Group};
use super::layout::{Layout, TILE_ROWS};
use crate::quant::{Block, WeightType, dequantize_row, offset};

/// Products of a tile with every row of a group: `out[lane][row]`.
pub(crate) fn tile(ty: WeightType, tile: &[u8], n_in: usize, group: &Group<'_>, out: &mut [[f32; TILE_ROWS]]) {
    for (lane, out) in out[..group.width].iter_mut().enumerate() {
        for (row, out) in out.iter_mut().enumerate() {
            *out = match Form::of(ty) {
                Form::Float => floats(ty, tile, row, n_in, group, lane),
                _ => blocks(ty, tile, row, n_in, group, lane),
            };
        }
    }
}

/// Float weights: one fused multiply-add per weight, in order.
fn floats(ty: WeightType, tile: &[u8], row: usize, n_in: usize, group: &Group<'_>, lane: usize) -> f32 {
    let size = ty.block_bytes();
    (0..n_in).fold(0.0, |sum, k| {
        let mut weight = [0.0];
        dequantize_row(ty, &tile[(k * TILE_ROWS + row) * size..][..size], &mut weight);
        weight[0].mul_add(group.x[k * group.width + lane], sum)
    })
}

/// Quantised weights: the blocks in order.
fn blocks(ty: WeightType, tile: &[u8], row: usize, n_in: usize, group: &Group<'_>, lane: usize) -> f32 {
    let layout = Layout::of(ty);
    let length = ty.block_len();
    let mut block = Block::default();
    (0..n_in / length).fold(0.0, |sum, b| {
        layout.get_block(tile, b, row, &mut block);
        let mut bytes = [0i8; 256];
        for (t, bytes) in bytes[..length].chunks_exact_mut(4).enumerate() {
            let word = group.bytes[(b * length / 4 + t) * group.width + lane];
            bytes.copy_from_slice(&word.to_le_bytes().map(|byte| byte as i8));
        }
        let scale = group.scales[b * group.width + lane];
        if length == 32 { block_32(ty, &block, &bytes, scale, sum) } else { block_256(ty, &block, &bytes, scale, sum) }
    })
}

/// sum + d s (codes - offset) . bytes, then + m s (1 . bytes) where the type has a minimum.
fn block_32(ty: WeightType, block: &Block, bytes: &[i8; 256], scale: f32, sum: f32) -> f32 {
    let d = half::f16::from_bits(block.d).to_f32();
    let dot = dot(&block.codes[..32], &bytes[..32]);
    let bytes_sum = total(&bytes[..32]);
    let sum = (d * scale).mul_add((dot - offset(ty) * bytes_sum) as f32, sum);
    match ty {
        WeightType::Q4_1 | WeightType::Q5_1 => {
            let m = half::f16::from_bits(block.m).to_f32();
            (m * scale).mul_add(bytes_sum as f32, sum)
        }
        _ => sum,
    }
}

/// sum + d s (scaled codes . bytes), then - m s (minimums . sums of bytes) where the type has minimums.
fn block_256(ty: WeightType, block: &Block, bytes: &[i8; 256], scale: f32, sum: f32) -> f32 {
    let d = half::f16::from_bits(block.d).to_f32();
    if ty == WeightType::Q6_K {
        let parts = block.codes.chunks_exact(16).zip(bytes.chunks_exact(16));
        let scaled: i32 = parts
            .zip(block.scales)
            .map(|((codes, bytes), scale)| i32::from(scale as i8) * (dot(codes, bytes) - offset(ty) * total(bytes)))
            .sum();
        return (d * scale).mul_add(scaled as f32, sum);
    }
    let parts = || block.codes.chunks_exact(32).zip(bytes.chunks_exact(32));
    let scaled: i32 =
        parts().zip(block.scales).map(|((codes, bytes), scale)| i32::from(scale) * dot(codes, bytes)).sum();
    let mins: i32 = parts().zip(block.mins).map(|((_, bytes), min)| i32::from(min) * total(bytes)).sum();
    let m = half::f16::from_bits(block.m).to_f32();
    let sum = (d * scale).mul_add(scaled as f32, sum);
    (-(m * scale)).mul_add(mins as f32, sum)
}

fn dot(codes: &[u8], bytes: &[i8]) -> i32 {
    codes.iter().zip(bytes).map(|(&code, &byte)| i32::from(code) * i32::from(byte)).sum()
}

fn total(bytes: &[i8]) -> i32 {
    bytes.iter().map(|&byte| i32::from(byte)).sum()
}
