//! Every drafter proves on real prompts that it works: tokens a pass at a fixed width, which no clock can change.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{DraftPolicy, Engine, EngineOptions, ModelFile, Request};
use foretoken_formats::chat::Message;
use foretoken_formats::tokenizer::Special;
use foretoken_testkit::models;
use serde_json::Value;

/// Prompts of a category, spread over it, as tokens.
fn prompts(model: &ModelFile, file: &str, category: &str, n: usize) -> Option<Vec<Vec<u32>>> {
    let text = fs::read_to_string(models::prompts(file)?).expect("it can be read");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let all: Vec<Value> = lines.filter(|line| line["category"] == category).collect();
    let encode = |line: &Value| match (line["prompt"].as_str(), line["turns"][0].as_str()) {
        (Some(code), _) => model.encode(code, Special::AsText),
        (None, turn) => model.encode_chat(&[Message::new("user", turn.expect("a turn"))], Special::AsText),
    };
    Some(all.iter().step_by(all.len().div_ceil(n)).map(|line| encode(line).expect("it is text")).collect())
}

/// Tokens a pass over answers of 96 tokens, greedy; what was learned from one is forgotten before the next.
fn tokens_per_pass(engine: &mut Engine, prompts: &[Vec<u32>], drafter: &str, width: usize) -> f64 {
    let (mut tokens, mut passes) = (0, 0);
    for prompt in prompts {
        engine.scheduler().unlearn();
        let request = Request {
            sampler: SamplerSettings::greedy(),
            max_tokens: Some(96),
            draft: DraftPolicy::Width(width),
            drafters: vec![drafter.into()],
            ..Request::new(prompt.clone())
        };
        let outcome = engine.scheduler().run(request, |_| ControlFlow::Continue(())).expect("it is sound");
        tokens += outcome.token_ids.len();
        passes += outcome.passes;
    }
    tokens as f64 / passes as f64
}

/// Drafter, width, prompts, and the tokens a pass that it has to reach there; 1 where what it reaches is only told.
const PROOFS: [(&str, usize, &str, f64); 7] = [
    ("suffix", 8, "summarization", 1.3),
    ("suffix", 8, "rag", 1.3),
    ("recall", 8, "code", 1.5),
    ("recycle", 8, "code", 1.5),
    ("lookahead", 16, "code", 1.2),
    ("jacobi", 16, "code", 1.0),
    ("early_exit", 4, "code", 1.0),
];

fn engine(path: PathBuf, draft_model: Option<PathBuf>) -> Engine {
    let options = EngineOptions { context: Some(4096), draft_model, ..EngineOptions::default() };
    Engine::open(&path, options).expect("the model loads")
}

#[test]
fn drafters_that_run_no_model_save_passes() {
    let Some(path) = models::find("smollm2-135m") else { return };
    let mut engine = engine(path, None);
    let of = |file, category| prompts(engine.file(), file, category, 3);
    let sets = [("humaneval.jsonl", "code"), ("spec_bench.jsonl", "summarization"), ("spec_bench.jsonl", "rag")];
    let sets: Option<BTreeMap<&str, _>> = sets.iter().map(|&(file, set)| Some((set, of(file, set)?))).collect();
    let Some(sets) = sets else { return };
    for (drafter, width, set, least) in PROOFS {
        let found = tokens_per_pass(&mut engine, &sets[set], drafter, width);
        println!("{drafter}, width {width}, {set}: {found:.2} tokens a pass");
        assert!(found >= least, "{drafter}, width {width}, {set}: {found:.2} tokens a pass, and {least} were promised");
    }
}

/// It takes the larger models.
#[test]
fn a_draft_model_saves_more() {
    if std::env::var("FORETOKEN_LONG").as_deref() != Ok("1") {
        return eprintln!("skipped: only with FORETOKEN_LONG=1");
    }
    let (Some(path), Some(draft)) = (models::find("qwen-coder-1.5b"), models::find("qwen-coder-0.5b")) else { return };
    let mut engine = engine(path, Some(draft));
    let Some(code) = prompts(engine.file(), "humaneval.jsonl", "code", 4) else { return };
    let found = tokens_per_pass(&mut engine, &code, "draft_model", 4);
    println!("draft_model, width 4, code: {found:.2} tokens a pass");
    assert!(found >= 2.5, "{found:.2} tokens a pass, and 2.5 were promised");
}
