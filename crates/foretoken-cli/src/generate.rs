//! `foretoken generate`: continue a text, or answer one question.

use std::path::PathBuf;
use std::process::ExitCode;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{Engine, Infill, ModelFile, Request, draw_seed};
use foretoken_formats::chat::Message;
use foretoken_formats::tokenizer::Special;

use crate::answer::{Reasons, Shown, answer, stream};
use crate::error::{CliError, INTERRUPTED};
use crate::machine::Machine;
use crate::options::{AnswerOptions, count};
use crate::output;
use crate::prompt::PromptSource;
use crate::report;
use crate::trace::{self, Header, TraceFile};

/// Continue a text, or answer a question with --chat
///
/// The text is streamed to standard output; a summary with the speed goes to standard error. Sampling defaults are those
/// of llama.cpp: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05. --temperature 0 gives the same text every time, and
/// so does any temperature with a --seed.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// The text to continue, exactly as it is; `-` or nothing reads standard input
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt", "file"])]
    positional: Option<String>,

    /// The same, for prompts that begin with a dash
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true, conflicts_with = "file")]
    prompt: Option<String>,

    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Put the prompt as a user's message into the model's chat template
    #[arg(long)]
    chat: bool,

    /// A system message before it
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,

    /// Read special tokens such as <|im_end|> in the prompt as what they mean, not as plain text
    #[arg(long)]
    parse_special: bool,

    /// Write what stands between the prompt and this text, with models that have tokens for it (most code models)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["chat", "parse_special"], allow_hyphen_values = true)]
    suffix: Option<String>,

    /// Most tokens to write; 0 writes until the text ends or the context is full
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 512, value_parser = count)]
    max_tokens: usize,

    /// Print one JSON object at the end instead of streaming the text
    #[arg(long)]
    json: bool,

    /// Say more in the summary: speed of the prompt, acceptance by depth, what a pass costs
    #[arg(short, long)]
    verbose: bool,

    /// Colour the text by who guessed each token, and say how many each gave
    #[arg(long, conflicts_with = "json")]
    show: bool,

    /// Say in a sentence why drafting changed, each time it did: who guesses, how far, and what that was expected to bring
    #[arg(long)]
    why: bool,

    /// Write a JSON line about every pass to a file, for `foretoken explain`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    options: AnswerOptions,
}

const EXAMPLES: &str = "\
Examples:
  foretoken generate -m smollm2 'Once upon a time'
  foretoken generate -m qwen2.5-coder-1.5b --file main.py --temperature 0 -n 200
  foretoken generate -m smollm2 --chat --system 'Be brief.' 'Why is the sky blue?'
  foretoken generate -m qwen2.5-coder-1.5b --suffix '    return total' 'def mean(numbers):'
  foretoken generate -m smollm2 --draft none 'Once upon a time' --seed 1   the same text, at plain speed
  foretoken generate -m qwen2.5-coder-1.5b --chat --schema person.json 'Describe Ada Lovelace.'
  foretoken generate -m smollm2 --json 'Once upon a time' | jq .tokens_per_second";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let given = args.positional.as_deref().or(args.prompt.as_deref());
    let text = PromptSource { given, file: args.file.as_deref() }.read()?;
    let AnswerOptions { model, draft, .. } = &args.options;
    let file = model.open()?;
    let Infill { prompt, end_tokens } = encode(args, &file, &text)?;
    let request = Request { end_tokens, ..args.options.request(&file, prompt, args.max_tokens)? };
    model.check(&file, &request)?;
    let traced = args.trace.as_deref().map(|path| TraceFile::create(path, file.tokenizer())).transpose()?;
    let mut engine = model.load(file, draft, traced.clone().map(|file| Box::new(file) as _))?;
    // Drawn here, so that the trace can name it.
    let request = Request { seed: Some(request.seed.unwrap_or_else(draw_seed)), ..request };
    if let Some(traced) = &traced {
        traced.begin(&header(args, &engine, &request));
    }
    let ended = answer_and_tell(args, &mut engine, request);
    match (traced.map_or(Ok(()), |traced| traced.finish()), ended) {
        (Err(error), Ok(ExitCode::SUCCESS) | Err(CliError::OutputClosed)) => Err(error),
        (Err(error), ended) => {
            output::note(format_args!("{:?}", miette::Report::new(error)));
            ended
        }
        (Ok(()), ended) => ended,
    }
}

fn header(args: &Args, engine: &Engine, request: &Request) -> Header {
    let settings = SamplerSettings { seed: request.seed.unwrap_or_default(), ..request.sampler.clone() };
    Header {
        foretoken_trace: trace::VERSION,
        model: engine.file().name(),
        draft: match args.options.acceptance.acceptor {
            acceptor if acceptor.reproducible() => args.options.draft.draft.to_string(),
            acceptor => format!("{}, accepted by {acceptor} (not reproducible)", args.options.draft.draft),
        },
        draft_width: args.options.draft.draft_width,
        drafters: engine.drafters().into_iter().map(str::to_owned).collect(),
        settings: serde_json::to_value(settings).expect("settings have string keys"),
        vocab_size: engine.file().tokenizer().vocab_size(),
        cost_table: engine.cost_table().clone(),
        machine: Machine::here(engine.isa(), engine.threads()),
    }
}

fn answer_and_tell(args: &Args, engine: &mut Engine, request: Request) -> Result<ExitCode, CliError> {
    let mut reasons = Reasons::default();
    let outcome = match args.json {
        true => answer(engine, request, |piece| {
            reasons.take(piece);
            Ok(())
        })?,
        false => stream(engine, request, Shown { sources: args.show, why: args.why })?,
    };
    if args.json {
        output::json(&outcome)?;
        if args.why {
            output::note(reasons.lines.join("\n"));
        }
    } else {
        // On a terminal the summary shall not continue the text's last line.
        if !outcome.text.ends_with('\n') {
            output::text("\n")?;
        }
        output::note(format_args!("\n{}", report::summary(&outcome)));
        if args.verbose {
            output::note(report::details(&outcome, engine).trim_end());
        }
    }
    report::check(&outcome)?;
    Ok(if outcome.was_cancelled() { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

fn encode(args: &Args, file: &ModelFile, text: &str) -> Result<Infill, CliError> {
    if let Some(suffix) = &args.suffix {
        return file.encode_infill(text, suffix)?.ok_or_else(|| CliError::Argument {
            found: "this model has no tokens to fill in the middle".into(),
            wanted: "leave --suffix away, or take a code model such as qwen2.5-coder".into(),
        });
    }
    let special = if args.parse_special { Special::Parse } else { Special::AsText };
    let prompt = match args.chat {
        false => file.encode(text, special)?,
        true => {
            let system = args.system.iter().map(|text| Message::new("system", text));
            let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
            file.encode_chat(&messages, special)?
        }
    };
    Ok(Infill { prompt, end_tokens: Vec::new() })
}
