//! The trunk as a Llama model that transformers loads: `config.json` and `model.safetensors`.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use super::weights::{Part, Place, layer};
use crate::TrainError;
use crate::model::Model;
use crate::params::Params;
use crate::trainer::write_atomically;

/// Writes the two files into a folder. Heads 2 to n have no place there.
pub fn to_huggingface(model: &Model, params: &Params, folder: &Path) -> Result<(), TrainError> {
    std::fs::create_dir_all(folder).map_err(TrainError::io("create", folder))?;
    let config = &model.config;
    let settings = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": model.layers.len(),
        "num_attention_heads": config.attention_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim(),
        "max_position_embeddings": config.context,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "tie_word_embeddings": config.tied,
        "bos_token_id": null,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    });
    let text = serde_json::to_vec_pretty(&settings).expect("plain data");
    write_atomically(&folder.join("config.json"), &text)?;

    let mut weights = vec![("model.embed_tokens.weight".to_owned(), Place::plain(model.embedding))];
    for (i, block) in model.layers.iter().enumerate() {
        for (part, place) in layer(block, config) {
            let name = match part {
                Part::AttentionNorm => "input_layernorm",
                Part::Query => "self_attn.q_proj",
                Part::Key => "self_attn.k_proj",
                Part::Value => "self_attn.v_proj",
                Part::Output => "self_attn.o_proj",
                Part::MlpNorm => "post_attention_layernorm",
                Part::Gate => "mlp.gate_proj",
                Part::Up => "mlp.up_proj",
                Part::Down => "mlp.down_proj",
            };
            weights.push((format!("model.layers.{i}.{name}.weight"), place));
        }
    }
    weights.push(("model.norm.weight".to_owned(), Place::plain(model.norm)));
    if let Some(id) = model.unembedding {
        weights.push(("lm_head.weight".to_owned(), Place::outputs(id, 0..config.vocabulary)));
    }
    let weights: Vec<_> = weights.into_iter().map(|(name, place)| (name, place.read(params))).collect();
    let views = weights.iter().map(|(name, weight)| {
        let shape = if weight.rows == 1 { vec![weight.cols] } else { vec![weight.rows, weight.cols] };
        let bytes: &[u8] = bytemuck::cast_slice(&weight.values);
        (name, TensorView::new(Dtype::F32, shape, bytes).expect("as many bytes as the shape says"))
    });
    let path = folder.join("model.safetensors");
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(|e| TrainError::file(&path, e.to_string()))?;
    write_atomically(&path, &bytes)
}
