//! A row's logits do not depend on its company: bit for bit, on tiny and on real models.

mod common;

use std::path::{Path, PathBuf};

use common::{RandomHeads, Setup, feed, fixtures, load, load_open, with_heads};
use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, Heads, Pass, SequenceId, Target, Want, Work};
use foretoken_decode::tree::{Source, TokenTree};
use foretoken_formats::gguf::GgmlType;
use foretoken_kernels::Isa;
use foretoken_model::{KvType, Model, PagedCache, Weights};
use foretoken_testkit::Rng;

/// A model, and what it says after each token of a text when it runs one row at a time.
struct Bed {
    model: Model,
    tokens: Vec<TokenId>,
    expected: Vec<Vec<f32>>,
}

impl Bed {
    fn new(path: &Path, setup: Setup, n_tokens: usize, seed: u64) -> Self {
        let mut model = load(path, setup);
        let mut random = Rng::new(seed);
        let tokens: Vec<TokenId> =
            (0..n_tokens).map(|_| random.below(model.vocab_size().min(40_000)) as TokenId).collect();
        let mut cache = model.cache(n_tokens).expect("it is small");
        let sequence = cache.open();
        let expected = tokens.iter().flat_map(|&token| feed(&mut model, &mut cache, sequence, &[token])).collect();
        Self { model, tokens, expected }
    }

    fn cache(&self, random: &mut Rng) -> PagedCache {
        let mut cache = self.model.cache(self.tokens.len() * 4 + 2048).expect("it is small");
        cache.shuffle_free_pages(|n| random.below(n));
        cache
    }

    fn check(&self, at: usize, logits: &[f32], what: &str) {
        let same = self.expected[at].iter().zip(logits).all(|(e, l)| e.to_bits() == l.to_bits());
        assert!(same, "{what}: the row at position {at} differs");
    }

    /// A tree whose true path is the text from `start` on, `given` tokens of it given, among random branches.
    fn tree(&self, start: usize, random: &mut Rng) -> (TokenTree, Vec<usize>) {
        let left = self.tokens.len() - start;
        let most = if random.below(4) == 0 { 70 } else { 3 };
        let given = 1 + random.below(left.min(most));
        let drafted = random.below((left - given).min(8) + 1);
        let mut tree = TokenTree::new(&self.tokens[start..start + given]);
        let mut path: Vec<usize> = (0..given).collect();
        for i in 0..drafted {
            self.distract(&mut tree, random);
            let token = self.tokens[start + given + i];
            let parent = path[path.len() - 1];
            path.push(tree.child(parent, token).unwrap_or_else(|| tree.push(parent, token, Source(1), 0.5)));
        }
        self.distract(&mut tree, random);
        (tree, path)
    }

    fn distract(&self, tree: &mut TokenTree, random: &mut Rng) {
        for _ in 0..random.below(4) {
            let parent = tree.anchor() + random.below(tree.len() - tree.anchor());
            let token = self.tokens[random.below(self.tokens.len())];
            if tree.child(parent, token).is_none() {
                tree.push(parent, token, Source(2), 0.1);
            }
        }
    }

    /// Runs the text once in random pieces, in the company of other sequences, and checks every row of it.
    fn run(&mut self, seed: u64) {
        let mut random = Rng::new(seed);
        let mut cache = self.cache(&mut random);
        let mut sequences: Vec<SequenceId> = (0..1 + random.below(3)).map(|_| cache.open()).collect();
        while sequences.iter().any(|&s| cache.committed(s) < self.tokens.len()) {
            self.disturb(&mut cache, &mut sequences, &mut random);
            let behind: Vec<SequenceId> =
                sequences.iter().copied().filter(|&s| cache.committed(s) < self.tokens.len()).collect();
            let trees: Vec<_> = behind.iter().map(|&s| self.tree(cache.committed(s), &mut random)).collect();
            let wants: Vec<Vec<Want>> = trees.iter().map(|(tree, _)| vec![Want::Logits; tree.len()]).collect();
            let work: Vec<Work<'_>> = behind
                .iter()
                .zip(&trees)
                .zip(&wants)
                .map(|((&sequence, (tree, _)), wants)| Work { sequence, tree, wants })
                .collect();
            let pass = self.model.verify(&mut cache, &work).expect("there is room");
            let mut rows = Vec::new();
            for (index, (&sequence, (_, path))) in behind.iter().zip(&trees).enumerate() {
                for (step, &node) in path.iter().enumerate() {
                    rows.push((cache.committed(sequence) + step, pass.logits(index, node).to_vec()));
                }
            }
            for (at, logits) in rows {
                self.check(at, &logits, &format!("seed {seed}"));
            }
            for (&sequence, (_, path)) in behind.iter().zip(&trees) {
                let kept = random.below(path.len() + 1);
                cache.commit(sequence, &path[..kept]);
            }
        }
        sequences.iter().for_each(|&s| cache.close(s));
        assert_eq!(cache.free_pages(), cache.n_pages(), "seed {seed}: every page comes back");
    }

    /// Preempts, forks (a prefix hit), or replaces a sequence now and then.
    fn disturb(&self, cache: &mut PagedCache, sequences: &mut Vec<SequenceId>, random: &mut Rng) {
        let pick = random.below(sequences.len());
        match random.below(12) {
            0 => cache.truncate(sequences[pick], 0),
            1 => cache.truncate(sequences[pick], random.below(self.tokens.len())),
            2 if sequences.len() < 4 => {
                let shared = random.below(cache.committed(sequences[pick]) + 1);
                let fork = cache.open();
                cache.share(sequences[pick], shared, fork);
                sequences.push(fork);
            }
            3 if sequences.len() > 1 => cache.close(sequences.swap_remove(pick)),
            _ => {}
        }
    }
}

fn tiny(name: &str) -> PathBuf {
    fixtures().join(format!("tiny/{name}.gguf"))
}

#[test]
fn rows_do_not_depend_on_their_company_on_tiny_models() {
    for (name, kv_type) in [("llama", KvType::F16), ("qwen2-tied", KvType::F16), ("llama-llama3", KvType::Q8_0)] {
        for threads in 1..=4 {
            let setup = Setup { threads, kv_type, ..Setup::default() };
            let mut bed = Bed::new(&tiny(name), setup, 48, 7);
            (0..30).for_each(|seed| bed.run(seed * 4 + threads as u64));
        }
    }
}

#[test]
fn every_thread_count_and_instruction_set_gives_the_same_bits() {
    let mut first: Option<Vec<Vec<f32>>> = None;
    for isa in Isa::available() {
        for threads in 1..=4 {
            let bed = Bed::new(&tiny("qwen2-tied"), Setup { isa, threads, ..Setup::default() }, 64, 3);
            let expected = first.get_or_insert_with(|| bed.expected.clone());
            let same = expected.iter().flatten().zip(bed.expected.iter().flatten());
            assert!(same.into_iter().all(|(a, b)| a.to_bits() == b.to_bits()), "{isa}, {threads} threads");
        }
    }
}

#[test]
fn the_scores_of_heads_do_not_depend_on_company_threads_or_instruction_set() {
    for (kind, ty) in [("linear", GgmlType::F32), ("resblock", GgmlType::Q8_0)] {
        let heads = RandomHeads { kind, count: 8, ty, own: |k| k % 3 == 0 };
        let gguf = with_heads("llama", heads);
        let mut first: Option<Vec<u32>> = None;
        for isa in Isa::available() {
            for threads in 1..=4 {
                let mut model = load_open(&gguf, Setup { isa, threads, ..Setup::default() });
                let width = model.hyper().hidden;
                let (n, vocab) = (model.n_heads(), model.vocab_size());
                let mut random = Rng::new(2);
                let rows = 19;
                let hidden: Vec<f32> = (0..rows * width).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect();
                // These heads read nothing but the hidden states.
                let mut cache = model.cache(32).expect("it is small");
                let sequences: Vec<SequenceId> = (0..rows).map(|_| cache.open()).collect();
                let expected = model.score(&mut cache, n, &sequences, &hidden).to_vec();
                let bits: Vec<u32> = expected.iter().map(|score| score.to_bits()).collect();
                assert!(*first.get_or_insert_with(|| bits.clone()) == bits, "{kind}, {isa}, {threads} threads");
                for (start, len, n) in [(0, 1, n), (7, 1, 1), (3, 5, 4), (0, 12, n), (18, 1, 2)] {
                    let (asked, states) = (start..start + len, start * width..(start + len) * width);
                    let scores = model.score(&mut cache, n, &sequences[asked], &hidden[states]);
                    for (head, row) in (0..n).flat_map(|head| (0..len).map(move |row| (head, row))) {
                        let alone = &scores[(head * len + row) * vocab..][..vocab];
                        let whole = &expected[(head * rows + start + row) * vocab..][..vocab];
                        let same = alone.iter().zip(whole).all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "{kind}, {isa}, {threads} threads: head {head} of row {}", start + row);
                    }
                }
            }
        }
    }
}

/// `runs` random runs over `n_tokens` of a real model's vocabulary, at each thread count.
fn real(name: &str, weights: Weights, kv_type: KvType, n_tokens: usize, runs: u64) {
    let Some(path) = foretoken_testkit::models::find(name) else { return };
    let mut first: Option<Vec<Vec<f32>>> = None;
    for threads in 1..=4 {
        let mut bed = Bed::new(&path, Setup { threads, weights, kv_type, ..Setup::default() }, n_tokens, 11);
        let expected = first.get_or_insert_with(|| bed.expected.clone());
        assert!(*expected == bed.expected, "{name}: {threads} threads give other bits");
        (0..runs).for_each(|seed| bed.run(seed * 4 + threads as u64));
    }
}

#[test]
fn rows_do_not_depend_on_their_company_on_smollm2() {
    real("smollm2-135m", Weights::AsStored, KvType::F16, 100, 3);
    real("smollm2-135m", Weights::AsStored, KvType::Q8_0, 48, 1);
    real("smollm2-135m", Weights::F32, KvType::F16, 48, 1);
}

#[test]
fn rows_do_not_depend_on_their_company_on_qwen_coder() {
    real("qwen-coder-0.5b", Weights::AsStored, KvType::F16, 70, 1);
}
