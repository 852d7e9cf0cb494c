//! Prediction heads in an engine: who drafts with them, and that they draft well.

use std::ops::ControlFlow;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{DraftPolicy, Engine, EngineError, EngineOptions, ModelFile, Outcome, Request, RequestError};
use foretoken_formats::gguf::Gguf;
use foretoken_formats::tokenizer::Special;
use foretoken_testkit::tiny;

fn engine(kind: &str, n_heads: u32) -> Engine {
    let gguf = Gguf::from_bytes(tiny::byte_model(kind, n_heads, 1)).expect("the container is sound");
    let file = ModelFile::from_gguf(gguf).expect("the file is sound");
    Engine::load(file, EngineOptions { threads: Some(1), ..EngineOptions::default() }).expect("the model loads")
}

fn answer(engine: &mut Engine, drafter: &str, width: usize) -> Result<Outcome, EngineError> {
    let prompt = engine.file().tokenizer().encode("def f(x):", Special::AsText).expect("it is text");
    let request = Request {
        sampler: SamplerSettings { temperature: 0.5, ..SamplerSettings::default() },
        seed: Some(3),
        max_tokens: Some(300),
        ignore_eos: true,
        draft: if width > 0 { DraftPolicy::Width(width) } else { DraftPolicy::Off },
        drafters: vec![drafter.into()],
        ..Request::new(prompt)
    };
    engine.scheduler().run(request, |_| ControlFlow::Continue(()))
}

#[test]
fn heads_draft_and_change_nothing() {
    for kind in ["linear", "resblock", "transformer", "sequential", "recursive"] {
        let mut engine = engine(kind, 8);
        let plain = answer(&mut engine, "none", 0).expect("it is sound");
        let mtp = answer(&mut engine, "mtp", 8).expect("it is sound");
        let block = answer(&mut engine, "blockwise", 8).expect("it is sound");
        for (outcome, name) in [(&mtp, "mtp"), (&block, "blockwise")] {
            assert_eq!(outcome.token_ids, plain.token_ids, "{name}, {kind}");
            let rate = outcome.acceptance_length;
            assert!(rate > 2.0, "{name}, {kind}: {rate} tokens a pass");
        }
        assert!(engine.footprint().prediction_bytes > 0);
    }
}

#[test]
fn a_model_without_heads_has_no_such_drafters() {
    let mut engine = engine("linear", 1);
    assert!(engine.drafters().iter().all(|&name| name != "mtp" && name != "blockwise"));
    assert!(matches!(answer(&mut engine, "mtp", 4), Err(EngineError::Request(RequestError::UnknownDrafter { .. }))));
}
