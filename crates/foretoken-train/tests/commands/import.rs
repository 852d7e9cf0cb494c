//! `import`, from Meta's files to the logits of every head in our engine.

use foretoken_decode::target::{Cache, Heads as _, Pass as _, Target, Want, Work as Rows};
use foretoken_decode::tree::TokenTree;
use foretoken_formats::gguf::Gguf;
use foretoken_kernels::Isa;
use foretoken_model::{KvType, LoadOptions, Model, Threads, Weights};
use safetensors::tensor::SafeTensors;

use super::{Work, fixture};

/// Tokens and the logits that PyTorch computed, `[heads][tokens][vocabulary]`.
fn expected() -> (Vec<u32>, Vec<f32>) {
    let bytes = std::fs::read(fixture().join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let [tokens, logits] = ["tokens", "logits"].map(|name| expected.tensor(name).unwrap());
    let tokens = tokens.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as u32).collect();
    (tokens, logits.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// The logits of our engine in the same order, of a file.
fn logits(gguf: &Gguf, tokens: &[u32]) -> Vec<f32> {
    let options = LoadOptions {
        weights: Weights::AsStored,
        kv_type: KvType::F16,
        threads: Threads::new(1),
        isa: Isa::best(),
        context: 0,
        progress: &|_, _| {},
    };
    let mut model = Model::load(gguf, &options).unwrap();
    assert_eq!(model.n_heads(), 2, "heads behind the first");
    let mut cache = model.cache(64).unwrap();
    let sequence = cache.open();
    let mut by_head = vec![Vec::new(); 3];
    for token in tokens {
        let tree = TokenTree::new(&[*token]);
        let pass = model.verify(&mut cache, &[Rows { sequence, tree: &tree, wants: &[Want::Logits] }]).unwrap();
        let hidden = pass.hidden(0, 0).to_vec();
        by_head[0].extend_from_slice(pass.logits(0, 0));
        cache.commit(sequence, &[0]);
        let others = model.score(&mut cache, 2, &[sequence], &hidden);
        for (head, logits) in by_head[1..].iter_mut().zip(others.chunks(256)) {
            head.extend_from_slice(logits);
        }
    }
    by_head.concat()
}

#[test]
fn the_file_that_import_writes_gives_the_references_logits() {
    let (tokens, expected) = expected();
    let scale = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let work = Work::empty();
    let folder = fixture();
    let folder = folder.to_str().unwrap();
    // Keys and values in half precision; weights that are bfloat16 fit into either float, and lose some in 8 bits.
    for (ty, tolerance) in [("f32", 0.005), ("f16", 0.005), ("q8-0", 0.05)] {
        let output = work.run(&["import", folder, "model.gguf", "--type", ty, "--context", "64", "--name", "tiny"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "model.gguf: 3 heads, 3 layers in the trunk and head 1\n");
        let gguf = Gguf::open(work.path("model.gguf")).unwrap();
        let found = logits(&gguf, &tokens);
        assert_eq!(found.len(), expected.len());
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < tolerance * scale, "{ty}: {apart} apart of {scale}");
    }
}

#[test]
fn help_says_how_the_files_are_made_and_faults_are_named() {
    let work = Work::empty();
    let help = work.run(&["import", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for word in ["facebook/multi-token-prediction", "params.json", "torch.load", "save_file", "--tokenizer"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let folder = fixture();
    let folder = folder.to_str().unwrap();
    work.refused(&["import", ".", "a.gguf"], &["params.json", "No such file"]);
    work.refused(&["import", folder, "no/where.gguf"], &["no/where.gguf"]);
    work.refused(&["import", folder, "a.gguf", "--context", "0"], &["--context = 0"]);
    work.refused(&["import", folder, "a.gguf", "--tokenizer", "none.gguf"], &["none.gguf"]);
    std::fs::copy(fixture().join("params.json"), work.path("params.json")).unwrap();
    work.refused(&["import", ".", "a.gguf"], &["consolidated.safetensors", "torch.load"]);
    std::fs::write(work.path("params.json"), "{}").unwrap();
    work.refused(&["import", ".", "a.gguf"], &["params.json", "n_heads"]);
    assert!(!work.path("a.gguf").exists());
}

#[test]
fn a_run_goes_on_elsewhere_from_what_was_exported() {
    let work = Work::trained();
    let bits = |settings: &str| {
        let output = work.run(&["evaluate", settings, "--windows", "8", "--json", "found.json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&work.bytes("found.json").unwrap()).unwrap();
        found["heads"].as_array().unwrap().iter().map(|head| head["bits"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let before = bits("run.toml");
    assert!(work.run(&["export", "run.toml", "stage.gguf", "--type", "f16"]).status.success());
    // One step too small to move anything.
    let file = work.change("optimiser.learning_rate", Some("1e-30"));
    let settings = std::fs::read_to_string(work.path(file)).unwrap();
    let elsewhere = settings.replace("folder = \"run\"", "folder = \"elsewhere\"\nstart = \"stage.gguf\"");
    std::fs::write(work.path("elsewhere.toml"), elsewhere).unwrap();
    let output = work.run(&["train", "elsewhere.toml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after = bits("elsewhere.toml");
    assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 0.01), "{before:?} {after:?}");
}
