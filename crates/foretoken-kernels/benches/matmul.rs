//! Times the products from memory against the machine's own limits, measured in the same run.
//!
//! usage: cargo bench -p foretoken-kernels --bench matmul -- [--types Q4_K,Q6_K] [--shapes 1536x8960] [--rows 1,2,4,8]
//!        [--isa avx512] [--threads 2] [--ms 200]
//! A shape is n_in x n_out. Matrices are repeated until they fill 96 MB, so that weights come from memory; a shape given
//! as `cache:576x576` has one copy. Every product is compared with the scalar definition, bit for bit, before it is timed.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use foretoken_kernels::arena::Arena;
use foretoken_kernels::matmul::{Activations, Matrix, Product, matmul};
use foretoken_kernels::pool::Pool;
use foretoken_kernels::{Isa, WeightType};

/// Weights beyond this do not stay in any cache.
const WORKING_SET: usize = 96 << 20;

struct Options {
    types: Vec<WeightType>,
    shapes: Vec<(bool, usize, usize)>,
    rows: Vec<usize>,
    isa: Isa,
    threads: usize,
    time: Duration,
}

fn main() {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("matmul: cannot read the arguments; see the first lines of benches/matmul.rs");
        std::process::exit(2);
    };
    let pool = Pool::new(options.threads);
    let bandwidth = bandwidth(&pool);
    println!("{} on {} threads, {:.1} GB/s from memory", options.isa, options.threads, bandwidth / 1e9);
    println!("type   shape             rows   median   decile ms     GB/s   GMAC/s  floor");
    for &(in_cache, n_in, n_out) in &options.shapes {
        for &ty in options.types.iter().filter(|ty| n_in.is_multiple_of(ty.block_len())) {
            let copies = if in_cache { 1 } else { WORKING_SET.div_ceil(Matrix::packed_bytes(ty, n_out, n_in)) };
            let matrices: Vec<Matrix> = (0..copies).map(|copy| matrix(ty, n_out, n_in, copy as u64)).collect();
            let (pack, set) = (pack_rate(ty, n_out, n_in), set_seconds(&pool, &options, ty, n_in));
            println!("{ty:?} {n_in}x{n_out}: packs {:.2} GB/s, prepares a row in {:.2} us", pack / 1e9, set * 1e6);
            let peak = peak(options.isa, ty) * options.threads as f64;
            for &n_rows in &options.rows {
                let (median, seconds) = time(&pool, &options, &matrices, n_rows);
                let bytes = matrices[0].bytes() as f64;
                let macs = (n_in * n_out * n_rows) as f64;
                let floor = if in_cache { macs / peak } else { (bytes / bandwidth).max(macs / peak) };
                println!(
                    "{:6} {:17} {n_rows:4} {:8.3} {:8.3} {:8.1} {:8.1} {:6.2}",
                    format!("{ty:?}"),
                    format!("{}{n_in}x{n_out}", if in_cache { "cache:" } else { "" }),
                    median * 1e3,
                    seconds * 1e3,
                    bytes / seconds / 1e9,
                    macs / seconds / 1e9,
                    seconds / floor
                );
            }
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        types: WeightType::ALL.to_vec(),
        shapes: vec![(false, 1536, 1536), (false, 1536, 8960), (false, 8960, 1536), (true, 576, 576)],
        rows: vec![1, 2, 3, 4, 8, 16],
        isa: Isa::best(),
        threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        time: Duration::from_millis(200),
    };
    while let Some(arg) = args.next() {
        if arg == "--bench" {
            continue;
        }
        let value = args.next()?;
        let parts = value.split(',');
        match arg.as_str() {
            "--types" => {
                let find = |name: &str| WeightType::ALL.into_iter().find(|ty| format!("{ty:?}") == name);
                options.types = parts.map(find).collect::<Option<_>>()?;
            }
            "--shapes" => options.shapes = parts.map(shape).collect::<Option<_>>()?,
            "--rows" => options.rows = parts.map(|n| n.parse().ok()).collect::<Option<_>>()?,
            "--isa" => options.isa = Isa::available().into_iter().find(|isa| isa.name() == value)?,
            "--threads" => options.threads = value.parse().ok()?,
            "--ms" => options.time = Duration::from_millis(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(options)
}

fn shape(text: &str) -> Option<(bool, usize, usize)> {
    let in_cache = text.starts_with("cache:");
    let (n_in, n_out) = text.trim_start_matches("cache:").split_once('x')?;
    Some((in_cache, n_in.parse().ok()?, n_out.parse().ok()?))
}

/// Median and lower-decile seconds of a product, after checking it: the decile is what an undisturbed machine does.
fn time(pool: &Pool, options: &Options, matrices: &[Matrix], n_rows: usize) -> (f64, f64) {
    let (n_in, n_out) = (matrices[0].n_in(), matrices[0].n_out());
    let rows: Vec<f32> = (0..n_rows * n_in).map(|i| ((i * 37) % 255) as f32 / 100.0 - 1.27).collect();
    let mut activations = Activations::new();
    let types = || [matrices[0].storage()].into_iter();
    let mut out = vec![0.0; n_rows * n_out];

    let few = matrix(matrices[0].storage(), 32.min(n_out), n_in, 0);
    let mut want = vec![0.0; n_rows * few.n_out()];
    activations.set(pool, Isa::Scalar, &rows, n_rows, n_in, types());
    matmul(pool, Isa::Scalar, &activations, &mut [Product { weights: &few, out: &mut want }]);
    activations.set(pool, options.isa, &rows, n_rows, n_in, types());
    matmul(pool, options.isa, &activations, &mut [Product { weights: &matrices[0], out: &mut out }]);
    for (got, want) in out.chunks(n_out).zip(want.chunks(few.n_out())) {
        assert!(got.iter().zip(want).all(|(got, want)| got.to_bits() == want.to_bits()), "wrong product");
    }

    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < options.time || times.len() < 5 {
        for weights in matrices {
            let start = Instant::now();
            matmul(pool, options.isa, &activations, &mut [Product { weights, out: &mut out }]);
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() / 10])
}

/// Bytes of the file that are packed per second, on rayon's threads.
fn pack_rate(ty: WeightType, n_out: usize, n_in: usize) -> f64 {
    let n_out = n_out.min((64 << 20) / ty.row_bytes(n_in));
    let size = Matrix::packed_bytes(ty, n_out, n_in);
    let file = vec![1u8; n_out * ty.row_bytes(n_in)];
    let seconds = best(5, || {
        let dest = Arena::new(size).and_then(|mut arena| arena.take(size)).expect("memory for weights");
        let read = |rows: std::ops::Range<usize>, bytes: &mut [u8]| -> Result<(), std::convert::Infallible> {
            bytes.copy_from_slice(&file[rows.start * ty.row_bytes(n_in)..][..bytes.len()]);
            Ok(())
        };
        black_box(Matrix::pack(ty, ty, n_out, n_in, dest, read, |_| {}).is_ok());
    });
    file.len() as f64 / seconds
}

/// Seconds to prepare one row of activations.
fn set_seconds(pool: &Pool, options: &Options, ty: WeightType, n_in: usize) -> f64 {
    let row: Vec<f32> = (0..n_in).map(|i| i as f32 * 0.01 - 3.0).collect();
    let mut activations = Activations::new();
    let seconds = best(100, || {
        for _ in 0..100 {
            activations.set(pool, options.isa, black_box(&row), 1, n_in, [ty].into_iter());
        }
    });
    seconds / 100.0
}

/// Random codes with scales of a sensible size; the first rows do not depend on `n_out`.
fn matrix(ty: WeightType, n_out: usize, n_in: usize, seed: u64) -> Matrix {
    let size = Matrix::packed_bytes(ty, n_out, n_in);
    let dest = Arena::new(size).and_then(|mut arena| arena.take(size)).expect("memory for weights");
    let fill = |rows: std::ops::Range<usize>, bytes: &mut [u8]| -> Result<(), std::convert::Infallible> {
        for (row, bytes) in rows.zip(bytes.chunks_exact_mut(ty.row_bytes(n_in))) {
            let mut state = (seed << 32) + row as u64 + 1;
            for bytes in bytes.chunks_mut(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes.copy_from_slice(&(state ^ state >> 31).to_le_bytes()[..bytes.len()]);
            }
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                match ty {
                    // Random exponents would give infinities: every float is within 1 and 2.
                    WeightType::F32 | WeightType::BF16 => {
                        let end = block.len();
                        (block[end - 2], block[end - 1]) = (0x80 | block[end - 2], 0x3f);
                    }
                    WeightType::F16 => block[1] = 0x3c,
                    WeightType::Q6_K => block[209] = 0x24,
                    WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 => block[1] = 0x24,
                    _ => (block[1], block[3]) = (0x24, 0x24),
                }
            }
        }
        Ok(())
    };
    Matrix::pack(ty, ty, n_out, n_in, dest, fill, |_| {}).unwrap_or_else(|never| match never {})
}

/// Bytes per second that all threads together read from memory, in huge pages: the best of several tries.
fn bandwidth(pool: &Pool) -> f64 {
    let size = 256 << 20;
    let mut data = Arena::new(size).and_then(|mut arena| arena.take(size)).expect("memory");
    data.fill(1);
    let part = 1 << 20;
    let read = || {
        pool.run(size / part, &|_, index| {
            let words = data[index * part..][..part].as_chunks::<64>().0;
            let mut sums = [0u64; 8];
            for line in words {
                for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*word));
                }
            }
            black_box(sums);
        });
    };
    size as f64 / best(9, read)
}

/// Multiply-adds per second of one thread in registers alone, with the instructions the type's kernel uses.
fn peak(isa: Isa, ty: WeightType) -> f64 {
    const STEPS: usize = 1 << 14;
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) | Isa::Avx512(_) => {
            use std::arch::x86_64::*;

            #[target_feature(enable = "avx512f,avx512vnni")]
            fn bytes_512() {
                let mut sums = [_mm512_setzero_si512(); 8];
                let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(5)));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = _mm512_dpbusd_epi32(*sum, a, b);
                    }
                }
                black_box(sums);
            }
            #[target_feature(enable = "avx512f")]
            fn floats_512() {
                let mut sums = [_mm512_setzero_ps(); 8];
                let (a, b) = (black_box(_mm512_set1_ps(0.5)), black_box(_mm512_set1_ps(0.25)));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = _mm512_fmadd_ps(*sum, a, b);
                    }
                }
                black_box(sums);
            }
            #[target_feature(enable = "avx2")]
            fn bytes_256() {
                let mut sums = [_mm256_setzero_si256(); 10];
                let (a, b) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi16(5)));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = _mm256_add_epi16(_mm256_maddubs_epi16(a, *sum), b);
                    }
                }
                black_box(sums);
            }
            #[target_feature(enable = "avx2,avxvnni")]
            fn bytes_256_vnni() {
                let mut sums = [_mm256_setzero_si256(); 10];
                let (a, b) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(5)));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = _mm256_dpbusd_avx_epi32(*sum, a, b);
                    }
                }
                black_box(sums);
            }
            #[target_feature(enable = "avx2,fma")]
            fn floats_256() {
                let mut sums = [_mm256_setzero_ps(); 8];
                let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(0.25)));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = _mm256_fmadd_ps(*sum, a, b);
                    }
                }
                black_box(sums);
            }
            // SAFETY: holding the value proves that the CPU has these features.
            let (macs, run): (usize, unsafe fn()) = match (isa, ty.is_float()) {
                (Isa::Avx512(_), false) => (8 * 64, bytes_512),
                (Isa::Avx512(_), true) => (8 * 16, floats_512),
                (Isa::Avx2(isa), false) if isa.vnni() => (10 * 32, bytes_256_vnni),
                (_, false) => (10 * 32, bytes_256),
                (_, true) => (8 * 8, floats_256),
            };
            // SAFETY: as above.
            (STEPS * macs) as f64 / best(100, || unsafe { run() })
        }
        _ => {
            let _ = ty;
            let mut sums = [0.0f32; 8];
            let seconds = best(100, || {
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = black_box(*sum) * 0.5 + 0.25;
                    }
                }
            });
            (8 * STEPS) as f64 / seconds
        }
    }
}

/// Seconds of the fastest of several runs.
fn best(runs: usize, mut f: impl FnMut()) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
