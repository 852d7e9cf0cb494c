//! Figures of a model against what the step finds, and acceptance by hand.

use burn::tensor::Device;

use super::{Acceptance, Guesses, guesses, joint, measure};
use crate::batch::Batch;
use crate::config::ModelConfig;
use crate::model::Model;
use crate::ops::{Ops, Precision};
use crate::rng::Rng;

#[test]
fn figures_are_those_of_the_loss() {
    let config: ModelConfig = toml::from_str(
        "vocabulary = 23\nwidth = 32\nlayers = 2\nattention_heads = 2\nkv_heads = 1\nfeed_forward = 40\ncontext = 24\n\
         heads = { n = 3 }",
    )
    .unwrap();
    let (model, params) = Model::new(&config, &Device::flex(), 1).unwrap();
    let (params, ops) = (params.frozen(), Ops::Fused(Precision::F32));
    let mut rng = Rng::new(1, "tokens");
    let window = |rng: &mut Rng| ((0..27).map(|_| rng.below(23) as u32).collect(), (0..27).map(|i| i == 9).collect());
    let batch = Batch::new(24, 3, (0..4).map(|_| window(&mut rng)).collect());
    let report = measure(&model, &params, ops, &batch, 3);
    let whole = crate::step::evaluate(&model, &model.pass(&params, ops, &batch), &batch);
    for (head, expected) in report.heads.iter().zip(&whole) {
        assert_eq!(head.n as usize, expected.n_labels);
        assert!((head.bits - f64::from(expected.loss) * std::f64::consts::LOG2_E).abs() < 1e-4);
        assert!((head.top_1 - f64::from(expected.top_1)).abs() < 1e-6);
    }
    let by_context = report.by_context.iter().copied().reduce(super::Figures::merge).unwrap();
    assert!(by_context.n == report.heads[0].n && (by_context.bits - report.heads[0].bits).abs() < 1e-9);
    assert_eq!(report.by_context[0].n, 8);
}

#[test]
fn of_one_first_token_the_second_alone_is_the_one_after_it() {
    let text = |kind| {
        format!(
            "vocabulary = 23\nwidth = 32\nlayers = 2\nattention_heads = 2\nkv_heads = 1\nfeed_forward = 40\n\
             context = 12\nheads = {{ n = 2, kind = \"{kind}\" }}"
        )
    };
    for kind in ["resblock", "sequential"] {
        let config: ModelConfig = toml::from_str(&text(kind)).unwrap();
        let (model, params) = Model::new(&config, &Device::flex(), 1).unwrap();
        let (params, ops) = (params.frozen(), Ops::Fused(Precision::F32));
        let mut rng = Rng::new(2, "tokens");
        let windows = (0..30).map(|_| ((0..14).map(|_| rng.below(23) as u32).collect(), vec![false; 14])).collect();
        let batch = Batch::new(12, 2, windows);
        let found = joint(&model, &params, ops, &batch, 1);
        assert!(found.n == 30 && found.apart == 0 && found.drafted_apart == 0, "{found:?}");
        // The pair that decoding would see: head 1's token put in place, then both heads asked.
        let windows = guesses(&model, &params, ops, &batch);
        let rejected = windows.iter().enumerate().filter(|(i, window)| {
            let first = window.heads[0][10] as u32;
            let after = &guesses(&model, &params, ops, &batch.branches(*i, 11, &[first]))[0];
            after.tokens[11] == first as i32 && after.heads[1][10] != after.heads[0][11]
        });
        assert_eq!(found.rejected, rejected.count() as u64);
        let all = joint(&model, &params, ops, &batch, 23);
        assert!((all.covered - 1.0).abs() < 1e-9 && all.rejected == found.rejected && all.apart > 0, "{all:?}");
    }
}

#[test]
fn drafts_are_compared_until_one_differs_or_leaves_the_text() {
    // One window of the text 1 2 3 4 5 6, three heads; position i sees the text's token i.
    let batch = Batch::new(4, 3, vec![((1..=7).collect(), vec![false; 7])]);
    let guesses = |likeliest: [i32; 4]| Guesses { likeliest: likeliest.to_vec(), bits: vec![0.0; 4] };
    // Head 1 is right at positions 0, 1 and 3, and picks 9 after the text 1 2 3.
    let heads = [guesses([2, 3, 9, 5]), guesses([3, 9, 5, 0]), guesses([9, 6, 0, 0])];
    let mut found = Acceptance::new(3);
    found.add(&batch, &heads);
    // Position 0: head 2 drafts 3, as head 1 at 1; head 3 drafts 9, as head 1 at 2. Position 1: head 2 drafts 9, as head 1
    // at 2, and the text has 4, so head 3 is not asked. Position 3: the window ends.
    assert_eq!(found, Acceptance { n_positions: 3, by_head: vec![[2, 2], [1, 1]], shifted: [3, 0] });
    assert_eq!(found.tokens_per_pass(), 2.0);
}
