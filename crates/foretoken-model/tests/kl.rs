//! Quantised products lose no more than llama.cpp's: the divergence of our logits from a float32 forward on the same
//! weights, against llama.cpp's divergence from it (`fixtures/make_kl.py`).

mod common;

use common::{Setup, feed, fixtures, load};
use foretoken_decode::TokenId;
use foretoken_decode::target::Cache;
use foretoken_model::{Model, PagedCache, Weights};
use foretoken_testkit::models;
use serde::Deserialize;

/// Positions run at once.
const CHUNK: usize = 100;

/// How far our own float32 forward may be from transformers', in logits. Rounding K and V to f16 is nearly all of it.
const REFERENCE_TOLERANCE: f64 = 0.05;

#[derive(Deserialize)]
struct Fixture {
    ids: Vec<TokenId>,
    mean_kl: f64,
    agreement: f64,
    every: usize,
    logsumexp: Vec<f64>,
    top_ids: Vec<Vec<usize>>,
    top_logits: Vec<Vec<f64>>,
}

/// One model with its cache.
struct Side {
    model: Model,
    cache: PagedCache,
    sequence: foretoken_decode::target::SequenceId,
}

impl Side {
    fn new(path: &std::path::Path, weights: Weights, positions: usize) -> Self {
        let model = load(path, Setup { weights, threads: 2, ..Setup::default() });
        let mut cache = model.cache(positions).expect("it is small beside the weights");
        let sequence = cache.open();
        Self { model, cache, sequence }
    }

    fn feed(&mut self, ids: &[TokenId]) -> Vec<Vec<f32>> {
        feed(&mut self.model, &mut self.cache, self.sequence, ids)
    }
}

fn logsumexp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + libm::log(logits.iter().map(|&x| libm::exp(f64::from(x) - max)).sum())
}

/// KL(p || q) in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let (p_total, q_total) = (logsumexp(p), logsumexp(q));
    let term = |(&p, &q): (&f32, &f32)| {
        let log_p = f64::from(p) - p_total;
        libm::exp(log_p) * (log_p - (f64::from(q) - q_total))
    };
    p.iter().zip(q).map(term).sum()
}

fn argmax(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).expect("a vocabulary")
}

/// The largest difference of a row from transformers' values, of its likeliest tokens' log-probabilities.
fn reference_error(fixture: &Fixture, position: usize, row: &[f32]) -> f64 {
    let index = position / fixture.every;
    let total = logsumexp(row);
    let tops = fixture.top_ids[index].iter().zip(&fixture.top_logits[index]);
    tops.map(|(&id, &theirs)| ((f64::from(row[id]) - total) - (theirs - fixture.logsumexp[index])).abs())
        .fold(0.0, f64::max)
}

fn check(name: &str) {
    let Some(path) = models::find(name) else { return };
    let text = std::fs::read_to_string(fixtures().join(format!("kl/{name}.json"))).expect("the fixture is committed");
    let fixture: Fixture = serde_json::from_str(&text).expect("it is a fixture");
    let mut exact = Side::new(&path, Weights::F32, fixture.ids.len());
    let mut stored = Side::new(&path, Weights::AsStored, fixture.ids.len());

    let (mut kl, mut same, mut error) = (Vec::new(), 0, 0f64);
    for (chunk, ids) in fixture.ids.chunks(CHUNK).enumerate() {
        for (i, (p, q)) in exact.feed(ids).iter().zip(stored.feed(ids)).enumerate() {
            let position = chunk * CHUNK + i;
            kl.push(divergence(p, &q));
            same += usize::from(argmax(p) == argmax(&q));
            if position.is_multiple_of(fixture.every) {
                error = error.max(reference_error(&fixture, position, p));
            }
        }
    }
    let n = kl.len() as f64;
    let (mean, agreement) = (kl.iter().sum::<f64>() / n, same as f64 / n);
    println!(
        "{name}: mean KL {mean:.3e} (llama.cpp {:.3e}), same argmax {agreement:.4} ({:.4}), float32 forward within {error:.1e}",
        fixture.mean_kl, fixture.agreement
    );
    assert!(error < REFERENCE_TOLERANCE, "{name}: our float32 forward is {error} from transformers'");
    assert!(mean <= 1.1 * fixture.mean_kl, "{name}: mean KL {mean:e}, llama.cpp's is {:e}", fixture.mean_kl);
}

#[test]
fn smollm2_loses_no_more_than_llama_cpp() {
    check("smollm2-135m");
}

#[test]
fn qwen_coder_0_5b_loses_no_more_than_llama_cpp() {
    check("qwen-coder-0.5b");
}

/// Its float32 side takes 6 GB.
#[test]
fn qwen_coder_1_5b_loses_no_more_than_llama_cpp() {
    match std::env::var("FORETOKEN_LONG").as_deref() {
        Ok("1") => check("qwen-coder-1.5b"),
        _ => eprintln!("skipped: only with FORETOKEN_LONG=1"),
    }
}
