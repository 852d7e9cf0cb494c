//! Prediction heads score what their formulas say, and cost nothing where nobody asks.

mod common;

use common::{RandomHeads, Setup, copy, load_open, with_heads};
use foretoken_decode::target::{Cache, Heads, Pass, Target, Want, Work};
use foretoken_decode::tree::{Source, TokenTree};
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
        let mut cache = model.cache(32).expect("it is small");
        let sequences = [cache.open(), cache.open()];
        let scores = model.score(&mut cache, 4, &sequences, &hidden).to_vec();
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

/// The tiny llama with heads that are copies of its last layer: whatever they look like, they say what the model says.
fn with_copies(n_heads: u32) -> Gguf {
    let original = Gguf::open(common::fixtures().join("tiny/llama.gguf")).expect("the fixture is sound");
    let mut writer = copy(&original).set("foretoken.heads.kind", "transformer").set("foretoken.heads.count", n_heads);
    for k in 2..=n_heads {
        for tensor in original.tensors().iter().filter(|tensor| tensor.name.starts_with("blk.1.")) {
            let name = tensor.name.replace("blk.1.", &format!("head.{k}."));
            let bytes = original.read(tensor).expect("the fixture is sound");
            writer = writer.tensor(name, &tensor.shape, tensor.ty, bytes);
        }
    }
    Gguf::from_bytes(writer.to_bytes()).expect("the container is sound")
}

#[test]
fn layers_read_keys_of_their_own_that_are_kept_with_the_text() {
    let gguf = with_copies(3);
    for threads in [1, 3] {
        let mut model = load_open(&gguf, Setup { threads, ..Setup::default() });
        assert_eq!((model.n_heads(), model.hyper().layers), (2, 2));
        let mut cache = model.cache(4096).expect("it is small");
        let mut random = Rng::new(3);
        let mut ends = Vec::new();
        let mut sequence = cache.open();
        for step in 0..60 {
            if cache.committed(sequence) > 50 {
                sequence = cache.open();
            }
            // A text in pieces, some of them branches that are taken or rejected; now and then a copy goes on.
            if step % 7 == 6 && cache.committed(sequence) > 0 {
                let (from, fork) = (sequence, cache.open());
                cache.share(from, cache.committed(from) - 1, fork);
                sequence = fork;
            }
            let tokens: Vec<u32> = (0..1 + random.below(5)).map(|_| random.below(90) as u32).collect();
            let mut tree = TokenTree::new(&tokens);
            let anchor = tree.anchor();
            let first = tree.push(anchor, random.below(90) as u32, Source(1), 0.5);
            let second = tree.push(anchor, 91, Source(1), 0.5);
            tree.push(first, 92, Source(1), 0.5);
            let kept = *random.pick(&[anchor, first, second]);
            let wants = vec![Want::Logits; tree.len()];
            let pass =
                model.verify(&mut cache, &[Work { sequence, tree: &tree, wants: &wants }]).expect("there is room");
            let (logits, hidden) = (pass.logits(0, kept).to_vec(), pass.hidden(0, kept).to_vec());
            cache.commit(sequence, &tree.path(kept));
            let scores = model.score(&mut cache, 2, &[sequence], &hidden);
            for (head, scores) in scores.chunks_exact(logits.len()).enumerate() {
                let same = scores.iter().zip(&logits).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "step {step}, head {head}, {threads} threads: the last layer and its copy disagree");
            }
            ends.push((sequence, hidden, logits));
        }
        // Many at once, each at the end of its own text.
        ends.reverse();
        let mut seen = std::collections::HashSet::new();
        ends.retain(|(sequence, ..)| seen.insert(*sequence));
        let sequences: Vec<_> = ends.iter().map(|(sequence, ..)| *sequence).collect();
        let hidden: Vec<f32> = ends.iter().flat_map(|(_, hidden, _)| hidden.iter().copied()).collect();
        let scores = model.score(&mut cache, 2, &sequences, &hidden);
        let expected = ends.iter().chain(&ends).flat_map(|(.., logits)| logits);
        assert!(scores.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()), "in company");
    }
}

#[test]
fn a_file_without_heads_has_none() {
    let gguf = Gguf::open(common::fixtures().join("tiny/llama.gguf")).expect("the fixture is sound");
    assert_eq!(load_open(&gguf, Setup::default()).n_heads(), 0);
}
