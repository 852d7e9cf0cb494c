//! However many heads there are, the logits of one are alive at a time.
//!
//! A test binary of its own with one test, because the allocator counts for the whole process.

use burn::tensor::Device;
use foretoken_kernels::train::LargeBlocks;
use foretoken_train::batch::Batch;
use foretoken_train::config::{HeadKind, HeadStart, HeadsConfig, ModelConfig, Unembedding};
use foretoken_train::model::Model;
use foretoken_train::ops::{Ops, Precision};
use foretoken_train::params::Gradients;
use foretoken_train::rng::Rng;
use foretoken_train::step::{gradients, gradients_at_once};

#[global_allocator]
static BLOCKS: LargeBlocks = LargeBlocks::new();

const VOCABULARY: usize = 49_152;
const WINDOWS: usize = 2;
const CONTEXT: usize = 48;
/// Bytes of one head's logits, three times those of the embedding; nothing else is as large.
const LOGITS: usize = WINDOWS * CONTEXT * VOCABULARY * 4;

/// The most bytes of arrays as large as a head's logits during one step.
fn peak(kind: HeadKind, n: usize, at_once: bool) -> usize {
    let (unembedding, start) = (Unembedding::Shared, HeadStart::AsFirst);
    let heads = HeadsConfig { n, kind, unembedding, from_trunk: false, recursive: false, start };
    let config = ModelConfig {
        vocabulary: VOCABULARY,
        width: 32,
        layers: 1,
        attention_heads: 2,
        kv_heads: 2,
        feed_forward: 64,
        context: CONTEXT,
        rope_theta: 1e4,
        norm_eps: 1e-5,
        tied: true,
        heads,
    };
    let (model, params) = Model::new(&config, &Device::flex(), 1).unwrap();
    let mut rng = Rng::new(1, "memory");
    let mut window = || {
        let tokens = (0..CONTEXT + n).map(|_| rng.below(VOCABULARY) as u32).collect();
        (tokens, vec![false; CONTEXT + n])
    };
    let batch = Batch::new(CONTEXT, n, (0..WINDOWS).map(|_| window()).collect());
    let pass = model.pass(&params, Ops::Fused(Precision::F32), &batch);
    let mut sums = Gradients::new(&params);
    BLOCKS.watch(LOGITS);
    match at_once {
        true => gradients_at_once(&model, &pass, &batch, &vec![1.0; n], &mut sums),
        false => gradients(&model, &pass, &batch, &vec![1.0; n], &mut sums),
    };
    BLOCKS.peak()
}

#[test]
fn the_logits_of_one_head_are_alive_at_a_time() {
    for kind in [HeadKind::ResBlock, HeadKind::Sequential] {
        let one = peak(kind, 1, false);
        assert!((LOGITS..3 * LOGITS).contains(&one), "{one} bytes, the logits are {LOGITS}");
        for n in [2, 4, 8] {
            assert_eq!(peak(kind, n, false), one, "{kind:?}, {n} heads");
        }
    }
    assert!(peak(HeadKind::ResBlock, 4, true) >= 4 * LOGITS, "all at once they are all alive");
}
