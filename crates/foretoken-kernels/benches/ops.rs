//! Times of the pool, the operations on rows of logits and activations, and attention: `cargo bench --bench ops`.
//!
//! Each line is the least of several runs, with the share of bytes or products per second where that says something.

use foretoken_kernels::attention::{AttentionState, KEY_CHUNK, KvChunk, KvChunkMut, KvType, attend};
use foretoken_kernels::pool::Pool;
use foretoken_kernels::{Isa, ops};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const VOCABULARY: usize = 151_936;

/// Seconds of the fastest of `rounds` calls.
fn least(rounds: usize, mut f: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(time).fold(f64::MAX, f64::min)
}

/// Seconds of the median of `rounds` calls.
fn median(rounds: usize, mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds).map(|_| least(1, &mut f)).collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}

/// Values in `[-1, 1)`.
fn values(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u32).map(|i| (ops::noise::hash32(seed, i) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn main() {
    fork_join();
    for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Scalar) {
        println!("\n{isa}");
        rows_of_logits(isa);
        activations(isa);
        attention(isa);
    }
}

fn fork_join() {
    const REGIONS: usize = 10_000;
    let spin = |ns: u128| {
        let start = Instant::now();
        while start.elapsed().as_nanos() < ns {}
    };
    for threads in [1, 2, 3, 4] {
        let pool = Pool::new(threads);
        let region = || {
            for _ in 0..REGIONS {
                pool.run(threads, &|_, item| _ = black_box(item));
            }
        };
        let empty = median(15, region) / REGIONS as f64;
        // Regions of 20 microseconds of work in 8 items, as in a pass of a small model.
        let work = median(101, || (0..50).for_each(|_| pool.run(8, &|_, _| spin(5_000)))) / 50.0;
        println!("pool of {threads}: empty region {:.0} ns; 8 items of 5 us {:.1} us", empty * 1e9, work * 1e6);
    }
    // Two items that wait for each other: the helper must come, and the caller must learn that it is done.
    let pool = Pool::new(2);
    let met = AtomicUsize::new(0);
    let meet = |_, _| {
        let last = met.fetch_add(1, Ordering::Relaxed) | 1;
        while met.load(Ordering::Relaxed) <= last {
            std::hint::spin_loop();
        }
    };
    let meeting = median(15, || (0..REGIONS).for_each(|_| pool.run(2, &meet))) / REGIONS as f64;
    let late = || {
        spin(300_000);
        let start = Instant::now();
        pool.run(2, &meet);
        start.elapsed().as_secs_f64()
    };
    let mut late: Vec<f64> = (0..101).map(|_| late()).collect();
    late.sort_by(f64::total_cmp);
    println!("pool of 2: fork, meet and join {:.0} ns; from sleep {:.1} us", meeting * 1e9, late[50] * 1e6);
}

fn rows_of_logits(isa: Isa) {
    let logits: Vec<f32> = values(VOCABULARY, 1).iter().map(|x| 12.0 * x).collect();
    let report = |what: &str, seconds: f64| {
        println!("{what:28} {:8.1} us  {:6.1} GB/s", seconds * 1e6, 4e-9 * VOCABULARY as f64 / seconds);
    };
    report("scan", least(200, || _ = black_box(ops::scan(isa, black_box(&logits)))));
    let mut z = vec![0.0; VOCABULARY];
    let max = ops::scan(isa, &logits).max;
    report("scale_logits", least(200, || ops::scale_logits(isa, black_box(&logits), max, 0.8, &mut z)));
    report("exp_sum", least(200, || _ = black_box(ops::exp_sum(isa, black_box(&z)))));
    let mut maxima = vec![0.0; VOCABULARY.div_ceil(ops::MAX_BLOCK)];
    report("block_max", least(200, || ops::block_max(isa, black_box(&logits), &mut maxima)));
    let mut ids = Vec::with_capacity(1000);
    let collect = || {
        ids.clear();
        ops::collect_at_least(isa, black_box(&logits), 11.99, &mut ids);
    };
    report("collect_at_least", least(200, collect));
    let mut hits = Vec::with_capacity(1000);
    let search = || {
        hits.clear();
        ops::noise::hash_at_most(isa, 1, 0, VOCABULARY as u32, 1 << 20, &mut hits);
    };
    report("noise::hash_at_most", least(200, search));
    let search = || {
        hits.clear();
        ops::noise::contenders(isa, 1, black_box(&z), 0, 5.0, &mut hits);
    };
    report("noise::contenders", least(200, search));
}

fn activations(isa: Isa) {
    let n = 1536;
    let (mut x, y) = (values(n, 2), values(n, 3));
    let mut out = vec![0.0; n];
    let report = |what: &str, seconds: f64| println!("{what:28} {:8.1} ns", seconds * 1e9);
    report("rms_norm of 1536", least(2000, || ops::rms_norm(isa, black_box(&x), &y, 1e-6, &mut out)));
    report("add_assign of 1536", least(2000, || ops::add_assign(isa, black_box(&mut x), &y)));
    report("silu_mul of 1536", least(2000, || ops::silu_mul(isa, black_box(&mut out), &y)));
    let (cos, sin) = (values(64, 4), values(64, 5));
    for style in [ops::RopeStyle::Halves, ops::RopeStyle::Interleaved] {
        let turn = || ops::rope(isa, black_box(&mut x[..128]), &cos, &sin, style);
        report(&format!("rope of 128, {style:?}"), least(2000, turn));
    }
}

/// Attention of one layer of Qwen2.5-1.5B: 12 query heads, 2 kv heads, 128 dimensions; splits of 512 positions.
fn attention(isa: Isa) {
    const HEAD_DIM: usize = 128;
    const KV_HEADS: usize = 2;
    const GROUP: usize = 6;
    const SPLIT: usize = 16;
    let context = 4096;
    let n_chunks = context / KEY_CHUNK;
    for kv_type in [KvType::F16, KvType::Q8_0] {
        let side = kv_type.chunk_bytes(HEAD_DIM);
        // More layers than the caches hold, so that K and V come from memory.
        for (layers, place) in [(16, "memory"), (1, "cache")] {
            let mut kv = vec![0u8; layers * KV_HEADS * n_chunks * 2 * side];
            for chunk in kv.chunks_exact_mut(2 * side) {
                let (k, v) = chunk.split_at_mut(side);
                let mut chunk = KvChunkMut::new(kv_type, HEAD_DIM, k, v);
                for position in 0..KEY_CHUNK {
                    chunk.store_k(isa, position, &values(HEAD_DIM, position as u64));
                    chunk.store_v(isa, position, &values(HEAD_DIM, position as u64 + 99));
                }
            }
            for (threads, rows) in [(1, 1), (2, 1), (2, 2), (2, 4), (2, 8)] {
                let pool = Pool::new(threads);
                let n_queries = rows * GROUP;
                let queries = values(n_queries * HEAD_DIM, 7);
                let visible = vec![(0, KEY_CHUNK as u8); n_queries];
                let states: Vec<_> = (0..threads).map(|_| Mutex::new(AttentionState::new())).collect();
                let seconds = median(9, || {
                    for layer in kv.chunks_exact(KV_HEADS * n_chunks * 2 * side) {
                        pool.run(KV_HEADS * n_chunks / SPLIT, &|worker, item| {
                            let mut state = states[worker].lock().unwrap();
                            state.reset(n_queries, HEAD_DIM);
                            let mut chunks = layer.chunks_exact(2 * side).skip(item * SPLIT).map(|chunk| {
                                let (k, v) = chunk.split_at(side);
                                KvChunk::new(kv_type, HEAD_DIM, k, v)
                            });
                            let mut chunk = chunks.next().expect("a first chunk");
                            for _ in 0..SPLIT {
                                let next = chunks.next().unwrap_or(chunk);
                                attend(isa, chunk.followed_by(next), &queries, &visible, &mut state);
                                chunk = next;
                            }
                        });
                    }
                });
                let flop = (layers * KV_HEADS * n_queries * context * HEAD_DIM * 4) as f64;
                println!(
                    "attention {kv_type:?}, {place}, {threads} threads, {rows} rows: {:7.1} us a layer, {:5.1} GB/s, {:5.1} GFLOP/s",
                    seconds * 1e6 / layers as f64,
                    1e-9 * kv.len() as f64 / seconds,
                    1e-9 * flop / seconds
                );
            }
        }
    }
    prompt(isa);
}

/// 512 rows over the 512 positions before them, one kv head.
fn prompt(isa: Isa) {
    let (head_dim, n_queries, n_chunks) = (128, 512 * 6, 16);
    let kv_type = KvType::F16;
    let side = kv_type.chunk_bytes(head_dim);
    let kv = vec![0u8; 2 * side];
    let chunk = KvChunk::new(kv_type, head_dim, &kv[..side], &kv[side..]);
    let queries = values(n_queries * head_dim, 7);
    let visible = vec![(0, KEY_CHUNK as u8); n_queries];
    let mut state = AttentionState::new();
    let seconds = median(5, || {
        state.reset(n_queries, head_dim);
        (0..n_chunks).for_each(|_| attend(isa, chunk, &queries, &visible, &mut state));
    });
    let flop = (n_queries * n_chunks * KEY_CHUNK * head_dim * 4) as f64;
    println!("attention F16, prompt of 512 rows, 1 thread: {:.1} GFLOP/s", 1e-9 * flop / seconds);
}
