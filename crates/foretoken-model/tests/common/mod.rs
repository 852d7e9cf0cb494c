//! What the tests of this crate share: loading, plain passes, and a seeded generator.

use std::path::{Path, PathBuf};

use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, Pass, SequenceId, Target, Want, Work};
use foretoken_decode::tree::TokenTree;
use foretoken_formats::gguf::Gguf;
use foretoken_kernels::Isa;
use foretoken_model::{KvType, LoadOptions, Model, PagedCache, Threads, Weights};

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
    let gguf = Gguf::open(path).expect("the file is sound");
    let Setup { threads, isa, weights, kv_type } = setup;
    let threads = Threads::new(threads);
    let options = LoadOptions { weights, kv_type, threads, isa, context: 0, progress: &|_, _| {} };
    Model::load(&gguf, &options).expect("the model loads")
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
