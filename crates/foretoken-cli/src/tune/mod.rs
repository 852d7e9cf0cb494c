//! `foretoken tune`: measures what passes cost and how often guesses come true, and writes a profile.

mod costs;

use std::path::PathBuf;
use std::process::ExitCode;

use foretoken_decode::Replay;
use foretoken_decode::budget::{CostModel, CostTable, SharedAcceptance};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{Engine, Method, ModelFile, Request};

use crate::answer::answer;
use crate::bench::{Passes, prompts};
use crate::error::{CliError, INTERRUPTED};
use crate::machine::Machine;
use crate::options::{DraftModels, DraftOptions, ModelOptions, at_least_one};
use crate::output;
use crate::profile::{ModelId, Profile};
use crate::progress;
use crate::report;
use crate::whole::{Kind, WholeFile};

/// Measure a profile for --profile: what passes cost here, and how often guesses come true on your kind of prompts
///
/// Without a profile the same is learned while answering, so that the first answers are drafted for less well. Every other
/// prompt is learned from; on the others the profile is compared with starting from nothing, by replay through the measured
/// costs. What does not help there is left out of the profile.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// The model, before what --model says
    #[arg(value_name = "MODEL")]
    name: Option<String>,

    /// One JSON object a line: {"prompt": ...} or {"turns": [...]}
    #[arg(long, value_name = "FILE")]
    prompts: PathBuf,

    /// Where to write the profile
    #[arg(short, long, value_name = "PROFILE", default_value = "profile.json")]
    out: PathBuf,

    /// Whose guesses to learn about: auto, or drafters joined by +
    #[arg(long, value_name = "METHOD", default_value_t = Method::Auto)]
    draft: Method,

    /// Most tokens of an answer
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 128, value_parser = at_least_one)]
    max_tokens: usize,

    /// Use at most this many prompts of each category, spread over the file
    #[arg(long, value_name = "PROMPTS", value_parser = at_least_one)]
    limit: Option<usize>,

    /// As your requests will have it
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,

    #[command(flatten)]
    model: ModelOptions,

    #[command(flatten)]
    models: DraftModels,
}

const EXAMPLES: &str = "\
Examples:
  foretoken tune smollm2 --prompts prompts.jsonl --out smollm2.json
  foretoken generate -m smollm2 --profile smollm2.json 'Once upon a time'";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let model_options = ModelOptions { model: args.name.clone().or(args.model.model.clone()), ..args.model.clone() };
    let file = model_options.open()?;
    let requests = requests(args, &file)?;
    let mut out = WholeFile::create(&args.out, Kind::Profile)?;
    let draft = DraftOptions {
        draft: args.draft.clone(),
        models: args.models.clone(),
        draft_width: None,
        cost_model: None,
        profile: None,
    };
    let passes = Passes::default();
    let mut engine = model_options.load(file, &draft, Some(Box::new(passes.clone())))?;
    let begin = engine.scheduler().cost_model().clone();
    let model = ModelId::of(&engine, &model_options)?;

    output::note("measuring passes");
    let table = costs::measure(&mut engine)?;
    let mut tuning = Tuning { engine, passes, begin, table };
    let (learn_from, check_with): (Vec<_>, Vec<_>) = requests.iter().enumerate().partition(|(index, _)| index % 2 == 0);
    let strip = |part: Vec<(usize, &Request)>| part.into_iter().map(|(_, request)| request.clone()).collect::<Vec<_>>();
    let Some(learned) = tuning.learn(&strip(learn_from))? else { return Ok(INTERRUPTED.into()) };
    let Some(found) = tuning.compare(&strip(check_with), &learned)? else { return Ok(INTERRUPTED.into()) };

    let Tuning { engine, .. } = &tuning;
    let names = engine.drafters();
    let mut table = learned.table;
    let mut acceptance = learned.acceptance.by_name(&names);
    let kept = found.best();
    if !kept.costs {
        // Where the other prompts were served better without, a profile that says nothing does no harm.
        table = tuning.begin.table().clone();
    }
    if !kept.acceptance {
        acceptance.clear();
    }
    let machine = Machine::here(engine.isa(), engine.threads());
    let profile = Profile::new(model, machine, table, acceptance);
    let text = serde_json::to_string_pretty(&profile).expect("a profile has string keys and finite numbers") + "\n";
    out.write(text.as_bytes())?;
    out.finish()?;
    output::line(found.words(kept))?;
    output::line(format_args!("wrote {}; use it with --profile", args.out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Encodes and checks the prompts.
fn requests(args: &Args, file: &ModelFile) -> Result<Vec<Request>, CliError> {
    let prompts = prompts::choose(prompts::read(&args.prompts)?, None, args.limit);
    if prompts.len() < 2 {
        return Err(CliError::Argument {
            found: format!("{} has fewer than two prompts", args.prompts.display()),
            wanted: "give one to learn from and one to check with at least; twenty or more are better".into(),
        });
    }
    let request = |(index, prompt): (usize, prompts::Prompt)| {
        let mut request = Request {
            sampler: SamplerSettings { temperature: args.temperature, ..SamplerSettings::default() },
            seed: Some(index as u64),
            max_tokens: Some(args.max_tokens),
            ..Request::new(prompt.encode(file)?)
        };
        args.draft.apply(None, &mut request);
        args.model.check(file, &request)?;
        Ok(request)
    };
    prompts.into_iter().enumerate().map(request).collect()
}

/// An engine and what it believed at first.
struct Tuning {
    engine: Engine,
    passes: Passes,
    begin: CostModel,
    /// Costs of passes as measured.
    table: CostTable,
}

/// What was learned.
struct Learned {
    /// Costs of passes and of drafting.
    table: CostTable,
    acceptance: SharedAcceptance,
}

impl Tuning {
    /// Answers prompts and keeps what that teaches; `None` after Ctrl-C.
    fn learn(&mut self, requests: &[Request]) -> Result<Option<Learned>, CliError> {
        let bar = progress::items(requests.len(), "learning");
        self.engine.scheduler().believe(CostModel::learning(self.table.clone()), SharedAcceptance::default());
        for request in requests {
            if self.answer(request)?.is_none() {
                return Ok(None);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let scheduler = self.engine.scheduler();
        let costs = scheduler.costs();
        // The passes of these answers tell what is around a pass, and what drafting takes; their rows are few and mixed.
        let table = CostTable { draft: costs.draft, overhead: costs.overhead, ..self.table.clone() };
        Ok(Some(Learned { table, acceptance: scheduler.acceptance().clone() }))
    }

    /// Answers other prompts from nothing and with what was learned, each as the first of a process.
    fn compare(&mut self, requests: &[Request], learned: &Learned) -> Result<Option<Found>, CliError> {
        let bar = progress::items(requests.len(), "checking");
        let names = self.engine.drafters();
        let mut found = Found::default();
        for request in requests {
            for kept in Kept::ALL {
                let cost = if kept.costs { CostModel::learning(learned.table.clone()) } else { self.begin.clone() };
                let acceptance = if kept.acceptance { learned.acceptance.clone() } else { SharedAcceptance::default() };
                self.engine.scheduler().believe(cost, acceptance);
                self.engine.scheduler().unlearn();
                let Some(replay) = self.answer(request)? else { return Ok(None) };
                found.add(kept, replay, &learned.table, &names);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Some(found))
    }

    /// Answers one prompt; the passes after the first that drew tokens.
    fn answer(&mut self, request: &Request) -> Result<Option<Vec<foretoken_decode::PassTrace>>, CliError> {
        self.passes.clear();
        let outcome = answer(&mut self.engine, request.clone(), |_| Ok(()))?;
        report::check(&outcome)?;
        Ok((!outcome.was_cancelled()).then(|| self.passes.take()))
    }
}

/// Which parts of what was learned are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    costs: bool,
    acceptance: bool,
}

impl Kept {
    /// Nothing first.
    const ALL: [Kept; 4] = [
        Kept { costs: false, acceptance: false },
        Kept { costs: true, acceptance: false },
        Kept { costs: false, acceptance: true },
        Kept { costs: true, acceptance: true },
    ];
}

/// Seconds of the other prompts, replayed, for each of [`Kept::ALL`].
#[derive(Debug, Default)]
struct Found {
    plain: f64,
    seconds: [f64; Kept::ALL.len()],
}

impl Found {
    fn add(&mut self, kept: Kept, passes: Vec<foretoken_decode::PassTrace>, table: &CostTable, drafters: &[&str]) {
        let replay = Replay::of(&passes, table, drafters);
        let index = Kept::ALL.iter().position(|&other| other == kept).expect("one of them");
        self.seconds[index] += replay.drafted;
        if index == 0 {
            self.plain += replay.plain;
        }
    }

    /// The fastest; of equals the one that keeps least.
    fn best(&self) -> Kept {
        let fastest = self.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let index = self.seconds.iter().position(|&seconds| seconds <= fastest).unwrap_or(0);
        Kept::ALL[index]
    }

    fn words(&self, kept: Kept) -> String {
        let speedup = |seconds: f64| self.plain / seconds.max(1e-9);
        let index = Kept::ALL.iter().position(|&other| other == kept).expect("one of them");
        let what = match (kept.costs, kept.acceptance) {
            (true, true) => "costs and acceptance",
            (true, false) => "costs; what was learned of acceptance did not help and is left out",
            (false, true) => "acceptance; the costs did not help and are left out",
            (false, false) => "nothing that would help: learning while answering does as well here",
        };
        format!(
            "on the other prompts, replayed: {:.3}x plain from nothing, {:.3}x with the profile, which has {what}",
            speedup(self.seconds[0]),
            speedup(self.seconds[index])
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_help_is_left_out() {
        let best = |seconds| Found { plain: 10.0, seconds }.best();
        assert_eq!(best([5.0, 5.0, 5.0, 5.0]), Kept::ALL[0]);
        assert_eq!(best([5.0, 4.5, 5.0, 4.0]), Kept::ALL[3]);
        assert_eq!(best([5.0, 4.5, 5.0, 4.6]), Kept::ALL[1]);
        let words = Found { plain: 10.0, seconds: [5.0, 4.0, 6.0, 7.0] }.words(Kept::ALL[1]);
        assert!(words.contains("2.000x") && words.contains("2.500x") && words.contains("left out"), "{words}");
    }
}
