//! Times candle's quantised llama and qwen2 models: passes of few rows, a prompt, plain decoding. Prints one JSON object.
//!
//! usage: RAYON_NUM_THREADS=2 candle-peer MODEL.gguf ROWS CONTEXT PROMPT_TOKENS DECODE_TOKENS REPEATS      (ROWS as in 1,2,4)
//!
//! candle returns the logits of the last row only, and its cache grows and cannot be rolled back: the repeats of one row count follow one
//! another, so that the last of them sees a context longer by (repeats - 1) x rows.
use std::env;
use std::fs::File;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{DType, Device, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen2};
use serde_json::{Map, Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

enum Model {
    Llama(quantized_llama::ModelWeights),
    Qwen2(quantized_qwen2::ModelWeights),
}

impl Model {
    fn load(path: &str) -> Result<Model> {
        let mut file = File::open(path)?;
        let content = Content::read(&mut file)?;
        let architecture = content.metadata.get("general.architecture").ok_or("no architecture")?.to_string()?.clone();
        Ok(match architecture.as_str() {
            "llama" => Model::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?),
            "qwen2" => Model::Qwen2(quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?),
            other => return Err(format!("architecture {other}: only llama and qwen2 are timed").into()),
        })
    }

    /// Milliseconds of one pass over `n` tokens at `position`, logits read back; position 0 empties the cache.
    fn pass(&mut self, position: usize, n: usize) -> Result<f64> {
        let ids: Vec<u32> = (position..position + n).map(|i| 100 + (i * 37 % 40_000) as u32).collect();
        let started = Instant::now();
        let input = Tensor::new(ids.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
        let logits = match self {
            Model::Llama(model) => model.forward(&input, position)?,
            Model::Qwen2(model) => model.forward(&input, position)?,
        };
        std::hint::black_box(logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = env::args().collect();
    let [_, path, rows, numbers @ ..] = words.as_slice() else { return Err("see the first lines of main.rs".into()) };
    let numbers = numbers.iter().map(|word| word.parse::<usize>()).collect::<std::result::Result<Vec<_>, _>>()?;
    let &[context, prompt_tokens, decode_tokens, repeats] = numbers.as_slice() else {
        return Err("four numbers".into());
    };
    let mut model = Model::load(path)?;

    let mut by_rows = Map::new();
    for n in rows.split(',') {
        let n: usize = n.parse()?;
        model.pass(0, context)?;
        let mut position = context;
        let mut times = Vec::new();
        for _ in 0..=repeats {
            times.push(model.pass(position, n)?);
            position += n;
        }
        by_rows.insert(n.to_string(), summary(&times[1..]));
    }
    let prompt = (0..repeats).map(|_| model.pass(0, prompt_tokens)).collect::<Result<Vec<_>>>()?;
    model.pass(0, 1)?;
    let steps = (1..=decode_tokens).map(|position| model.pass(position, 1)).collect::<Result<Vec<_>>>()?;
    let tokens_per_second = decode_tokens as f64 / (steps.iter().sum::<f64>() / 1e3);
    println!(
        "{}",
        json!({"rows": by_rows, "prompt": summary(&prompt), "decode": {"tokens_per_second": tokens_per_second}})
    );
    Ok(())
}

fn summary(times: &[f64]) -> Value {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    json!({"median_ms": sorted[sorted.len() / 2], "min_ms": sorted[0]})
}
