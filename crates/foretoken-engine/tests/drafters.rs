//! Drafters that run a model, on real models: what is refused, and that they draft well and change nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{
    DraftPolicy, Engine, EngineError, EngineOptions, Event, Outcome, Request, RequestError, Weights,
};
use foretoken_formats::tokenizer::Special;
use foretoken_testkit::models;

const TEXTS: [&str; 3] = [
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
    "let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];\nfor (let i = 0; i < numbers.length; i++) {",
];

fn pair() -> Option<(PathBuf, PathBuf)> {
    Some((models::find("qwen-coder-0.5b")?, models::find("smollm2-135m")?))
}

/// Requests in one batch, more than the cache holds at once; temperatures differ.
fn requests(engine: &Engine, draft: DraftPolicy, drafter: &str) -> Vec<Request> {
    let encode = |text: &str| engine.file().tokenizer().encode(text, Special::AsText).expect("it is text");
    let request = |(i, text): (usize, &&str)| Request {
        sampler: SamplerSettings { temperature: 0.4 * i as f32, ..SamplerSettings::default() },
        seed: Some(3),
        max_tokens: Some(28 + i),
        ignore_eos: true,
        draft,
        drafters: vec![drafter.to_owned()],
        reuse: true,
        ..Request::new(encode(text))
    };
    TEXTS.iter().enumerate().map(request).collect()
}

/// Runs requests together to their ends.
fn run(engine: &mut Engine, requests: Vec<Request>) -> Vec<Outcome> {
    let submitted = requests.into_iter().map(|request| engine.scheduler().submit(request).expect("it is sound"));
    let ids: Vec<_> = submitted.collect();
    let mut outcomes = HashMap::new();
    let mut finish = |event: Event<'_>| {
        if let Event::Finished { request, outcome } = event {
            outcomes.insert(request, *outcome);
        }
    };
    while engine.scheduler().step(&mut finish).expect("the target keeps its promises") {}
    ids.iter().map(|id| outcomes.remove(id).expect("every request ends")).collect()
}

#[test]
fn models_draft_for_several_requests_in_a_small_cache() {
    let Some((target, smollm2)) = pair() else { return };
    let told = Mutex::new((0, 0));
    let options = EngineOptions {
        threads: Some(1),
        context: Some(96),
        draft_model: Some(smollm2),
        draft_requant: Some(Weights::Q4_0),
        progress: &|read, total| {
            let mut told = told.lock().expect("no teller panics");
            *told = (read.max(told.0), total);
        },
        ..EngineOptions::default()
    };
    let mut engine = Engine::open(&target, options).expect("the models load");
    let (read, total) = *told.lock().expect("no teller panics");
    assert!(
        read == total && total > engine.footprint().packed_bytes * 3 / 2,
        "{read} of {total}: three models are loaded"
    );
    assert!(engine.drafting_bytes() > 300 << 20);

    let plain = requests(&engine, DraftPolicy::Off, "none");
    let expected = run(&mut engine, plain);
    // Of four guesses a pass, at least so many come true.
    for (drafter, at_least) in [("requantised", 1.0), ("draft_model", 0.3), ("early_exit", 0.0)] {
        // The second time, prompts begin with rows that are cached.
        for round in 0..2 {
            let drafted = requests(&engine, DraftPolicy::Width(4), drafter);
            let outcomes = run(&mut engine, drafted);
            let (mut tokens, mut passes) = (0, 0);
            for (outcome, expected) in outcomes.iter().zip(&expected) {
                assert_eq!(outcome.token_ids, expected.token_ids, "{drafter}, round {round}");
                tokens += outcome.token_ids.len();
                passes += outcome.passes;
            }
            let accepted = tokens as f64 / passes as f64 - 1.0;
            assert!(accepted >= at_least, "{drafter}, round {round}: {accepted:.2} guesses a pass came true");
        }
    }
}

#[test]
fn models_that_cannot_draft_are_refused_with_the_reason() {
    let Some((qwen, smollm2)) = pair() else { return };
    let refused = |options: EngineOptions<'_>| match Engine::open(&smollm2, options) {
        Ok(_) => panic!("it is refused"),
        Err(error) => error,
    };
    let with = |path: &PathBuf| EngineOptions { draft_model: Some(path.clone()), ..EngineOptions::default() };
    let larger = refused(with(&qwen));
    assert!(matches!(larger, EngineError::Draft { .. }) && larger.to_string().contains("only cost time"), "{larger}");
    let same = refused(with(&smollm2)).to_string();
    assert!(same.contains("the model itself"), "{same}");
    let missing = refused(with(&"no/such.gguf".into())).to_string();
    assert!(missing.contains("no/such.gguf"), "{missing}");
    for n in [0, 30] {
        let layers = refused(EngineOptions { exit_layers: Some(n), ..EngineOptions::default() }).to_string();
        assert!(layers.contains("exit_layers") && layers.contains("1 to 29"), "{layers}");
    }
}

#[test]
fn a_drafter_whose_model_is_not_there_is_no_drafter() {
    let Some(path) = models::find("smollm2-135m") else { return };
    let options = EngineOptions { threads: Some(1), context: Some(64), ..EngineOptions::default() };
    let mut engine = Engine::open(&path, options).expect("the model loads");
    let request = Request { drafters: vec!["draft_model".into()], ..Request::new(vec![1, 2, 3]) };
    let error = engine.scheduler().submit(request).expect_err("there is none");
    assert!(
        matches!(error, RequestError::UnknownDrafter { .. }) && error.to_string().contains("early_exit"),
        "{error}"
    );
}
