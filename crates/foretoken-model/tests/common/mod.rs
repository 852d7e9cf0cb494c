//! What the tests of this crate share: loading, plain passes, and tiny models with heads.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};

use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, Pass, SequenceId, Target, Want, Work};
use foretoken_decode::tree::TokenTree;
use foretoken_formats::gguf::{GgmlType, Gguf, GgufWriter};
use foretoken_kernels::Isa;
use foretoken_model::{KvType, LoadOptions, Model, PagedCache, Threads, Weights};
use foretoken_testkit::Rng;

/// How a test loads a model.
#[derive(Clone, Copy)]
pub struct Setup {
    pub threads: usize,
    pub isa: Isa,
    pub weights: Weights,
    pub kv_type: KvType,
}

impl Default for Setup {
    fn default() -> Self {
        Self { threads: 1, isa: Isa::best(), weights: Weights::AsStored, kv_type: KvType::F16 }
    }
}

/// The folder of committed fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Loads a GGUF file.
pub fn load(path: &Path, setup: Setup) -> Model {
    load_open(&Gguf::open(path).expect("the file is sound"), setup)
}

/// Loads an open file.
pub fn load_open(gguf: &Gguf, setup: Setup) -> Model {
    let Setup { threads, isa, weights, kv_type } = setup;
    let threads = Threads::new(threads);
    let options = LoadOptions { weights, kv_type, threads, isa, context: 0, progress: &|_, _| {} };
    Model::load(gguf, &options).expect("the model loads")
}

/// Runs `tokens` as given rows of one pass, commits them, and returns the logits of every row.
pub fn feed(model: &mut Model, cache: &mut PagedCache, sequence: SequenceId, tokens: &[TokenId]) -> Vec<Vec<f32>> {
    let tree = TokenTree::new(tokens);
    let wants = vec![Want::Logits; tokens.len()];
    let work = [Work { sequence, tree: &tree, wants: &wants }];
    let pass = model.verify(cache, &work).expect("there is room");
    let logits = (0..tokens.len()).map(|node| pass.logits(0, node).to_vec()).collect();
    cache.commit(sequence, &(0..tokens.len()).collect::<Vec<_>>());
    logits
}

/// A copy of an open file, ready for more to be added.
pub fn copy(original: &Gguf) -> GgufWriter {
    let mut writer = GgufWriter::new();
    for (key, value) in original.metadata().iter() {
        writer = writer.set(key, value.clone());
    }
    for tensor in original.tensors() {
        let bytes = original.read(tensor).expect("the fixture is sound");
        writer = writer.tensor(&tensor.name, &tensor.shape, tensor.ty, bytes);
    }
    writer
}

/// Prediction heads to be added to a tiny model.
#[derive(Clone, Copy)]
pub struct RandomHeads {
    pub kind: &'static str,
    /// Head 1 included.
    pub count: u32,
    pub ty: GgmlType,
    /// Which heads have unembeddings of their own.
    pub own: fn(u32) -> bool,
}

/// The tiny model of this name with random heads.
pub fn with_heads(name: &str, heads: RandomHeads) -> Gguf {
    let original = Gguf::open(fixtures().join(format!("tiny/{name}.gguf"))).expect("the fixture is sound");
    let [width, vocab] = original.tensor("token_embd.weight").expect("it has one").shape[..] else { unreachable!() };
    let mut random = Rng::new(5);
    let mut values = |ty: GgmlType, n: usize| -> Vec<u8> {
        let mut small = || random.below(2001) as f32 / 1000.0 - 1.0;
        match ty {
            GgmlType::F32 => (0..n).flat_map(|_| (small() / 4.0).to_le_bytes()).collect(),
            // An f16 scale of 2^-9 and 32 codes.
            GgmlType::Q8_0 => (0..n / 32)
                .flat_map(|_| {
                    [0x00, 0x18].into_iter().chain((0..32).map(|_| (small() * 127.0) as i8 as u8)).collect::<Vec<_>>()
                })
                .collect(),
            other => panic!("no random {other}"),
        }
    };
    let mut writer = copy(&original).set("foretoken.heads.kind", heads.kind).set("foretoken.heads.count", heads.count);
    for k in 2..=heads.count {
        writer = writer.tensor(
            format!("head.{k}.linear.weight"),
            &[width, width],
            heads.ty,
            values(heads.ty, width * width),
        );
        if heads.kind == "resblock" {
            writer =
                writer.tensor(format!("head.{k}.linear.bias"), &[width], GgmlType::F32, values(GgmlType::F32, width));
        }
        if (heads.own)(k) {
            let bytes = values(heads.ty, width * vocab);
            writer = writer.tensor(format!("head.{k}.output.weight"), &[width, vocab], heads.ty, bytes);
        }
    }
    Gguf::from_bytes(writer.to_bytes()).expect("the container is sound")
}
