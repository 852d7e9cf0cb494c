//! Every instruction set, type and number of rows against the definition, bit for bit; the definition against f64.

use proptest::prelude::*;

use super::*;
use crate::arena::Arena;
use crate::quant::{WeightType, dequantize_row, quantize_q4_0_row};

/// A small seeded generator (an LCG's upper half).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Within +-1.
    fn float(&mut self) -> f32 {
        self.bits() as i32 as f32 / (1u32 << 31) as f32
    }
}

/// Rows of random bits with f16 scales (and float weights) of a sensible size.
fn weights(ty: WeightType, n_out: usize, n_in: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n_out * ty.row_bytes(n_in)).map(|_| random.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        let mut put = |at: usize| {
            let half = half::f16::from_f32(random.float() * 0.1);
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        };
        match ty {
            WeightType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            WeightType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
            WeightType::F16 | WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 => put(0),
            WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => {
                put(0);
                put(2);
            }
            WeightType::Q6_K => put(208),
        }
    }
    bytes
}

fn pack(storage: WeightType, source: WeightType, n_out: usize, n_in: usize, bytes: &[u8]) -> Matrix {
    let size = Matrix::packed_bytes(storage, n_out, n_in);
    let dest = Arena::new(size).unwrap().take(size).unwrap();
    let row = source.row_bytes(n_in);
    let done = std::sync::atomic::AtomicUsize::new(0);
    let read = |rows: std::ops::Range<usize>, out: &mut [u8]| -> Result<(), std::convert::Infallible> {
        out.copy_from_slice(&bytes[rows.start * row..rows.end * row]);
        Ok(())
    };
    let hear = |bytes| {
        done.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    };
    let matrix = Matrix::pack(storage, source, n_out, n_in, dest, read, hear).unwrap_or_else(|e| match e {});
    assert_eq!(done.into_inner(), bytes.len());
    matrix
}

fn multiply(threads: usize, isa: Isa, matrix: &Matrix, rows: &[f32]) -> Vec<f32> {
    let n_rows = rows.len() / matrix.n_in();
    let pool = Pool::new(threads);
    let mut activations = Activations::new();
    activations.set(&pool, isa, rows, n_rows, matrix.n_in(), [matrix.storage()].into_iter());
    let mut out = vec![f32::NAN; n_rows * matrix.n_out()];
    matmul(&pool, isa, &activations, &mut [Product { weights: matrix, out: &mut out }]);
    out
}

/// Equal bits; any NaN equals any other.
fn assert_same(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
            "{what}: output {i}: {got} is not {want}"
        );
    }
}

fn floats(n: usize, random: &mut Random) -> Vec<f32> {
    (0..n).map(|_| random.float()).collect()
}

/// A row length with an odd number of blocks, so that half-filled groups of blocks occur.
fn odd_length(ty: WeightType) -> usize {
    if ty.is_float() { 37 } else { 3 * ty.block_len() }
}

#[test]
fn every_instruction_set_type_and_row_count_gives_the_definitions_bits() {
    let mut random = Random(1);
    for ty in WeightType::ALL {
        let (n_out, n_in) = (35, odd_length(ty));
        let matrix = pack(ty, ty, n_out, n_in, &weights(ty, n_out, n_in, &mut random));
        let rows = floats(100 * n_in, &mut random);
        let want = multiply(1, Isa::Scalar, &matrix, &rows);
        for isa in Isa::available() {
            for n_rows in (1..=33).chain([64, 100]) {
                let got = multiply(1, isa, &matrix, &rows[..n_rows * n_in]);
                assert_same(&got, &want[..n_rows * n_out], &format!("{isa} {ty:?} {n_rows} rows"));
            }
        }
    }
}

#[test]
fn any_type_is_requantised_as_its_values_are() {
    let mut random = Random(8);
    for ty in WeightType::ALL {
        let (n_out, n_in) = (35, 512);
        let bytes = weights(ty, n_out, n_in, &mut random);
        let matrix = pack(WeightType::Q4_0, ty, n_out, n_in, &bytes);
        let (mut values, mut got) = (vec![0.0; n_in], vec![0.0; n_in]);
        let mut blocks = vec![0; WeightType::Q4_0.row_bytes(n_in)];
        for (row, bytes) in bytes.chunks_exact(ty.row_bytes(n_in)).enumerate() {
            dequantize_row(ty, bytes, &mut values);
            if ty != WeightType::Q4_0 {
                quantize_q4_0_row(&values, &mut blocks);
                dequantize_row(WeightType::Q4_0, &blocks, &mut values);
            }
            matrix.row(row, &mut got);
            assert_same(&got, &values, &format!("{ty:?} row {row}"));
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let mut random = Random(2);
    for ty in WeightType::ALL {
        let (n_out, n_in) = (203, odd_length(ty));
        let matrix = pack(ty, ty, n_out, n_in, &weights(ty, n_out, n_in, &mut random));
        let rows = floats(11 * n_in, &mut random);
        let want = multiply(1, Isa::best(), &matrix, &rows);
        for threads in 2..=4 {
            assert_same(&multiply(threads, Isa::best(), &matrix, &rows), &want, &format!("{ty:?} {threads} threads"));
        }
    }
}

#[test]
fn no_bit_pattern_saturates() {
    let mut random = Random(3);
    for ty in WeightType::ALL.into_iter().filter(|ty| !ty.is_float()) {
        let (n_out, n_in) = (16, ty.block_len());
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            let mut bytes = weights(ty, n_out, n_in, &mut random);
            for (i, block) in bytes.chunks_exact_mut(ty.block_bytes()).enumerate() {
                // Row 0 and odd rows keep random scales; the codes are all alike.
                let halves = if ty == WeightType::Q6_K { 208..210 } else { 0..4.min(ty.block_bytes()) };
                let kept = block[halves.clone()].to_vec();
                block.fill(fill);
                block[halves].copy_from_slice(&kept);
                if i % 2 == 1 && ty != WeightType::Q6_K {
                    block[2] ^= 0x55;
                }
            }
            let matrix = pack(ty, ty, n_out, n_in, &bytes);
            let mut rows = vec![1.0; 4 * n_in];
            rows[n_in..2 * n_in].fill(-1.0);
            rows[2 * n_in..].iter_mut().enumerate().for_each(|(i, x)| *x = if i % 8 < 4 { 1.0 } else { -1.0 });
            let want = multiply(1, Isa::Scalar, &matrix, &rows);
            for isa in Isa::available() {
                assert_same(&multiply(1, isa, &matrix, &rows), &want, &format!("{isa} {ty:?} all {fill:#x}"));
            }
        }
    }
}

#[test]
fn entirely_random_bits_agree_too() {
    let mut random = Random(4);
    for ty in WeightType::ALL {
        let (n_out, n_in) = (64, odd_length(ty));
        let bytes: Vec<u8> = (0..n_out * ty.row_bytes(n_in)).map(|_| random.bits() as u8).collect();
        let matrix = pack(ty, ty, n_out, n_in, &bytes);
        let rows = floats(5 * n_in, &mut random);
        let want = multiply(1, Isa::Scalar, &matrix, &rows);
        for isa in Isa::available() {
            assert_same(&multiply(1, isa, &matrix, &rows), &want, &format!("{isa} {ty:?}"));
        }
    }
}

#[test]
fn the_definition_is_within_the_error_of_quantised_activations() {
    let mut random = Random(5);
    for ty in WeightType::ALL {
        let (n_out, n_in) = (17, 512);
        let bytes = weights(ty, n_out, n_in, &mut random);
        let matrix = pack(ty, ty, n_out, n_in, &bytes);
        let row = floats(n_in, &mut random);
        let got = multiply(1, Isa::Scalar, &matrix, &row);
        for (got, bytes) in got.into_iter().zip(bytes.chunks_exact(ty.row_bytes(n_in))) {
            let mut w = vec![0.0; n_in];
            dequantize_row(ty, bytes, &mut w);
            let exact: f64 = w.iter().zip(&row).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            let magnitude: f64 = w.iter().map(|&w| f64::from(w.abs())).sum();
            // Activations are within 1, so half a step of a block is at most 0.5 / 127.
            let step = if ty.is_float() { 0.0 } else { 0.5 / 127.0 };
            let bound = magnitude * (step + 1e-4);
            assert!((f64::from(got) - exact).abs() <= bound, "{ty:?}: {got} for {exact}, bound {bound}");
        }
    }
}

#[test]
fn rows_read_back_are_the_rows_packed() {
    let mut random = Random(6);
    for ty in WeightType::ALL {
        let (n_out, n_in) = (21, odd_length(ty));
        let bytes = weights(ty, n_out, n_in, &mut random);
        for storage in [ty, WeightType::F32] {
            let matrix = pack(storage, ty, n_out, n_in, &bytes);
            let (mut got, mut want) = (vec![0.0; n_in], vec![0.0; n_in]);
            for (i, bytes) in bytes.chunks_exact(ty.row_bytes(n_in)).enumerate() {
                matrix.row(i, &mut got);
                dequantize_row(ty, bytes, &mut want);
                assert_same(&got, &want, &format!("{ty:?} as {storage:?} row {i}"));
            }
        }
        let halves = pack(WeightType::F16, ty, n_out, n_in, &bytes);
        let (mut got, mut want) = (vec![0.0; n_in], vec![0.0; n_in]);
        halves.row(3, &mut got);
        dequantize_row(ty, &bytes[3 * ty.row_bytes(n_in)..][..ty.row_bytes(n_in)], &mut want);
        want.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
        assert_same(&got, &want, &format!("{ty:?} as F16"));
    }
}

#[test]
fn an_activation_that_is_not_finite_makes_its_row_nan_and_no_other() {
    let mut random = Random(7);
    for ty in WeightType::ALL.into_iter().filter(|ty| !ty.is_float()) {
        let (n_out, n_in) = (16, 2 * ty.block_len());
        let matrix = pack(ty, ty, n_out, n_in, &weights(ty, n_out, n_in, &mut random));
        let mut rows = floats(3 * n_in, &mut random);
        rows[n_in + 5] = f32::INFINITY;
        for isa in Isa::available() {
            let out = multiply(1, isa, &matrix, &rows);
            let nan: Vec<bool> = out.iter().map(|x| x.is_nan()).collect();
            assert!(nan[n_out..2 * n_out].iter().all(|&nan| nan), "{isa} {ty:?}");
            assert!(!nan[..n_out].iter().chain(&nan[2 * n_out..]).any(|&nan| nan), "{isa} {ty:?}");
        }
    }
}

#[test]
fn several_products_are_each_alone() {
    let mut random = Random(8);
    let n_in = 512;
    let types = [WeightType::Q4_K, WeightType::Q6_K, WeightType::Q8_0, WeightType::F16];
    let matrices: Vec<Matrix> = (0..11)
        .map(|i| (types[i % 4], 16 * i + 5))
        .map(|(ty, n_out)| pack(ty, ty, n_out, n_in, &weights(ty, n_out, n_in, &mut random)))
        .collect();
    let rows = floats(10 * n_in, &mut random);
    let pool = Pool::new(2);
    for isa in Isa::available() {
        let mut activations = Activations::new();
        activations.set(&pool, isa, &rows, 10, n_in, types.into_iter());
        let mut outs: Vec<Vec<f32>> = matrices.iter().map(|m| vec![0.0; 10 * m.n_out()]).collect();
        let products = matrices.iter().zip(&mut outs).map(|(weights, out)| Product { weights, out });
        matmul(&pool, isa, &activations, &mut products.collect::<Vec<_>>());
        for (matrix, out) in matrices.iter().zip(&outs) {
            assert_same(out, &multiply(1, isa, matrix, &rows), &format!("{isa} {:?}", matrix.storage()));
        }
        let (gate, up) = (&matrices[1], &pack(types[0], types[0], 21, n_in, &weights(types[0], 21, n_in, &mut random)));
        let mut glu = vec![0.0; 10 * 21];
        matmul_glu(&pool, isa, &activations, gate, up, &mut glu);
        let mut want = outs[1].clone();
        silu_mul(isa, &mut want, &multiply(1, isa, up, &rows));
        assert_same(&glu, &want, &format!("{isa} glu"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_gives_the_definitions_bits(
        ty in proptest::sample::select(WeightType::ALL.as_slice()),
        n_out in 1usize..90,
        n_blocks in 1usize..5,
        n_rows in 1usize..20,
        threads in 1usize..3,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let n_in = n_blocks * ty.block_len();
        let matrix = pack(ty, ty, n_out, n_in, &weights(ty, n_out, n_in, &mut random));
        let rows = floats(n_rows * n_in, &mut random);
        let want = multiply(1, Isa::Scalar, &matrix, &rows);
        for isa in Isa::available() {
            assert_same(&multiply(threads, isa, &matrix, &rows), &want, isa.name());
        }
    }
}

#[test]
fn many_rows_are_each_alone() {
    let mut random = Random(9);
    let (n_out, n_in) = (50, 8192);
    let matrix =
        pack(WeightType::Q4_K, WeightType::Q4_K, n_out, n_in, &weights(WeightType::Q4_K, n_out, n_in, &mut random));
    let rows = floats(70 * n_in, &mut random);
    for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::Scalar) {
        let got = multiply(2, isa, &matrix, &rows);
        for i in [0, 1, 31, 32, 63, 69] {
            let alone = multiply(1, isa, &matrix, &rows[i * n_in..][..n_in]);
            assert_same(&got[i * n_out..][..n_out], &alone, &format!("{isa} row {i}"));
        }
    }
}

#[test]
fn a_read_error_is_returned() {
    let size = Matrix::packed_bytes(WeightType::Q8_0, 40, 64);
    let dest = Arena::new(size).unwrap().take(size).unwrap();
    let read = |rows: std::ops::Range<usize>, _: &mut [u8]| Err(rows.start);
    assert!(Matrix::pack(WeightType::Q8_0, WeightType::Q8_0, 40, 64, dest, read, |_| {}).is_err());
}
