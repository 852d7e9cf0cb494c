//! Time of one draw at a vocabulary of 152k, against the few milliseconds of a pass.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use foretoken_decode::sampler::{Sampler, SamplerSettings, Scratch};
use foretoken_testkit::Rng;

const VOCAB: usize = 151_936;

/// Logits like a language model's: near normal, and a few that stand out.
fn peaked(rng: &mut Rng) -> Vec<f32> {
    let mut row: Vec<f32> = (0..VOCAB).map(|_| 2.5 * rng.normal()).collect();
    for i in 0..200 {
        row[rng.below(VOCAB)] = 18.0 - 0.05 * i as f32 + rng.normal();
    }
    row
}

/// The hardest for pruning: every token is nearly as likely as every other.
fn flat(rng: &mut Rng) -> Vec<f32> {
    (0..VOCAB).map(|_| 0.5 * rng.normal()).collect()
}

fn draws(c: &mut Criterion) {
    let mut rng = Rng::new(1);
    let base = || SamplerSettings { temperature: 0.8, seed: 7, ..SamplerSettings::default() };
    let filtered = SamplerSettings { top_k: 40, top_p: 0.95, min_p: 0.05, ..base() };
    let settings = [
        ("greedy", SamplerSettings::greedy()),
        ("T0.8", base()),
        ("T0.8_k40_p.95_m.05", filtered.clone()),
        ("T0.8_p.95", SamplerSettings { top_p: 0.95, ..base() }),
        ("T0.8_m.05", SamplerSettings { min_p: 0.05, ..base() }),
        (
            "T0.8_k40_p.95_m.05_penalties",
            SamplerSettings { repetition_penalty: 1.1, frequency_penalty: 0.1, ..filtered },
        ),
    ];
    let text = rng.tokens(4096, VOCAB);
    for (shape, row) in [("peaked", peaked(&mut rng)), ("flat", flat(&mut rng))] {
        for (name, settings) in &settings {
            let mut scratch = Scratch::default();
            let mut sampler = Sampler::new(settings.clone(), &text);
            c.bench_function(&format!("draw/{shape}/{name}"), |b| {
                b.iter(|| {
                    sampler.push(5);
                    black_box(sampler.draw(black_box(&row), &mut scratch).unwrap())
                });
            });
        }
        let sampler = Sampler::new(base(), &text).with_logprobs(Some(5));
        let mut scratch = Scratch::default();
        c.bench_function(&format!("logprobs/{shape}/top5"), |b| {
            b.iter(|| black_box(sampler.logprobs(black_box(&row), 5, &mut scratch)));
        });
    }
}

criterion_group! { name = benches; config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(200)).measurement_time(std::time::Duration::from_millis(800)); targets = draws }
criterion_main!(benches);
