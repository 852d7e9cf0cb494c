//! Values of hand-made blocks, from the formulas in ggml's documentation and not from our decoder.

use super::*;

fn check(ty: WeightType, bytes: &[u8], want: impl Fn(usize) -> f32) {
    let mut got = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    dequantize_row(ty, bytes, &mut got);
    for (i, got) in got.into_iter().enumerate() {
        assert_eq!(got, want(i), "{ty:?} weight {i}");
    }
}

/// A block that starts with these f16 values and goes on with a pattern in which no two neighbours are alike.
fn block(ty: WeightType, halves: &[f32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = halves.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
    bytes.extend((bytes.len()..ty.block_bytes()).map(|i| (i * 89 + i * i * 7 + 13) as u8));
    bytes
}

#[test]
fn floats() {
    check(WeightType::F32, &1.5f32.to_le_bytes(), |_| 1.5);
    check(WeightType::F16, &half::f16::from_f32(-0.25).to_le_bytes(), |_| -0.25);
    check(WeightType::BF16, &[0x40, 0xc1], |_| -12.0);
}

#[test]
fn blocks_of_32() {
    let low_or_high = |q: u8, i: usize| if i < 16 { q & 15 } else { q >> 4 } as f32;
    let b = block(WeightType::Q4_0, &[0.5]);
    check(WeightType::Q4_0, &b, |i| (low_or_high(b[2 + i % 16], i) - 8.0) * 0.5);
    let b = block(WeightType::Q4_1, &[0.5, -3.0]);
    check(WeightType::Q4_1, &b, |i| low_or_high(b[4 + i % 16], i) * 0.5 - 3.0);
    let b = block(WeightType::Q5_0, &[0.25]);
    let fifth = |b: &[u8], i: usize| f32::from(b[i / 8] >> (i % 8) & 1) * 16.0;
    check(WeightType::Q5_0, &b, |i| (low_or_high(b[6 + i % 16], i) + fifth(&b[2..], i) - 16.0) * 0.25);
    let b = block(WeightType::Q5_1, &[0.25, 1.0]);
    check(WeightType::Q5_1, &b, |i| (low_or_high(b[8 + i % 16], i) + fifth(&b[4..], i)) * 0.25 + 1.0);
    let b = block(WeightType::Q8_0, &[2.0]);
    check(WeightType::Q8_0, &b, |i| f32::from(b[2 + i] as i8) * 2.0);
}

/// ggml's get_scale_min_k4.
fn scale_min(b: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (b[j] & 63, b[j + 4] & 63)
    } else {
        ((b[j + 4] & 15) | ((b[j - 4] >> 6) << 4), (b[j + 4] >> 4) | ((b[j] >> 6) << 4))
    };
    (f32::from(scale), f32::from(min))
}

#[test]
fn blocks_of_256() {
    let nibble = |q: &[u8], i: usize| {
        let byte = q[i / 64 * 32 + i % 32];
        if i % 64 < 32 { byte & 15 } else { byte >> 4 }
    };
    let b = block(WeightType::Q4_K, &[0.5, 0.25]);
    check(WeightType::Q4_K, &b, |i| {
        let (scale, min) = scale_min(&b[4..], i / 32);
        0.5 * scale * f32::from(nibble(&b[16..], i)) - 0.25 * min
    });
    let b = block(WeightType::Q5_K, &[0.5, 0.25]);
    check(WeightType::Q5_K, &b, |i| {
        let (scale, min) = scale_min(&b[4..], i / 32);
        let high = b[16 + i % 32] >> (i / 32) & 1;
        0.5 * scale * f32::from(nibble(&b[48..], i) + 16 * high) - 0.25 * min
    });
    let mut b = block(WeightType::Q6_K, &[]);
    b[208..].copy_from_slice(&half::f16::from_f32(0.125).to_le_bytes());
    check(WeightType::Q6_K, &b, |i| {
        let (half, l, quarter) = (i / 128, i % 32, i % 128 / 32);
        let low = b[half * 64 + quarter % 2 * 32 + l];
        let low = if quarter < 2 { low & 15 } else { low >> 4 };
        let high = b[128 + half * 32 + l] >> (2 * quarter) & 3;
        0.125 * f32::from(b[192 + i / 16] as i8) * (f32::from(low + 16 * high) - 32.0)
    });
}

#[test]
fn any_bits_are_accepted() {
    for ty in WeightType::ALL {
        for fill in [0u8, 0x7f, 0x80, 0xff] {
            let mut out = vec![0.0; 2 * ty.block_len()];
            dequantize_row(ty, &vec![fill; 2 * ty.block_bytes()], &mut out);
        }
    }
}
