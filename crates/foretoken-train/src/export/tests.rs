//! Exported models give the logits of the trainer, in our engine and in the files' plain numbers.

use burn::tensor::Device;
use foretoken_decode::target::{Cache, Heads as _, Pass as _, Target, Want, Work};
use foretoken_decode::tree::TokenTree;
use foretoken_formats::gguf::Gguf;
use foretoken_formats::tokenizer::{Special, Tokenizer};
use foretoken_kernels::Isa;
use foretoken_model::{KvType, LoadOptions, Threads, Weights};

use super::{Storage, to_gguf, to_huggingface, write_gguf};
use crate::batch::Batch;
use crate::config::{HeadKind, HeadsConfig, ModelConfig, Unembedding};
use crate::data::Vocabulary;
use crate::import::start_from;
use crate::model::Model;
use crate::ops::{Ops, Precision};
use crate::params::Params;
use crate::rng::Rng;

fn made(kind: HeadKind, change: impl FnOnce(&mut ModelConfig)) -> (Model, Params) {
    let heads = HeadsConfig {
        n: 3,
        kind,
        unembedding: Unembedding::Shared,
        from_trunk: false,
        recursive: false,
        start: Default::default(),
    };
    let mut config = ModelConfig {
        vocabulary: 256,
        width: 64,
        layers: 3,
        attention_heads: 2,
        kv_heads: 1,
        feed_forward: 96,
        context: 40,
        rope_theta: 1e4,
        norm_eps: 1e-5,
        tied: false,
        heads,
    };
    change(&mut config);
    let (model, mut params) = Model::new(&config, &Device::flex(), 3).unwrap();
    for id in params.iter().map(|(id, _)| id).collect::<Vec<_>>() {
        let mut rng = Rng::new(4, &params.spec(id).name);
        let values = params.host(id).iter().map(|x| x + 0.05 * rng.normal() as f32).collect();
        params.set(id, values);
    }
    (model, params)
}

/// The trainer's logits of head 1 over a text of one document.
fn logits(model: &Model, params: &Params, tokens: &[u32]) -> Vec<f32> {
    let mut window = tokens.to_vec();
    window.extend([0; 3]);
    let begins = vec![false; window.len()];
    let batch = Batch::new(tokens.len(), 3, vec![(window, begins)]);
    let frozen = params.frozen();
    let pass = model.pass(&frozen, Ops::Fused(Precision::F32), &batch);
    let features = model.features(&pass, 1, model.trunk(&pass, &batch));
    model.logits(&pass, 1, features).into_data().try_into_vec().unwrap()
}

/// A file in our engine.
fn loaded(gguf: &Gguf) -> foretoken_model::Model {
    let options = LoadOptions {
        weights: Weights::AsStored,
        kv_type: KvType::F16,
        threads: Threads::new(1),
        isa: Isa::best(),
        context: 0,
        progress: &|_, _| {},
    };
    foretoken_model::Model::load(gguf, &options).unwrap()
}

/// Our engine's logits of every position.
fn engine_logits(gguf: &Gguf, tokens: &[u32]) -> Vec<f32> {
    let mut model = loaded(gguf);
    let mut cache = model.cache(64).unwrap();
    let sequence = cache.open();
    let tree = TokenTree::new(tokens);
    let wants = vec![Want::Logits; tokens.len()];
    let pass = model.verify(&mut cache, &[Work { sequence, tree: &tree, wants: &wants }]).unwrap();
    (0..tokens.len()).flat_map(|node| pass.logits(0, node).to_vec()).collect()
}

/// The root mean square of the differences, as a part of that of `b`.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let square = |x: f32| x * x;
    let apart: f32 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (apart / b.iter().map(|b| square(*b)).sum::<f32>()).sqrt()
}

#[test]
fn the_engine_gives_the_trainers_logits() {
    let text = b"def f(x):\n    return \xc3\xa9 + x  # y";
    let tokens: Vec<u32> = text.iter().map(|&byte| byte.into()).collect();
    for (tied, kind) in [(true, HeadKind::ResBlock), (false, HeadKind::Transformer)] {
        let (model, params) = made(kind, |config| config.tied = tied);
        let expected = logits(&model, &params, &tokens);
        // The engine keeps keys and values in half precision and quantises activations.
        for (storage, most) in [(Storage::F32, 0.01), (Storage::F16, 0.01), (Storage::Q8, 0.05)] {
            for heads in [false, true] {
                let gguf =
                    Gguf::from_bytes(to_gguf(&model, &params, &Vocabulary::bytes(), "test", storage, heads).to_bytes())
                        .unwrap();
                let apart = difference(&engine_logits(&gguf, &tokens), &expected);
                assert!(apart < most, "{apart} apart with {storage:?}");
            }
        }
    }
}

#[test]
fn the_engine_gives_the_trainers_logits_of_heads_in_sequence() {
    let text = b"def f(x):\n    return \xc3\xa9 + x  # y";
    let tokens: Vec<u32> = text.iter().map(|&byte| byte.into()).collect();
    for (recursive, unembedding) in [(false, Unembedding::Replicated), (true, Unembedding::Shared)] {
        let (model, params) = made(HeadKind::Sequential, |config| {
            (config.heads.recursive, config.heads.unembedding) = (recursive, unembedding);
        });
        let window = (tokens.clone(), vec![false; tokens.len()]);
        let n_tokens = tokens.len() - 3;
        let batch = Batch::new(n_tokens, 3, vec![window]);
        let frozen = params.frozen();
        let pass = model.pass(&frozen, Ops::Fused(Precision::F32), &batch);
        let mut expected: Vec<Vec<f32>> = Vec::new();
        let mut keep =
            |_: usize, logits: burn::tensor::Tensor<2>| expected.push(logits.into_data().try_into_vec().unwrap());
        crate::step::logits_by_head(&model, &pass, &batch, &mut keep);

        let gguf =
            Gguf::from_bytes(to_gguf(&model, &params, &Vocabulary::bytes(), "test", Storage::F32, true).to_bytes())
                .unwrap();
        let mut engine = loaded(&gguf);
        let mut cache = engine.cache(64).unwrap();
        let sequence = cache.open();
        let mut actual = vec![Vec::new(); 2];
        for (i, token) in tokens[..n_tokens].iter().enumerate() {
            let tree = TokenTree::new(&[*token]);
            engine.verify(&mut cache, &[Work { sequence, tree: &tree, wants: &[Want::Nothing] }]).unwrap();
            cache.commit(sequence, &[0]);
            let mut depth = 0;
            engine.follow(&mut cache, 2, &[(sequence, &tokens[..i + 2])], &mut |_, scores| {
                actual[depth].extend_from_slice(scores);
                depth += 1;
                Some(tokens[i + 1 + depth])
            });
        }
        for (k, actual) in actual.iter().enumerate() {
            let apart = difference(actual, &expected[k + 1]);
            assert!(apart < 0.01, "head {}: {apart} apart", k + 2);
        }
    }
}

#[test]
fn the_tokenizer_is_bytes() {
    let (model, params) = made(HeadKind::Linear, |_| ());
    let gguf = Gguf::from_bytes(to_gguf(&model, &params, &Vocabulary::bytes(), "test", Storage::F16, false).to_bytes())
        .unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let text = "def naïve():\n\treturn '日本'\r\n";
    let ids = tokenizer.encode_prompt(text, Special::AsText).unwrap();
    assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
    assert_eq!(tokenizer.decode(&ids), text);
    assert!(tokenizer.is_end_of_generation(0) && tokenizer.bos().is_none());
    for byte in 1..=255u8 {
        assert_eq!(tokenizer.token_bytes(byte.into()), [byte]);
    }
}

#[test]
fn a_vocabulary_of_pairs_goes_with_the_model() {
    let folder = crate::scratch::Scratch::new();
    let texts: Vec<String> = (0..50).map(|i| format!("def name{i}(value):\n    return value + {i}\n")).collect();
    let vocabulary = Vocabulary::train(texts.iter().map(String::as_str), 290, folder.path()).unwrap();
    let (model, params) = made(HeadKind::ResBlock, |config| config.vocabulary = 290);
    let file = to_gguf(&model, &params, &vocabulary, "test", Storage::F32, true);
    let gguf = Gguf::from_bytes(file.to_bytes()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let ids = tokenizer.encode_prompt(&texts[7], Special::AsText).unwrap();
    let tokens: Vec<u32> = vocabulary.encode(&texts[7]).unwrap().into_iter().map(u32::from).collect();
    assert!(ids == tokens && ids.len() < texts[7].len() / 2 && tokenizer.is_end_of_generation(0));
    let apart = difference(&engine_logits(&gguf, &tokens), &logits(&model, &params, &tokens));
    assert!(apart < 0.01, "{apart} apart");
}

#[test]
fn heads_have_their_tensors_and_only_where_wanted() {
    let names = |kind, change: fn(&mut ModelConfig), heads| {
        let (model, params) = made(kind, change);
        let gguf =
            Gguf::from_bytes(to_gguf(&model, &params, &Vocabulary::bytes(), "test", Storage::F16, heads).to_bytes())
                .unwrap();
        let names = gguf.tensors().iter().map(|tensor| tensor.name.clone());
        let mut found: Vec<_> = names.filter(|name| name.starts_with("head.")).collect();
        found.sort_unstable();
        found
    };
    assert!(names(HeadKind::ResBlock, |_| (), false).is_empty());
    let blocks = ["head.2.linear.bias", "head.2.linear.weight", "head.3.linear.bias", "head.3.linear.weight"];
    assert_eq!(names(HeadKind::ResBlock, |_| (), true), blocks);
    let own = names(HeadKind::Linear, |config| config.heads.unembedding = Unembedding::Replicated, true);
    assert_eq!(own, ["head.2.linear.weight", "head.2.output.weight", "head.3.linear.weight", "head.3.output.weight"]);
    assert_eq!(names(HeadKind::Transformer, |_| (), true).len(), 18);
    assert_eq!(names(HeadKind::Sequential, |_| (), true).len(), 26);
    assert_eq!(names(HeadKind::Sequential, |config| config.heads.recursive = true, true).len(), 13);
}

#[test]
fn hugging_face_files_have_llamas_names_and_shapes() {
    let (model, params) = made(HeadKind::ResBlock, |_| ());
    let folder = crate::scratch::Scratch::new();
    to_huggingface(&model, &params, folder.path()).unwrap();
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), 3 + 9 * 3);
    let shape = |name: &str| file.tensor(name).unwrap().shape().to_vec();
    assert_eq!(shape("model.layers.2.self_attn.k_proj.weight"), [32, 64]);
    assert_eq!(shape("model.layers.0.mlp.down_proj.weight"), [64, 96]);
    assert_eq!(shape("model.layers.0.input_layernorm.weight"), [64]);
    // Row o of a projection is column o of the trainer's matrix.
    let id = params.find("layers.1.qkv").unwrap();
    let view = file.tensor("model.layers.1.self_attn.k_proj.weight").unwrap();
    let row: Vec<f32> = view.data()[5 * 256..6 * 256].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let column: Vec<f32> = params.host(id).chunks(128).map(|inputs| inputs[64 + 5]).collect();
    assert_eq!(row, column);
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    assert!(config.contains("LlamaForCausalLM"));
}

type Change = fn(&mut ModelConfig);

#[test]
fn an_exported_model_is_the_start_of_a_run() {
    let folder = crate::scratch::Scratch::new();
    let path = folder.path().join("model.gguf");
    let values = |params: &Params| params.iter().map(|(id, _)| params.host(id)).collect::<Vec<_>>();
    let changes: [(HeadKind, Change); 6] = [
        (HeadKind::Linear, |config| config.heads.n = 1),
        (HeadKind::Linear, |config| config.tied = true),
        (HeadKind::ResBlock, |config| config.heads.unembedding = Unembedding::Replicated),
        (HeadKind::Transformer, |config| config.heads.from_trunk = true),
        (HeadKind::Sequential, |_| ()),
        (HeadKind::Sequential, |config| config.heads.recursive = true),
    ];
    for (kind, change) in changes {
        let (model, params) = made(kind, change);
        for (storage, most) in [(Storage::F32, 0.0), (Storage::F16, 1e-3), (Storage::Q8, 0.02)] {
            write_gguf(&to_gguf(&model, &params, &Vocabulary::bytes(), "test", storage, true), &path).unwrap();
            let (other, mut found) = Model::new(&model.config, &Device::flex(), 9).unwrap();
            start_from(std::slice::from_ref(&path), &other, &mut found).unwrap();
            for (found, expected) in values(&found).iter().zip(&values(&params)) {
                assert!(difference(found, expected) <= most, "{kind:?} {storage:?}");
            }
        }
    }
    let (model, params) = made(HeadKind::ResBlock, |_| ());
    write_gguf(&to_gguf(&model, &params, &Vocabulary::bytes(), "test", Storage::F32, true), &path).unwrap();
    let (second, others) =
        (folder.path().join("second.gguf"), Model::new(&model.config, &Device::flex(), 5).unwrap().1);
    write_gguf(&to_gguf(&model, &others, &Vocabulary::bytes(), "test", Storage::F32, true), &second).unwrap();
    let (other, mut found) = Model::new(&model.config, &Device::flex(), 9).unwrap();
    start_from(&[path.clone(), second], &other, &mut found).unwrap();
    for ((found, a), b) in values(&found).iter().zip(&values(&params)).zip(&values(&others)) {
        let mean: Vec<_> = a.iter().zip(b).map(|(a, b)| (a + b) / 2.0).collect();
        assert!(difference(found, &mean) <= 1e-6);
    }
    assert_ne!(values(&params), values(&others));
    let refusals: [(Change, &str); 7] = [
        (|config| config.heads.n = 2, "foretoken.heads.count is 3, and 2"),
        (|config| config.heads.kind = HeadKind::Linear, "foretoken.heads.kind is"),
        (|config| config.layers = 2, "llama.block_count is 3, and 2"),
        (|config| config.rope_theta = 5e5, "llama.rope.freq_base is 10000, and 500000"),
        (|config| config.attention_heads = 4, "llama.attention.head_count is 2, and 4"),
        (|config| config.feed_forward = 64, "has the shape"),
        (|config| config.heads.unembedding = Unembedding::Replicated, "head.2.output.weight"),
    ];
    for (change, said) in refusals {
        let (other, mut params) = made(HeadKind::ResBlock, change);
        let error = start_from(std::slice::from_ref(&path), &other, &mut params).unwrap_err().to_string();
        assert!(error.contains("model.gguf") && error.contains(said), "{said}: {error}");
    }
    let (trunk, mut params) = made(HeadKind::ResBlock, |_| ());
    write_gguf(&to_gguf(&trunk, &params, &Vocabulary::bytes(), "test", Storage::F32, false), &path).unwrap();
    let error = start_from(std::slice::from_ref(&path), &trunk, &mut params).unwrap_err().to_string();
    assert!(error.contains("foretoken.heads.count is missing"), "{error}");
}
