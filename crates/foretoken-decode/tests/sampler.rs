//! Draws have the definition's winner and the distribution's frequencies, at any size and temperature.

use foretoken_decode::TokenId;
use foretoken_decode::sampler::{Candidate, NoiseKey, Purpose, SampleError, Sampler, SamplerSettings, Scratch};
use foretoken_kernels::Isa;
use foretoken_testkit::Rng;

fn settings(temperature: f32) -> SamplerSettings {
    SamplerSettings { temperature, seed: 5, ..SamplerSettings::default() }
}

/// The definition: every token in order, the filters by counting, the noise by its formula.
fn defined(settings: &SamplerSettings, logits: &[f32], position: usize) -> Vec<TokenId> {
    let mut all: Vec<Candidate> = (0..).zip(logits).map(|(token, &logit)| Candidate { token, logit }).collect();
    for &(token, bias) in &settings.logit_bias {
        all[token as usize].logit += bias;
    }
    all.retain(|c| c.logit > f32::NEG_INFINITY);
    all.sort_by(Candidate::order);
    if settings.temperature == 0.0 {
        return all.iter().map(|c| c.token).collect();
    }
    let z = |c: &Candidate| (f64::from(c.logit) - f64::from(all[0].logit)) / f64::from(settings.temperature);
    let k = if settings.top_k == 0 { all.len() } else { settings.top_k.min(all.len()) };
    let sum = |n: usize| all[..n].iter().map(|c| libm::exp(z(c))).sum::<f64>();
    let p = f64::from(settings.top_p);
    let n = if p < 1.0 { (1..=k).find(|&n| sum(n) >= p * sum(k)).unwrap_or(k) } else { k };
    let kept = all[..n].iter().filter(|c| libm::exp(z(c)) >= f64::from(settings.min_p) || c.token == all[0].token);
    let key = NoiseKey::new(settings.seed, settings.choice, position as u64, Purpose::Token);
    let mut scored: Vec<(f64, TokenId)> = kept.map(|c| (z(c) + key.gumbel(c.token), c.token)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    scored.into_iter().map(|(_, token)| token).collect()
}

#[test]
fn the_winner_is_that_of_the_definition_on_every_instruction_set() {
    for case in 0..4000 {
        let mut rng = Rng::new(case);
        let n = 1 + rng.below(*Rng::new(case).pick(&[6, 70, 400, 3000]));
        let spread = *rng.pick(&[0.0, 0.5, 5.0, 40.0]);
        let mut row: Vec<f32> = (0..n).map(|_| rng.normal() * spread).collect();
        for _ in 0..n / 8 {
            row[rng.below(n)] = *rng.clone().pick(&[f32::NEG_INFINITY, 0.0, -0.0, 1.0]);
        }
        if row.iter().all(|&logit| logit == f32::NEG_INFINITY) {
            continue;
        }
        let mut settings = SamplerSettings {
            temperature: *rng.pick(&[0.0, 1e-30, 0.3, 0.8, 1.0, 2.0, 100.0]),
            top_k: *rng.pick(&[0, 0, 1, 3, 40, 300]),
            seed: case,
            ..SamplerSettings::default()
        };
        // Sums at the edge of top-p depend on rounding, which the definition here does otherwise: ties are apart from it.
        if spread == 5.0 {
            settings.top_p = *rng.pick(&[1.0, 0.9, 0.3]);
        }
        if spread == 0.5 {
            settings.min_p = *rng.pick(&[0.0, 0.05, 0.4]);
        }
        if rng.chance(0.3) {
            settings.logit_bias = vec![(rng.below(n) as u32, *rng.clone().pick(&[3.0, -3.0]))];
        }
        let position = 1 + rng.below(50);
        let expected = defined(&settings, &row, position);
        for isa in Isa::available() {
            let mut scratch = Scratch::new(isa);
            let sampler = Sampler::new(settings.clone(), &vec![0; position]);
            let drawn = sampler.draw(&row, &mut scratch).unwrap();
            assert_eq!(drawn, expected[0], "case {case}, {isa}: {settings:?}");
            let k = 1 + rng.below(9);
            let mut top = Vec::new();
            sampler.draw_top(&row, k, &mut scratch, &mut top).unwrap();
            assert_eq!(top, expected[..k.min(expected.len())], "case {case}, {isa}: {settings:?}");
        }
    }
}

#[test]
fn masked_infinite_and_missing_logits() {
    let mut scratch = Scratch::default();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for settings in [settings(0.0), settings(1.0), SamplerSettings { top_k: 2, top_p: 0.9, ..settings(0.5) }] {
        let sampler = Sampler::new(settings, &[0, 0]);
        let mut draw = |row: &[f32]| sampler.draw(row, &mut scratch);
        assert_eq!(draw(&[0.0, nan, 1.0]), Err(SampleError::Nan { token: 1, position: 2 }));
        assert_eq!(draw(&[-inf, nan, -inf]), Err(SampleError::Nan { token: 1, position: 2 }));
        assert_eq!(draw(&[0.0, 1.0, inf, inf]), Err(SampleError::Infinite { token: 2, position: 2 }));
        assert_eq!(draw(&[-inf, -inf]), Err(SampleError::EmptySupport { position: 2 }));
        assert_eq!(draw(&[-inf, -inf, -1e30]), Ok(2));
        assert_eq!(draw(&[f32::MIN, -inf]), Ok(0));
        // The range of f32 does not overflow.
        assert_eq!(draw(&[f32::MIN, f32::MAX]), Ok(1));
    }
    let banned = SamplerSettings { logit_bias: vec![(0, -inf), (1, -inf)], ..settings(1.0) };
    let sampler = Sampler::new(banned, &[0]);
    assert_eq!(sampler.draw(&[1.0, 2.0], &mut scratch), Err(SampleError::EmptySupport { position: 1 }));
    assert_eq!(sampler.draw(&[9.0, 9.0, -9.0], &mut scratch), Ok(2));
}

#[test]
fn ties_go_to_the_lower_id_and_extreme_temperatures_are_sound() {
    let mut scratch = Scratch::default();
    let mut draw = |settings: &SamplerSettings, row: &[f32], position: usize| {
        Sampler::new(settings.clone(), &vec![0; position]).draw(row, &mut scratch).unwrap()
    };
    let row = [-0.0, 0.0, -1.0, 0.0];
    let mut cold = [0; 4];
    let mut hot = [0; 4];
    for position in 1..400 {
        assert_eq!(draw(&settings(0.0), &row, position), 0);
        cold[draw(&settings(1e-30), &row, position) as usize] += 1;
        hot[draw(&settings(100.0), &[0.0, 50.0, 100.0, -50.0], position) as usize] += 1;
        let top = SamplerSettings { top_k: 2, ..settings(1.0) };
        assert!(draw(&top, &row, position) < 2, "exactly k, the lower ids at a tie");
        let nucleus = SamplerSettings { top_p: 0.5, ..settings(1.0) };
        assert!(draw(&nucleus, &row, position) < 2, "the crossing token is kept, and the lower ids at a tie");
    }
    assert_eq!(cold[2], 0, "at T = 1e-30 only the likeliest are drawn");
    assert!(cold[0].min(cold[1]).min(cold[3]) > 90, "and these equally: {cold:?}");
    assert!(hot.iter().all(|&n| n > 20) && hot[2] > hot[3], "at T = 100 all are: {hot:?}");
}

#[test]
fn frequencies_of_five_tokens_are_the_distribution() {
    const N: usize = 100_000;
    let row = [1.0f32, 0.0, 2.5, -1.0, 0.5];
    let base = |temperature| SamplerSettings { temperature, seed: 99, ..SamplerSettings::default() };
    let cases = [
        (base(1.0), 5),
        (base(0.3), 5),
        (base(1.5), 5),
        (base(100.0), 5),
        (SamplerSettings { top_k: 3, ..base(1.0) }, 3),
        (SamplerSettings { top_p: 0.8, ..base(1.0) }, 2),
        (SamplerSettings { min_p: 0.1, ..base(1.0) }, 3),
        (SamplerSettings { top_k: 4, top_p: 0.97, min_p: 0.01, ..base(2.0) }, 4),
    ];
    for (settings, kept) in cases {
        let mut order: Vec<usize> = (0..5).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let z = |i: usize| libm::exp(f64::from((row[i] - 2.5) / settings.temperature));
        let total: f64 = order[..kept].iter().map(|&i| z(i)).sum();
        let mut counts = [0usize; 5];
        let mut scratch = Scratch::default();
        let mut sampler = Sampler::new(settings.clone(), &[0]);
        for _ in 0..N {
            counts[sampler.draw(&row, &mut scratch).unwrap() as usize] += 1;
            sampler.push(0);
        }
        assert!(order[kept..].iter().all(|&i| counts[i] == 0), "{settings:?}: {counts:?}");
        let chi2: f64 = order[..kept]
            .iter()
            .map(|&i| {
                let expected = N as f64 * z(i) / total;
                (counts[i] as f64 - expected) * (counts[i] as f64 - expected) / expected
            })
            .sum();
        assert!(chi2 < 25.0, "{settings:?}: chi-square {chi2} over {} degrees of freedom, {counts:?}", kept - 1);
    }
}

/// Frequencies of groups of tokens, from frequent to one in a million, within four sigma.
fn check_tails(vocab: usize, draws: usize, temperature: f32) {
    let mut rng = Rng::new(3);
    let row: Vec<f32> = (0..vocab).map(|_| rng.normal() * 2.0 + if rng.chance(0.001) { 6.0 } else { 0.0 }).collect();
    let max = row.iter().copied().fold(f32::MIN, f32::max);
    let weight: Vec<f64> = row.iter().map(|l| libm::exp(f64::from((l - max) / temperature))).collect();
    let total: f64 = weight.iter().sum();
    // Groups by likelihood: the least likely tokens together are still drawn.
    let group = |token: usize| ((-libm::log2(weight[token] / total)) as usize).min(39);
    let mut expected = [0.0f64; 40];
    (0..vocab).for_each(|token| expected[group(token)] += weight[token] / total);
    let mut counts = [0usize; 40];
    let mut scratch = Scratch::default();
    let mut sampler = Sampler::new(settings(temperature), &[0]);
    for _ in 0..draws {
        counts[group(sampler.draw(&row, &mut scratch).unwrap() as usize)] += 1;
        sampler.push(0);
    }
    for (group, (&count, &p)) in counts.iter().zip(&expected).enumerate() {
        let mean = p * draws as f64;
        let sigma = libm::sqrt(mean * (1.0 - p));
        let off = (count as f64 - mean).abs();
        assert!(off <= 4.0 * sigma + 4.0, "group 2^-{group}: {count} of {mean:.1}, sigma {sigma:.1}");
    }
}

#[test]
fn tails_keep_their_frequencies_over_a_million_draws() {
    check_tails(300, 1_000_000, 0.8);
}

#[test]
fn tails_keep_their_frequencies_at_a_vocabulary_of_152k() {
    // A million take minutes.
    let long = std::env::var_os("FORETOKEN_LONG").is_some();
    check_tails(152_000, if long { 1_000_000 } else { 4_000 }, 0.8);
}

#[test]
fn every_token_of_152k_has_the_same_chance() {
    // Equal logits: the winner is the token with the smallest hash, so its resolution near 0 decides.
    let row = vec![0.25f32; 152_000];
    let mut scratch = Scratch::default();
    let mut sampler = Sampler::new(settings(1.0), &[0]);
    let mut counts = [0usize; 19];
    for _ in 0..3_800 {
        counts[sampler.draw(&row, &mut scratch).unwrap() as usize / 8000] += 1;
        sampler.push(0);
    }
    let chi2: f64 = counts.iter().map(|&n| (n as f64 - 200.0) * (n as f64 - 200.0) / 200.0).sum();
    assert!(chi2 < 18.0 + 5.0 * 6.0, "chi-square {chi2} over 18 degrees of freedom: {counts:?}");
}

#[test]
fn noise_is_the_seeds_alone() {
    let row: Vec<f32> = (0..500).map(|i| (i % 7) as f32 * 0.1).collect();
    let text = |seed, choice| -> Vec<TokenId> {
        let settings = SamplerSettings { seed, choice, ..SamplerSettings::default() };
        let mut sampler = Sampler::new(settings, &[1, 2, 3]);
        let mut scratch = Scratch::default();
        (0..40)
            .map(|_| {
                let token = sampler.draw(&row, &mut scratch).unwrap();
                sampler.push(token);
                token
            })
            .collect()
    };
    assert_eq!(text(1, 0), text(1, 0));
    let all: Vec<_> =
        [(1, 0), (2, 0), (1, 1), (2, 1), (0, 0), (u64::MAX, 0), (1 << 32, 0)].map(|(s, c)| text(s, c)).into();
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
            assert!(same < 5, "two seeds agree on {same} of 40 tokens");
        }
    }
}

#[test]
fn logprobs_are_the_models_own() {
    let row = [1.0f32, 3.0, f32::NEG_INFINITY, 2.0, 3.0];
    let warm = SamplerSettings { temperature: 0.1, logit_bias: vec![(0, 9.0)], ..settings(1.0) };
    let sampler = Sampler::new(warm, &[0]).with_logprobs(Some(3));
    let mut scratch = Scratch::default();
    let sum: f64 = [1.0, 3.0, 2.0, 3.0].map(libm::exp).iter().sum();
    let logprob = |logit: f64| logit - libm::log(sum);
    let found = sampler.logprobs(&row, 0, &mut scratch).unwrap();
    assert!((f64::from(found.logprob) - logprob(1.0)).abs() < 1e-6);
    assert_eq!(found.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 4, 3]);
    for (found, expected) in found.top.iter().zip([3.0, 3.0, 2.0]) {
        assert!((f64::from(found.1) - logprob(expected)).abs() < 1e-6);
    }
    assert_eq!(Sampler::new(settings(1.0), &[0]).logprobs(&row, 0, &mut scratch), None);
}
