//! The scheduler on the toy target: text, counts, seeds, reuse of cached rows, many requests at once.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::PromptLookup;
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, Detokenize};
use foretoken_engine::{DraftPolicy, Event, Finish, Outcome, Request, RequestError, Scheduler, TokenId, WallClock};
use foretoken_testkit::{Rng, ToyCache, ToyModel, ToyTarget};

/// Tokens are letters.
struct Letters;

impl Detokenize for Letters {
    fn append(&self, token: TokenId, text: &mut Vec<u8>) {
        text.push(b'a' + token as u8);
    }
}

fn scheduler(pages: usize) -> Scheduler<ToyTarget, Letters> {
    let clock = WallClock::start();
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.01));
    let target = ToyTarget::new(ToyModel::default());
    let decoder = Decoder::new(target, ToyCache::new(4, pages, 3), Letters, clock, cost)
        .with_drafter(Box::new(PromptLookup::default()));
    Scheduler::new(decoder, clock, Arc::new([]))
}

fn request(prompt: &[TokenId], max_tokens: usize) -> Request {
    Request { max_tokens: Some(max_tokens), seed: Some(7), ..Request::new(prompt.to_vec()) }
}

fn run(scheduler: &mut Scheduler<ToyTarget, Letters>, request: Request) -> Outcome {
    scheduler.run(request, |_| ControlFlow::Continue(())).expect("the request is sound")
}

#[test]
fn drafts_change_the_passes_and_not_the_text() {
    for temperature in [0.0, 0.5] {
        let sampler = SamplerSettings { temperature, ..SamplerSettings::default() };
        let with = |draft| Request { draft, sampler: sampler.clone(), ..request(&[1, 2, 3], 200) };
        let plain = run(&mut scheduler(200), with(DraftPolicy::Off));
        let drafted = run(&mut scheduler(200), with(DraftPolicy::Width(4)));
        assert_eq!(plain.token_ids, drafted.token_ids);
        assert_eq!(plain.text, drafted.text);
        assert_eq!((plain.passes, plain.drafted), (200, 0));
        assert!(drafted.passes < 200);
        for outcome in [plain, drafted] {
            assert_eq!(outcome.token_ids.len(), outcome.passes + outcome.accepted);
            assert_eq!(outcome.acceptance_length, 200.0 / outcome.passes as f64);
            assert_eq!(outcome.finish_reason, Finish::Length);
            assert_eq!(outcome.prompt_tokens, 3);
        }
    }
}

#[test]
fn events_add_up_to_the_outcome() {
    let (mut tokens, mut text, mut accepted, mut finished) = (Vec::new(), String::new(), 0, 0);
    let wanted = Request { draft: DraftPolicy::Width(4), ..request(&[5, 6, 5, 6, 5], 100) };
    let outcome = scheduler(100).run(wanted, |event| {
        match event {
            Event::Progress { tokens: new, accepted: guessed, text: piece, .. } => {
                tokens.extend_from_slice(new);
                text.push_str(piece);
                accepted += guessed;
            }
            Event::Finished { .. } => finished += 1,
        }
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    assert_eq!((tokens, text, accepted), (outcome.token_ids, outcome.text, outcome.accepted));
    assert_eq!(finished, 1);
}

#[test]
fn a_seed_is_drawn_reported_and_repeats_the_text() {
    let sampler = SamplerSettings { temperature: 1.0, ..SamplerSettings::default() };
    let wanted = |seed| Request { seed, sampler: sampler.clone(), ..request(&[1], 30) };
    let mut scheduler = scheduler(100);
    let first = run(&mut scheduler, wanted(None));
    let second = run(&mut scheduler, wanted(None));
    assert_ne!(first.seed, second.seed);
    assert_ne!(first.token_ids, second.token_ids);
    let again = run(&mut scheduler, wanted(Some(first.seed)));
    assert_eq!(again.token_ids, first.token_ids);
}

#[test]
fn a_prompt_that_goes_on_from_an_earlier_text_starts_from_its_rows() {
    let mut scheduler = scheduler(200);
    let reused = |prompt: &[TokenId]| Request { reuse: true, ..request(prompt, 20) };
    let first = run(&mut scheduler, reused(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(first.cached_tokens, 0);

    let mut prompt = vec![1, 2, 3, 4, 5, 6, 7, 8, 9];
    prompt.extend(&first.token_ids);
    prompt.extend([3, 1, 4]);
    let second = run(&mut scheduler, reused(&prompt));
    // All but the row of the last token, which was never run.
    assert_eq!(second.cached_tokens, prompt.len() - 4);
    assert_eq!(second.token_ids, run(&mut self::scheduler(200), request(&prompt, 20)).token_ids);

    // Another continuation of the first text: the common beginning is kept, the rest rolled back.
    prompt[20] = (prompt[20] + 1) % 12;
    let third = run(&mut scheduler, reused(&prompt));
    assert_eq!(third.cached_tokens, 20);
    assert_eq!(third.token_ids, run(&mut self::scheduler(200), request(&prompt, 20)).token_ids);
}

#[test]
fn a_refused_request_uses_nothing_up() {
    let mut scheduler = scheduler(200);
    let prompt: Vec<TokenId> = (0..10).collect();
    run(&mut scheduler, Request { reuse: true, ..request(&prompt, 5) });
    let refused = Request { max_tokens: Some(0), reuse: true, ..request(&prompt, 1) };
    assert_eq!(scheduler.submit(refused), Err(RequestError::NoTokens));
    let outcome = run(&mut scheduler, Request { reuse: true, ..request(&prompt, 5) });
    assert_eq!(outcome.cached_tokens, 9);
}

#[test]
fn a_full_cache_gives_up_what_no_request_uses() {
    let mut rng = Rng::new(3);
    let mut scheduler = scheduler(20);
    for _ in 0..10 {
        let prompt = rng.tokens(30, 12);
        let outcome = run(&mut scheduler, Request { reuse: true, ..request(&prompt, 20) });
        assert_eq!(outcome.token_ids, run(&mut self::scheduler(200), request(&prompt, 20)).token_ids);
    }
    scheduler.forget_cached();
    assert_eq!(scheduler.cache().pages_in_use(), 0);
}

#[test]
fn many_requests_in_a_small_cache_write_what_each_writes_alone() {
    let mut rng = Rng::new(9);
    let mut scheduler = scheduler(40);
    let mut wanted = HashMap::new();
    for i in 0..12 {
        let sampler = SamplerSettings { temperature: 0.3 * (i % 3) as f32, ..SamplerSettings::default() };
        let len = 1 + rng.below(40);
        let one = Request { sampler, ..request(&rng.tokens(len, 12), 10 + 5 * i) };
        let alone = run(&mut self::scheduler(200), one.clone());
        wanted.insert(scheduler.submit(one).unwrap(), alone.token_ids);
    }
    while scheduler
        .step(&mut |event| {
            if let Event::Finished { request, outcome } = event {
                assert_eq!(wanted.remove(&request), Some(outcome.token_ids));
            }
        })
        .unwrap()
    {}
    assert!(wanted.is_empty());
    assert!(scheduler.is_idle());
}

#[test]
fn a_cancelled_request_ends_with_what_it_has() {
    let mut seen = 0;
    let outcome = scheduler(200).run(request(&[1, 2], 150), |event| {
        if let Event::Progress { tokens, .. } = event {
            seen += tokens.len();
        }
        if seen >= 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.was_cancelled());
    assert_eq!(outcome.token_ids.len(), seen);
    assert_eq!(outcome.text.len(), seen);
}

#[test]
fn a_deadline_ends_a_request_with_what_it_has() {
    let mut scheduler = scheduler(200);
    let late = scheduler.submit(Request { deadline: Some(Duration::ZERO), ..request(&[1, 2], 150) }).unwrap();
    let in_time =
        scheduler.submit(Request { deadline: Some(Duration::from_secs(3600)), ..request(&[1, 2], 50) }).unwrap();
    let mut outcomes = HashMap::new();
    while scheduler
        .step(&mut |event| {
            if let Event::Finished { request, outcome } = event {
                outcomes.insert(request, outcome);
            }
        })
        .unwrap()
    {}
    assert_eq!(outcomes[&late].finish_reason, Finish::Deadline);
    assert!(outcomes[&late].token_ids.is_empty());
    assert_eq!(outcomes[&in_time].finish_reason, Finish::Length);
    assert_eq!(scheduler.load().free_tokens, 800, "nothing is held at idle");
}

#[test]
fn a_stop_string_never_shows() {
    let plain = run(&mut scheduler(200), request(&[1, 2], 100));
    for start in [1, 17, 50] {
        let stop = plain.text[start..start + 3].to_owned();
        let mut streamed = String::new();
        let wanted = Request { stop: vec![stop.clone()], draft: DraftPolicy::Width(6), ..request(&[1, 2], 100) };
        let outcome = scheduler(200).run(wanted, |event| {
            if let Event::Progress { text, .. } = event {
                streamed.push_str(text);
            }
            ControlFlow::Continue(())
        });
        let outcome = outcome.unwrap();
        assert_eq!(outcome.finish_reason, Finish::StopString);
        assert_eq!(outcome.stop_string.as_deref(), Some(stop.as_str()));
        assert_eq!(outcome.text, plain.text[..plain.text.find(&stop).unwrap()]);
        assert_eq!(streamed, outcome.text);
    }
}
