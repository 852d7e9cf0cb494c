//! Acceptors whose texts depend on the drafts: the distribution of `rejection`, what `top_k` and `typical` give, and that
//! all three say so.

use std::collections::HashMap;

use foretoken_decode::acceptors::AcceptorKind;
use foretoken_decode::constraint::{Constraint, TokenMask};
use foretoken_decode::drafters::{Drafter, PromptLookup};
use foretoken_decode::sampler::{Sampler, SamplerSettings, Scratch};
use foretoken_decode::{DraftPolicy, Request, RequestError, TokenId};
use foretoken_testkit::{Output, SamplingDrafter, Script, Setup, ToyModel, ToyTarget, generate};

type Drafters = Vec<Box<dyn Drafter<ToyTarget>>>;

/// Probabilities of all texts that the target writes: `len` tokens, fewer with an end token.
fn texts(model: &ToyModel, request: &Request, len: usize) -> HashMap<Vec<TokenId>, f64> {
    let mut scratch = Scratch::default();
    let mut open = vec![(Vec::new(), 1.0)];
    let mut done = HashMap::new();
    while let Some((text, probability)) = open.pop() {
        let ended = text.last().is_some_and(|token| request.end_tokens.contains(token));
        if ended || text.len() == len {
            done.insert(text, probability);
            continue;
        }
        let whole: Vec<TokenId> = request.prompt.iter().chain(&text).copied().collect();
        let latest: Vec<TokenId> = whole.iter().rev().copied().collect();
        let mut logits = Vec::new();
        model.logits(&latest, whole.len(), &mut logits);
        let mut sampler = Sampler::new(request.sampler.clone(), &request.prompt)
            .with_constraint(request.constraint.clone(), request.end_tokens.clone());
        text.iter().for_each(|&token| sampler.push(token));
        let p = sampler.distribution(&logits, &mut scratch).expect("a sound row");
        open.extend(p.iter().map(|(token, p)| ([text.as_slice(), &[token]].concat(), probability * p)));
    }
    done
}

/// Fails when `counts` of `n` draws are not from `p`: chi-square, rare texts taken together, at five deviations.
fn check(name: &str, counts: &HashMap<Vec<TokenId>, usize>, p: &HashMap<Vec<TokenId>, f64>, n: usize) {
    assert!((p.values().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(counts.keys().all(|text| p.contains_key(text)), "{name}: a text that the target never writes");
    let (mut statistic, mut cells) = (0.0, 0.0);
    let mut rare = (0.0, 0.0);
    for (text, p) in p {
        let (expected, seen) = (p * n as f64, counts.get(text).copied().unwrap_or(0) as f64);
        if expected < 8.0 {
            rare = (rare.0 + expected, rare.1 + seen);
        } else {
            statistic += (seen - expected) * (seen - expected) / expected;
            cells += 1.0;
        }
    }
    if rare.0 >= 8.0 {
        statistic += (rare.1 - rare.0) * (rare.1 - rare.0) / rare.0;
        cells += 1.0;
    }
    let freedom: f64 = cells - 1.0;
    assert!(statistic <= freedom + 5.0 * (2.0 * freedom).sqrt() + 5.0, "{name}: {statistic} with {freedom} degrees");
}

/// Answers `n` requests that differ in their seeds only.
fn many(model: &ToyModel, request: &Request, n: usize, drafters: &dyn Fn() -> Drafters) -> Vec<Output> {
    let requests = |from: usize, to: usize| {
        (from..to).map(|seed| {
            let mut request = request.clone();
            request.sampler.seed = seed as u64;
            request
        })
    };
    let batches = (0..n).step_by(100).map(|from| requests(from, n.min(from + 100)).collect());
    batches.flat_map(|batch| generate(model, Setup { drafters: drafters(), ..Setup::default() }, batch)).collect()
}

/// A script that begins with a choice.
fn open_script(vocab_size: usize) -> Script {
    let open = |script: &Script| {
        let mut mask = TokenMask::none(vocab_size);
        script.clone().mask(&mut mask).is_ok() && mask.count() >= 3
    };
    (0..).map(|seed| Script::new(seed, vocab_size)).find(open).expect("some script does")
}

fn settings() -> Vec<SamplerSettings> {
    let base = |temperature| SamplerSettings { temperature, ..SamplerSettings::default() };
    vec![
        base(0.3),
        base(0.8),
        base(1.5),
        SamplerSettings { top_k: 3, ..base(1.0) },
        SamplerSettings { top_p: 0.8, ..base(1.2) },
        SamplerSettings { min_p: 0.2, frequency_penalty: 1.5, ..base(1.0) },
        SamplerSettings { logit_bias: vec![(2, f32::NEG_INFINITY), (1, 1.0)], repetition_penalty: 1.4, ..base(0.8) },
    ]
}

#[test]
fn rejection_keeps_the_distribution() {
    // Up to three draws each.
    const N: usize = 40_000;
    let model = ToyModel { vocab_size: 5, scale: 3.0, order: 1, ..ToyModel::default() };
    let other = ToyModel { seed: 2, ..model.clone() };
    let sampling = |siblings| Box::new(SamplingDrafter { model: other.clone(), depth: 3, siblings });
    let chain = || -> Drafters { vec![sampling(0)] };
    let mixed = || -> Drafters { vec![Box::new(PromptLookup::default()), sampling(2)] };
    for (s, settings) in settings().into_iter().enumerate() {
        let mut request = Request::new(vec![1, 2, 1]);
        request.sampler = settings;
        request.max_tokens = Some(3);
        request.end_tokens = [3].into();
        request.acceptor = AcceptorKind::Rejection;
        if s == 3 {
            request.constraint = Some(Box::new(open_script(model.vocab_size)));
        }
        // A width that does not hold the whole draft, so that the budget trims by what was drafted.
        request.draft = DraftPolicy::Width(2);
        let drafters: &dyn Fn() -> Drafters = if s % 2 == 0 { &chain } else { &mixed };
        request.drafters = drafters().iter().map(|drafter| drafter.name().to_owned()).collect();
        let p = texts(&model, &request, 3);
        let mut counts = HashMap::new();
        let (mut accepted, mut drafted) = (0, 0);
        for output in many(&model, &request, N, drafters) {
            *counts.entry(output.tokens).or_insert(0) += 1;
            accepted += output.stats.accepted;
            drafted += output.stats.drafted;
        }
        check(&format!("setting {s}"), &counts, &p, N);
        assert!(accepted * 20 > drafted && drafted > N / 2, "{accepted} of {drafted}");
    }
}

#[test]
fn rejection_over_a_large_vocabulary_and_with_the_targets_own_distribution() {
    const N: usize = 100_000;
    let model = ToyModel { vocab_size: 400, scale: 5.0, order: 1, ..ToyModel::default() };
    // Its own distribution: nothing is left of p - q, and every sample is kept.
    for (seed, temperature) in [(2, 1.0), (1, 1.0), (1, 0.5)] {
        let draft = ToyModel { seed, ..model.clone() };
        let mut request = Request::new(vec![7]);
        request.sampler = SamplerSettings { temperature, ..SamplerSettings::default() };
        request.max_tokens = Some(1 + usize::from(seed == 1));
        request.acceptor = AcceptorKind::Rejection;
        request.draft = DraftPolicy::Width(1);
        request.drafters = vec!["sampling".into()];
        let drafters =
            || -> Drafters { vec![Box::new(SamplingDrafter { model: draft.clone(), depth: 1, siblings: 0 })] };
        if seed == 1 {
            let outputs = many(&model, &request, 2000, &drafters);
            assert!(outputs.iter().all(|output| output.stats.accepted == 1), "p = q keeps every sample");
            request.max_tokens = Some(2);
        } else {
            request.max_tokens = Some(2);
        }
        let p = texts(&model, &request, 1);
        let mut counts = HashMap::new();
        for output in many(&model, &request, N, &drafters) {
            *counts.entry(output.tokens[..1].to_vec()).or_insert(0) += 1;
        }
        check(&format!("draft {seed} at {temperature}"), &counts, &p, N);
    }
}

/// Texts of many kinds of drafts.
fn drafted(model: &ToyModel, request: &Request) -> Vec<Output> {
    let sampling =
        |seed, siblings| Box::new(SamplingDrafter { model: ToyModel { seed, ..model.clone() }, depth: 4, siblings });
    let drafters: [Drafters; 3] =
        [vec![sampling(4, 3)], vec![Box::new(PromptLookup::default()), sampling(4, 1)], vec![sampling(model.seed, 0)]];
    let run = |drafters: Drafters| {
        let names = drafters.iter().map(|drafter| drafter.name().to_owned()).collect();
        let request = Request { drafters: names, ..request.clone() };
        generate(model, Setup { drafters, ..Setup::default() }, vec![request]).remove(0)
    };
    drafters.into_iter().map(run).collect()
}

#[test]
fn at_their_strictest_all_are_greedy() {
    let model = ToyModel { scale: 4.0, ..ToyModel::default() };
    for temperature in [0.0, 0.7, 2.0] {
        let mut request = Request::new(vec![1, 2, 3]);
        request.max_tokens = Some(60);
        request.sampler = SamplerSettings { presence_penalty: 0.5, ..SamplerSettings::greedy() };
        let greedy = generate(&model, Setup::default(), vec![request.clone()]).remove(0);
        request.sampler.temperature = temperature;
        request.draft = DraftPolicy::Width(8);
        let strict = [
            AcceptorKind::TopK { k: 1 },
            AcceptorKind::Typical { epsilon: 0.0, delta: 0.3 },
            AcceptorKind::Typical { epsilon: 0.3, delta: 0.0 },
        ];
        let at_zero =
            [AcceptorKind::Coupled, AcceptorKind::Rejection, AcceptorKind::Typical { epsilon: 0.01, delta: 0.1 }];
        for acceptor in strict.into_iter().chain(at_zero.into_iter().filter(|_| temperature == 0.0)) {
            request.acceptor = acceptor;
            for output in drafted(&model, &request) {
                assert_eq!(output.tokens, greedy.tokens, "{acceptor} at {temperature}");
            }
        }
    }
}

#[test]
fn lenient_acceptors_take_more_and_measure_what_it_costs() {
    // Nothing repeats, so no loop decides how much they agree.
    let model = ToyModel { scale: 6.0, hostile: 0..300, ..ToyModel::default() };
    let mut request = Request::new(vec![1, 2, 3]);
    request.max_tokens = Some(200);
    request.logprobs = Some(0);
    for temperature in [0.0, 1.0] {
        request.sampler = SamplerSettings { temperature, ..SamplerSettings::default() };
        request.draft = DraftPolicy::Width(6);
        let mut agreements = Vec::new();
        for acceptor in [1, 2, 4, 12].map(|k| AcceptorKind::TopK { k }).into_iter().chain([
            AcceptorKind::Typical { epsilon: 0.3, delta: 0.5 },
            AcceptorKind::Typical { epsilon: 0.05, delta: 0.1 },
        ]) {
            request.acceptor = acceptor;
            let output = drafted(&model, &request).remove(0);
            let change = output.stats.change.expect("a change is measured");
            assert_eq!(change.tokens, 200);
            let logprob: f64 = output.logprobs.iter().map(|l| f64::from(l.logprob)).sum();
            assert!((change.logprob - logprob).abs() < 1e-6);
            assert!(change.perplexity() > 1.0 && change.perplexity() < 12.5 * 50.0);
            agreements.push(change.agreement());
        }
        if temperature == 0.0 {
            assert_eq!(agreements[0], 1.0, "greedy agrees with greedy");
            assert!(agreements[..4].is_sorted_by(|a, b| a > b), "{agreements:?}");
            assert_eq!(agreements[4..], [1.0, 1.0], "at temperature 0 typical is greedy");
        } else {
            assert!(agreements[5] < agreements[4], "{agreements:?}");
        }
    }
}

#[test]
fn the_default_measures_nothing_and_what_is_not_fixed_is_refused() {
    let model = ToyModel::default();
    let mut request = Request::new(vec![1]);
    request.max_tokens = Some(5);
    assert_eq!(generate(&model, Setup::default(), vec![request.clone()])[0].stats.change, None);
    for acceptor in AcceptorKind::ALL.into_iter().filter(|kind| !kind.reproducible()) {
        request.acceptor = acceptor;
        let refused = Err(RequestError::NotFixed { acceptor: acceptor.name() });
        assert_eq!(request.validate(12, 100), refused);
        let with = |draft, names: &[&str]| {
            let drafters = names.iter().map(|&name| name.into()).collect();
            Request { draft, drafters, ..request.clone() }.validate(12, 100)
        };
        assert_eq!(with(DraftPolicy::Off, &[]), Ok(()));
        assert_eq!(with(DraftPolicy::Width(3), &["suffix"]), Ok(()));
        assert_eq!(with(DraftPolicy::Width(3), &[]), refused);
        assert_eq!(with(DraftPolicy::Budget, &["suffix"]), refused);
    }
    request.draft = DraftPolicy::Off;
    request.acceptor = AcceptorKind::TopK { k: 0 };
    let message = request.validate(12, 100).unwrap_err().to_string();
    assert_eq!(message, "k of the acceptor top_k is 0, and must be at least 1");
}
