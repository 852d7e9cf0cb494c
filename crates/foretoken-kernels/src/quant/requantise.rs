//! From f32 values to Q4_0 blocks: the smaller form of a model that drafts for itself.

use super::WeightType;

/// Writes a row of values as Q4_0 blocks: the value of greatest magnitude gets the code -8, and then the scale is the one of
/// least squared error for the codes chosen.
///
/// Panics unless the row is a multiple of 32 and `out` has [`WeightType::row_bytes`] bytes. Values that are no number count
/// as 0, infinite ones as the greatest that a block can hold.
pub fn quantize_q4_0_row(values: &[f32], out: &mut [u8]) {
    let ty = WeightType::Q4_0;
    assert_eq!(out.len(), ty.row_bytes(values.len()), "Q4_0 row of {} weights", values.len());
    for (values, block) in values.as_chunks::<32>().0.iter().zip(out.chunks_exact_mut(ty.block_bytes())) {
        let clean = values.map(|x| if x.is_nan() { 0.0 } else { x.clamp(-MOST, MOST) });
        let (scale, codes) = choose(&clean);
        block[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
        for (byte, (low, high)) in block[2..].iter_mut().zip(codes[..16].iter().zip(&codes[16..])) {
            *byte = low | high << 4;
        }
    }
}

/// The greatest scale, in half precision.
const MOST_SCALE: f32 = 65504.0;
/// What it makes of the greatest code.
const MOST: f32 = MOST_SCALE * 8.0;

/// A scale, and codes from 0 to 15 that stand for -8 to 7 of it.
fn choose(values: &[f32; 32]) -> (f32, [u8; 32]) {
    let extreme = values.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
    let first = extreme / -8.0;
    let inverse = if first == 0.0 { 0.0 } else { 1.0 / first };
    if !inverse.is_finite() {
        return (0.0, [8; 32]);
    }
    // At most 8 in magnitude, and 8 itself becomes 7.
    let codes = values.map(|x| (x * inverse + 8.5).floor().clamp(0.0, 15.0) as u8);
    let (mut product, mut square) = (0.0, 0.0);
    for (&x, &code) in values.iter().zip(&codes) {
        let q = f32::from(code) - 8.0;
        product += x * q;
        square += q * q;
    }
    let scale = if square > 0.0 { product / square } else { 0.0 };
    (scale.clamp(-MOST_SCALE, MOST_SCALE), codes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::dequantize_row;
    use crate::simd::testing::Rng;

    fn round_trip(values: &[f32]) -> Vec<f32> {
        let mut bytes = vec![0; WeightType::Q4_0.row_bytes(values.len())];
        quantize_q4_0_row(values, &mut bytes);
        let mut out = vec![f32::NAN; values.len()];
        dequantize_row(WeightType::Q4_0, &bytes, &mut out);
        out
    }

    #[test]
    fn what_has_codes_is_kept_exactly() {
        let values: Vec<f32> =
            (0..64).map(|i| ((i * 7 % 16) as f32 - 8.0) * if i < 32 { 0.25 } else { -3.0 }).collect();
        assert_eq!(round_trip(&values), values);
        assert_eq!(round_trip(&[0.0; 32]), [0.0; 32]);
    }

    #[test]
    fn the_error_is_at_most_a_step_and_less_than_with_the_first_scale() {
        let mut rng = Rng(3);
        let (mut refined, mut plain) = (0.0f64, 0.0f64);
        for _ in 0..200 {
            let values = rng.uniforms(32, -1.0..1.0);
            let extreme = values.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
            let step = extreme / -8.0;
            for (x, y) in values.iter().zip(round_trip(&values)) {
                assert!((x - y).abs() <= 1.3 * step.abs(), "{x} became {y} with steps of {step}");
                refined += f64::from((x - y) * (x - y));
                let first = (x / step + 8.5).floor().clamp(0.0, 15.0).mul_add(step, -8.0 * step);
                plain += f64::from((x - first) * (x - first));
            }
        }
        assert!(refined < plain, "{refined} {plain}");
    }

    #[test]
    fn any_value_is_taken() {
        let mut values = [0.0; 32];
        values[..6].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40, -0.0]);
        assert!(round_trip(&values).iter().all(|x| x.is_finite()));
        assert!(round_trip(&[1e-42; 32]).iter().all(|x| x.abs() < 1e-6));
    }
}
