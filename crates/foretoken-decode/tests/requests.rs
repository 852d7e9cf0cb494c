//! Where texts end, what is counted, what is refused: the same wherever the end falls in an accepted draft.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::{Drafter, PromptLookup};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, DecoderOptions, DraftPolicy, PassTrace, Recorder, Request, RequestError, TokenId};
use foretoken_testkit::adversaries::Drawer;
use foretoken_testkit::{Output, Rng, Setup, ToyCache, ToyModel, ToyTarget, ToyText, generate};

/// A drafter that is always right, `depth` tokens deep: every end falls inside an accepted chunk.
fn perfect(model: &ToyModel, depth: usize) -> Vec<Box<dyn Drafter<ToyTarget>>> {
    vec![Box::new(Drawer { model: model.clone(), wrong: 0.0, siblings: 1, depth, rng: Rng::new(1) })]
}

fn run(model: &ToyModel, depth: usize, request: &Request) -> Output {
    let mut request = request.clone();
    request.draft = DraftPolicy::Width(depth.max(1));
    let setup = Setup { drafters: perfect(model, depth), ..Setup::default() };
    generate(model, setup, vec![request]).remove(0)
}

/// A sampled text in which most tokens differ from their neighbours.
fn base(max_tokens: usize) -> (ToyModel, Request) {
    let model = ToyModel { vocab_size: 38, scale: 4.0, ..ToyModel::default() };
    let mut request = Request::new(vec![20, 21, 22]);
    request.sampler = SamplerSettings { seed: 4, ..SamplerSettings::default() };
    request.max_tokens = Some(max_tokens);
    (model, request)
}

#[test]
fn an_end_token_ends_the_text_wherever_it_falls_in_a_chunk() {
    let (model, request) = base(40);
    let free = run(&model, 0, &request);
    for at in 0..20 {
        let end = free.tokens[at];
        let first = free.tokens.iter().position(|&token| token == end).unwrap();
        let mut request = request.clone();
        request.end_tokens = [end].into();
        for depth in 0..10 {
            let output = run(&model, depth, &request);
            assert_eq!(output.tokens, free.tokens[..=first], "the end token is the last");
            assert_eq!(output.text, ToyText::text(&free.tokens[..first]), "and not part of the text");
            assert_eq!(output.finish, format!("EndToken({end})"));
            assert_eq!(output.stats.passes, (first + 1).div_ceil(depth + 1).max(1), "at {at}, depth {depth}");
        }
        request.ignore_eos = true;
        assert_eq!(run(&model, 5, &request).tokens, free.tokens);
    }
}

#[test]
fn a_stop_string_ends_the_text_wherever_it_falls_in_a_chunk() {
    let (model, request) = base(40);
    let free = run(&model, 0, &request);
    let mut found = 0;
    let chars: Vec<(usize, char)> = free.text.char_indices().collect();
    for start in 0..chars.len().min(25) {
        for len in 1..5 {
            let stop: String = chars[start..].iter().take(len).map(|c| c.1).collect();
            if stop.contains(char::REPLACEMENT_CHARACTER) {
                continue;
            }
            // The tokens up to the one that completes it.
            let done = (1..=free.tokens.len()).find(|&n| ToyText::text(&free.tokens[..n]).contains(&stop));
            let Some(done) = done else { continue };
            let mut request = request.clone();
            request.stop = vec!["never to be seen".into(), stop.clone()];
            // The stop comes before the cap, also when both fall into one chunk or onto one token.
            for (depth, cap) in [(0, 40), (1, 40), (3, 40), (7, done), (8, done + 1), (9, 40)] {
                request.max_tokens = Some(cap);
                let output = run(&model, depth, &request);
                assert_eq!(output.text, free.text[..free.text.find(&stop).unwrap()], "{stop:?}, depth {depth}");
                assert_eq!(output.tokens, free.tokens[..done], "{stop:?}, depth {depth}");
                assert_eq!(output.finish, "StopString(1)");
                found += 1;
            }
        }
    }
    assert!(found > 200, "{found}");
}

#[test]
fn streamed_text_never_holds_what_a_stop_string_takes_back() {
    let (model, mut request) = base(60);
    request.stop = vec!["abba".into(), "a b".into(), "zq".into()];
    for seed in 0..200 {
        request.sampler.seed = seed;
        let one = run(&model, 0, &request);
        let many = run(&model, 6, &request);
        assert_eq!(one.visible(), many.visible());
        assert!(request.stop.iter().all(|stop| !one.text.contains(stop)), "{:?}", one.text);
        if one.finish == "Length" {
            assert_eq!(one.text, ToyText::text(&one.tokens), "what was held back comes at the end");
        }
    }
}

#[test]
fn min_tokens_masks_end_tokens_and_stop_strings() {
    let (model, mut request) = base(40);
    // Most tokens would end it, and so would any text.
    request.end_tokens = (0..30).collect();
    request.stop = ["a", "b", "e", "i", "o", "u", "z"].map(String::from).into();
    request.min_tokens = 12;
    let mut lens = Vec::new();
    for seed in 0..40 {
        request.sampler.seed = seed;
        let output = run(&model, 0, &request);
        assert!(!output.tokens[..12].iter().any(|token| *token < 30), "{:?}", output.tokens);
        lens.push(output.tokens.len());
        for depth in [1, 2, 5, 11] {
            assert_eq!(run(&model, depth, &request).visible(), output.visible());
        }
    }
    // From the twelfth token on stop strings count, from the thirteenth end tokens may come.
    assert!(lens.contains(&12) && lens.contains(&13) && lens.iter().all(|&len| len >= 12), "{lens:?}");
}

#[test]
fn lengths_are_exact_at_every_width() {
    let (model, mut request) = base(1);
    for max_tokens in 1..20 {
        request.max_tokens = Some(max_tokens);
        for depth in 0..9 {
            let output = run(&model, depth, &request);
            assert_eq!(output.tokens.len(), max_tokens);
            assert_eq!(output.finish, "Length");
            assert_eq!(output.stats.passes, max_tokens.div_ceil(depth + 1));
            assert_eq!(output.stats.acceptance_length(), max_tokens as f64 / output.stats.passes as f64);
        }
    }
}

#[test]
fn prompts_near_the_limit() {
    let limit = 40;
    let model = ToyModel { context_size: limit, ..ToyModel::default() };
    let lookup = || -> Vec<Box<dyn Drafter<ToyTarget>>> { vec![Box::new(PromptLookup::default())] };
    for len in [limit - 2, limit - 1, limit, limit + 1] {
        let mut request = Request::new([1, 2, 3].into_iter().cycle().take(len).collect());
        request.sampler = SamplerSettings::greedy();
        request.draft = DraftPolicy::Width(8);
        if len < limit {
            for max_rows in [1, 7, 512] {
                let options = DecoderOptions { max_rows, ..DecoderOptions::default() };
                let setup = Setup { drafters: lookup(), options, ..Setup::default() };
                let output = generate(&model, setup, vec![request.clone()]).remove(0);
                assert_eq!(output.tokens.len(), limit - len);
                assert_eq!(output.finish, "ContextFull");
            }
        } else {
            let expected = RequestError::PromptTooLong { len, limit };
            assert_eq!(request.validate(model.vocab_size, limit), Err(expected));
        }
    }
}

#[test]
fn refusals_name_the_value_and_what_was_expected() {
    let message = |change: fn(&mut Request)| {
        let mut request = Request::new(vec![1, 2]);
        change(&mut request);
        request.validate(12, 100).unwrap_err().to_string()
    };
    assert_eq!(message(|r| r.prompt.clear()), "the prompt is empty, and must have at least one token");
    assert_eq!(message(|r| r.prompt.push(12)), "token 12 is outside the vocabulary of 12");
    assert_eq!(message(|r| r.end_tokens = [99].into()), "token 99 is outside the vocabulary of 12");
    assert_eq!(message(|r| r.max_tokens = Some(0)), "max_tokens is 0, and must be at least 1");
    assert_eq!(message(|r| r.stop.push(String::new())), "a stop string is empty, and must have at least one character");
    assert_eq!(message(|r| r.sampler.temperature = -1.0), "temperature is -1, and must be between 0 and 100");
    let both = message(|r| (r.min_tokens, r.max_tokens) = (5, Some(4)));
    assert_eq!(both, "min_tokens is 5, and must be at most max_tokens, which is 4");
}

#[test]
fn a_row_that_cannot_be_drawn_ends_its_own_request() {
    for depth in 0..6 {
        let model = ToyModel { poison: Some((9, f32::NAN)), ..ToyModel::default() };
        let mut request = Request::new(vec![1, 2, 3]);
        request.max_tokens = Some(20);
        let mut long = request.clone();
        long.prompt = vec![4; 10];
        request.draft = DraftPolicy::Width(6);
        let setup = Setup { drafters: perfect(&model, depth), ..Setup::default() };
        let outputs = generate(&model, setup, vec![request, long]);
        assert_eq!(outputs[0].tokens.len(), 6, "tokens before the bad row stand");
        assert_eq!(outputs[0].finish, "Sample(Nan { token: 1, position: 9 })");
        assert_eq!((outputs[1].tokens.len(), outputs[1].finish.as_str()), (20, "Length"));
    }
}

#[test]
fn many_requests_with_distinct_seeds_give_distinct_texts() {
    let (model, mut request) = base(30);
    let requests = (0..16).map(|seed| {
        request.sampler.seed = seed;
        request.clone()
    });
    let outputs = generate(&model, Setup::default(), requests.collect());
    for (i, a) in outputs.iter().enumerate() {
        assert!(outputs[..i].iter().all(|b| a.tokens != b.tokens), "request {i}");
    }
}

type ToyDecoder = Decoder<ToyTarget, ToyText, ()>;

fn decoder(model: &ToyModel, n_pages: usize) -> ToyDecoder {
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.1));
    Decoder::new(ToyTarget::new(model.clone()), ToyCache::new(4, n_pages, 1), ToyText, (), cost)
        .with_drafter(Box::new(PromptLookup::default()))
}

/// Runs to the end; tokens of all requests, the last finish, the last count of cached tokens.
fn finish(decoder: &mut ToyDecoder) -> (Vec<TokenId>, String, usize) {
    let (mut tokens, mut reason, mut cached) = (Vec::new(), String::new(), 0);
    while decoder
        .step(&mut |event| {
            tokens.extend_from_slice(event.tokens);
            reason = event.finish.map(|finish| format!("{finish:?}")).unwrap_or_default();
            cached = event.stats.cached_tokens;
        })
        .unwrap()
    {}
    (tokens, reason, cached)
}

#[test]
fn a_request_starts_from_the_rows_that_an_earlier_one_left() {
    let drafts = [DraftPolicy::Off, DraftPolicy::Width(5)];
    for (draft, turn) in drafts.into_iter().flat_map(|draft| [(draft, 0), (draft, 1)]) {
        let model = ToyModel { order: 1, ..ToyModel::default() };
        let mut decoder = decoder(&model, 100);
        let mut request = Request::new(vec![1, 2, 3, 4, 5]);
        (request.max_tokens, request.reuse, request.draft) = (Some(10), true, draft);
        decoder.admit(request.clone()).unwrap();
        let (tokens, ..) = finish(&mut decoder);
        assert_eq!(decoder.load().kept, 1);
        let text = [request.prompt.clone(), tokens].concat();

        // The next turn runs only what is new, and draws what a fresh request would; the last row of a prompt is always
        // run, for its logits.
        request.prompt = match turn {
            0 => text[..text.len() - 1].to_vec(),
            _ => [text.clone(), vec![7, 8, 9]].concat(),
        };
        let fresh = generate(&model, Setup::default(), vec![request.clone()]).remove(0);
        decoder.admit(request.clone()).unwrap();
        let rows = decoder.target().rows;
        let (tokens, _, cached) = finish(&mut decoder);
        // The row of the last token drawn was run only if it was a guess.
        let most = text.len().min(request.prompt.len() - 1);
        assert!(cached == most || (cached + 1 == most && turn == 1), "{cached} of {most}");
        assert_eq!(tokens, fresh.tokens);
        assert!(decoder.target().rows - rows < 70);

        // Another scope may not start from them.
        request.scope = 1;
        decoder.admit(request).unwrap();
        assert_eq!(finish(&mut decoder).2, 0);
        assert_eq!(decoder.load().kept, 2, "the second turn took the first one's place");
        decoder.forget_kept();
        assert_eq!(decoder.cache().pages_in_use(), 0);
    }
}

#[test]
fn rows_that_are_left_hold_nothing_past_the_end() {
    let (model, mut request) = base(40);
    let free = run(&model, 0, &request);
    for at in 0..12 {
        request.end_tokens = [free.tokens[at]].into();
        (request.reuse, request.draft) = (true, DraftPolicy::Width(9));
        let cost = CostModel::fixed(CostTable::linear(1.0, 0.1));
        let mut decoder = Decoder::new(ToyTarget::new(model.clone()), ToyCache::new(4, 100, 1), ToyText, (), cost)
            .with_drafter(perfect(&model, 9).remove(0));
        decoder.admit(request.clone()).unwrap();
        let (tokens, ..) = finish(&mut decoder);
        let next = Request { prompt: [request.prompt.clone(), tokens, vec![9, 9]].concat(), ..request.clone() };
        let fresh = generate(&model, Setup::default(), vec![next.clone()]).remove(0);
        let (least, most) = (next.prompt.len() - 3, next.prompt.len() - 2);
        decoder.admit(next).unwrap();
        let (tokens, _, cached) = finish(&mut decoder);
        assert_eq!(tokens, fresh.tokens);
        assert!((least..=most).contains(&cached), "{cached}, {least} to {most}");
    }
}

#[test]
fn requests_that_come_together_run_their_common_beginning_once() {
    let model = ToyModel::default();
    let mut rng = Rng::new(6);
    let shared = rng.tokens(300, model.vocab_size);
    let with = |tail: &[TokenId]| {
        let mut request = Request::new([&shared, tail].concat());
        (request.max_tokens, request.reuse) = (Some(20), true);
        request
    };
    let requests = [with(&[]), with(&[1, 2, 3]), with(&[4]), with(&[])];
    let alone: Vec<_> =
        requests.iter().map(|r| generate(&model, Setup::default(), vec![r.clone()]).remove(0).tokens).collect();
    let mut decoder = decoder(&model, 1000).with_options(DecoderOptions { max_rows: 64, ..DecoderOptions::default() });
    let ids: Vec<_> = requests.iter().map(|request| decoder.admit(request.clone()).unwrap()).collect();
    let mut tokens = vec![Vec::new(); ids.len()];
    let mut cached = vec![0; ids.len()];
    while decoder
        .step(&mut |event| {
            let index = ids.iter().position(|&id| id == event.request).unwrap();
            tokens[index].extend_from_slice(event.tokens);
            cached[index] = event.stats.cached_tokens;
        })
        .unwrap()
    {}
    assert_eq!(tokens, alone);
    assert_eq!(cached, [0, 300, 300, 299]);
    decoder.forget_kept();
    assert_eq!(decoder.cache().pages_in_use(), 0);
}

#[test]
fn a_full_cache_gives_up_rows_that_no_request_uses_and_keeps_to_the_text() {
    let model = ToyModel::default();
    let mut rng = Rng::new(3);
    let mut decoder = decoder(&model, 30);
    for _ in 0..20 {
        let mut request = Request::new(rng.tokens(30, model.vocab_size));
        (request.max_tokens, request.reuse) = (Some(20), true);
        let fresh = generate(&model, Setup::default(), vec![request.clone()]).remove(0);
        decoder.admit(request).unwrap();
        assert_eq!(finish(&mut decoder).0, fresh.tokens);
    }
    assert!((1..3).contains(&decoder.load().kept), "{:?}", decoder.load());
}

#[test]
fn a_long_prompt_lets_others_go_on_and_short_prompts_pass_it() {
    let model = ToyModel::default();
    let options = DecoderOptions { max_rows: 128, max_rows_beside: 16, ..DecoderOptions::default() };
    let mut decoder = decoder(&model, 2000).with_options(options);
    let plain = |len: usize| {
        let mut request = Request::new(Rng::new(len as u64).tokens(len, model.vocab_size));
        (request.max_tokens, request.draft) = (Some(50), DraftPolicy::Off);
        request
    };
    let first = decoder.admit(plain(3)).unwrap();
    decoder.step(&mut |_| {}).unwrap();
    let long = decoder.admit(plain(2000)).unwrap();
    let short = decoder.admit(plain(30)).unwrap();
    let mut order = Vec::new();
    for _ in 0..12 {
        let mut seen = Vec::new();
        decoder.step(&mut |event| seen.push((event.request, event.tokens.len()))).unwrap();
        assert!(seen.contains(&(first, 1)), "no pass goes by without a token for it");
        order.extend(seen.into_iter().filter(|&(id, tokens)| id != first && tokens > 0).map(|(id, _)| id));
    }
    assert!(order.contains(&short) && !order.contains(&long));
}

#[test]
fn prompts_make_way_for_the_guesses_of_others() {
    let model = ToyModel::default();
    let options = DecoderOptions { max_rows: 128, max_rows_beside: 40, ..DecoderOptions::default() };
    let passes = Passes::default();
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.1));
    let mut decoder = Decoder::new(ToyTarget::new(model.clone()), ToyCache::new(4, 2000, 1), ToyText, (), cost)
        .with_options(options)
        .with_drafter(perfect(&model, 8).remove(0))
        .with_recorder(Box::new(passes.clone()));
    let mut short = Request::new(vec![1, 2, 3]);
    (short.max_tokens, short.draft) = (Some(90), DraftPolicy::Width(8));
    decoder.admit(short).unwrap();
    decoder.step(&mut |_| {}).unwrap();
    let mut long = Request::new(Rng::new(1).tokens(200, model.vocab_size));
    long.max_tokens = Some(1);
    decoder.admit(long).unwrap();
    while decoder.step(&mut |_| {}).unwrap() {}
    let passes = passes.0.lock().unwrap();
    assert!(passes.iter().any(|pass| pass.shape.rows == 41 && pass.drafted == 8), "prompt and guesses share a pass");
    let within = |pass: &&PassTrace| pass.sequences.iter().any(|s| s.tokens.is_empty());
    let longest = passes.iter().skip(1).filter(within).map(|pass| pass.shape.rows).max();
    assert_eq!(longest, Some(41), "and none is longer than without guesses, unless it ends the prompt");
}

#[test]
fn a_higher_priority_goes_first_and_waiting_requests_go_in_order() {
    let model = ToyModel::default();
    let options = DecoderOptions { max_running: 1, ..DecoderOptions::default() };
    let mut decoder = decoder(&model, 100).with_options(options);
    let ids: Vec<_> = [0, 0, 0, 5, -1, 5]
        .into_iter()
        .map(|priority| {
            let mut request = Request::new(vec![1, 2, 3]);
            (request.max_tokens, request.priority) = (Some(3), priority);
            decoder.admit(request).unwrap()
        })
        .collect();
    assert_eq!(decoder.load().waiting, 6);
    let mut ended = Vec::new();
    while decoder
        .step(&mut |event| {
            if event.finish.is_some() {
                ended.push(ids.iter().position(|&id| id == event.request).unwrap());
            }
        })
        .unwrap()
    {
        assert!(decoder.load().running <= 1);
    }
    assert_eq!(ended, [3, 5, 0, 1, 2, 4]);
}

#[test]
fn a_cancelled_request_ends_with_the_next_step() {
    let mut decoder = decoder(&ToyModel::default(), 100);
    let mut request = Request::new(vec![1, 2, 3]);
    request.stop = vec!["never".into()];
    let id = decoder.admit(request).unwrap();
    for _ in 0..3 {
        assert!(decoder.step(&mut |_| {}).unwrap());
    }
    assert!(decoder.cancel(id));
    let (tokens, reason, _) = finish(&mut decoder);
    assert_eq!((tokens.len(), reason.as_str()), (0, "Cancelled"));
    assert!(!decoder.cancel(id));
    assert!(decoder.is_idle() && decoder.cache().pages_in_use() == 0);
}

#[test]
fn a_request_that_cannot_fit_even_alone_ends_by_itself() {
    let mut decoder = decoder(&ToyModel::default(), 5);
    let mut request = Request::new(vec![1; 15]);
    request.max_tokens = Some(100);
    decoder.admit(request.clone()).unwrap();
    let (tokens, reason, _) = finish(&mut decoder);
    assert_eq!(tokens.len(), 6, "five pages of four hold twenty tokens, and the last drawn is not cached");
    assert_eq!(reason, "Target(CacheFull { needed: 1, free: 0 })");
}

#[test]
fn rows_are_drawn_only_along_the_accepted_path() {
    let model = ToyModel::default();
    let mut decoder = decoder(&model, 1000);
    let mut request = Request::new(vec![1, 2, 1, 2, 1, 2]);
    (request.max_tokens, request.draft) = (Some(200), DraftPolicy::Width(12));
    request.sampler = SamplerSettings { seed: 8, ..SamplerSettings::default() };
    decoder.admit(request).unwrap();
    let (tokens, ..) = finish(&mut decoder);
    assert_eq!(decoder.target().rows_read(), tokens.len(), "one row of logits for each token");
    assert!(decoder.target().rows > tokens.len() + 50, "though many more were run");
}

/// Keeps every pass.
#[derive(Clone, Default)]
struct Passes(Arc<Mutex<Vec<PassTrace>>>);

impl Recorder for Passes {
    fn pass(&mut self, trace: &PassTrace) {
        self.0.lock().unwrap().push(trace.clone());
    }
}

#[test]
fn time_without_requests_is_no_pass_s() {
    let (model, request) = base(6);
    let (now, passes) = (Cell::new(Duration::ZERO), Passes::default());
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.1));
    let mut decoder = Decoder::new(ToyTarget::new(model), ToyCache::new(8, 100, 3), ToyText, || now.get(), cost)
        .with_recorder(Box::new(passes.clone()));
    for pause in [0, 1000] {
        now.set(now.get() + Duration::from_secs(pause));
        decoder.admit(request.clone()).unwrap();
        // Between the passes of a request two seconds go by.
        while decoder.step(&mut |_| ()).unwrap() && !decoder.is_idle() {
            now.set(now.get() + Duration::from_secs(2));
        }
    }
    let passes = passes.0.lock().unwrap();
    let rest: Vec<u64> = passes.iter().map(|pass| pass.rest.as_secs()).collect();
    let first = rest.len() / 2;
    assert!(first > 1 && rest[..first] == rest[first..], "{rest:?}");
    assert_eq!(rest[0], 0);
    assert!(rest[1..first].iter().all(|&seconds| seconds == 2), "{rest:?}");
}
