//! Time of a step around the pass: drafting from an 8k context, and the loop itself on a target that costs nothing.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::by_name;
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, Request};
use foretoken_testkit::{Rng, ToyCache, ToyModel, ToyTarget};

/// Steps of a request with an 8k prompt over a toy vocabulary.
fn steps(c: &mut Criterion) {
    for name in ["none", "prompt_lookup"] {
        let model = ToyModel { vocab_size: 64, context_size: 1 << 20, order: 3, ..ToyModel::default() };
        let cost = CostModel::fixed(CostTable::linear(1.0, 0.01));
        let mut decoder = Decoder::new(ToyTarget::new(model), ToyCache::new(64, 1 << 15, 1), (), (), cost)
            .with_drafter(by_name(name).expect("a known drafter"));
        let mut request = Request::new(Rng::new(3).tokens(8192, 64));
        request.sampler = SamplerSettings::greedy();
        decoder.admit(request).expect("a valid request");
        while decoder.cache().pages_in_use() < 8192 / 64 {
            decoder.step(&mut |_| {}).expect("a sound target");
        }
        c.bench_function(&format!("step/8k/{name}"), |b| b.iter(|| black_box(decoder.step(&mut |_| {}).is_ok())));
    }
}

criterion_group! { name = benches; config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(100)).measurement_time(std::time::Duration::from_millis(400)); targets = steps }
criterion_main!(benches);
