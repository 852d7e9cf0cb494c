//! `foretoken bench decode`: what drafting gains on real prompts, what it costs, and that it changes nothing.

mod cells;
mod html;
mod measure;
mod summary;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use foretoken_engine::{Method, ModelFile, Request, TokenId};
use miette::Diagnostic;
use serde_json::{Value, json};

use super::prompts::{self, Prompt};
use crate::error::{CliError, INTERRUPTED};
use crate::machine::Machine;
use crate::options::{DraftModels, DraftOptions, ModelOptions, at_least_one};
use crate::output;
use crate::structure::{AcceptanceOptions, StructureOptions};
use crate::whole::{Kind, WholeFile};
use cells::{Cell, cells};
pub use measure::Passes;
use measure::{Measured, Run};

/// Measure what drafting gains on a file of prompts
///
/// Every prompt is answered in every way asked for, one after the other and in turning order, with the same seed; before
/// each answer the drafters forget what they learned. The speed-up compares the time of the answers after their first token
/// with that of plain decoding on the same prompts: total against total, and as the geometric mean over the prompts, each
/// with its 95 % interval by bootstrap over the prompts. The replayed speed-up takes the passes that were run and counts
/// each at its cost in one table, so that a slow moment of the machine favours nobody. When a method's tokens differ from
/// plain decoding's, the exit code is 3.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// One JSON object a line: {"category": ..., "prompt": ...} or {"category": ..., "turns": [...]}, perhaps with the JSON
    /// "schema" of the answer
    #[arg(long, value_name = "FILE")]
    prompts: PathBuf,

    /// Methods to compare, separated by commas; plain decoding (none) is always among them
    #[arg(long, value_name = "METHODS", value_delimiter = ',', default_value = "auto")]
    draft: Vec<Method>,

    /// Check this many guesses every pass, whether or not they pay; several, separated by commas, are compared
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', value_parser = at_least_one)]
    draft_width: Vec<usize>,

    /// Decide and replay by the pass costs in this file instead of by the clock
    #[arg(long, value_name = "FILE")]
    cost_model: Option<PathBuf>,

    /// Start from what `foretoken tune` measured
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Most tokens of an answer
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 128, value_parser = at_least_one)]
    max_tokens: usize,

    /// 0 always takes the likeliest token; several, separated by commas, are compared
    #[arg(long, value_delimiter = ',', default_value = "0")]
    temperature: Vec<f32>,

    /// Answer at most this many prompts of each category, spread over the file
    #[arg(long, value_name = "PROMPTS", value_parser = at_least_one)]
    limit: Option<usize>,

    /// Only prompts of this category
    #[arg(long)]
    category: Option<String>,

    /// Answer every prompt this often in every way, and take the median time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,

    /// Let drafters keep what they learned from earlier prompts. Then each way answers all prompts before the next one does,
    /// and a slow minute of the machine may favour one
    #[arg(long, conflicts_with = "repeats")]
    remember: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Write a report with charts to one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    model: ModelOptions,

    #[command(flatten)]
    models: DraftModels,

    #[command(flatten)]
    structure: StructureOptions,

    #[command(flatten)]
    acceptance: AcceptanceOptions,
}

const EXAMPLES: &str = "\
Examples:
  foretoken bench decode -m smollm2 --prompts spec_bench.jsonl --limit 2
  foretoken bench decode -m smollm2 --prompts spec_bench.jsonl --draft suffix,recycle,suffix+recycle,auto --html report.html
  foretoken bench decode -m smollm2 --prompts spec_bench.jsonl --draft suffix --draft-width 2,4,8 --temperature 0,0.8
  foretoken bench decode -m smollm2 --prompts spec_bench.jsonl --category rag --repeats 7 --json";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let prompts = prompts::choose(prompts::read(&args.prompts)?, args.category.as_deref(), args.limit);
    if prompts.is_empty() {
        let category = args.category.as_deref().unwrap_or_default();
        return Err(CliError::Argument {
            found: format!("no prompt in {} is of the category {category:?}", args.prompts.display()),
            wanted: "leave --category away to see all categories".into(),
        });
    }
    let acceptor = args.acceptance.acceptor;
    let cells = cells(&args.draft, &args.draft_width, &args.temperature, acceptor);
    let passes = Passes::default();
    let draft = DraftOptions {
        draft: Method::Auto,
        models: args.models.clone(),
        draft_width: None,
        cost_model: args.cost_model.clone(),
        profile: args.profile.clone(),
    };
    let file = args.model.open()?;
    args.draft.iter().try_for_each(|method| args.models.check(method, &file))?;
    let questions = questions(args, &cells, &file, prompts)?;
    let page = args.html.as_deref().map(|path| WholeFile::create(path, Kind::Page)).transpose()?;
    let mut engine = args.model.load(file, &draft, Some(Box::new(passes.clone())))?;

    let Measured { runs, memory, interrupted } = measure::measure(args, &mut engine, &questions, &cells, &passes)?;
    let table = engine.cost_table().clone();
    let drafters = engine.drafters();
    let results = summary::results(&runs, &cells, &table, &drafters, &memory);
    let machine = Machine::here(engine.isa(), engine.threads());
    if let Some(mut page) = page {
        page.write(html::page(&engine.file().name(), &results, &machine).render().as_bytes())?;
        page.finish()?;
    }
    if args.json {
        output::json(&json!({
            "model": args.model.name(),
            "prompts": args.prompts,
            "max_tokens": args.max_tokens,
            "repeats": args.repeats,
            "remember": args.remember,
            "acceptor": acceptor,
            "results": results,
            "answers": runs.iter().map(|run| answer(run, &cells)).collect::<Vec<_>>(),
            "cost_table": table,
            "machine": machine,
        }))?;
    } else {
        output::table(&table::table(&results))?;
    }
    // Under another acceptor than the default, differences are what was asked for.
    let bound = runs.iter().filter(|run| cells[run.cell].acceptor.reproducible());
    if let Some(found) = bound.filter_map(|run| run.difference.clone()).next() {
        return Err(CliError::Different { found });
    }
    Ok(if interrupted { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

/// The figures of one answer; what comes after its first token is `later`.
fn answer(run: &Run, cells: &[Cell]) -> Value {
    let cell = &cells[run.cell];
    let later = run.passes.iter().flat_map(|pass| &pass.sequences).map(|sequence| sequence.tokens.len());
    json!({
        "id": run.id,
        "category": run.category,
        "method": cell.method.to_string(),
        "width": cell.width,
        "temperature": cell.temperature,
        "prompt_tokens": run.outcome.prompt_tokens,
        "tokens": run.outcome.token_ids.len(),
        "later_tokens": later.sum::<usize>(),
        "later_passes": run.passes.len(),
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        "text": run.outcome.text,
    })
}

/// A prompt and what is asked of the engine with it.
struct Question {
    prompt: Prompt,
    request: Request,
}

/// Encodes and checks every prompt, so that a bad one is told before the weights are loaded.
fn questions(args: &Args, cells: &[Cell], file: &ModelFile, prompts: Vec<Prompt>) -> Result<Vec<Question>, CliError> {
    let constraint = args.structure.constraint(file)?;
    let measures_change = !args.acceptance.acceptor.keeps_distribution();
    let request = |seed: usize, prompt: Vec<TokenId>| Request {
        seed: Some(seed as u64),
        constraint: constraint.clone(),
        // For the perplexity of plain decoding too.
        logprobs: measures_change.then_some(0),
        max_tokens: Some(args.max_tokens),
        // The prompt is run once; what is measured comes after it.
        reuse: true,
        ..Request::new(prompt)
    };
    // What is wrong with the options is not the first prompt's fault: one token stands in for it.
    for cell in cells {
        args.model.check(file, &cell.apply(&request(0, vec![0])))?;
    }
    let question = |(index, prompt): (usize, Prompt)| {
        let request = prompt.encode(file).and_then(|tokens| {
            let own = prompt.schema.as_ref().map(|schema| file.constraint(schema)).transpose()?;
            let request = request(index, tokens);
            Ok(Request { constraint: own.or(request.constraint), ..request })
        });
        let checked = request.and_then(|request| args.model.check(file, &request).map(|()| request));
        match checked {
            Ok(request) => Ok(Question { prompt, request }),
            Err(error) => Err(CliError::BadFile {
                path: args.prompts.clone(),
                found: format!("the prompt {:?}: {error}", prompt.id),
                wanted: error.help().map_or_else(|| "change or remove this prompt".into(), |help| help.to_string()),
            }),
        }
    };
    prompts.into_iter().enumerate().map(question).collect()
}
