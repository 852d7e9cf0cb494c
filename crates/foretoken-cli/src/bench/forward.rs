//! `foretoken bench forward`: how long a pass of n rows takes, against what the machine could do.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use comfy_table::{Table, presets};
use foretoken_decode::target::{Cache, Pass, SequenceId, Target, Want, Work};
use foretoken_decode::tree::{Source, TokenTree};
use foretoken_engine::{EngineOptions, Footprint, Isa, Loaded};
use foretoken_model::{Model, PagedCache};
use serde_json::{Map, Value, json};

use crate::error::{CliError, INTERRUPTED};
use crate::interrupt::Watch;
use crate::machine::{Bandwidth, Machine, median};
use crate::options::{ModelOptions, count};
use crate::output;
use crate::progress::{self, LoadingBar};

/// Measure how long passes of a few rows take
///
/// Every pass continues the same context and wants logits at every row, as when guesses are checked, and is rolled back.
/// First its logits are compared, bit for bit, with those of one-row passes. The row counts take turns, so that a slow
/// moment of the machine hits all of them. The floor is what the machine allows: the larger of reading (the weights of a
/// pass and the keys and values, at the bandwidth measured between the passes) and multiplying (at --peak-gmac).
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// Row counts to measure
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,8,16,32", value_parser = clap::value_parser!(u32).range(1..=4096))]
    rows: Vec<u32>,

    /// Tokens before the rows
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = count)]
    context: usize,

    /// Time each row count this often
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,

    /// Also time a prompt of this many tokens, with logits at its last row only
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    prompt_tokens: Option<usize>,

    /// Billions of multiply-adds per second that all threads together could do
    #[arg(long, value_name = "GMAC/S", default_value_t = 160.0, value_parser = rate)]
    peak_gmac: f64,

    /// GB/s that all threads together could read [default: measured in the same run]
    #[arg(long, value_name = "GB/S", value_parser = rate)]
    bandwidth: Option<f64>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    model: ModelOptions,
}

const EXAMPLES: &str = "\
Examples:
  foretoken bench forward -m qwen2.5-coder-1.5b --rows 1,2,4,8 --threads 2
  foretoken bench forward -m model.gguf --prompt-tokens 512 --json";

fn rate(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&rate: &f64| rate > 0.0 && rate.is_finite()).ok_or_else(|| "give a number above 0".into())
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut bench = Bench::load(args)?;
    bench.fill_context(args.context);
    bench.check(args.rows.iter().copied().max().unwrap_or(1) as usize)?;
    let watch = Watch::start();
    let mut bandwidth = Bandwidth::new(bench.model.threads()).map_err(foretoken_model::ModelError::from)?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); args.rows.len()];
    let mut prompt_times = Vec::new();
    let bar = progress::items(args.repeats as usize + 1, "measuring");
    // The first round only warms up.
    for round in 0..=args.repeats {
        if watch.pressed() {
            break;
        }
        bandwidth.read();
        for (&rows, times) in args.rows.iter().zip(&mut times) {
            let seconds = bench.time(rows as usize);
            times.extend((round > 0).then_some(seconds));
        }
        if let Some(tokens) = args.prompt_tokens {
            let seconds = bench.time_prompt(tokens);
            prompt_times.extend((round > 0).then_some(seconds));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();

    let bytes_per_second = args.bandwidth.map_or_else(|| bandwidth.median(), |gb| gb * 1e9);
    let floor = Floor { args, footprint: bench.footprint, bytes_per_second };
    let rows: Vec<(u32, Measured)> =
        args.rows.iter().zip(&times).map(|(&rows, times)| (rows, floor.measured(rows, times))).collect();
    let prompt = args.prompt_tokens.map(|tokens| (tokens, median(&prompt_times)));
    if args.json {
        output::json(&floor.as_json(&rows, prompt, bench.isa, bench.model.threads()))?;
    } else {
        output::table(&table(&rows))?;
        if let Some((tokens, seconds)) = prompt {
            output::line(format_args!("a prompt of {tokens} tokens: {:.1} tokens/s", tokens as f64 / seconds))?;
        }
        output::line(format_args!("memory: {:.1} GB/s", bytes_per_second / 1e9))?;
    }
    Ok(if watch.pressed() { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

/// A model with a context in its cache.
struct Bench {
    model: Model,
    footprint: Footprint,
    isa: Isa,
    cache: PagedCache,
    context: SequenceId,
    prompt_rows: usize,
    /// Tokens of the context.
    len: usize,
}

impl Bench {
    fn load(args: &Args) -> Result<Self, CliError> {
        let most = args.rows.iter().copied().max().unwrap_or(1) as usize;
        let longest = args.context.saturating_add(most).max(args.prompt_tokens.unwrap_or(0)).saturating_add(1);
        let bar = LoadingBar::new();
        let progress = |read, total| bar.tell(read, total);
        let options = EngineOptions { context: Some(longest), ..args.model.engine_options(&progress) };
        let gguf = args.model.gguf()?;
        let hyper = foretoken_model::check(&gguf)?;
        if longest > hyper.context {
            return Err(CliError::Argument {
                found: format!("{longest} tokens are too many for this model, which was made for {}", hyper.context),
                wanted: "give a smaller --context, --rows or --prompt-tokens".into(),
            });
        }
        let Loaded { model, footprint } = Loaded::load(&gguf, &hyper, &options, options.progress)?;
        // Room for the context and a prompt beside it, and a page for each branch.
        let mut cache = model.cache(2 * longest + 4 * foretoken_kernels::attention::KEY_CHUNK)?;
        let context = cache.open();
        let (isa, prompt_rows) = (options.isa, options.prompt_rows);
        Ok(Self { model, footprint, isa, cache, context, prompt_rows, len: 0 })
    }

    /// Tokens at these positions; the same ones that peers are measured with.
    fn tokens(&self, positions: Range<usize>) -> Vec<u32> {
        let vocab = self.model.vocab_size();
        positions.map(|i| ((100 + i * 37 % vocab.saturating_sub(1000).max(1)) % vocab) as u32).collect()
    }

    fn fill_context(&mut self, len: usize) {
        let tokens = self.tokens(0..len);
        self.prefill(self.context, &tokens, Want::Nothing);
        self.len = len;
    }

    /// Runs tokens in chunks and commits them.
    fn prefill(&mut self, sequence: SequenceId, tokens: &[u32], last: Want) {
        for (i, chunk) in tokens.chunks(self.prompt_rows).enumerate() {
            let mut wants = vec![Want::Nothing; chunk.len()];
            if (i + 1) * self.prompt_rows >= tokens.len() {
                wants[chunk.len() - 1] = last;
            }
            let tree = TokenTree::new(chunk);
            let work = [Work { sequence, tree: &tree, wants: &wants }];
            self.model.verify(&mut self.cache, &work).expect("the cache was made for this");
            self.cache.commit(sequence, &(0..chunk.len()).collect::<Vec<_>>());
        }
    }

    /// An anchor and guesses below it, `n` rows in all.
    fn tree(&self, n: usize) -> TokenTree {
        let tokens = self.tokens(self.len..self.len + n);
        let mut tree = TokenTree::new(&tokens[..1]);
        for (parent, &token) in tokens[1..].iter().enumerate() {
            tree.push(parent, token, Source(1), 1.0);
        }
        tree
    }

    /// Seconds of one pass of `n` rows, which is rolled back.
    fn time(&mut self, n: usize) -> f64 {
        let tree = self.tree(n);
        let wants = vec![Want::Logits; n];
        let work = [Work { sequence: self.context, tree: &tree, wants: &wants }];
        let start = Instant::now();
        self.model.verify(&mut self.cache, &work).expect("the cache was made for this");
        let seconds = start.elapsed().as_secs_f64();
        self.cache.commit(self.context, &[]);
        seconds
    }

    /// Seconds of a prompt in a sequence of its own, until the logits of its last row are there.
    fn time_prompt(&mut self, tokens: usize) -> f64 {
        let tokens = self.tokens(0..tokens);
        let sequence = self.cache.open();
        let start = Instant::now();
        self.prefill(sequence, &tokens, Want::Logits);
        let seconds = start.elapsed().as_secs_f64();
        self.cache.close(sequence);
        seconds
    }

    /// Compares the rows of one pass with passes of one row each, bit for bit.
    fn check(&mut self, n: usize) -> Result<(), CliError> {
        let tree = self.tree(n);
        let wants = vec![Want::Logits; n];
        let work = [Work { sequence: self.context, tree: &tree, wants: &wants }];
        let pass = self.model.verify(&mut self.cache, &work).expect("the cache was made for this");
        let together: Vec<Vec<f32>> = (0..n).map(|node| pass.logits(0, node).to_vec()).collect();
        self.cache.commit(self.context, &[]);
        for (row, expected) in together.iter().enumerate() {
            let tree = TokenTree::new(&[tree.nodes()[row].token]);
            let work = [Work { sequence: self.context, tree: &tree, wants: &[Want::Logits] }];
            let pass = self.model.verify(&mut self.cache, &work).expect("the cache was made for this");
            let alone = pass.logits(0, 0);
            if let Some(id) = (0..alone.len()).find(|&id| alone[id].to_bits() != expected[id].to_bits()) {
                let (a, b) = (alone[id], expected[id]);
                let found = format!("row {row} of {n}: the logit of token {id} is {b}, and {a} when it runs alone");
                return Err(CliError::Different { found });
            }
            self.cache.commit(self.context, &[0]);
        }
        self.cache.truncate(self.context, self.len);
        Ok(())
    }
}

/// What the machine allows.
struct Floor<'a> {
    args: &'a Args,
    footprint: Footprint,
    bytes_per_second: f64,
}

/// One row count's times and rates.
struct Measured {
    median_ms: f64,
    min_ms: f64,
    gb_per_s: f64,
    gmac_per_s: f64,
    floor_ratio: f64,
}

impl Floor<'_> {
    fn bytes(&self) -> f64 {
        let Footprint { trunk_bytes, head_bytes, kv_bytes_per_token, .. } = self.footprint;
        (trunk_bytes + head_bytes) as f64 + kv_bytes_per_token as f64 * self.args.context as f64
    }

    fn macs_per_row(&self) -> f64 {
        (self.footprint.trunk_macs + self.footprint.head_macs) as f64
    }

    fn measured(&self, rows: u32, times: &[f64]) -> Measured {
        let seconds = median(times);
        let macs = self.macs_per_row() * f64::from(rows);
        let floor = (self.bytes() / self.bytes_per_second).max(macs / (self.args.peak_gmac * 1e9));
        Measured {
            median_ms: seconds * 1e3,
            min_ms: times.iter().copied().reduce(f64::min).unwrap_or(0.0) * 1e3,
            gb_per_s: self.bytes() / seconds / 1e9,
            gmac_per_s: macs / seconds / 1e9,
            floor_ratio: seconds / floor,
        }
    }

    fn as_json(&self, rows: &[(u32, Measured)], prompt: Option<(usize, f64)>, isa: Isa, threads: usize) -> Value {
        let round = |value: f64| (value * 1e3).round() / 1e3;
        let rows: Map<String, Value> = rows
            .iter()
            .map(|(rows, m)| {
                let value = json!({
                    "median_ms": round(m.median_ms),
                    "min_ms": round(m.min_ms),
                    "gb_per_s": round(m.gb_per_s),
                    "gmac_per_s": round(m.gmac_per_s),
                    "floor_ratio": round(m.floor_ratio),
                });
                (rows.to_string(), value)
            })
            .collect();
        let prompt = prompt.map(|(tokens, seconds)| {
            json!({
                "tokens": tokens,
                "median_ms": round(seconds * 1e3),
                "tokens_per_second": round(tokens as f64 / seconds),
            })
        });
        json!({
            "model": self.args.model.name(),
            "context": self.args.context,
            "repeats": self.args.repeats,
            "rows": rows,
            "prompt": prompt,
            "bytes_per_pass": self.bytes(),
            "macs_per_row": self.macs_per_row(),
            "bandwidth_gb_per_s": round(self.bytes_per_second / 1e9),
            "peak_gmac_per_s": self.args.peak_gmac,
            "machine": Machine::here(isa, threads),
        })
    }
}

fn table(rows: &[(u32, Measured)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["rows", "median ms", "min ms", "GB/s", "GMAC/s", "x floor"]);
    table.add_rows(rows.iter().map(|(rows, m)| {
        let values = [m.median_ms, m.min_ms, m.gb_per_s, m.gmac_per_s, m.floor_ratio];
        std::iter::once(rows.to_string()).chain(values.map(|value| format!("{value:.2}"))).collect::<Vec<_>>()
    }));
    table
}
