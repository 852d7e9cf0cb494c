//! No drafter can change the text. A new drafter joins by one line in `drafters`. `FORETOKEN_LONG=1` runs twenty times the
//! random cases, and the whole of what is sampled otherwise.
//!
//! Each of these breakages was made on purpose; the crate's tests caught it, or got a case for it afterwards: following
//! a child without comparing its token; keeping one node too many at the end; penalties that count another token than the accepted one; committing only
//! a part of the path; noise without the lowest bit of the position, without the choice, or with 16 bits; end tokens free
//! one position early; one candidate too many in top-k, one too few in top-p, none cut from a whole row; stop strings
//! without their automaton's fallback, without holding text back, after the length cap, before `min_tokens`; tokens past
//! the end; `pop` that leaves a count; preemption that keeps the cache; merging below the wrong parent; drafters' draws one
//! position off; copies from one token early; log-probabilities of the first token only; a counter of accepted guesses that
//! is never 0; scores for guesses below a miss; a cached prompt without a row to run; more rows than a pass may have.

use foretoken_decode::budget::{CostTable, DraftCost};
use foretoken_decode::drafters::{
    Blockwise, Companion, DraftModel, Drafter, ExitEarly, Grammar, Jacobi, Lookahead, LookaheadOptions, Mtp, NoDraft,
    PromptLookup, PromptLookupOptions, Recall, Recycle, Suffix, WriterOptions,
};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{DecoderOptions, DraftPolicy, Request};
use foretoken_testkit::adversaries::{Drawer, Nonsense, OverWide, RandomTrees, Repeater};
use foretoken_testkit::{
    Output, Rng, Script, Setup, ToyCache, ToyHeads, ToyModel, ToyTarget, ToyText, answer, generate,
};

type Drafters = Vec<Box<dyn Drafter<ToyTarget>>>;

fn drafters(model: &ToyModel, seed: u64) -> Vec<Drafters> {
    let rng = || Rng::new(seed);
    let lookup = || Box::new(PromptLookup::default());
    let short = PromptLookupOptions { max_ngram: 2, min_ngram: 1, max_len: 5 };
    let drawer = |wrong, siblings, depth| Drawer { model: model.clone(), wrong, siblings, depth, rng: rng() };
    let draft_model = |model, pages| {
        let companion = Companion::new(ToyTarget::new(model), ToyCache::new(3, pages, seed), 7, 0);
        Box::new(DraftModel::new("draft_model", companion, DraftCost::default(), WriterOptions::default()))
    };
    vec![
        vec![Box::new(NoDraft)],
        vec![lookup()],
        vec![Box::new(PromptLookup::new(short))],
        vec![Box::new(RandomTrees(rng()))],
        vec![Box::new(Nonsense(rng()))],
        vec![Box::new(OverWide(rng()))],
        vec![Box::new(Repeater(rng()))],
        vec![Box::new(drawer(0.0, 1, 6))],
        vec![Box::new(drawer(0.3, 3, 4))],
        vec![draft_model(model.clone(), 4096)],
        vec![Box::new(ExitEarly::new(1, DraftCost::default(), WriterOptions::default()))],
        // It knows less, has another vocabulary, and too small a cache.
        vec![draft_model(ToyModel { order: 1, vocab_size: 11, poison: Some((30, f32::NAN)), ..model.clone() }, 30)],
        vec![
            lookup(),
            Box::new(Grammar),
            Box::new(Nonsense(rng())),
            Box::new(drawer(0.3, 2, 5)),
            Box::new(Repeater(rng())),
        ],
        vec![Box::new(Suffix::default())],
        vec![Box::new(Recycle::default())],
        vec![Box::new(Recall::default())],
        vec![Box::new(Jacobi::default())],
        vec![Box::new(Lookahead::default())],
        vec![Box::new(Lookahead::new(LookaheadOptions { columns: 3, ngram: 3, guesses: 2 }))],
        vec![Box::new(Blockwise::default())],
        vec![Box::new(Mtp::default())],
        vec![
            Box::new(Suffix::default()),
            Box::new(Recycle::default()),
            Box::new(Jacobi::new(4)),
            Box::new(Lookahead::default()),
            Box::new(Blockwise::default()),
            Box::new(Mtp::default()),
        ],
    ]
}

fn settings() -> Vec<SamplerSettings> {
    let base = |temperature| SamplerSettings { temperature, seed: 11, ..SamplerSettings::default() };
    vec![
        SamplerSettings::greedy(),
        base(0.3),
        base(0.8),
        base(1.5),
        SamplerSettings { choice: 3, ..base(2.0) },
        SamplerSettings { top_k: 3, ..base(1.0) },
        SamplerSettings { top_p: 0.8, ..base(1.0) },
        SamplerSettings { min_p: 0.2, ..base(1.5) },
        SamplerSettings { top_k: 5, top_p: 0.9, min_p: 0.05, ..base(0.8) },
        SamplerSettings { repetition_penalty: 1.3, ..SamplerSettings::greedy() },
        SamplerSettings { repetition_penalty: 0.8, penalty_window: Some(7), ..base(0.7) },
        SamplerSettings { presence_penalty: 2.0, ..SamplerSettings::greedy() },
        SamplerSettings { presence_penalty: -2.0, ..base(1.0) },
        SamplerSettings { frequency_penalty: 2.0, ..base(0.5) },
        SamplerSettings { frequency_penalty: -2.0, ..SamplerSettings::greedy() },
        SamplerSettings { frequency_penalty: 0.5, penalty_window: Some(3), ..SamplerSettings::greedy() },
        SamplerSettings { logit_bias: vec![(2, 5.0), (3, f32::NEG_INFINITY), (2, 0.5)], ..base(0.9) },
    ]
}

/// A request with something of everything.
fn request(rng: &mut Rng, model: &ToyModel) -> Request {
    let settings = settings();
    let mut request = Request::new(rng.tokens(1 + *rng.clone().pick(&[0, 1, 5, 40]), model.vocab_size));
    request.sampler = rng.pick(&settings).clone();
    request.max_tokens = Some(1 + rng.below(60));
    if rng.chance(0.5) {
        request.end_tokens = [rng.below(model.vocab_size) as u32, 3].into();
        request.ignore_eos = rng.chance(0.3);
        request.min_tokens = if rng.chance(0.5) { rng.below(request.max_tokens.unwrap()) } else { 0 };
    }
    if rng.chance(0.4) {
        let stops = ["ab", "abba", "a b", "bb", "é", "zz", "ba\n"];
        request.stop = (0..1 + rng.below(3)).map(|_| rng.pick(&stops).to_string()).collect();
    }
    if rng.chance(0.3) {
        request.logprobs = Some(rng.below(4));
    }
    if rng.chance(0.2) && !request.ignore_eos && !request.end_tokens.is_empty() {
        request.constraint = Some(Box::new(Script::new(rng.next_u64(), model.vocab_size)));
    }
    request
}

fn long() -> bool {
    std::env::var_os("FORETOKEN_LONG").is_some()
}

/// One request alone, without drafts, in one prompt chunk.
fn plain(model: &ToyModel, request: &Request) -> Output {
    generate(model, Setup::default(), vec![request.clone()]).remove(0)
}

#[test]
fn nothing_but_the_request_decides_the_text() {
    let (mut drafted, mut accepted, mut preempted, mut cached) = (0, 0, 0, 0);
    for case in 0..if long() { 60_000 } else { 3000 } {
        let mut rng = Rng::new(case);
        let poison = rng.chance(0.1).then(|| (20 + rng.below(30), *Rng::new(case).pick(&[f32::NAN, f32::INFINITY])));
        let model = ToyModel {
            order: 1 + rng.below(3),
            scale: *rng.pick(&[0.0, 3.0, 8.0, 30.0]),
            hostile: *rng.pick(&[0, 0, 30])..60,
            context_size: *rng.pick(&[64, 90, 4096]),
            poison,
            seed: case,
            heads: ToyHeads { n: rng.below(17), hits: *rng.pick(&[0.0, 0.8, 1.0]), sequential: rng.chance(0.5) },
            ..ToyModel::default()
        };
        let n_requests = *rng.pick(&[1, 1, 2, 3, 6, 9]);
        let mut requests: Vec<Request> = (0..n_requests).map(|_| request(&mut rng, &model)).collect();
        // Some begin alike, and may share rows.
        let beginning = rng.tokens(20, model.vocab_size);
        requests.iter_mut().filter(|_| rng.chance(0.4)).for_each(|r| _ = r.prompt.splice(0..0, beginning.clone()));
        let expected: Vec<Output> = requests.iter().map(|request| plain(&model, request)).collect();

        for request in &mut requests {
            (request.reuse, request.scope, request.priority) =
                (rng.chance(0.6), rng.below(2) as u64, rng.below(3) as i32);
            request.draft = match rng.below(8) {
                0 => DraftPolicy::Off,
                1 | 2 => DraftPolicy::Budget,
                _ => DraftPolicy::Width(1 + rng.below(16)),
            };
        }
        let page_size = *rng.pick(&[1, 2, 5, 16, 64]);
        // Room for the largest sequence and a draft, or for everything.
        let tight = 130usize.div_ceil(page_size) + 1;
        let mut all = drafters(&model, case);
        let which = rng.below(all.len());
        let setup = Setup {
            page_size,
            n_pages: if rng.chance(0.6) { tight } else { 4096 },
            options: DecoderOptions {
                max_rows: *rng.pick(&[1, 2, 3, 7, 20, 512]),
                max_rows_beside: *rng.pick(&[1, 5, 64]),
                max_draft: 1 + rng.below(24),
                max_running: *rng.pick(&[1, 3, 32]),
                growth: *rng.pick(&[0, 0, 32]),
                max_kept: rng.below(4),
            },
            cost: CostTable::linear(1.0, *rng.pick(&[0.0, 0.05, 2.0])),
            drafters: all.swap_remove(which),
        };
        let actual = generate(&model, setup, requests);
        for (actual, expected) in actual.iter().zip(&expected) {
            assert_eq!(actual.visible(), expected.visible(), "case {case}, drafters {which}");
            drafted += actual.stats.drafted;
            accepted += actual.stats.accepted;
            preempted += actual.stats.preempted;
            cached += actual.stats.cached_tokens;
        }
    }
    assert!(drafted > 50_000 && accepted > 10_000, "{drafted} {accepted}");
    assert!(preempted > 100 && cached > 4000, "{preempted} {cached}");
}

#[test]
fn every_drafter_meets_every_setting_at_every_width() {
    let model = ToyModel { scale: 5.0, ..ToyModel::default() };
    for (s, settings) in settings().into_iter().enumerate() {
        let mut request = Request::new(vec![1, 2, 3, 1, 2]);
        request.sampler = settings;
        request.max_tokens = Some(50);
        request.logprobs = Some(2);
        let expected = plain(&model, &request);
        assert_eq!(expected.tokens.len(), 50);
        for width in 1..=16 {
            request.draft = DraftPolicy::Width(width);
            for (d, drafters) in drafters(&model, width as u64).into_iter().enumerate() {
                let setup = Setup { drafters, ..Setup::default() };
                let actual = generate(&model, setup, vec![request.clone()]).remove(0);
                assert_eq!(actual.visible(), expected.visible(), "setting {s}, width {width}, drafters {d}");
                let perfect = d == 7;
                if perfect {
                    assert_eq!(actual.stats.accepted, actual.stats.drafted, "a draft with the target's noise is right");
                    assert_eq!(actual.stats.passes, 50usize.div_ceil(width.min(6) + 1));
                }
            }
        }
    }
}

#[test]
fn what_drafters_remember_of_past_requests_changes_nothing() {
    let mut accepted = [0; 3];
    for case in 0..if long() { 2000 } else { 100 } {
        let mut rng = Rng::new(case);
        let scale = *rng.pick(&[3.0, 8.0, 30.0]);
        let model = ToyModel { order: 1 + rng.below(3), scale, seed: case, ..ToyModel::default() };
        let mut requests: Vec<Request> = (0..3).map(|_| request(&mut rng, &model)).collect();
        let expected: Vec<Output> = requests.iter().map(|request| plain(&model, request)).collect();
        for request in &mut requests {
            request.draft = DraftPolicy::Width(1 + rng.below(16));
            request.scope = rng.below(2) as u64;
        }
        for (which, drafters) in drafters(&model, case).into_iter().enumerate() {
            let mut decoder = Setup { drafters, ..Setup::default() }.decoder(&model);
            for (wave, accepted) in accepted.iter_mut().enumerate() {
                for (actual, expected) in answer(&mut decoder, requests.clone()).iter().zip(&expected) {
                    assert_eq!(actual.visible(), expected.visible(), "case {case}, drafters {which}, wave {wave}");
                    *accepted += actual.stats.accepted;
                }
            }
            decoder.unlearn();
        }
    }
    assert!(accepted[1] > accepted[0] && accepted[2] > accepted[0], "what was remembered helped: {accepted:?}");
}

#[test]
fn the_end_may_fall_anywhere_in_a_chunk() {
    let model = ToyModel { scale: 5.0, ..ToyModel::default() };
    for settings in [SamplerSettings::greedy(), SamplerSettings { seed: 5, ..SamplerSettings::default() }] {
        let mut free = Request::new(vec![1, 2, 3, 1, 2]);
        (free.sampler, free.max_tokens, free.logprobs) = (settings, Some(24), Some(1));
        let tokens = plain(&model, &free).tokens;
        for at in 0..tokens.len() {
            let after_length = Request { max_tokens: Some(at + 1), ..free.clone() };
            let at_token = Request { end_tokens: [tokens[at]].into(), min_tokens: at, ..free.clone() };
            let at_string =
                Request { stop: vec![ToyText::text(&tokens[at..tokens.len().min(at + 2)])], ..free.clone() };
            for request in [after_length, at_token, at_string] {
                if request.stop.iter().any(String::is_empty) {
                    continue; // a token without text
                }
                let expected = plain(&model, &request);
                for width in if long() { (1..=16).collect() } else { vec![2, 7] } {
                    for (which, drafters) in drafters(&model, at as u64).into_iter().enumerate() {
                        let setup = Setup { drafters, ..Setup::default() };
                        let drafted = Request { draft: DraftPolicy::Width(width), ..request.clone() };
                        let actual = generate(&model, setup, vec![drafted]).remove(0);
                        assert_eq!(
                            actual.visible(),
                            expected.visible(),
                            "end at {at}, width {width}, drafters {which}"
                        );
                        let usage = |output: &Output| (output.stats.prompt_tokens, output.stats.output_tokens);
                        assert_eq!(usage(&actual), usage(&expected));
                    }
                }
            }
        }
    }
}

#[test]
fn prompts_may_reach_the_edge_of_the_context() {
    let model = ToyModel { context_size: 40, scale: 5.0, ..ToyModel::default() };
    let n_drafters = drafters(&model, 0).len();
    for left in 1..=4 {
        let mut request = Request::new(Rng::new(left).tokens(40 - left as usize, model.vocab_size));
        request.sampler = SamplerSettings { seed: left, ..SamplerSettings::default() };
        let expected = plain(&model, &request);
        assert_eq!(expected.tokens.len(), left as usize);
        for width in [1, 3, 16] {
            request.draft = DraftPolicy::Width(width);
            for which in 0..n_drafters {
                let setup = Setup { drafters: drafters(&model, left).swap_remove(which), ..Setup::default() };
                let actual = generate(&model, setup, vec![request.clone()]).remove(0);
                assert_eq!(actual.visible(), expected.visible(), "{left} left, width {width}, drafters {which}");
            }
        }
    }
}
