//! `foretoken bench decode`: what drafting gains on real prompts, and that it changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use comfy_table::{Table, presets};
use foretoken_decode::budget::CostTable;
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{GuessTrace, PassTrace, Recorder, Replay};
use foretoken_engine::{Engine, Method, ModelFile, Outcome, Request, TokenId};
use miette::Diagnostic;
use serde::Serialize;
use serde_json::json;

use super::prompts::{self, Prompt};
use crate::error::{CliError, INTERRUPTED};
use crate::generate;
use crate::machine::{Machine, median};
use crate::options::{DraftOptions, ModelOptions, at_least_one};
use crate::output;
use crate::progress;
use crate::report;

/// Measure what drafting gains on a file of prompts
///
/// Every prompt is answered with every method, one after the other and in turning order, with the same seed. The speed-up
/// compares the time of the answers after their first token with that of plain decoding on the same prompts. The replayed
/// speed-up takes the passes that were run and counts each at its cost in one table, so that a slow moment of the machine
/// favours nobody. When a method's tokens differ from plain decoding's, the exit code is 3.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    model: ModelOptions,

    /// One JSON object a line: {"category": ..., "prompt": ...} or {"category": ..., "turns": [...]}
    #[arg(long, value_name = "FILE")]
    prompts: PathBuf,

    /// Methods to compare; plain decoding (none) is always among them
    #[arg(long, value_name = "METHODS", value_delimiter = ',', default_value = "none,auto")]
    draft: Vec<Method>,

    /// Check this many guesses every pass, whether or not they pay
    #[arg(long, value_name = "TOKENS")]
    draft_width: Option<usize>,

    /// Decide and replay by the pass costs in this file instead of by the clock
    #[arg(long, value_name = "FILE")]
    cost_model: Option<PathBuf>,

    /// Most tokens of an answer
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 128, value_parser = at_least_one)]
    max_tokens: usize,

    /// 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,

    /// Answer at most this many prompts of each category, spread over the file
    #[arg(long, value_name = "PROMPTS", value_parser = at_least_one)]
    limit: Option<usize>,

    /// Only prompts of this category
    #[arg(long)]
    category: Option<String>,

    /// Answer every prompt this often with every method, and take the median time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foretoken bench decode -m smollm2 --prompts spec_bench.jsonl --limit 2
  foretoken bench decode -m smollm2 --prompts spec_bench.jsonl --category rag --repeats 7 --json";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let methods = methods(&args.draft);
    let prompts = prompts::choose(prompts::read(&args.prompts)?, args.category.as_deref(), args.limit);
    if prompts.is_empty() {
        let category = args.category.as_deref().unwrap_or_default();
        return Err(CliError::Argument {
            found: format!("no prompt in {} is of the category {category:?}", args.prompts.display()),
            wanted: "leave --category away to see all categories".into(),
        });
    }
    let passes = Passes::default();
    let draft =
        DraftOptions { draft: Method::Auto, draft_width: args.draft_width, cost_model: args.cost_model.clone() };
    let file = args.model.open()?;
    let questions = questions(args, &file, prompts)?;
    let mut engine = args.model.load(file, &draft, Some(Box::new(passes.clone())))?;

    let (runs, interrupted) = measure(args, &mut engine, &questions, &methods, &draft, &passes)?;
    let table = engine.cost_table().clone();
    let results = results(&runs, &methods, &table);
    if args.json {
        output::json(&json!({
            "model": args.model.model,
            "prompts": args.prompts,
            "max_tokens": args.max_tokens,
            "temperature": args.temperature,
            "draft_width": args.draft_width,
            "repeats": args.repeats,
            "results": results,
            "cost_table": table,
            "machine": Machine::here(engine.isa(), engine.threads()),
        }))?;
    } else {
        output::table(&show(&results))?;
    }
    if let Some(found) = runs.iter().find_map(|run| run.difference.clone()) {
        return Err(CliError::Different { found });
    }
    Ok(if interrupted { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

/// Plain decoding first, then the others as asked for.
fn methods(asked: &[Method]) -> Vec<Method> {
    let mut methods = vec![Method::None];
    for method in asked {
        if !methods.contains(method) {
            methods.push(method.clone());
        }
    }
    methods
}

/// A prompt and what is asked of the engine with it.
struct Question {
    prompt: Prompt,
    request: Request,
}

/// Encodes and checks every prompt, so that a bad one is told before the weights are loaded.
fn questions(args: &Args, file: &ModelFile, prompts: Vec<Prompt>) -> Result<Vec<Question>, CliError> {
    let request = |seed: usize, prompt: Vec<TokenId>| Request {
        sampler: SamplerSettings { temperature: args.temperature, ..SamplerSettings::default() },
        seed: Some(seed as u64),
        max_tokens: Some(args.max_tokens),
        // The prompt is run once; what is measured comes after it.
        reuse: true,
        ..Request::new(prompt)
    };
    // What is wrong with the options is not the first prompt's fault: one token stands in for it.
    args.model.check(file, &request(0, vec![0]))?;
    let question = |(index, prompt): (usize, Prompt)| {
        let request = prompt.encode(file).map(|tokens| request(index, tokens));
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

/// One prompt with one method.
struct Run {
    category: String,
    method: usize,
    /// Of the last repeat; texts of all repeats are compared.
    outcome: Outcome,
    /// Median over the repeats, of the answer after its first pass.
    seconds: f64,
    /// The passes after the first that drew tokens, of the last repeat.
    passes: Vec<PassTrace>,
    /// How its tokens differ from plain decoding's.
    difference: Option<String>,
}

/// Answers every prompt with every method; says whether Ctrl-C ended it early.
fn measure(
    args: &Args,
    engine: &mut Engine,
    questions: &[Question],
    methods: &[Method],
    draft: &DraftOptions,
    passes: &Passes,
) -> Result<(Vec<Run>, bool), CliError> {
    let bar = progress::items(questions.len(), "prompts");
    let mut runs = Vec::new();
    for (index, Question { prompt, request }) in questions.iter().enumerate() {
        let mut tries: Vec<Vec<(Outcome, Vec<PassTrace>)>> = vec![Vec::new(); methods.len()];
        for repeat in 0..args.repeats as usize {
            // Whoever runs first finds caches cold and clocks low: take turns.
            let turn = (index + repeat) % methods.len();
            for method in (0..methods.len()).map(|i| (i + turn) % methods.len()) {
                let mut request = request.clone();
                methods[method].apply(draft.draft_width, &mut request);
                // What the other runs of this very prompt have taught would be the answer itself.
                engine.scheduler().unlearn();
                passes.clear();
                let outcome = generate::answer(engine, request, false)?;
                report::check(&outcome)?;
                if outcome.was_cancelled() {
                    bar.finish_and_clear();
                    return Ok((runs, true));
                }
                tries[method].push((outcome, passes.take()));
            }
        }
        engine.scheduler().forget_cached();
        let plain = tries[0][0].0.token_ids.clone();
        for (method, tries) in tries.into_iter().enumerate() {
            let wrong = tries.iter().find_map(|(outcome, _)| difference(&plain, &outcome.token_ids));
            let difference =
                wrong.map(|at| format!("{}: {} differs from plain decoding {at}", prompt.id, methods[method]));
            let seconds = median(&tries.iter().map(|(outcome, _)| outcome.decode_seconds).collect::<Vec<_>>());
            let (outcome, passes) = tries.into_iter().next_back().expect("at least one repeat");
            runs.push(Run { category: prompt.category.clone(), method, outcome, seconds, passes, difference });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((runs, false))
}

/// Where two texts part, in words.
fn difference(plain: &[TokenId], other: &[TokenId]) -> Option<String> {
    let same = plain.iter().zip(other).take_while(|(a, b)| a == b).count();
    match (plain.get(same), other.get(same)) {
        (None, None) => None,
        (Some(a), Some(b)) => Some(format!("at token {same}: {b} where it has {a}")),
        (Some(_), None) => Some(format!("by ending after {same} of {} tokens", plain.len())),
        (None, Some(_)) => Some(format!("by going on after its {same} tokens")),
    }
}

/// One method on one category.
#[derive(Debug, Serialize)]
struct Summary {
    category: String,
    method: String,
    prompts: usize,
    tokens: usize,
    passes: usize,
    drafted: usize,
    accepted: usize,
    /// After the first token of each answer.
    tokens_per_second: f64,
    tokens_per_pass: f64,
    acceptance_by_depth: Vec<f64>,
    /// Against plain decoding on the same prompts, by the clock.
    speedup: f64,
    /// The same with every pass at its cost in the table, measured drafting time included.
    replayed_speedup: f64,
    /// Whether every answer's tokens are those of plain decoding.
    identical: bool,
}

/// One summary for each category and method, and for all categories together.
fn results(runs: &[Run], methods: &[Method], table: &CostTable) -> Vec<Summary> {
    let mut by_category: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_category.entry(&run.category).or_default().push(run);
    }
    let mut groups: Vec<(&str, Vec<&Run>)> = by_category.into_iter().collect();
    if groups.len() > 1 {
        groups.push(("all", runs.iter().collect()));
    }
    let summaries = groups.iter().flat_map(|(category, runs)| {
        let of = |method: usize| runs.iter().copied().filter(|run| run.method == method).collect::<Vec<&Run>>();
        let plain = of(0);
        methods
            .iter()
            .enumerate()
            .map(move |(index, method)| summary(category, method, &of(index), &plain, table))
            .collect::<Vec<_>>()
    });
    summaries.collect()
}

fn summary(category: &str, method: &Method, runs: &[&Run], plain: &[&Run], table: &CostTable) -> Summary {
    let count = |of: fn(&Outcome) -> usize| runs.iter().map(|run| of(&run.outcome)).sum::<usize>();
    let seconds = |runs: &[&Run]| runs.iter().map(|run| run.seconds).sum::<f64>();
    // What was drawn after the first pass of each answer is what `seconds` covers.
    let replay = Replay::of(runs.iter().flat_map(|run| &run.passes), table);
    let (tokens, passes) = (count(|o| o.token_ids.len()), count(|o| o.passes));
    Summary {
        category: category.to_owned(),
        method: method.to_string(),
        prompts: runs.len(),
        tokens,
        passes,
        drafted: count(|o| o.drafted),
        accepted: count(|o| o.accepted),
        tokens_per_second: ratio(replay.tokens as f64, seconds(runs)),
        tokens_per_pass: ratio(tokens as f64, passes as f64),
        acceptance_by_depth: by_depth(runs),
        speedup: ratio(seconds(plain), seconds(runs)),
        replayed_speedup: ratio(replay.plain, replay.drafted),
        identical: runs.iter().all(|run| run.difference.is_none()),
    }
}

/// Over all answers: of the passes that ran a guess at a depth, the share that accepted it.
fn by_depth(runs: &[&Run]) -> Vec<f64> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for pass in runs.iter().flat_map(|run| &run.passes) {
        let deepest = pass.sequences.iter().map(|sequence| deepest(&sequence.proposed)).max().unwrap_or(0);
        counts.resize(counts.len().max(deepest), (0, 0));
        for (depth, (run, accepted)) in counts[..deepest].iter_mut().enumerate() {
            *run += 1;
            *accepted += usize::from(depth + 1 < tokens(pass));
        }
    }
    counts.into_iter().map(|(run, accepted)| ratio(accepted as f64, run as f64)).collect()
}

/// 0 when there is nothing to divide by.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { (a / b * 1e4).round() / 1e4 } else { 0.0 }
}

fn show(results: &[Summary]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "category",
        "method",
        "tokens/s",
        "tokens/pass",
        "speed-up",
        "replayed",
        "accepted by depth",
        "same text",
    ]);
    table.add_rows(results.iter().map(|s| {
        let depths: Vec<_> = s.acceptance_by_depth.iter().map(|share| format!("{share:.2}")).collect();
        [
            s.category.clone(),
            s.method.clone(),
            format!("{:.1}", s.tokens_per_second),
            format!("{:.2}", s.tokens_per_pass),
            format!("{:.2}", s.speedup),
            format!("{:.2}", s.replayed_speedup),
            depths.join(" "),
            if s.identical { "yes" } else { "NO" }.to_owned(),
        ]
    }));
    table
}

/// Collects the passes of the answer at hand.
#[derive(Clone, Debug, Default)]
struct Passes(Arc<Mutex<Vec<PassTrace>>>);

impl Passes {
    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The passes that drew tokens, but for the first, which is the prompt's.
    fn take(&self) -> Vec<PassTrace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).skip(1).collect()
    }
}

impl Recorder for Passes {
    fn pass(&mut self, trace: &PassTrace) {
        if tokens(trace) > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(trace.clone());
        }
    }
}

/// Tokens that a pass drew.
fn tokens(pass: &PassTrace) -> usize {
    pass.sequences.iter().map(|sequence| sequence.tokens.len()).sum()
}

/// Depth of the deepest guess that was run.
fn deepest(guesses: &[GuessTrace]) -> usize {
    let mut depths = vec![0; guesses.len()];
    for (i, guess) in guesses.iter().enumerate() {
        depths[i] = 1 + guess.parent.map_or(0, |parent| depths[parent]);
    }
    (guesses.iter().zip(depths)).filter(|(guess, _)| guess.run).map(|(_, depth)| depth).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_decoding_comes_first() {
        let asked = |names: &[&str]| methods(&names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>());
        let words = |methods: Vec<Method>| methods.iter().map(Method::to_string).collect::<Vec<_>>();
        assert_eq!(words(asked(&["auto", "none", "auto"])), ["none", "auto"]);
        assert_eq!(words(asked(&[])), ["none"]);
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(difference(&[1, 2, 3], &[1, 7, 3]).unwrap(), "at token 1: 7 where it has 2");
        assert_eq!(difference(&[1, 2], &[1]).unwrap(), "by ending after 1 of 2 tokens");
        assert_eq!(difference(&[1], &[1, 2]).unwrap(), "by going on after its 1 tokens");
    }
}
