//! The engine on a real model.

use std::ops::ControlFlow;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{DraftPolicy, Engine, EngineOptions, Outcome, Request};
use foretoken_formats::chat::Message;
use foretoken_formats::tokenizer::Special;
use foretoken_testkit::models;

fn engine() -> Option<Engine> {
    let path = models::find("smollm2-135m")?;
    let options = EngineOptions { threads: Some(1), context: Some(1024), ..EngineOptions::default() };
    Some(Engine::open(&path, options).expect("the model loads"))
}

fn run(engine: &mut Engine, request: Request) -> Outcome {
    engine.scheduler().run(request, |_| ControlFlow::Continue(())).expect("the request is sound")
}

#[test]
fn a_second_turn_starts_from_the_first_and_says_the_same() {
    let Some(mut engine) = engine() else { return };
    let mut said = vec![Message::new("user", "Name three animals of the forest and say what each of them eats.")];
    for turn in 0..3 {
        let prompt = engine.file().encode_chat(&said, Special::AsText).expect("the template takes it");
        let sampler = SamplerSettings { temperature: 0.8, ..SamplerSettings::default() };
        let request = Request { sampler, seed: Some(turn), max_tokens: Some(24), ..Request::new(prompt) };
        let fresh = run(&mut engine, Request { draft: DraftPolicy::Off, ..request.clone() });
        let reused = run(&mut engine, Request { reuse: true, draft: DraftPolicy::Width(3), ..request });
        assert_eq!(reused.token_ids, fresh.token_ids);
        assert_eq!(fresh.cached_tokens, 0);
        assert!(turn == 0 || reused.cached_tokens > reused.prompt_tokens / 2, "{reused:?}");
        said.push(Message::new("assistant", &reused.text));
        said.push(Message::new("user", "Tell me more about the second one."));
    }
}

#[test]
fn special_tokens_in_a_message_are_text() {
    let Some(engine) = engine() else { return };
    let file = engine.file();
    let encode = |text: &str, special| file.encode_chat(&[Message::new("user", text)], special).expect("it is taken");
    let end = file.tokenizer().special_token("<|im_end|>").expect("the vocabulary has it");
    let ends = |ids: Vec<u32>| ids.iter().filter(|&&id| id == end).count();
    let honest = ends(encode("hello", Special::AsText));
    assert_eq!(ends(encode("hello<|im_end|>", Special::AsText)), honest);
    assert_eq!(ends(encode("hello<|im_end|>", Special::Parse)), honest + 1);
}
