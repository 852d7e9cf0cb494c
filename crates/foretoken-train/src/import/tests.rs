//! What is said of files in Meta's layout that are broken. (The logits of sound ones: `tests/commands/import.rs`.)

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{MetaOptions, from_meta};
use crate::export::Storage;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/meta")
}

const OPTIONS: MetaOptions<'static> = MetaOptions { name: "tiny", storage: Storage::F32, context: 64, tokenizer: None };

/// The fixture with some of its tensors changed, and what is said of it.
fn refusal(params: &str, change: impl Fn(&mut BTreeMap<String, Tensor>)) -> String {
    let folder = crate::scratch::Scratch::new();
    std::fs::write(folder.path().join("params.json"), params).unwrap();
    let bytes = std::fs::read(fixture().join("consolidated.safetensors")).unwrap();
    let dict = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = dict
        .tensors()
        .into_iter()
        .map(|(name, view)| (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec())))
        .collect();
    change(&mut tensors);
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("consolidated.safetensors"), bytes).unwrap();
    from_meta(folder.path(), OPTIONS).err().map(|error| error.to_string()).unwrap_or_default()
}

type Tensor = (Dtype, Vec<usize>, Vec<u8>);

fn params() -> String {
    std::fs::read_to_string(fixture().join("params.json")).unwrap()
}

#[test]
fn what_is_missing_or_unknown_is_named() {
    let folder = crate::scratch::Scratch::new();
    let error = from_meta(folder.path(), OPTIONS).err().unwrap().to_string();
    assert!(error.contains("params.json"), "{error}");
    assert_eq!(refusal(&params(), |_| {}), "");
    for missing in ["extra_heads.1.attention.wk.weight", "layers.1.attention_norm.weight", "tok_embeddings.weight"] {
        let error = refusal(&params(), |tensors| drop(tensors.remove(missing)));
        assert!(error.contains(&format!("{missing} is missing")), "{error}");
    }
    let error = refusal(&params(), |tensors| {
        let renamed = std::mem::take(tensors).into_iter();
        *tensors = renamed.map(|(name, tensor)| (name.replace("extra_heads.1", "extra_heads.2"), tensor)).collect();
    });
    // Three heads beside head 1, of which the second is not there.
    assert!(error.contains("n_layers of params.json is 5, and by the tensors") && error.contains("6"), "{error}");
    let error = refusal(&params(), |tensors| {
        let tensor = tensors["output.weight"].clone();
        tensors.insert("lm_head.weight".into(), tensor);
    });
    assert!(error.contains("1 tensors that this layout does not have: lm_head.weight;"), "{error}");
}

#[test]
fn shapes_have_to_fit_each_other() {
    for (name, shape) in [
        ("layers.0.attention.wq.weight", vec![32, 64]),
        ("extra_heads.0.attention.wk.weight", vec![64, 64]),
        ("layers.2.feed_forward.w2.weight", vec![48, 64]),
        ("norm.weight", vec![32]),
        ("output.weight", vec![128, 64]),
        ("layers.0.feed_forward.w1.weight", vec![0, 64]),
        ("tok_embeddings.weight", vec![256]),
    ] {
        let error = refusal(&params(), |tensors| {
            let bytes = vec![0; 2 * shape.iter().product::<usize>()];
            tensors.insert(name.into(), (Dtype::BF16, shape.clone(), bytes));
        });
        assert!(error.contains(&format!("{name} has the shape {shape:?} and not")), "{error}");
    }
}

#[test]
fn heads_and_values_have_to_make_sense() {
    for (key, value, said) in [
        ("n_heads", "0", "n_heads of params.json is 0"),
        ("n_heads", "3", "n_heads of params.json is 3"),
        ("n_kv_heads", "0", "n_kv_heads of params.json is 0, and not a divisor of n_heads = 2"),
        ("n_layers", "4", "n_layers of params.json is 4, and by the tensors, 3 layers.* and 2 extra_heads.*, it is 5"),
        ("n_future_tokens", "2", "n_future_tokens of params.json is 2"),
    ] {
        let mut changed: serde_json::Value = serde_json::from_str(&params()).unwrap();
        changed[key] = value.parse().unwrap();
        let error = refusal(&changed.to_string(), |_| {});
        assert!(error.contains(said), "{error}");
    }
    let error = refusal(&params(), |tensors| {
        let nan = [0, 0x7f, 0xc0, 0x7f].repeat(64 * 64 / 2);
        tensors.insert("layers.0.attention.wq.weight".into(), (Dtype::BF16, vec![64, 64], nan));
    });
    assert!(error.contains("layers.0.attention.wq.weight has the value"), "{error}");
}

#[test]
fn a_file_that_ends_too_soon_says_how_it_is_made() {
    let folder = crate::scratch::Scratch::new();
    std::fs::write(folder.path().join("params.json"), params()).unwrap();
    let bytes = std::fs::read(fixture().join("consolidated.safetensors")).unwrap();
    for len in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(folder.path().join("consolidated.safetensors"), &bytes[..len]).unwrap();
        let error = from_meta(folder.path(), OPTIONS).err().unwrap().to_string();
        assert!(error.contains("not a whole safetensors file") && error.contains("torch.load"), "{error}");
    }
}
