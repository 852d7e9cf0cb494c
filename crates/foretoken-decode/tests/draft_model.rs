//! A second model that drafts: what it runs, when it gives up, and that it is worth its name.

use foretoken_decode::budget::{CostModel, CostTable, DraftCost};
use foretoken_decode::drafters::{Companion, DraftModel, Retired, WriterOptions};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::target::SequenceId;
use foretoken_decode::{Decoder, DraftPolicy, Request, RequestStats, TokenId};
use foretoken_testkit::{Rng, Setup, ToyCache, ToyModel, ToyTarget, ToyText, generate};

fn companion(model: &ToyModel, pages: usize) -> Companion<ToyTarget> {
    Companion::new(ToyTarget::new(model.clone()), ToyCache::new(4, pages, 5), 6, 0)
}

/// Follows a text to its end and checks the logits there; returns the rows that it took.
fn follow(companion: &mut Companion<ToyTarget>, sequence: SequenceId, text: &[TokenId]) -> usize {
    let before = companion.model().rows;
    assert!(companion.set_text(sequence, 0, text));
    check_end(companion, sequence);
    companion.model().rows - before
}

fn check_end(companion: &mut Companion<ToyTarget>, sequence: SequenceId) {
    let text = companion.text(sequence).expect("it is followed").to_vec();
    let mut expected = Vec::new();
    let latest: Vec<TokenId> = text.iter().rev().copied().collect();
    companion.model().model.logits(&latest, text.len(), &mut expected);
    let mut calls = 0;
    companion.run(&[sequence], |i, logits| {
        calls += 1;
        assert_eq!((i, logits), (0, &expected[..]));
    });
    assert_eq!(calls, 1);
}

#[test]
fn only_what_is_missing_is_run() {
    let mut companion = companion(&ToyModel { order: 3, ..ToyModel::default() }, 64);
    let text = Rng::new(1).tokens(20, 12);
    let (a, b) = (SequenceId(7), SequenceId(3));
    assert_eq!(follow(&mut companion, a, &text), 20);
    assert_eq!(companion.model().passes, 4, "in chunks of 6");
    // Drafting on, and then another text than was drafted.
    for token in [1, 2, 3] {
        assert!(companion.append(a, token));
        check_end(&mut companion, a);
    }
    let came: Vec<TokenId> = text.iter().copied().chain([1, 2, 9, 4]).collect();
    assert_eq!(follow(&mut companion, a, &came), 2);
    assert_eq!(follow(&mut companion, a, &came), 1, "the last row again, for its logits");
    // A text that begins alike starts from one that is over; others start from nothing.
    companion.forget(a);
    assert_eq!(follow(&mut companion, b, &came[..15]), 1);
    assert_eq!(follow(&mut companion, a, &came), 24);
    companion.forget(a);
    companion.forget(b);
    // What another scope wrote makes nothing faster.
    let before = companion.model().rows;
    assert!(companion.set_text(b, 1, &came[..15]));
    check_end(&mut companion, b);
    assert_eq!(companion.model().rows - before, 15);
    assert_eq!(companion.retired(), &[]);
}

#[test]
fn many_texts_share_a_pass() {
    let mut companion = companion(&ToyModel::default(), 64);
    let sequences: Vec<SequenceId> = (0..3).map(SequenceId).collect();
    for &sequence in &sequences {
        companion.set_text(sequence, 0, &[sequence.0 + 1]);
    }
    let mut seen = Vec::new();
    companion.run(&sequences, |i, _| seen.push(i));
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(companion.model().passes, 1);
}

#[test]
fn what_does_not_fit_is_given_up_and_counted() {
    let model = ToyModel { context_size: 30, ..ToyModel::default() };
    // Seven pages of four tokens.
    let mut companion = companion(&model, 7);
    let reasons = |companion: &Companion<ToyTarget>| -> Vec<(&'static str, usize)> {
        companion.retired().iter().map(|Retired { reason, sequences }| (*reason, *sequences)).collect()
    };
    let (idle, old, new) = (SequenceId(0), SequenceId(1), SequenceId(2));
    follow(&mut companion, idle, &[1; 8]);
    companion.forget(idle);
    follow(&mut companion, old, &[2; 16]);
    // There is room once the text that is over is given up, and then there is none.
    follow(&mut companion, new, &[3; 12]);
    assert_eq!(companion.retired(), &[]);
    // One that is not to be run now loses its rows, and no more than that.
    follow(&mut companion, old, &[2; 20]);
    assert_eq!(companion.lag(new, 12), 11);
    follow(&mut companion, old, &[2; 16]);
    follow(&mut companion, new, &[3; 12]);
    assert_eq!(companion.retired(), &[]);
    assert!(companion.append(old, 4) && companion.append(new, 4));
    let mut seen = Vec::new();
    companion.run(&[old, new], |i, _| seen.push(i));
    assert_eq!(seen, [0], "the later one gives way");
    assert_eq!(reasons(&companion), [("the draft model's cache is full", 1)]);
    assert!(!companion.set_text(new, 0, &[3; 13]), "and stays away");
    companion.forget(new);
    assert!(companion.set_text(new, 0, &[3]), "until its name is used again");

    assert!(!companion.set_text(old, 0, &[2; 31]));
    assert!(!companion.set_text(new, 0, &[12]));
    let wanted = [
        "the text is longer than the draft model's context",
        "the text has a token that the draft model does not know",
    ];
    assert_eq!(reasons(&companion)[1..], wanted.map(|reason| (reason, 1)));
    companion.set_text(idle, 0, &[1; 29]);
    assert!(companion.append(idle, 1));
    assert!(!companion.append(idle, 1), "the context is full");
}

/// Decodes with a draft model over `draft`; the requests' counts and those given up.
fn decode(
    target: &ToyModel,
    draft: &ToyModel,
    pages: usize,
    requests: &[Request],
) -> (Vec<RequestStats>, Vec<Retired>) {
    let options = WriterOptions { min_path_p: 0.0, ..WriterOptions::default() };
    let drafter = DraftModel::new("draft_model", companion(draft, pages), DraftCost::default(), options);
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.05));
    let mut decoder = Decoder::new(ToyTarget::new(target.clone()), ToyCache::new(4, 999, 1), ToyText, (), cost)
        .with_drafter(Box::new(drafter));
    let ids: Vec<_> = requests.iter().map(|request| decoder.admit(request.clone()).expect("it is sound")).collect();
    let mut stats = vec![RequestStats::default(); ids.len()];
    let mut tokens: Vec<Vec<TokenId>> = vec![Vec::new(); ids.len()];
    let mut go_on = true;
    while go_on {
        go_on = decoder
            .step(&mut |event| {
                let index = ids.iter().position(|&id| id == event.request).expect("it was admitted");
                stats[index] = event.stats.clone();
                tokens[index].extend(event.tokens);
            })
            .expect("the loop keeps the target's rules");
    }
    for (request, tokens) in requests.iter().zip(tokens) {
        let alone = Request { draft: DraftPolicy::Off, ..request.clone() };
        assert_eq!(generate(target, Setup::default(), vec![alone])[0].tokens, tokens);
    }
    (stats, decoder.drafter_stats().next().expect("it has one").retired.clone())
}

fn requests(n: usize, width: usize) -> Vec<Request> {
    let sampler =
        |i: usize| SamplerSettings { temperature: 0.7 * i as f32, seed: i as u64, ..SamplerSettings::default() };
    let request = |i: usize| Request {
        sampler: sampler(i),
        max_tokens: Some(40 + i),
        draft: DraftPolicy::Width(width),
        ..Request::new(vec![1 + i as TokenId; 1 + 9 * i])
    };
    (0..n).map(request).collect()
}

#[test]
fn a_twin_is_always_right() {
    let model = ToyModel { order: 3, ..ToyModel::default() };
    for n in 1..=3 {
        let (stats, retired) = decode(&model, &model, 64, &requests(n, 4));
        for (i, stats) in stats.iter().enumerate() {
            // Rows of siblings are spent in vain, so not every guess is.
            assert!(stats.by_depth.iter().all(|depth| depth.accepted == depth.drafted), "{n}, {i}: {stats:?}");
            assert!(stats.accepted > 2 * stats.passes, "{n}, {i}: {stats:?}");
        }
        assert_eq!(retired, []);
    }
}

#[test]
fn a_model_that_knows_less_is_right_now_and_then() {
    let target = ToyModel { order: 2, scale: 20.0, ..ToyModel::default() };
    for draft in [ToyModel { order: 1, ..target.clone() }, ToyModel { seed: 99, ..target.clone() }] {
        for n in 1..=3 {
            let (stats, _) = decode(&target, &draft, 64, &requests(n, 3));
            assert!(stats.iter().all(|stats| stats.drafted > 0 && stats.accepted < stats.drafted / 2));
        }
    }
}

#[test]
fn a_draft_model_that_fails_costs_no_request() {
    let target = ToyModel { order: 2, ..ToyModel::default() };
    let hole = ToyModel { poison: Some((20, f32::NAN)), ..target.clone() };
    let (stats, retired) = decode(&target, &hole, 64, &requests(2, 3));
    assert!(stats.iter().all(|stats| stats.accepted > 20), "it goes on behind the hole: {stats:?}");
    assert_eq!(retired, []);

    let short = ToyModel { context_size: 24, ..target.clone() };
    let (stats, retired) = decode(&target, &short, 64, &requests(2, 3));
    assert!(stats.iter().all(|stats| stats.accepted > 0));
    assert_eq!(retired, [Retired { reason: "the text is longer than the draft model's context", sequences: 2 }]);

    let (_, retired) = decode(&target, &target, 8, &requests(2, 3));
    assert_eq!(retired[0].reason, "the draft model's cache is full");
}
