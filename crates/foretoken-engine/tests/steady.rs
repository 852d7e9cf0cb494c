//! Steady state allocates nothing: what a pass needs is there from the passes before it.

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{DraftPolicy, Engine, EngineOptions, ModelFile, Request};
use foretoken_formats::gguf::Gguf;
use foretoken_formats::tokenizer::Special;
use foretoken_testkit::tiny;

/// Allocations of the last 100 passes of a request, and the passes among them in which there were any.
fn allocations(drafter: &str, draft: DraftPolicy) -> (u64, usize) {
    let gguf = Gguf::from_bytes(tiny::byte_model("linear", 1, 1)).expect("the container is sound");
    let file = ModelFile::from_gguf(gguf).expect("the file is sound");
    let options = EngineOptions { threads: Some(1), ..EngineOptions::default() };
    let mut engine = Engine::load(file, options).expect("the model loads");
    let prompt = engine.file().tokenizer().encode("def f(x):", Special::AsText).expect("it is text");
    let request = Request {
        sampler: SamplerSettings { temperature: 0.8, ..SamplerSettings::default() },
        seed: Some(3),
        max_tokens: Some(2000),
        ignore_eos: true,
        draft,
        drafters: vec![drafter.into()],
        ..Request::new(prompt)
    };
    let scheduler = engine.scheduler();
    scheduler.submit(request).expect("it is sound");
    let mut counts = Vec::new();
    let mut more = true;
    while more {
        let counted = allocation_counter::measure(|| more = scheduler.step(&mut |_| {}).expect("the model runs"));
        counts.push(counted.count_total);
    }
    // The very last passes hand the outcome out.
    let last = &counts[counts.len() - 103..counts.len() - 3];
    (last.iter().sum(), last.iter().filter(|&&count| count > 0).count())
}

#[test]
fn a_pass_allocates_nothing_but_now_and_then_for_a_longer_text_or_a_larger_table() {
    // `lookahead`, whose passes are wide, makes its window anew each time.
    let drafters = ["none", "prompt_lookup", "suffix", "recycle", "recall", "jacobi"];
    let found: Vec<String> = (drafters.iter())
        .flat_map(|name| [(name, DraftPolicy::Width(4)), (name, DraftPolicy::Budget)])
        .filter_map(|(drafter, draft)| {
            let (count, passes) = allocations(drafter, draft);
            let much = passes > 10 || count > 20;
            much.then(|| format!("{drafter}, {draft:?}: {count} allocations in {passes} of 100 passes"))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}
