//! Prediction heads score what their formulas say, and cost nothing where nobody asks.

mod common;

use common::{RandomHeads, Setup, copy, feed, load_open, with_heads};
use foretoken_decode::target::{Cache, Heads, Pass, SequenceId, Target, Want, Work};
use foretoken_decode::tree::{Source, TokenTree};
use foretoken_formats::gguf::{GgmlType, Gguf};
use foretoken_model::{KvType, Model, PagedCache};
use foretoken_testkit::{Rng, tiny};

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

/// What sequential heads say about texts, given the guesses to go on with: `[text][head]`.
fn followed(
    model: &mut Model,
    cache: &mut PagedCache,
    texts: &[(SequenceId, Vec<u32>)],
    guesses: &[Vec<u32>],
    n: usize,
) -> Vec<Vec<Vec<f32>>> {
    let texts: Vec<_> = texts.iter().map(|(sequence, text)| (*sequence, &text[..])).collect();
    let mut said = vec![Vec::new(); texts.len()];
    model.follow(cache, n, &texts, &mut |text, scores| {
        said[text].push(scores.to_vec());
        guesses[text].get(said[text].len() - 1).copied()
    });
    said
}

#[test]
fn modules_read_a_text_in_any_pieces_and_say_the_same() {
    for (kind, kv_type, threads) in
        [("sequential", KvType::F16, 1), ("recursive", KvType::Q8_0, 3), ("sequential", KvType::Q8_0, 2)]
    {
        let gguf = Gguf::from_bytes(tiny::byte_model(kind, 5, 3)).expect("the container is sound");
        let mut model = load_open(&gguf, Setup { threads, kv_type, ..Setup::default() });
        assert!(model.are_sequential() && model.n_heads() == 4);
        let mut cache = model.cache(1 << 14).expect("it is small");
        let mut texts: Vec<(SequenceId, Vec<u32>)> = vec![(cache.open(), Vec::new())];
        let mut random = Rng::new(9);
        for step in 0..50 {
            let pick = random.below(texts.len());
            // Now and then a copy of a part goes on, or the text falls back.
            let cut = random.below(texts[pick].1.len() + 1);
            if step % 5 == 4 {
                let fork = cache.open();
                cache.share(texts[pick].0, cut, fork);
                let text = texts[pick].1[..cut].to_vec();
                texts.push((fork, text));
            } else if step % 7 == 6 {
                cache.truncate(texts[pick].0, cut);
                texts[pick].1.truncate(cut);
            }
            let (sequence, text) = &mut texts[pick];
            let tokens: Vec<u32> = (0..1 + random.below(40)).map(|_| random.below(256) as u32).collect();
            let mut tree = TokenTree::new(&tokens);
            let anchor = tree.anchor();
            let first = tree.push(anchor, random.below(90) as u32, Source(1), 0.5);
            let second = tree.push(anchor, 91, Source(1), 0.5);
            let kept = tree.path(*random.pick(&[anchor, first, second]));
            let wants = vec![Want::Nothing; tree.len()];
            model
                .verify(&mut cache, &[Work { sequence: *sequence, tree: &tree, wants: &wants }])
                .expect("there is room");
            cache.commit(*sequence, &kept);
            text.extend(kept.iter().map(|&node| tree.nodes()[node].token));
            // The deeper heads are asked more seldom, and not about every text; some texts end early.
            let n = 1 + random.below(4);
            let asked = texts.iter().filter(|(_, text)| !text.is_empty() && random.chance(0.7));
            let asked: Vec<_> = asked.map(|(id, text)| (*id, [&text[..], &[7]].concat())).collect();
            let guesses: Vec<Vec<u32>> =
                asked.iter().map(|_| (0..random.below(5)).map(|_| random.below(256) as u32).collect()).collect();
            let said = followed(&mut model, &mut cache, &asked, &guesses, n);
            for (((_, text), guesses), said) in asked.iter().zip(&guesses).zip(&said) {
                assert_eq!(said.len(), n.min(guesses.len() + 1));
                let fresh = cache.open();
                feed(&mut model, &mut cache, fresh, &text[..text.len() - 1]);
                let expected =
                    followed(&mut model, &mut cache, &[(fresh, text.clone())], std::slice::from_ref(guesses), n);
                let same = expected[0].iter().flatten().zip(said.iter().flatten());
                assert!(same.into_iter().all(|(a, b)| a.to_bits() == b.to_bits()), "{kind}, step {step}, {n} heads");
                cache.close(fresh);
            }
        }
        texts.iter().for_each(|(sequence, _)| cache.close(*sequence));
        assert_eq!(cache.free_pages(), cache.n_pages(), "nothing of a draft stays");
    }
}

#[test]
fn a_text_without_room_for_guesses_is_left_out() {
    let gguf = Gguf::from_bytes(tiny::byte_model("sequential", 3, 3)).expect("the container is sound");
    let mut model = load_open(&gguf, Setup::default());
    let mut cache = model.cache(32).expect("it is small");
    let sequence = cache.open();
    let mut text: Vec<u32> = (1..=32).collect();
    feed(&mut model, &mut cache, sequence, &text);
    text.push(1);
    assert_eq!(followed(&mut model, &mut cache, &[(sequence, text)], &[vec![1, 2]], 2), [Vec::<Vec<f32>>::new()]);
    assert_eq!(cache.committed(sequence), 32);
}

#[test]
fn a_file_without_heads_has_none() {
    let gguf = Gguf::open(common::fixtures().join("tiny/llama.gguf")).expect("the fixture is sound");
    assert_eq!(load_open(&gguf, Setup::default()).n_heads(), 0);
}
