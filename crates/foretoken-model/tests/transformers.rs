//! Logits equal those of Hugging Face transformers on tiny random checkpoints (`fixtures/make_tiny.py`).

mod common;

use common::{Setup, feed, fixtures, load};
use foretoken_decode::target::Cache;
use foretoken_kernels::Isa;

fn reference(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(fixtures().join("tiny").join(name)).expect("the fixture is committed");
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
}

/// Relative to the largest logit of the row.
fn worst_deviation(actual: &[Vec<f32>], expected: &[f32]) -> f32 {
    let rows = expected.chunks_exact(actual[0].len());
    assert_eq!(rows.len(), actual.len());
    let deviation = |(a, e): (&Vec<f32>, &[f32])| {
        let scale = e.iter().fold(0f32, |m, x| m.max(x.abs()));
        a.iter().zip(e).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale
    };
    actual.iter().zip(rows).map(deviation).fold(0.0, f32::max)
}

#[test]
fn logits_equal_transformers() {
    let json = std::fs::read_to_string(fixtures().join("tiny/tiny.json")).expect("the fixture is committed");
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let tokens: Vec<u32> =
        json["tokens"].as_array().expect("ids").iter().map(|t| t.as_u64().expect("an id") as u32).collect();
    let names = ["llama", "llama-tied-linear", "llama-llama3", "llama-yarn", "qwen2-tied", "qwen2-yarn"];
    for name in names {
        for isa in Isa::available() {
            let mut model = load(&fixtures().join(format!("tiny/{name}.gguf")), Setup { isa, ..Setup::default() });
            let mut cache = model.cache(64).expect("it is small");
            let sequence = cache.open();
            let logits = feed(&mut model, &mut cache, sequence, &tokens);
            // Rows read K/V as stored, so the reference rounds them to f16 too; what that costs is bounded below.
            let same_cache = worst_deviation(&logits, &reference(&format!("{name}.f16.logits")));
            let exact_cache = worst_deviation(&logits, &reference(&format!("{name}.f32.logits")));
            println!("{name:>18} {isa}: {same_cache:.1e} with K/V in f16, {exact_cache:.1e} with K/V in f32");
            assert!(same_cache < 1e-4, "{name} on {isa}: {same_cache:e}");
            assert!(exact_cache < 5e-3, "{name} on {isa}: {exact_cache:e}");
        }
    }
}
