//! Head after head equals all heads at once, for every kind of head.

use burn::tensor::Device;

use super::{evaluate, gradients, gradients_at_once};
use crate::batch::Batch;
use crate::config::{HeadKind, HeadsConfig, ModelConfig, Unembedding};
use crate::model::Model;
use crate::ops::{Ops, Precision};
use crate::params::{Gradients, Params};
use crate::rng::Rng;

fn config(kind: HeadKind, n: usize, change: impl FnOnce(&mut ModelConfig)) -> ModelConfig {
    let heads = HeadsConfig {
        n,
        kind,
        unembedding: Unembedding::Shared,
        from_trunk: false,
        recursive: false,
        start: Default::default(),
    };
    let mut config = ModelConfig {
        vocabulary: 29,
        width: 32,
        layers: 3,
        attention_heads: 2,
        kv_heads: 1,
        feed_forward: 40,
        context: 24,
        rope_theta: 1e4,
        norm_eps: 1e-5,
        tied: false,
        heads,
    };
    change(&mut config);
    config
}

fn batch(n_heads: usize) -> Batch {
    let mut rng = Rng::new(5, "batch");
    let windows = (0..3).map(|_| {
        let tokens = (0..24 + n_heads).map(|_| rng.below(29) as u32).collect();
        (tokens, (0..24 + n_heads).map(|i| i % 10 == 7).collect())
    });
    Batch::new(24, n_heads, windows.collect())
}

/// Moves every weight off its start, so that zero blocks and equal copies hide nothing.
fn shake(params: &mut Params) {
    for id in params.iter().map(|(id, _)| id).collect::<Vec<_>>() {
        let mut rng = Rng::new(9, &params.spec(id).name);
        let values = params.host(id).iter().map(|x| x + 0.1 * rng.normal() as f32).collect();
        params.set(id, values);
    }
}

fn relative_error(params: &Params, a: &mut Gradients, b: &mut Gradients) -> f64 {
    let mut worst = 0.0f64;
    for (id, spec) in params.iter() {
        let (a, b) = (a.take(id), b.take(id));
        assert_eq!(a.is_some(), b.is_some(), "{}", spec.name);
        let (Some(a), Some(b)) = (a, b) else { continue };
        let square = |x: f64| x * x;
        let error: f64 = a.iter().zip(&b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
        let norm: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
        assert!(norm > 0.0, "{} has no gradient", spec.name);
        worst = worst.max((error / norm).sqrt());
    }
    worst
}

fn check(config: ModelConfig) {
    let n = config.heads.n;
    let (model, mut params) = Model::new(&config, &Device::flex(), 1).unwrap();
    shake(&mut params);
    let batch = batch(n);
    let weights: Vec<f32> = (0..n).map(|i| 1.0 / (i + 1) as f32).collect();
    let run = |ops, at_once: bool| {
        let pass = model.pass(&params, ops, &batch);
        let mut sums = Gradients::new(&params);
        let results = match at_once {
            true => gradients_at_once(&model, &pass, &batch, &weights, &mut sums),
            false => gradients(&model, &pass, &batch, &weights, &mut sums),
        };
        (results, sums)
    };
    let (results, mut sums) = run(Ops::Fused(Precision::F32), false);
    let (expected_results, mut expected) = run(Ops::Fused(Precision::F32), true);
    let error = relative_error(&params, &mut sums, &mut expected);
    assert!(error < 1e-5, "{error:e} for {config:?}");
    let (_, mut composed) = run(Ops::Composed, true);
    let (_, mut fused) = run(Ops::Fused(Precision::F32), true);
    let error = relative_error(&params, &mut fused, &mut composed);
    assert!(error < 1e-5, "{error:e} for {config:?}, fused against composed");
    let frozen = params.frozen();
    let evaluated = evaluate(&model, &model.pass(&frozen, Ops::Fused(Precision::F32), &batch), &batch);
    for ((a, b), c) in results.iter().zip(&expected_results).zip(&evaluated) {
        assert!((a.loss - b.loss).abs() < 1e-5 && a.n_labels == b.n_labels && a.top_1 == b.top_1);
        assert_eq!(a, c);
    }
}

#[test]
fn parallel_heads() {
    check(config(HeadKind::Linear, 3, |_| ()));
    check(config(HeadKind::ResBlock, 4, |c| c.tied = true));
    check(config(HeadKind::ResBlock, 3, |c| c.heads.unembedding = Unembedding::Replicated));
    check(config(HeadKind::Transformer, 3, |_| ()));
    check(config(HeadKind::Transformer, 3, |c| c.heads.from_trunk = true));
    check(config(HeadKind::ResBlock, 1, |_| ()));
}

#[test]
fn sequential_heads() {
    check(config(HeadKind::Sequential, 3, |_| ()));
    check(config(HeadKind::Sequential, 4, |c| c.heads.recursive = true));
    check(config(HeadKind::Sequential, 2, |c| c.tied = true));
}

#[test]
fn a_residual_block_begins_as_head_1_and_layers_from_the_trunk_cost_nothing() {
    let n_values = |config: &ModelConfig| {
        let (_, params) = Model::new(config, &Device::flex(), 1).unwrap();
        params.iter().map(|(_, spec)| spec.len()).sum::<usize>()
    };
    let plain = config(HeadKind::ResBlock, 1, |_| ());
    assert_eq!(n_values(&plain), n_values(&config(HeadKind::Transformer, 3, |c| c.heads.from_trunk = true)));

    let (model, params) = Model::new(&config(HeadKind::ResBlock, 2, |_| ()), &Device::flex(), 1).unwrap();
    let batch = batch(2);
    let pass = model.pass(&params, Ops::Fused(Precision::F32), &batch);
    let z = model.trunk(&pass, &batch);
    let features = |k| model.features(&pass, k, z.clone()).inner().into_data();
    features(1).assert_eq(&features(2), true);
}

#[test]
fn heads_of_weight_0_take_no_part() {
    for kind in [HeadKind::ResBlock, HeadKind::Sequential] {
        let (model, params) = Model::new(&config(kind, 3, |_| ()), &Device::flex(), 1).unwrap();
        let batch = batch(3);
        let pass = model.pass(&params, Ops::Fused(Precision::F32), &batch);
        let mut sums = Gradients::new(&params);
        let results = gradients(&model, &pass, &batch, &[1.0, 0.5, 0.0], &mut sums);
        assert!(results[1].n_labels > 0 && results[2].n_labels == 0);
        for (id, spec) in params.iter() {
            assert_eq!(sums.get(id).is_some(), !spec.name.starts_with("heads.3"), "{}", spec.name);
        }
    }
}
