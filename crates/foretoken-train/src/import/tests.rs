//! Meta's layout, against logits that PyTorch computes from the paper's equations (`tests/fixtures/make_meta.py`).

use std::path::{Path, PathBuf};

use foretoken_decode::target::{Cache, Heads as _, Pass as _, Target, Want, Work};
use foretoken_decode::tree::TokenTree;
use foretoken_formats::gguf::Gguf;
use safetensors::SafeTensors;

use super::{MetaOptions, from_meta};
use crate::export::Storage;
use crate::export::tests::loaded;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/meta")
}

const OPTIONS: MetaOptions<'static> = MetaOptions { name: "tiny", storage: Storage::F32, context: 64, tokenizer: None };

#[test]
fn logits_of_all_heads_are_those_of_the_reference() {
    let gguf = Gguf::from_bytes(from_meta(&fixture(), OPTIONS).unwrap().to_bytes()).unwrap();
    let mut model = loaded(&gguf);
    assert_eq!(model.n_heads(), 2);
    let bytes = std::fs::read(fixture().join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let tokens = expected.tensor("tokens").unwrap();
    let tokens: Vec<u32> = tokens.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as u32).collect();
    // [heads][tokens][vocabulary]
    let view = expected.tensor("logits").unwrap();
    let logits: Vec<f32> = view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let of_head: Vec<_> = logits.chunks(tokens.len() * 256).collect();
    assert_eq!(of_head.len(), 3);

    let mut cache = model.cache(64).unwrap();
    let sequence = cache.open();
    let mut worst = [0.0f32; 3];
    for (i, token) in tokens.iter().enumerate() {
        let tree = TokenTree::new(&[*token]);
        let pass = model.verify(&mut cache, &[Work { sequence, tree: &tree, wants: &[Want::Logits] }]).unwrap();
        let (first, hidden) = (pass.logits(0, 0).to_vec(), pass.hidden(0, 0).to_vec());
        cache.commit(sequence, &[0]);
        let others = model.score(&mut cache, 2, &[sequence], &hidden);
        for (head, actual) in std::iter::once(&first[..]).chain(others.chunks(256)).enumerate() {
            let expected = &of_head[head][i * 256..(i + 1) * 256];
            let apart = expected.iter().zip(actual).map(|(e, a)| (e - a).abs()).fold(0.0, f32::max);
            worst[head] = worst[head].max(apart);
        }
    }
    let scale = logits.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    assert!(worst.iter().all(|worst| *worst < 0.005 * scale), "{worst:?} apart of {scale}");
}

#[test]
fn what_is_missing_or_unknown_is_named() {
    let folder = crate::scratch::Scratch::new();
    let error = from_meta(folder.path(), OPTIONS).err().unwrap().to_string();
    assert!(error.contains("params.json"), "{error}");
    std::fs::copy(fixture().join("params.json"), folder.path().join("params.json")).unwrap();
    let bytes = std::fs::read(fixture().join("consolidated.safetensors")).unwrap();
    let dict = SafeTensors::deserialize(&bytes).unwrap();
    let write = |keep: &dyn Fn(&str) -> Option<String>| {
        let views = dict.tensors().into_iter().filter_map(|(name, view)| keep(&name).map(|name| (name, view)));
        std::fs::write(folder.path().join("consolidated.safetensors"), safetensors::serialize(views, None).unwrap())
            .unwrap();
        from_meta(folder.path(), OPTIONS).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(write(&|name| Some(name.into())), "");
    let error = write(&|name| (name != "extra_heads.1.attention.wk.weight").then(|| name.into()));
    assert!(error.contains("extra_heads.1.attention.wk.weight is missing"), "{error}");
    let error = write(&|name| Some(name.replace("extra_heads.1", "extra_heads.2")));
    assert!(error.contains("extra_heads.2"), "{error}");
}
