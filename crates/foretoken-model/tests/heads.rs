//! Prediction heads score what their formulas say, and cost nothing where nobody asks.

mod common;

use common::{RandomHeads, Setup, load_open, with_heads};
use foretoken_decode::target::{Heads, Target};
use foretoken_formats::gguf::{GgmlType, Gguf};
use foretoken_testkit::Rng;

fn floats(gguf: &Gguf, name: &str) -> Vec<f64> {
    let bytes = gguf.read(gguf.tensor(name).expect("it is there")).expect("it is sound");
    bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
}

/// `W x` with `W` `[n_out][n_in]`.
fn product(weights: &[f64], x: &[f64]) -> Vec<f64> {
    weights.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

#[test]
fn scores_equal_the_formulas() {
    for kind in ["linear", "resblock"] {
        let gguf = with_heads("llama", RandomHeads { kind, count: 5, ty: GgmlType::F32, own: |k| k > 3 });
        let mut model = load_open(&gguf, Setup::default());
        let (width, vocab) = (model.hyper().hidden, model.vocab_size());
        assert_eq!(model.n_heads(), 4);
        let mut random = Rng::new(1);
        let hidden: Vec<f32> = (0..2 * width).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect();
        let scores = model.score(4, &hidden).to_vec();
        for head in 0..4 {
            let name = |part: &str| format!("head.{}.{part}", head + 2);
            let map = floats(&gguf, &name("linear.weight"));
            let own = if head + 2 > 3 { name("output.weight") } else { "output.weight".into() };
            let unembedding = floats(&gguf, &own);
            for row in 0..2 {
                let y: Vec<f64> = hidden[row * width..(row + 1) * width].iter().map(|&x| f64::from(x)).collect();
                let mut features = product(&map, &y);
                if kind == "resblock" {
                    let bias = floats(&gguf, &name("linear.bias"));
                    for ((out, bias), y) in features.iter_mut().zip(bias).zip(&y) {
                        let u = *out + bias;
                        *out = y + u / (1.0 + libm::exp(-u));
                    }
                }
                let expected = product(&unembedding, &features);
                let actual = &scores[(head * 2 + row) * vocab..][..vocab];
                let worst = expected.iter().zip(actual).map(|(e, a)| (e - f64::from(*a)).abs()).fold(0.0, f64::max);
                assert!(worst < 1e-4, "{kind}, head {head}, row {row}: {worst}");
            }
        }
    }
}

#[test]
fn a_file_without_heads_has_none() {
    let gguf = Gguf::open(common::fixtures().join("tiny/llama.gguf")).expect("the fixture is sound");
    assert_eq!(load_open(&gguf, Setup::default()).n_heads(), 0);
}
