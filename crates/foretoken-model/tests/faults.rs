//! Faults that a file's header shows are errors before any weight is read.

mod common;

use std::path::Path;

use common::{RandomHeads, copy, with_heads};
use foretoken_formats::gguf::{GgmlType, Gguf, GgufWriter};
use foretoken_model::{HeadKind, HeadsInfo, ModelError, check};

/// The tiny llama with changes: tensors renamed and metadata replaced.
fn changed(rename: impl Fn(&str) -> String, keys: &[(&str, &str)]) -> Gguf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny/llama.gguf");
    let original = Gguf::open(path).expect("the fixture is sound");
    let mut writer = GgufWriter::new();
    for (key, value) in original.metadata().iter() {
        writer = writer.set(key, value.clone());
    }
    for &(key, value) in keys {
        writer = writer.set(key, value);
    }
    for tensor in original.tensors() {
        let bytes = original.read(tensor).expect("the fixture is sound");
        writer = writer.tensor(rename(&tensor.name), &tensor.shape, tensor.ty, bytes);
    }
    Gguf::from_bytes(writer.to_bytes()).expect("the container is sound")
}

fn same(name: &str) -> String {
    name.to_owned()
}

#[test]
fn a_sound_file_passes() {
    assert_eq!(check(&changed(same, &[])).expect("it is sound").layers, 2);
}

#[test]
fn an_unknown_architecture_is_named_with_those_known() {
    let error = check(&changed(same, &[("general.architecture", "mamba")])).expect_err("it is not known");
    assert!(matches!(error, ModelError::Architecture { .. }));
    assert_eq!(error.to_string(), "the architecture \"mamba\" is not known; known are: llama, qwen2");
}

#[test]
fn a_missing_tensor_of_the_last_layer_is_named() {
    let rename = |name: &str| name.replace("blk.1.ffn_up", "blk.1.ffn_uq");
    let error = check(&changed(rename, &[])).expect_err("it is missing").to_string();
    assert!(error.contains("blk.1.ffn_up.weight"), "{error}");
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    let swap = |name: &str| match name {
        "blk.0.ffn_up.weight" => "blk.0.ffn_down.weight".to_owned(),
        "blk.0.ffn_down.weight" => "blk.0.ffn_up.weight".to_owned(),
        other => other.to_owned(),
    };
    let error = check(&changed(swap, &[])).expect_err("the shapes differ").to_string();
    assert!(error.contains("blk.0.ffn_up.weight") && error.contains("[96, 64]"), "{error}");
}

#[test]
fn scaling_whose_angles_depend_on_the_length_is_refused_by_name() {
    let error =
        check(&changed(same, &[("llama.rope.scaling.type", "dynamic")])).expect_err("it is refused").to_string();
    assert!(error.starts_with("llama.rope.scaling.type is dynamic"), "{error}");
    let error = check(&changed(same, &[("llama.rope.scaling.type", "yarn")])).expect_err("no factor").to_string();
    assert!(error.contains("llama.rope.scaling.factor"), "{error}");
}

#[test]
fn heads_that_cannot_be_run_are_named() {
    let sound = with_heads("llama", RandomHeads { kind: "resblock", count: 4, ty: GgmlType::F32, own: |_| false });
    assert!(check(&sound).is_ok());
    assert_eq!(HeadsInfo::of(&sound).unwrap(), Some(HeadsInfo { kind: HeadKind::ResBlock, count: 3, distinct: 3 }));
    let with = |kind: &str, count: u32| {
        let writer = copy(&sound).set("foretoken.heads.kind", kind).set("foretoken.heads.count", count);
        check(&Gguf::from_bytes(writer.to_bytes()).unwrap()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with("resblock", 1), Ok(()));
    for (kind, count, words) in [
        ("sequential", 4, "head.2.enorm.weight"),
        ("transformer", 4, "head.2.attn_norm.weight"),
        ("magic", 4, "foretoken.heads.kind is magic"),
        ("resblock", 0, "foretoken.heads.count is 0"),
        ("resblock", 17, "foretoken.heads.count is 17"),
        ("linear", 6, "head.5.linear.weight"),
    ] {
        let error = with(kind, count).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
