//! A run that begins with the weights of GGUF files: its stages go on where only the model, and no checkpoint, was carried to.

use std::path::{Path, PathBuf};

use foretoken_formats::gguf::Gguf;
use foretoken_kernels::quant::{WeightType, dequantize_row};

use crate::TrainError;
use crate::export::{COUNT, KIND, Place, Weight, heads, kind, trunk};
use crate::model::Model;
use crate::params::Params;

/// Sets all of a model's weights to those of a file that [`to_gguf`](crate::export::to_gguf) wrote of such a model, heads
/// included, or to the mean of several: models that were trained on from the same one are, averaged, often better than each of
/// them (Wortsman et al., "Model soups", arXiv 2203.05482). Fails, with `params` as they were, where a file is of another model.
pub fn start_from(files: &[PathBuf], model: &Model, params: &mut Params) -> Result<(), TrainError> {
    let mut sums: Vec<(Place, Weight)> = Vec::new();
    for path in files {
        let weights = read(path, model, params)?;
        if sums.is_empty() {
            sums = weights;
        } else {
            for ((_, sum), (_, weight)) in sums.iter_mut().zip(&weights) {
                sum.values.iter_mut().zip(&weight.values).for_each(|(sum, value)| *sum += value);
            }
        }
    }
    for (place, mut weight) in sums {
        weight.values.iter_mut().for_each(|value| *value /= files.len() as f32);
        place.write(params, &weight);
    }
    Ok(())
}

/// A file's weights, and where each belongs.
fn read(path: &Path, model: &Model, params: &Params) -> Result<Vec<(Place, Weight)>, TrainError> {
    let wrong = |message: String| TrainError::file(path, message);
    let gguf = Gguf::open(path).map_err(|error| wrong(error.to_string()))?;
    let (about, config) = (gguf.metadata(), &model.config);
    let number = |key: &str| about.get_f32(key).or_else(|_| about.get_u32(key).map(|n| n as f32)).ok();
    let mut facts = vec![
        ("llama.block_count", model.layers.len() as f32),
        ("llama.attention.head_count", config.attention_heads as f32),
        ("llama.attention.head_count_kv", config.kv_heads as f32),
        ("llama.attention.layer_norm_rms_epsilon", config.norm_eps),
        ("llama.rope.freq_base", config.rope_theta as f32),
    ];
    let has_heads = config.heads.n > 1;
    if has_heads {
        facts.push((COUNT, config.heads.n as f32));
    }
    for (key, wanted) in facts {
        if number(key) != Some(wanted) {
            let found = number(key).map_or("missing".to_owned(), |found| found.to_string());
            return Err(wrong(format!(
                "{key} is {found}, and {wanted} in the settings: run.start has to be of such a model"
            )));
        }
    }
    let found = about.get_str_or(KIND, "").map_err(|error| wrong(error.to_string()))?;
    if has_heads && found != kind(config) {
        return Err(wrong(format!("{KIND} is {found:?}, and model.heads.kind {:?}", kind(config))));
    }
    let places = trunk(model).into_iter().chain(if has_heads { heads(model) } else { Vec::new() });
    let mut weights = Vec::new();
    for (name, place) in places {
        let info = gguf.tensor(&name).map_err(|error| wrong(error.to_string()))?;
        let [rows, cols] = place.shape(params);
        let shape: &[usize] = if rows == 1 { &[cols] } else { &[cols, rows] };
        if info.shape != shape {
            return Err(wrong(format!("{name} has the shape {:?} and not {shape:?}, as the settings say", info.shape)));
        }
        let known = WeightType::ALL.into_iter().find(|ty| format!("{ty:?}") == info.ty.name());
        let ty = known.ok_or_else(|| wrong(format!("{name} is {}, which is not read here", info.ty)))?;
        let bytes = gguf.read(info).map_err(|error| wrong(error.to_string()))?;
        let mut values = vec![0.0; rows * cols];
        for (bytes, values) in bytes.chunks_exact(ty.row_bytes(cols)).zip(values.chunks_exact_mut(cols)) {
            dequantize_row(ty, bytes, values);
        }
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(wrong(format!("{name} has the value {value}: the file is broken")));
        }
        weights.push((place, Weight { rows, cols, values }));
    }
    Ok(weights)
}
