//! What quantised products cost: the divergence from a forward in f32 on the same file's dequantised weights, beside
//! llama.cpp's own (`fixtures/make_kl.py`).

mod common;

use common::{Setup, feed, fixtures, load};
use foretoken_decode::target::Cache;
use foretoken_kernels::ops;
use foretoken_model::Weights;
use serde_json::Value;

/// Our mean divergence may be at most this many times llama.cpp's.
const LIMIT: f64 = 1.1;

/// log of the sum of exponentials.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&l| f64::from(ops::exp(l - max))).sum();
    f64::from(max) + libm::log(sum)
}

/// KL(p || q) in nats of the distributions that two rows of logits stand for.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let (p_total, q_total) = (log_sum_exp(p), log_sum_exp(q));
    let term = |(&p, &q): (&f32, &f32)| {
        let log_p = f64::from(p) - p_total;
        f64::from(ops::exp(log_p as f32)) * (log_p - (f64::from(q) - q_total))
    };
    p.iter().zip(q).map(term).sum()
}

/// The f32 forward agrees with transformers' at the positions that the fixture describes.
fn check_reference(fixture: &Value, position: usize, logits: &[f32]) {
    let every = fixture["every"].as_u64().expect("a number") as usize;
    if !position.is_multiple_of(every) {
        return;
    }
    let index = position / every;
    let ids = fixture["top_ids"][index].as_array().expect("ids");
    for (id, expected) in ids.iter().zip(fixture["top_logits"][index].as_array().expect("logits")) {
        let actual = f64::from(logits[id.as_u64().expect("an id") as usize]);
        let expected = expected.as_f64().expect("a number");
        assert!((actual - expected).abs() < 0.05, "position {position}, token {id}: {actual}, not {expected}");
    }
    let expected = fixture["logsumexp"][index].as_f64().expect("a number");
    assert!((log_sum_exp(logits) - expected).abs() < 0.05, "position {position}: the normaliser is not {expected}");
}

fn check(name: &str) {
    let Some(path) = foretoken_testkit::models::find(name) else { return };
    let json = std::fs::read_to_string(fixtures().join(format!("kl/{name}.json"))).expect("the fixture is committed");
    let fixture: Value = serde_json::from_str(&json).expect("it is JSON");
    let ids: Vec<u32> =
        fixture["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect();
    let mut stored = load(&path, Setup::default());
    let mut widened = load(&path, Setup { weights: Weights::F32, ..Setup::default() });
    let mut caches = [stored.cache(ids.len()).expect("it fits"), widened.cache(ids.len()).expect("it fits")];
    let [stored_text, widened_text] = [caches[0].open(), caches[1].open()];
    let mut total = 0.0;
    for (first, chunk) in (0..).step_by(100).zip(ids.chunks(100)) {
        let exact = feed(&mut widened, &mut caches[1], widened_text, chunk);
        let ours = feed(&mut stored, &mut caches[0], stored_text, chunk);
        for (i, (exact, ours)) in exact.iter().zip(&ours).enumerate() {
            check_reference(&fixture, first + i, exact);
            total += divergence(exact, ours);
        }
    }
    let mean = total / ids.len() as f64;
    let theirs = fixture["mean_kl"].as_f64().expect("a number");
    println!("{name}: mean KL {mean:.3e}, llama.cpp's {theirs:.3e}, ratio {:.2}", mean / theirs);
    assert!(mean <= LIMIT * theirs, "{name}: mean KL {mean:e} is more than {LIMIT} times llama.cpp's {theirs:e}");
}

#[test]
fn smollm2_diverges_no_more_than_llama_cpp() {
    check("smollm2-135m");
}

#[test]
fn qwen_coder_diverges_no_more_than_llama_cpp() {
    check("qwen-coder-0.5b");
}

#[test]
fn the_larger_qwen_coder_diverges_no_more_than_llama_cpp() {
    // Widened it takes 6 GB.
    if std::env::var_os("FORETOKEN_LONG").is_some() {
        check("qwen-coder-1.5b");
    }
}
