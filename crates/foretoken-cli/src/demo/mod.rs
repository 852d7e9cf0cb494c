//! `foretoken demo`: plain and multi-token decoding side by side, both really running.

mod screen;
mod side;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use foretoken_engine::{Method, Request, draw_seed};
use foretoken_formats::tokenizer::Special;

use crate::colour;
use crate::error::{CliError, DIFFERENT, INTERRUPTED};
use crate::interrupt::Watch;
use crate::options::{DraftOptions, ModelOptions, SamplingOptions, at_least_one};
use crate::output;
use screen::Screen;
use side::Side;

/// Watch plain and multi-token decoding write the same text, side by side
///
/// The model is loaded twice. The two take turns, a pass at a time: whoever has spent less time is next, so that both have
/// always had the same time and nobody disturbs the other. Only a side's own passes count as its time. A model that would be
/// too fast to watch is slowed down by pauses between the passes, which count for nobody. Without a terminal, what came out
/// is printed at the end.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// The text to continue [default: the beginning of a Python function, or of a story for another model]
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,

    /// Tokens to write
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 320, value_parser = at_least_one)]
    max_tokens: usize,

    /// On a terminal, make plain decoding take at least so long, by pauses; 0 runs at full speed
    #[arg(long, value_name = "SECONDS", default_value_t = 12.0, value_parser = parse_seconds)]
    seconds: f64,

    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    draft: DraftOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
}

const EXAMPLES: &str = "\
Examples:
  foretoken demo
  foretoken demo 'class Stack:' --temperature 0
  foretoken demo -m qwen2.5-coder-0.5b 'Write out the numbers from one to twenty:' --seed 1
  foretoken demo --seconds 0                       at full speed";

const CODE: &str = "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n";
const STORY: &str =
    "Once upon a time, there was a little fox. The little fox lived in a little house. Once upon a time,";

/// Frames a second, at most.
const FRAME: Duration = Duration::from_millis(33);

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s| (0.0..=3600.0).contains(s)).ok_or_else(|| "give seconds from 0 to 3600".to_owned())
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let prompt = args.prompt.as_deref().unwrap_or(if args.model.is_embedded() { CODE } else { STORY });
    let mut sides = sides(args, prompt)?;
    let watch = Watch::start();
    let on_terminal = io::stdout().is_terminal();
    let mut screen = on_terminal.then(|| Screen::new(prompt.to_owned()));
    let mut slower = 1.0;
    let mut shown = Instant::now();
    while let Some(next) = next(&sides) {
        let spent = sides[next].step()?;
        if watch.pressed() {
            drop(screen);
            output::note("interrupted");
            return Ok(INTERRUPTED.into());
        }
        let Some(screen) = &mut screen else { continue };
        slower = slow_down(&sides[0], args).unwrap_or(slower);
        if shown.elapsed() >= FRAME || sides.iter().all(Side::is_over) {
            shown = Instant::now();
            screen.show(&sides, slower)?;
        }
        thread::sleep(Duration::from_secs_f64(spent * (slower - 1.0)));
    }
    drop(screen);
    conclude(prompt, &sides, on_terminal)
}

/// The two engines with their requests, which differ in who drafts alone.
fn sides(args: &Args, prompt: &str) -> Result<[Side; 2], CliError> {
    let seed = args.sampling.seed.unwrap_or_else(draw_seed);
    let draft = |method: &Method| DraftOptions { draft: method.clone(), ..args.draft.clone() };
    let side = |draft: &DraftOptions, file| {
        let mut request = Request::new(Vec::new());
        (request.sampler, request.seed) = (args.sampling.settings(), Some(seed));
        request.max_tokens = Some(args.max_tokens);
        draft.draft.apply(draft.draft_width, &mut request);
        let file: foretoken_engine::ModelFile = file;
        request.prompt = file.encode(prompt, Special::AsText)?;
        args.model.check(&file, &request)?;
        Side::new(draft.draft.to_string(), args.model.load(file, draft, None)?, request)
    };
    let plain = side(&draft(&Method::None), args.model.open()?)?;
    let drafted = side(&args.draft, args.model.open_again()?)?;
    Ok([plain, drafted])
}

/// Whose turn it is: that of whoever has spent less time; `None` when both are done.
fn next(sides: &[Side; 2]) -> Option<usize> {
    match (sides[0].is_over(), sides[1].is_over()) {
        (true, true) => None,
        (false, false) => Some(usize::from(sides[1].seconds() < sides[0].seconds())),
        (plain_is_over, _) => Some(usize::from(plain_is_over)),
    }
}

/// How many times slower the show has to be, once plain decoding's speed is known.
fn slow_down(plain: &Side, args: &Args) -> Option<f64> {
    let known = plain.tokens() >= 8;
    known.then(|| (args.seconds / (plain.seconds_per_token() * args.max_tokens as f64)).max(1.0))
}

fn conclude(prompt: &str, sides: &[Side; 2], on_terminal: bool) -> Result<ExitCode, CliError> {
    let [plain, drafted] = sides;
    if !on_terminal {
        output::line(format_args!("{prompt}{}\n", plain.text()))?;
    }
    let width = drafted.name().len().max(plain.name().len());
    for side in sides {
        let faster = plain.seconds_per_token() / side.seconds_per_token();
        output::line(format_args!(
            "{:width$}  {}, {faster:.2} times plain decoding's speed",
            side.name(),
            side.summary()
        ))?;
    }
    let same = plain.ids() == drafted.ids();
    output::line(format_args!("texts identical: {}", if same { "yes" } else { "NO" }))?;
    let timed = "A side's time is that of its own passes after the first, which reads the prompt; the two took turns.";
    output::note(if colour::wanted(&io::stderr()) { format!("\x1b[2m{timed}\x1b[0m") } else { timed.to_owned() });
    Ok(if same { ExitCode::SUCCESS } else { DIFFERENT.into() })
}
