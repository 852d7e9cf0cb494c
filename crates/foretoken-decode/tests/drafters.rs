//! What each drafter promises beyond being harmless: how fast it learns, settles and adapts, on the toy target.

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::{Blockwise, Count, Drafter, Jacobi, Lookahead, Mtp, Recall, Recycle, Suffix};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, DraftPolicy, Request, RequestStats, TokenId};
use foretoken_testkit::{Rng, ToyCache, ToyHeads, ToyModel, ToyTarget};

type ToyDecoder = Decoder<ToyTarget, (), ()>;

fn decoder(model: ToyModel, drafter: impl Drafter<ToyTarget> + 'static) -> ToyDecoder {
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.05));
    Decoder::new(ToyTarget::new(model), ToyCache::new(16, 1 << 12, 1), (), (), cost).with_drafter(Box::new(drafter))
}

/// One request to its end.
fn answer(
    decoder: &mut ToyDecoder,
    prompt: Vec<TokenId>,
    sampler: SamplerSettings,
    width: usize,
    n: usize,
) -> RequestStats {
    let mut request = Request::new(prompt);
    (request.sampler, request.max_tokens, request.draft) = (sampler, Some(n), DraftPolicy::Width(width));
    decoder.admit(request).expect("a valid request");
    let mut stats = RequestStats::default();
    while decoder.step(&mut |event| stats = event.stats.clone()).expect("a sound target") {}
    stats
}

fn tokens_per_pass(stats: &RequestStats) -> f64 {
    stats.output_tokens as f64 / stats.passes as f64
}

fn counts(decoder: &ToyDecoder, of: &str) -> Vec<Count> {
    decoder.drafters().flat_map(Drafter::counts).filter(|count| count.of.starts_with(of)).collect()
}

fn sampled(temperature: f32, seed: u64) -> SamplerSettings {
    SamplerSettings { temperature, seed, ..SamplerSettings::default() }
}

#[test]
fn jacobi_settles_n_positions_in_n_iterations_and_the_early_ones_first() {
    for case in 0..300 {
        let mut rng = Rng::new(case);
        let scale = *rng.pick(&[2.0, 6.0, 20.0]);
        let model = ToyModel { order: 1 + rng.below(3), scale, seed: case, ..ToyModel::default() };
        let n = 2 + rng.below(15);
        let mut decoder = decoder(model, Jacobi::default());
        let temperature = *rng.pick(&[0.0, 0.8, 1.5]);
        let stats = answer(&mut decoder, rng.tokens(5, 12), sampled(temperature, case), n, n);
        assert!(stats.passes <= n, "case {case}: {} passes for {n} positions", stats.passes);
        // After k iterations the first k positions have settled, at least.
        let settled = counts(&decoder, "positions settled");
        let by = |iteration: usize| settled.iter().filter(|c| c.at <= iteration).map(|c| c.n as usize).sum::<usize>();
        let positions = by(usize::MAX);
        assert!(positions + 1 >= n, "the last position may be drawn without a window");
        (1..=positions).for_each(|k| assert!(by(k) >= k, "case {case}: {settled:?}"));
    }
}

#[test]
fn blocks_grow_with_heads_that_are_right_and_shrink_with_those_that_are_not() {
    let run = |hits| {
        let model = ToyModel { scale: 20.0, heads: ToyHeads { n: 16, hits, sequential: false }, ..ToyModel::default() };
        let mut decoder = decoder(model, Blockwise::default());
        let stats = answer(&mut decoder, vec![1, 2, 3], SamplerSettings::greedy(), 16, 1000);
        let last = |of| counts(&decoder, of).iter().map(|count| count.n).sum::<u64>();
        let largest = counts(&decoder, "blocks verified").iter().map(|count| count.at).max().unwrap();
        (tokens_per_pass(&stats), largest, last("blocks grown"), last("blocks shrunk"))
    };
    let (rate, largest, grown, _) = run(1.0);
    assert!(rate > 14.0 && largest == 16 && grown == 4, "{rate} {largest} {grown}");
    let (rate, _, grown, shrunk) = run(0.0);
    assert!(rate < 1.7 && shrunk >= 4 + grown, "{rate} {grown} {shrunk}");
}

#[test]
fn blocks_follow_the_noise_of_sampled_text() {
    // Heads that know the distribution but not the noise would be right as often as the likeliest token is drawn.
    let model = ToyModel { order: 1, scale: 6.0, ..ToyModel::default() };
    let mut decoder = decoder(model, Blockwise::default());
    let stats = answer(&mut decoder, vec![1, 2, 3], sampled(1.0, 5), 4, 400);
    assert!(tokens_per_pass(&stats) > 1.4, "{}", tokens_per_pass(&stats));
}

/// Tokens a pass with heads of which this share is right.
fn by_heads(drafter: impl Drafter<ToyTarget> + 'static, hits: f32, temperature: f32, width: usize) -> f64 {
    by_these_heads(drafter, ToyHeads { n: 7, hits, sequential: false }, temperature, width)
}

fn by_these_heads(drafter: impl Drafter<ToyTarget> + 'static, heads: ToyHeads, temperature: f32, width: usize) -> f64 {
    let model = ToyModel { order: 1, scale: 8.0, heads, ..ToyModel::default() };
    let mut decoder = decoder(model, drafter);
    tokens_per_pass(&answer(&mut decoder, vec![1, 2, 3], sampled(temperature, 5), width, 600))
}

#[test]
fn heads_that_are_right_give_a_token_each_and_siblings_mend_those_that_are_not() {
    let perfect = by_heads(Mtp::default(), 1.0, 0.0, 7);
    assert!(perfect > 7.2, "{perfect}");
    let hostile = by_heads(Mtp::default(), 0.0, 1.0, 2);
    assert!(hostile < 1.5, "{hostile}");
    // At a temperature the text leaves the path that the heads foresee: the tree has the way off it.
    let (narrow, wide) = (by_heads(Mtp::default(), 1.0, 0.7, 2), by_heads(Mtp::default(), 1.0, 0.7, 12));
    assert!(wide > narrow + 0.2 && narrow > 1.4, "{narrow} {wide}");
}

#[test]
fn heads_that_read_the_guesses_before_them_follow_a_text_off_the_likeliest_path() {
    let rate = |sequential, hits, temperature| {
        by_these_heads(Mtp::default(), ToyHeads { n: 7, hits, sequential }, temperature, 7)
    };
    let greedy = rate(true, 1.0, 0.0);
    assert!(greedy > 3.5, "{greedy}");
    let (alone, together) = (rate(false, 1.0, 1.0), rate(true, 1.0, 1.0));
    assert!(together > alone + 0.5, "{alone} {together}");
    let hostile = rate(true, 0.0, 1.0);
    assert!(hostile < 1.5, "{hostile}");
}

#[test]
fn blocks_of_heads_are_worth_no_less_than_their_tree() {
    for temperature in [0.0, 0.7, 1.2] {
        for hits in [0.5, 0.9, 1.0] {
            let tree = by_heads(Mtp::default(), hits, temperature, 8);
            let block = by_heads(Blockwise::default(), hits, temperature, 8);
            assert!(block > tree - 0.1, "{block} and {tree} at {temperature}, {hits} right");
        }
    }
}

#[test]
fn recycled_rows_are_right_again_at_any_temperature() {
    // Successors depend on two tokens alone: once seen, they are known, and the noise is the target's own.
    for (temperature, least) in [(0.0, 5.0), (0.8, 3.0), (1.5, 2.5)] {
        let model = ToyModel { vocab_size: 12, order: 2, ..ToyModel::default() };
        let mut decoder = decoder(model, Recycle::default());
        let mut rng = Rng::new(4);
        for seed in 0..4 {
            answer(&mut decoder, rng.tokens(8, 12), sampled(temperature, seed), 8, 300);
        }
        let stats = answer(&mut decoder, rng.tokens(8, 12), sampled(temperature, 9), 8, 300);
        assert!(tokens_per_pass(&stats) > least, "at {temperature}: {}", tokens_per_pass(&stats));
        decoder.unlearn();
        let stats = answer(&mut decoder, rng.tokens(8, 12), sampled(temperature, 9), 8, 20);
        assert!(tokens_per_pass(&stats) < least, "unlearned, at {temperature}: {}", tokens_per_pass(&stats));
    }
}

#[test]
fn suffixes_of_past_outputs_are_copied_until_unlearned() {
    let model = ToyModel { vocab_size: 1000, order: 3, scale: 20.0, ..ToyModel::default() };
    let mut decoder = decoder(model, Suffix::default());
    let ask = |decoder: &mut ToyDecoder| {
        tokens_per_pass(&answer(decoder, vec![1, 2, 3, 4, 5], SamplerSettings::greedy(), 8, 200))
    };
    let first = ask(&mut decoder);
    let again = ask(&mut decoder);
    assert!(first < 1.2 && again > 7.0, "{first} {again}");
    decoder.unlearn();
    let unlearned = ask(&mut decoder);
    assert!(unlearned < 1.2, "{unlearned}");
}

#[test]
fn lookahead_finds_n_grams_that_the_text_does_not_hold_yet() {
    let model = ToyModel { vocab_size: 2000, order: 1, scale: 20.0, ..ToyModel::default() };
    let mut ahead = decoder(model.clone(), Lookahead::default());
    let mut copied = decoder(model, Suffix::default());
    let rate = |decoder: &mut ToyDecoder| {
        let stats = answer(decoder, vec![1, 2, 3], SamplerSettings::greedy(), 30, 60);
        tokens_per_pass(&stats)
    };
    let (ahead, copied) = (rate(&mut ahead), rate(&mut copied));
    assert!(ahead > 1.5 && ahead > copied, "{ahead} {copied}");
}

#[test]
fn recall_hardly_loses_where_only_rows_know_anything() {
    // The next token depends on two tokens: longer matches say nothing new, and the judge has to find that out.
    for temperature in [0.0, 0.8] {
        let rate = |drafter: Box<dyn Drafter<ToyTarget>>| {
            let model = ToyModel { vocab_size: 40, order: 2, scale: 8.0, ..ToyModel::default() };
            let cost = CostModel::fixed(CostTable::linear(1.0, 0.05));
            let cache = ToyCache::new(16, 1 << 12, 1);
            let mut decoder = Decoder::new(ToyTarget::new(model), cache, (), (), cost).with_drafter(drafter);
            let mut rng = Rng::new(8);
            let all = (0..6).map(|seed| answer(&mut decoder, rng.tokens(20, 40), sampled(temperature, seed), 4, 300));
            let (tokens, passes) = all.fold((0, 0), |sum, s| (sum.0 + s.output_tokens, sum.1 + s.passes));
            f64::from(tokens as u32) / f64::from(passes as u32)
        };
        let parts = rate(Box::<Suffix>::default()).max(rate(Box::<Recycle>::default()));
        let whole = rate(Box::<Recall>::default());
        assert!(whole > 0.9 * parts, "at {temperature}: {whole} of {parts}");
    }
}
