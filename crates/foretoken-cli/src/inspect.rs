//! `foretoken inspect`: what a model file holds and the memory it needs.

use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use foretoken_engine::Footprint;
use foretoken_formats::gguf::{Gguf, Summary, TensorInfo, Value};
use foretoken_formats::printable;
use foretoken_model::HeadsInfo;
use serde_json::json;

use crate::embedded;
use crate::error::CliError;
use crate::model_file;
use crate::options::{KvTypeName, WeightsName};
use crate::output;

/// Show what a model file holds and the memory it needs
///
/// Only the file's header is read: this takes a moment, however large the file is.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// A .gguf file, or parts of the name of one in the model folder, or the one inside this program
    #[arg(value_name = "FILE|NAME", default_value = embedded::NAME)]
    model: String,

    /// List every tensor
    #[arg(long)]
    tensors: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// As for `generate`: how keys and values are kept
    #[arg(long, value_enum, default_value_t = KvTypeName::F16)]
    kv_type: KvTypeName,

    /// As for `generate`: how weights are kept
    #[arg(long, value_enum, default_value_t = WeightsName::AsStored)]
    weights: WeightsName,
}

const EXAMPLES: &str = "\
Examples:
  foretoken inspect model.gguf                 metadata and memory
  foretoken inspect model.gguf --tensors       every tensor with its type and shape
  foretoken inspect smollm2 --weights f32      the memory when weights are widened
  foretoken inspect model.gguf --json | jq .memory";

/// Context lengths that memory is shown for, up to the model's own.
const CONTEXTS: [usize; 4] = [2048, 8192, 32768, 131_072];

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let gguf = model_file::open(&args.model)?;
    let hyper = foretoken_model::check(&gguf);
    let (weights, kv_type) = (args.weights.weights(), args.kv_type.kv_type());
    let footprint = hyper.map(|hyper| Footprint::of(&gguf, &hyper, weights, kv_type));
    if args.json {
        output::json(&as_json(args, &gguf, footprint.as_ref().ok()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = gguf.summary();
    output::table(&overview(&gguf, &summary))?;
    output::line("\nMetadata")?;
    output::table(&metadata_table(&gguf))?;
    if args.tensors {
        output::line("\nTensors (fastest dimension first)")?;
        output::table(&tensor_table(gguf.tensors()))?;
    }
    output::line("\nMemory")?;
    match &footprint {
        Ok(footprint) => output::table(&memory_table(footprint, contexts(&summary)))?,
        Err(error) => output::line(format_args!("this model cannot be run: {}", printable(&error.to_string())))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn contexts(summary: &Summary) -> Vec<usize> {
    let own = summary.context_length.map_or(usize::MAX, |length| length as usize);
    let mut contexts: Vec<usize> = CONTEXTS.into_iter().filter(|&context| context < own).collect();
    contexts.extend((own < usize::MAX).then_some(own));
    contexts
}

fn overview(gguf: &Gguf, summary: &Summary) -> Table {
    let mut table = plain_table();
    let mut row = |name: &str, value: Option<String>| {
        table.add_rows(value.map(|value| vec![name.to_owned(), printable(&value)]));
    };
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    row("file", gguf.path().map(|path| path.display().to_string()));
    row("name", summary.name.clone());
    row("architecture", summary.architecture.clone());
    row("license", summary.license.clone());
    row("parameters", Some(millions(summary.parameters)));
    row("file size", Some(megabytes(summary.file_bytes)));
    row("context", number(summary.context_length));
    row("layers", number(summary.n_layers));
    row("width", number(summary.embedding_length));
    row("feed-forward width", number(summary.feed_forward_length));
    let heads = summary.n_heads.map(|heads| match summary.n_kv_heads {
        Some(kv) => format!("{heads}, {kv} for keys and values"),
        None => heads.to_string(),
    });
    row("heads", heads);
    row("vocabulary", number(summary.vocab_size));
    row("tokenizer", summary.tokenizer.clone());
    row("chat template", Some(if summary.chat_template { "yes" } else { "no" }.into()));
    row("prediction heads", prediction_heads(gguf));
    for use_ in &summary.types {
        let note = if use_.supported { "" } else { " (not supported)" };
        row(&format!("type {}", use_.ty), Some(format!("{} in {} tensors{note}", megabytes(use_.bytes), use_.tensors)));
    }
    table
}

/// Kind, number and weight of the heads beside the model's own; `None` where there are none that can be run.
fn prediction_heads(gguf: &Gguf) -> Option<String> {
    let HeadsInfo { kind, count, .. } = HeadsInfo::of(gguf).ok()??;
    let (bytes, share) = heads_bytes(gguf);
    Some(format!("{count} beside the model's own, {kind}, {}, {:.1} % of the weights", megabytes(bytes), 100.0 * share))
}

/// Bytes of these heads, and their share of all weights.
fn heads_bytes(gguf: &Gguf) -> (u64, f64) {
    let bytes = |tensors: &mut dyn Iterator<Item = &TensorInfo>| tensors.map(|t| t.n_bytes as u64).sum::<u64>();
    let heads = bytes(&mut gguf.tensors().iter().filter(|tensor| HeadsInfo::owns(&tensor.name)));
    (heads, heads as f64 / bytes(&mut gguf.tensors().iter()).max(1) as f64)
}

fn metadata_table(gguf: &Gguf) -> Table {
    let mut table = plain_table();
    table.add_rows(gguf.metadata().iter().map(|(key, value)| {
        // A template of a hundred lines would bury the rest.
        vec![printable(key), printable(&value.to_string())]
    }));
    table
}

fn tensor_table(tensors: &[TensorInfo]) -> Table {
    let mut table = plain_table();
    table.set_header(["name", "type", "shape", "bytes"]);
    table.add_rows(tensors.iter().map(|tensor| {
        let shape = tensor.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        [printable(&tensor.name), tensor.ty.name().to_owned(), shape, tensor.n_bytes.to_string()]
    }));
    right_align(&mut table, 3);
    table
}

fn memory_table(footprint: &Footprint, contexts: Vec<usize>) -> Table {
    let mut table = plain_table();
    table.set_header(["context", "weights", "keys and values", "together"]);
    for context in contexts {
        let kv = footprint.kv_bytes_per_token * context as u64;
        let cells = [footprint.packed_bytes, kv, footprint.packed_bytes + kv].map(megabytes);
        table.add_row(std::iter::once(context.to_string()).chain(cells));
    }
    (0..4).for_each(|column| right_align(&mut table, column));
    table
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn right_align(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn millions(count: u64) -> String {
    format!("{:.1} million", count as f64 / 1e6)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn as_json(args: &Args, gguf: &Gguf, footprint: Option<&Footprint>) -> serde_json::Value {
    let summary = gguf.summary();
    let metadata: serde_json::Map<String, serde_json::Value> =
        gguf.metadata().iter().map(|(key, value)| (key.to_owned(), value_json(value))).collect();
    let tensor = |t: &TensorInfo| json!({"name": t.name, "type": t.ty.name(), "shape": t.shape, "bytes": t.n_bytes});
    let memory = footprint.map(|footprint| {
        let kv = footprint.kv_bytes_per_token;
        let by_context: Vec<_> =
            contexts(&summary).into_iter().map(|c| json!({"context": c, "kv_bytes": kv * c as u64})).collect();
        json!({"weight_bytes": footprint.packed_bytes, "kv_bytes_per_token": kv, "contexts": by_context})
    });
    let heads = HeadsInfo::of(gguf).ok().flatten().map(|HeadsInfo { kind, count, .. }| {
        let (bytes, share) = heads_bytes(gguf);
        json!({"kind": kind.to_string(), "count": count, "bytes": bytes, "share": share})
    });
    let mut all = json!({"summary": summary, "metadata": metadata, "heads": heads, "memory": memory});
    if args.tensors {
        all["tensors"] = gguf.tensors().iter().map(tensor).collect();
    }
    all
}

/// Scalars as they are; of an array, which may have 150,000 elements, its length and beginning.
fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => json!(text),
        Value::Bool(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::Strings(strings) => {
            json!({"length": strings.len(), "first": strings.iter().take(8).collect::<Vec<_>>()})
        }
        Value::Numbers(numbers) => {
            let first: Vec<_> = numbers.iter().take(8).map(|value| value_json(&value)).collect();
            json!({"length": numbers.len(), "first": first})
        }
        integer => integer.to_string().parse::<i64>().map_or(serde_json::Value::Null, |value| json!(value)),
    }
}
