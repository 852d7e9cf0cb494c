//! `bench`: the time of a training step, and where it goes.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use foretoken_train::TrainError;
use foretoken_train::batch::Batch;
use foretoken_train::config::{HeadKind, HeadsConfig, ModelConfig, Unembedding};
use foretoken_train::model::Model;
use foretoken_train::optim::{Optimiser, OptimiserConfig};
use foretoken_train::params::Gradients;
use foretoken_train::rng::Rng;
use foretoken_train::step::{gradients, gradients_at_once};
use foretoken_train::trainer::{DeviceName, MOST_TOKENS, PrecisionName};

/// Times training steps of one model on random tokens; the median of several.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Values in a hidden state; a quarter as many attention heads as 16s in it.
    #[arg(long, default_value_t = 256)]
    width: usize,
    /// Layers.
    #[arg(long, default_value_t = 6)]
    layers: usize,
    /// Tokens in the vocabulary.
    #[arg(long, default_value_t = 256)]
    vocabulary: usize,
    /// Heads.
    #[arg(long, default_value_t = 1)]
    heads: usize,
    /// What the heads are made of.
    #[arg(long, value_enum, default_value_t = Kind::Resblock)]
    kind: Kind,
    /// Windows in a batch.
    #[arg(long, default_value_t = 16)]
    windows: usize,
    /// Tokens in a window.
    #[arg(long, default_value_t = 256)]
    context: usize,
    /// Steps timed, after one that is not.
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// Transformer heads take their layers from the trunk's, so that the weights stay as many.
    #[arg(long)]
    from_trunk: bool,
    /// All heads' logits at once, instead of one head after another.
    #[arg(long)]
    at_once: bool,
    /// Tensor operations instead of fused ones.
    #[arg(long)]
    composed: bool,
    /// Products in bfloat16.
    #[arg(long)]
    bf16: bool,
    /// The back end.
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    device: Device,
    /// Print one line of JSON instead.
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Serialize, Deserialize)]
pub struct Found {
    /// Weights of the model.
    pub n_weights: usize,
    /// Tokens of a step.
    pub tokens: usize,
    /// Seconds of a step.
    pub step_s: f64,
    /// Of it, until the gradients were there.
    pub gradients_s: f64,
    /// The process's peak resident memory, where the system tells.
    pub peak_bytes: u64,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Kind {
    Linear,
    Resblock,
    Transformer,
    Sequential,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Device {
    Cpu,
    Cuda,
    Wgpu,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    for (setting, value) in [("--windows", args.windows), ("--steps", args.steps), ("--width", args.width)] {
        if value == 0 {
            return Err(TrainError::setting(setting, 0, "at least 1"));
        }
    }
    if args.windows.saturating_mul(args.context) > MOST_TOKENS {
        let wanted = format!("with --context {} at most {} windows", args.context, MOST_TOKENS / args.context.max(1));
        return Err(TrainError::setting("--windows", args.windows, wanted));
    }
    let (device, mut ops) = match args.device {
        Device::Cpu => DeviceName::Cpu,
        Device::Cuda => DeviceName::Cuda,
        Device::Wgpu => DeviceName::Wgpu,
    }
    .open(if args.bf16 { PrecisionName::Bf16 } else { PrecisionName::F32 })?;
    if args.composed {
        ops = foretoken_train::ops::Ops::Composed;
    }
    let config = ModelConfig {
        vocabulary: args.vocabulary,
        width: args.width,
        layers: args.layers,
        attention_heads: (args.width / 32).max(1),
        kv_heads: (args.width / 32).max(1),
        // Eight thirds of the width, so that a layer has 12 width^2 weights.
        feed_forward: (args.width * 8 / 3).next_multiple_of(2),
        context: args.context,
        rope_theta: 1e4,
        norm_eps: 1e-5,
        tied: true,
        heads: HeadsConfig {
            n: args.heads,
            kind: match args.kind {
                Kind::Linear => HeadKind::Linear,
                Kind::Resblock => HeadKind::ResBlock,
                Kind::Transformer => HeadKind::Transformer,
                Kind::Sequential => HeadKind::Sequential,
            },
            unembedding: Unembedding::Shared,
            from_trunk: args.from_trunk,
            recursive: false,
            start: Default::default(),
        },
    };
    let (model, mut params) = Model::new(&config, &device, 1)?;
    let mut optimiser = Optimiser::new(&params);
    let settings: OptimiserConfig = toml::from_str("learning_rate = 0.0003").expect("a whole table");
    let weights = vec![1.0; args.heads];
    let n_values: usize = params.iter().map(|(_, spec)| spec.len()).sum();
    let mut rng = Rng::new(1, "bench");
    let mut times = Vec::new();
    for _ in 0..=args.steps {
        let window = |rng: &mut Rng| {
            let tokens = (0..args.context + args.heads).map(|_| rng.below(args.vocabulary) as u32).collect();
            (tokens, vec![false; args.context + args.heads])
        };
        let batch = Batch::new(args.context, args.heads, (0..args.windows).map(|_| window(&mut rng)).collect());
        let start = Instant::now();
        let pass = model.pass(&params, ops, &batch);
        let mut sums = Gradients::new(&params);
        match args.at_once {
            true => gradients_at_once(&model, &pass, &batch, &weights, &mut sums),
            false => gradients(&model, &pass, &batch, &weights, &mut sums),
        };
        let gradients_done = start.elapsed().as_secs_f64();
        drop(pass);
        optimiser.step(&settings, 3e-4, &mut params, &mut sums, 1.0);
        times.push((start.elapsed().as_secs_f64(), gradients_done));
    }
    times.remove(0);
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (total, gradients) = times[times.len() / 2];
    let found = Found {
        n_weights: n_values,
        tokens: args.windows * args.context,
        step_s: total,
        gradients_s: gradients,
        peak_bytes: peak_bytes(),
    };
    if args.json {
        println!("{}", serde_json::to_string(&found).expect("plain data"));
        return Ok(());
    }
    let speed = found.tokens as f64 / total;
    let gflops = 6.0 * n_values as f64 * speed / 1e9;
    println!("{n_values} weights, {} tokens a step, {} threads", found.tokens, rayon::current_num_threads());
    println!("step {total:.3} s, of it gradients {gradients:.3} s and the optimiser {:.3} s", total - gradients);
    println!("{speed:.0} tokens/s, {gflops:.0} GFLOP/s by 6 a weight and token");
    println!("{:.2} GB of memory at most", found.peak_bytes as f64 / 1e9);
    Ok(())
}

/// The process's peak resident memory; 0 where the system does not say.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(0, |n| n * 1024)
}
