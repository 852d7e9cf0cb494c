//! The budget finds the width that pays: none on hostile text, many on repetitive text, and back again.

use std::sync::{Arc, Mutex};

use foretoken_decode::budget::{CostModel, CostTable, DraftCost, PassShape, Prior};
use foretoken_decode::drafters::{Companion, Draft, DraftModel, Drafter, PromptLookup, WriterOptions};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, DecoderOptions, DraftPolicy, PassTrace, Recorder, Replay, Request};
use foretoken_testkit::adversaries::Drawer;
use foretoken_testkit::{Rng, ToyCache, ToyClock, ToyModel, ToyTarget, ToyText};

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<PassTrace>>>);

impl Recorder for Tape {
    fn pass(&mut self, trace: &PassTrace) {
        self.0.lock().unwrap().push(trace.clone());
    }
}

/// Costs like those of a small machine: T(2)/T(1) = 1.03, T(3) 1.55, T(4) 2.06.
fn two_cores() -> CostTable {
    let rows = (1..=32).map(|n| f64::max(1.0 + 0.03 * (n as f64 - 1.0).min(1.0), 0.515 * n as f64) * 0.02).collect();
    CostTable { rows, ..CostTable::linear(1.0, 1.0) }
}

/// Costs of many cores: eight rows are nearly free.
fn many_cores() -> CostTable {
    let rows = (1..=32).map(|n| 0.02 * (1.0 + 0.01 * (n - 1) as f64).max(0.125 * n as f64)).collect();
    CostTable { rows, ..CostTable::linear(1.0, 1.0) }
}

/// Passes of one request of 600 tokens over a model whose positions in `hostile` never repeat.
fn trace(cost: CostTable, hostile: std::ops::Range<usize>, order: usize, policy: DraftPolicy) -> Vec<PassTrace> {
    let model = ToyModel { vocab_size: 40, order, hostile, seed: 3, ..ToyModel::default() };
    let tape = Tape::default();
    let mut decoder =
        Decoder::new(ToyTarget::new(model), ToyCache::new(16, 1000, 1), ToyText, (), CostModel::fixed(cost))
            .with_drafter(Box::new(PromptLookup::default()))
            .with_recorder(Box::new(tape.clone()));
    let mut request = Request::new(Rng::new(5).tokens(100, 40));
    (request.max_tokens, request.draft, request.sampler) = (Some(600), policy, SamplerSettings::greedy());
    decoder.admit(request).unwrap();
    while decoder.step(&mut |_| {}).unwrap() {}
    let passes = tape.0.lock().unwrap().clone();
    assert_eq!(passes.iter().map(|p| p.sequences[0].tokens.len()).sum::<usize>(), 600);
    passes
}

/// Drafted rows of passes that begin at these positions.
fn drafted(passes: &[PassTrace], positions: std::ops::Range<usize>) -> usize {
    passes.iter().filter(|p| positions.contains(&p.sequences[0].start)).map(|p| p.drafted).sum()
}

#[test]
fn drafts_grow_on_repetition_fall_to_zero_on_hostile_text_and_come_back() {
    for cost in [two_cores(), many_cores()] {
        let passes = trace(cost, 300..500, 1, DraftPolicy::Budget);
        let repetitive = drafted(&passes, 200..300);
        assert!(repetitive > 40, "drafts on repetitive text: {repetitive}");
        let begun = drafted(&passes, 300..332);
        let hostile = drafted(&passes, 340..500);
        assert!(begun < 130, "while noticing: {begun}");
        // One token in forty matches by chance, which may wake it for a moment.
        assert!(hostile < 60, "drafts on hostile text: {hostile} over 160 tokens");
        let back = drafted(&passes, 540..700);
        assert!(back > 40, "drafts when it repeats again: {back}");
    }
}

#[test]
fn the_width_follows_the_machine() {
    // Beside the rows of a prompt a guess costs little: what counts are the passes after it.
    let passes = |cost| trace(cost, 0..0, 1, DraftPolicy::Budget).split_off(1);
    let widest = |cost| passes(cost).iter().map(|p| p.drafted).max().unwrap();
    assert!(widest(many_cores()) >= 7);
    assert_eq!(widest(CostTable::linear(0.0, 1.0)), 0, "when rows cost as much as passes, nothing is drafted");
}

#[test]
fn drafting_pays_by_replay_and_never_costs_much() {
    for cost in [two_cores(), many_cores(), CostTable::linear(0.02, 0.01), CostTable::linear(0.001, 0.02)] {
        for (hostile, order) in [(0..0, 1), (0..0, 2), (0..700, 2), (300..500, 1)] {
            let passes = trace(cost.clone(), hostile.clone(), order, DraftPolicy::Budget);
            let replay = Replay::of(&passes, &cost, &[]);
            assert_eq!(replay.tokens, 600);
            assert!(replay.speedup() > 0.97, "{hostile:?}, order {order}: {}", replay.speedup());
            if hostile.is_empty() && order == 1 && cost.trunk(2) < 1.6 * cost.trunk(1) {
                assert!(replay.speedup() > 1.25, "{}", replay.speedup());
            }
        }
    }
}

#[test]
fn a_fixed_table_repeats_every_pass_exactly() {
    let run = || trace(two_cores(), 200..300, 2, DraftPolicy::Budget);
    assert_eq!(run(), run());
}

#[test]
fn a_width_of_ones_own_ignores_the_cost() {
    let passes = trace(CostTable::linear(0.0, 1.0), 0..0, 1, DraftPolicy::Width(3));
    assert!(passes.iter().all(|p| p.drafted <= 3));
    assert!(passes.iter().filter(|p| p.drafted == 3).count() > 100);
}

#[test]
fn plain_requests_are_not_drafted_for() {
    let passes = trace(two_cores(), 0..0, 1, DraftPolicy::Off);
    assert!(passes.iter().all(|p| p.drafted == 0 && p.sequences[0].proposed.is_empty()));
    let replay = Replay::of(&passes, &two_cores(), &[]);
    assert_eq!(replay.plain, replay.drafted);
}

/// Passes of this many requests: every other one repeats itself, the rest never do. Guesses run for either kind, and the
/// speed-up.
fn load(n_requests: usize, cost: CostTable) -> ([usize; 2], f64) {
    let tape = Tape::default();
    let model = ToyModel { vocab_size: 40, order: 1, hostile: 2000..4000, seed: 3, ..ToyModel::default() };
    let mut decoder =
        Decoder::new(ToyTarget::new(model), ToyCache::new(16, 8000, 1), ToyText, (), CostModel::fixed(cost.clone()))
            .with_options(DecoderOptions { max_rows: 64, max_draft: 8, ..DecoderOptions::default() })
            .with_drafter(Box::new(PromptLookup::default()))
            .with_recorder(Box::new(tape.clone()));
    for i in 0..n_requests {
        let len = if i % 2 == 0 { 100 } else { 2000 };
        let mut request = Request::new(Rng::new(i as u64).tokens(len, 40));
        (request.max_tokens, request.sampler) = (Some(300), SamplerSettings::greedy());
        decoder.admit(request).unwrap();
    }
    while decoder.step(&mut |_| {}).unwrap() {}
    let passes = tape.0.lock().unwrap();
    let run = |odd: u64| -> usize {
        let of = passes.iter().flat_map(|p| &p.sequences).filter(|s| s.request % 2 == odd);
        of.flat_map(|s| &s.proposed).filter(|guess| guess.run).count()
    };
    ([run(0), run(1)], Replay::of(&*passes, &cost, &[]).speedup())
}

#[test]
fn rows_go_where_they_are_likeliest_to_be_right() {
    for n_requests in [2, 4] {
        let ([repetitive, hostile], speedup) = load(n_requests, many_cores());
        assert!(repetitive > 2 * hostile, "{n_requests} requests: {repetitive} and {hostile}");
        assert!(speedup > 1.05, "{n_requests} requests: {speedup}");
    }
}

#[test]
fn load_never_makes_drafting_slower_than_plain() {
    let mut speedups = Vec::new();
    for n_requests in [1, 2, 4, 8, 16, 32] {
        for cost in [two_cores(), many_cores()] {
            speedups.push(load(n_requests, cost).1);
        }
    }
    assert!(speedups.iter().all(|&speedup| speedup > 0.98), "{speedups:?}");
    assert!(speedups[0] > 1.2 && speedups[1] > 1.5, "alone, drafting pays: {speedups:?}");
}

#[test]
fn costs_are_learned_from_low_quantiles_and_stay_monotone() {
    let prior = CostTable::linear(0.010, 0.001);
    let mut model = CostModel::learning(prior.clone());
    let mut rng = Rng::new(1);
    let truth = |n: usize| 0.020 + 0.004 * (n as f64 - 1.0);
    let shape = |rows| PassShape { rows, logits_rows: 0, context: 0 };
    for i in 0..300 {
        let rows = 1 + rng.below(6);
        // One pass in six is held up, some for long.
        let stall = if rng.chance(0.17) { 1.0 + 20.0 * f64::from(rng.uniform()) } else { 1.0 };
        model.observe(shape(rows), truth(rows) * stall * (1.0 + 0.02 * f64::from(rng.uniform())), 0.001);
        assert!(model.table().rows.is_sorted(), "after {i}");
        assert_eq!(model.table().validate(), Ok(()));
    }
    for rows in 1..=6 {
        let ratio = model.table().trunk(rows) / truth(rows);
        assert!((0.97..1.05).contains(&ratio), "{rows} rows: {ratio}");
    }
    assert!((model.table().overhead - 0.001).abs() < 1e-9);
    // Row counts never run follow the nearest that were.
    let scale = model.table().trunk(6) / prior.trunk(6);
    assert!((model.table().trunk(8) / (prior.trunk(8) * scale) - 1.0).abs() < 0.05);

    let mut fixed = CostModel::fixed(prior.clone());
    fixed.observe(shape(1), 5.0, 1.0);
    assert_eq!(fixed.table(), &prior);
}

#[test]
fn slow_memory_does_not_make_computing_slow() {
    // Believed: 20 ms to read the weights, 5 ms a row to compute.
    let rows = (1..=16).map(|n| f64::max(0.020, 0.005 * f64::from(n))).collect();
    let prior = CostTable { rows, ..CostTable::linear(0.0, 0.0) };
    let mut model = CostModel::learning(prior);
    let shape = |rows| PassShape { rows, logits_rows: 0, context: 0 };
    for rows in [1, 2, 4].repeat(3) {
        model.observe(shape(rows), 0.030, 0.0);
    }
    let table = |model: &CostModel| [3, 5, 6, 8, 16].map(|n| (model.table().trunk(n) * 1e3).round());
    assert_eq!(table(&model), [30.0, 30.0, 30.0, 40.0, 80.0], "reading takes half as long again");
    for _ in 0..3 {
        model.observe(shape(8), 0.044, 0.0);
    }
    assert_eq!(table(&model), [30.0, 30.0, 33.0, 44.0, 88.0], "so much for computing");
}

#[test]
fn a_single_measurement_is_not_believed_over_its_neighbours() {
    let mut model = CostModel::learning(CostTable::linear(0.010, 0.001));
    let shape = |rows| PassShape { rows, logits_rows: 0, context: 0 };
    model.observe(shape(1), 0.020, 0.0);
    assert!((model.table().trunk(1) - 0.020).abs() < 1e-9, "until more is known it is all there is");
    for _ in 0..3 {
        model.observe(shape(1), 0.020, 0.0);
        model.observe(shape(6), 0.030, 0.0);
    }
    model.observe(shape(3), 0.200, 0.0);
    let stalled = model.table().trunk(3);
    assert!((0.020..0.030).contains(&stalled), "{stalled}");
    (0..2).for_each(|_| model.observe(shape(3), 0.028, 0.0));
    assert!((model.table().trunk(3) - 0.028).abs() < 1e-9, "three are believed");
}

/// Guesses run in the last 400 of 2000 tokens of repetitive text, when passes cost `truth` and the table starts from `prior`.
fn learned(prior: CostTable, truth: CostTable) -> usize {
    let tape = Tape::default();
    let clock = ToyClock::default();
    let model = ToyModel { vocab_size: 40, order: 1, seed: 3, ..ToyModel::default() };
    let mut target = ToyTarget::new(model);
    target.clock = Some((clock.clone(), truth));
    let mut decoder = Decoder::new(target, ToyCache::new(16, 1000, 1), ToyText, clock, CostModel::learning(prior))
        .with_drafter(Box::new(PromptLookup::default()))
        .with_recorder(Box::new(tape.clone()));
    let mut request = Request::new(Rng::new(5).tokens(100, 40));
    (request.max_tokens, request.sampler) = (Some(2000), SamplerSettings::greedy());
    decoder.admit(request).unwrap();
    while decoder.step(&mut |_| {}).unwrap() {}
    drafted(&tape.0.lock().unwrap(), 1700..2100)
}

#[test]
fn a_wrong_prior_is_found_out() {
    let (dear, cheap) = (CostTable::linear(-0.006, 0.026), many_cores());
    let tried = learned(dear.clone(), cheap.clone());
    assert!(tried > 200, "rows that only look dear are tried: {tried}");
    // What is left are the rare passes that look whether it is still so.
    let given_up = learned(cheap, dear);
    assert!(given_up < 120, "rows that only look cheap are given up: {given_up}");
}

#[test]
fn a_prior_is_the_larger_of_reading_and_computing() {
    let prior = Prior {
        trunk_bytes: 0.85e9,
        trunk_macs: 1.31e9,
        head_bytes: 0.13e9,
        head_macs: 0.23e9,
        kv_bytes: 28_672.0,
        bytes_per_second: 52e9,
        macs_per_second: 160e9,
        overhead: 0.0,
    };
    let table = CostTable::from_prior(&prior);
    assert_eq!(table.validate(), Ok(()));
    let seconds = |rows| table.seconds(PassShape { rows, logits_rows: rows, context: 0 });
    let ratio = |rows| seconds(rows) / seconds(1);
    assert!((seconds(1) - 0.0188).abs() < 0.0005, "{}", seconds(1));
    assert!((1.0..1.1).contains(&ratio(2)) && (1.4..1.7).contains(&ratio(3)) && (3.8..4.4).contains(&ratio(8)));
}

#[test]
fn a_bad_cost_file_is_refused_with_its_reason() {
    let check = |rows: &[f64]| CostTable { rows: rows.to_vec(), ..CostTable::linear(1.0, 1.0) }.validate();
    assert!(check(&[]).unwrap_err().contains("at least one row"));
    assert!(check(&[1.0, 0.5]).unwrap_err().contains("must not fall"));
    assert!(check(&[0.0, 0.5]).unwrap_err().contains("above 0"));
    assert!(check(&[1.0, f64::NAN]).unwrap_err().contains("NaN"));
}

/// A drafter that takes time.
struct Dear {
    inner: Drawer,
    cost: DraftCost,
}

impl Drafter<ToyTarget> for Dear {
    fn name(&self) -> &'static str {
        "dear"
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut ToyTarget, cache: &mut ToyCache) {
        self.inner.depth = drafts.iter().map(|draft| draft.limits.max_depth).max().unwrap_or(0).min(8);
        self.inner.propose(drafts, target, cache);
    }

    fn cost(&self) -> DraftCost {
        self.cost
    }
}

/// Passes of one request of 600 tokens with a drafter that is wrong with this chance and takes so long for each depth.
fn with_dear(wrong: f32, seconds: f64) -> Vec<PassTrace> {
    let model = ToyModel { scale: 8.0, ..ToyModel::default() };
    let tape = Tape::default();
    let inner = Drawer { model: model.clone(), wrong, siblings: 1, depth: 8, rng: Rng::new(4) };
    let cost = DraftCost { depth: seconds, ..DraftCost::default() };
    let mut decoder =
        Decoder::new(ToyTarget::new(model), ToyCache::new(16, 1000, 1), ToyText, (), CostModel::fixed(many_cores()))
            .with_drafter(Box::new(Dear { inner, cost }))
            .with_recorder(Box::new(tape.clone()));
    let mut request = Request::new(vec![1, 2, 3]);
    (request.max_tokens, request.sampler) = (Some(600), SamplerSettings::greedy());
    decoder.admit(request).unwrap();
    while decoder.step(&mut |_| {}).unwrap() {}
    tape.0.lock().unwrap().clone()
}

/// Seconds of the passes by the table, with drafting, against plain decoding.
fn speedup(passes: &[PassTrace]) -> f64 {
    let plain = 600.0 * many_cores().trunk(1);
    plain / passes.iter().map(|pass| pass.predicted.as_secs_f64()).sum::<f64>()
}

#[test]
fn drafting_that_takes_time_is_asked_for_only_where_it_pays() {
    let asked = |passes: &[PassTrace]| passes.iter().filter(|pass| !pass.sequences[0].proposed.is_empty()).count();
    // A row takes 20 ms here.
    let passes = with_dear(0.0, 0.002);
    assert!(passes.len() < 120 && speedup(&passes) > 2.5, "{} passes, {}", passes.len(), speedup(&passes));
    let passes = with_dear(0.0, 0.03);
    assert!(asked(&passes) < 5 && speedup(&passes) > 0.99, "{} asked, {}", asked(&passes), speedup(&passes));
    let passes = with_dear(1.0, 0.002);
    assert!(asked(&passes) < 40 && speedup(&passes) > 0.97, "{} asked, {}", asked(&passes), speedup(&passes));
    assert!(asked(&passes[40..]) > 0, "it is tried again now and then");
}

/// Passes of one request of 600 tokens, at temperature 1, with a draft model that is half as sure as the target and takes
/// so long for each depth. It writes no siblings.
fn with_draft_model(scale: f32, seconds: f64) -> Vec<PassTrace> {
    let model = ToyModel { scale, ..ToyModel::default() };
    let tape = Tape::default();
    let draft = ToyTarget::new(ToyModel { scale: scale / 2.0, ..model.clone() });
    let companion = Companion::new(draft, ToyCache::new(16, 1000, 1), 64, 0);
    let cost = DraftCost { depth: seconds, ..DraftCost::default() };
    let options = WriterOptions { min_path_p: 0.0, min_sibling_p: 2.0, ..WriterOptions::default() };
    let drafter = DraftModel::new("draft_model", companion, cost, options);
    let table = CostModel::fixed(many_cores());
    let mut decoder = Decoder::new(ToyTarget::new(model), ToyCache::new(16, 1000, 1), ToyText, (), table)
        .with_drafter(Box::new(drafter))
        .with_recorder(Box::new(tape.clone()));
    let mut request = Request::new(vec![1, 2, 3]);
    request.max_tokens = Some(600);
    decoder.admit(request).unwrap();
    while decoder.step(&mut |_| {}).unwrap() {}
    tape.0.lock().unwrap().clone()
}

#[test]
fn a_draft_goes_on_as_long_as_it_is_sure_enough_for_its_time() {
    // Guesses a path, of passes in which some were made.
    let depth = |passes: &[PassTrace]| {
        let lens = passes.iter().map(|pass| pass.sequences[0].proposed.len()).filter(|&len| len > 0);
        let (n, sum) = lens.fold((0, 0), |(n, sum), len| (n + 1, sum + len));
        sum as f64 / f64::from(n.max(1))
    };
    let depths = [0.0005, 0.004, 0.008].map(|seconds| depth(&with_draft_model(2.0, seconds)));
    assert!(depths.is_sorted_by(|a, b| a > b), "the dearer a guess, the surer it has to be: {depths:?}");
    let sure = depth(&with_draft_model(400.0, 0.004));
    assert!(sure > 7.0 && sure > 1.3 * depths[1], "{sure} against {depths:?}");
}

#[test]
fn a_change_of_mind_is_explained() {
    let passes = trace(many_cores(), 300..500, 1, DraftPolicy::Budget);
    let whys: Vec<&str> = passes.iter().filter_map(|pass| pass.why.as_deref()).collect();
    assert!(whys.len() > 3 && whys.len() < passes.len() / 2, "{} of {}", whys.len(), passes.len());
    assert!(whys.iter().any(|why| why.contains("of prompt_lookup: they promise")), "{whys:?}");
    assert!(whys.iter().any(|why| why.starts_with("no guesses")), "{whys:?}");
}
