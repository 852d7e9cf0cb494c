//! Options that several subcommands share, and what they mean for the engine.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use foretoken_decode::Recorder;
use foretoken_decode::budget::CostTable;
use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{Engine, EngineOptions, Isa, KvType, Method, ModelFile, Request, Weights};
use foretoken_formats::gguf::Gguf;
use foretoken_model::HeadsInfo;

use crate::embedded;
use crate::error::CliError;
use crate::model_file;
use crate::output;
use crate::profile::Profile;
use crate::progress::LoadingBar;
use crate::prompt::read_text;
use crate::structure::{AcceptanceOptions, StructureOptions};

/// Which model, and how it is kept in memory and run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// A .gguf file, or parts of the name of one in $FORETOKEN_MODELS (else ~/.cache/foretoken/models), as in smollm2-135m
    /// [default: embedded, a small model of Python code inside this program]
    #[arg(short, long, value_name = "FILE|NAME", env = "FORETOKEN_MODEL")]
    pub model: Option<String>,

    /// Threads of a pass [default: all cores, fewer for a small model]. The text does not depend on it
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// Most tokens of prompt and answer together [default: the model's own limit, at most 8192]
    #[arg(short, long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(2..))]
    pub ctx_size: Option<u32>,

    /// How keys and values are kept: q8_0 takes about half the memory, and can change the text
    #[arg(long, value_enum, default_value_t = KvTypeName::F16)]
    pub kv_type: KvTypeName,

    /// How weights are kept in memory: widened they need more of it, and more rows a pass are nearly free
    #[arg(long, value_enum, default_value_t = WeightsName::AsStored)]
    pub weights: WeightsName,

    /// Instruction set of the kernels [default: the best this CPU has]. The text does not depend on it
    #[arg(long, value_name = "ISA", value_parser = parse_isa)]
    pub isa: Option<Isa>,

    /// Rows of a prompt per pass. The text does not depend on it
    #[arg(long, value_name = "ROWS", default_value_t = foretoken_engine::PROMPT_ROWS, value_parser = at_least_one)]
    pub prompt_rows: usize,
}

/// `--kv-type`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KvTypeName {
    /// Half precision
    F16,
    /// 8-bit integers with a scale for every 32
    #[value(name = "q8_0")]
    Q8_0,
}

/// `--weights`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WeightsName {
    /// As the file has them
    AsStored,
    /// Single precision
    F32,
    /// Half precision
    F16,
}

impl KvTypeName {
    /// The kernels' name for it.
    pub fn kv_type(self) -> KvType {
        match self {
            Self::F16 => KvType::F16,
            Self::Q8_0 => KvType::Q8_0,
        }
    }
}

impl WeightsName {
    /// The model's name for it.
    pub fn weights(self) -> Weights {
        match self {
            Self::AsStored => Weights::AsStored,
            Self::F32 => Weights::F32,
            Self::F16 => Weights::F16,
        }
    }
}

fn parse_isa(name: &str) -> Result<Isa, String> {
    let all = Isa::available();
    all.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|isa| isa.name()).collect();
        format!("this CPU has {}", names.join(", "))
    })
}

/// Reads a count.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number of at least 0".to_owned())
}

/// Reads a count that 0 makes no sense for.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| "give a whole number of at least 1".to_owned())
}

impl ModelOptions {
    /// Finds the model file and reads all but the weights.
    pub fn open(&self) -> Result<ModelFile, CliError> {
        Ok(ModelFile::from_gguf(self.gguf()?)?)
    }

    /// The model file's header. When no model was named it says which one it takes.
    pub fn gguf(&self) -> Result<Gguf, CliError> {
        if self.model.is_none() {
            output::note(embedded::notice());
        }
        model_file::open(self.name())
    }

    /// The same again, without a word.
    pub fn open_again(&self) -> Result<ModelFile, CliError> {
        Ok(ModelFile::from_gguf(model_file::open(self.name())?)?)
    }

    /// Whether it is the model inside this program.
    pub fn is_embedded(&self) -> bool {
        self.name() == embedded::NAME
    }

    /// What was named as the model.
    pub fn name(&self) -> &str {
        self.model.as_deref().unwrap_or(embedded::NAME)
    }

    /// Checks a request against the model, before the weights are loaded for it.
    pub fn check(&self, file: &ModelFile, request: &Request) -> Result<(), CliError> {
        let context = file.context_size(self.ctx_size.map(|tokens| tokens as usize))?;
        let vocab_size = file.tokenizer().vocab_size();
        request.validate(vocab_size, context).map_err(|error| CliError::Request { error })
    }

    /// Loads the weights, with a progress bar when it takes long.
    pub fn load(
        &self,
        file: ModelFile,
        draft: &DraftOptions,
        recorder: Option<Box<dyn Recorder>>,
    ) -> Result<Engine, CliError> {
        self.load_as(file, draft, |options| EngineOptions { recorder, ..options })
    }

    /// The same with options that only some subcommands have.
    pub fn load_as(
        &self,
        file: ModelFile,
        draft: &DraftOptions,
        change: impl FnOnce(EngineOptions<'_>) -> EngineOptions<'_>,
    ) -> Result<Engine, CliError> {
        draft.models.check(&draft.draft, &file)?;
        let profile = draft.profile.as_deref().map(Profile::read).transpose()?;
        let bar = LoadingBar::new();
        let progress = |read, total| bar.tell(read, total);
        let options = EngineOptions {
            draft_model: draft.models.draft_model.as_deref().map(model_file::find).transpose()?,
            draft_weights: draft.models.draft_weights.map(DraftWeights::weights),
            exit_layers: draft.models.exit_layers,
            draft_requant: draft.models.draft_requant.map(RequantName::weights),
            cost_table: draft.cost_model.as_deref().map(read_cost_table).transpose()?,
            ..self.engine_options(&progress)
        };
        let mut engine = Engine::load(file, change(options))?;
        if let Some(profile) = profile {
            profile.apply(&mut engine, self)?;
        }
        Ok(engine)
    }

    /// The options that concern the model.
    pub fn engine_options<'a>(&self, progress: &'a (dyn Fn(u64, u64) + Sync)) -> EngineOptions<'a> {
        EngineOptions {
            threads: self.threads.map(usize::from),
            context: self.ctx_size.map(|tokens| tokens as usize),
            kv_type: self.kv_type.kv_type(),
            weights: self.weights.weights(),
            isa: self.isa.unwrap_or_else(Isa::best),
            prompt_rows: self.prompt_rows,
            progress,
            ..EngineOptions::default()
        }
    }
}

/// How much is guessed. None of these can change the text.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Drafting (changes the speed, never the text)")]
pub struct DraftOptions {
    /// Who guesses the next tokens: auto (whatever pays), none, or drafters by name, joined by +
    ///
    /// From the text and what was run before: suffix (what followed the same words, in this text and in earlier answers),
    /// recycle (what past passes found likely), prompt_lookup (a simpler suffix), lookahead and jacobi (the model's own
    /// parallel guesses, carried from pass to pass), grammar (what --schema and the like force). By running a model:
    /// draft_model (see --draft-model), requantised (see --draft-requant), early_exit (the first layers alone), mtp and
    /// blockwise (the model's own prediction heads, where it has some).
    #[arg(long, value_name = "METHOD", default_value_t = Method::Auto)]
    pub draft: Method,

    #[command(flatten)]
    pub models: DraftModels,

    /// Check this many guesses every pass, whether or not they pay [default: as many as pay, by measurement]
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    pub draft_width: Option<usize>,

    /// Decide by the pass costs in this file instead of by the clock, so that a run repeats pass by pass
    #[arg(long, value_name = "FILE")]
    pub cost_model: Option<PathBuf>,

    /// Start from what `foretoken tune` measured, instead of from nothing
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// What the drafters that run a model run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Drafting (changes the speed, never the text)")]
pub struct DraftModels {
    /// A smaller model that drafts, for --draft draft_model: a .gguf file, or parts of the name of one, as for --model
    #[arg(long, value_name = "FILE|NAME")]
    pub draft_model: Option<String>,

    /// How the draft model's weights are kept [default: q4_0 where that makes it a fifth smaller, else as stored]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub draft_weights: Option<DraftWeights>,

    /// Layers of the model that --draft early_exit runs [default: a third of them]
    #[arg(long, value_name = "LAYERS", value_parser = count)]
    pub exit_layers: Option<usize>,

    /// Load the model a second time in a smaller form, for --draft requantised
    #[arg(long, value_enum, value_name = "TYPE")]
    pub draft_requant: Option<RequantName>,
}

impl DraftModels {
    /// Checks that what the drafters of a method run is there, before any weights are loaded.
    pub fn check(&self, method: &Method, file: &ModelFile) -> Result<(), CliError> {
        let Method::Named(names) = method else { return Ok(()) };
        for name in names {
            let (there, wanted) = match name.as_str() {
                "draft_model" => (self.draft_model.is_some(), "add --draft-model FILE, a smaller model"),
                "requantised" => (self.draft_requant.is_some(), "add --draft-requant q4_0"),
                "mtp" | "blockwise" => (
                    HeadsInfo::of(file.gguf())?.is_some(),
                    "the model's file has no prediction heads: docs/heads.md says how it can have some",
                ),
                _ => (true, ""),
            };
            if !there {
                let found = format!("--draft {name} has nothing to draft with");
                return Err(CliError::Argument { found, wanted: wanted.into() });
            }
        }
        Ok(())
    }
}

/// `--draft-weights`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DraftWeights {
    /// As the file has them
    AsStored,
    /// 4 bits and a scale for every 32: faster, and guesses nearly as well
    #[value(name = "q4_0")]
    Q4_0,
}

impl DraftWeights {
    fn weights(self) -> Weights {
        match self {
            Self::AsStored => Weights::AsStored,
            Self::Q4_0 => Weights::Q4_0,
        }
    }
}

/// `--draft-requant`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RequantName {
    /// 4 bits and a scale for every 32
    #[value(name = "q4_0")]
    Q4_0,
}

impl RequantName {
    fn weights(self) -> Weights {
        match self {
            Self::Q4_0 => Weights::Q4_0,
        }
    }
}

/// Reads a cost table from a JSON file.
pub fn read_cost_table(path: &Path) -> Result<CostTable, CliError> {
    let text = read_text(path)?;
    let bad = |found: String| CliError::BadFile {
        path: path.into(),
        found,
        wanted: "`foretoken bench decode --json` prints the table that it measured as \"cost_table\"".into(),
    };
    let table: CostTable = serde_json::from_str(&text).map_err(|error| bad(format!("not a cost table: {error}")))?;
    table.validate().map_err(|error| bad(format!("not a cost table: {error}")))?;
    Ok(table)
}

/// How tokens are drawn.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingOptions {
    /// 0 always takes the likeliest token; higher is more varied (0 to 100)
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f32,

    /// Draw among this many of the likeliest tokens only; 0 is off
    #[arg(long, value_name = "TOKENS", default_value_t = 40, value_parser = count)]
    pub top_k: usize,

    /// Draw among the likeliest tokens whose probabilities reach this sum; 1 is off
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,

    /// Draw among tokens at least this fraction as likely as the likeliest; 0 is off
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub min_p: f32,

    /// Make tokens of prompt and answer less likely: above 1; 1 is off
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub repetition_penalty: f32,

    /// Subtract this from the logit of every token already in the answer; 0 is off
    #[arg(long, value_name = "LOGIT", default_value_t = 0.0)]
    pub presence_penalty: f32,

    /// Subtract this from a token's logit for each time it is in the answer; 0 is off
    #[arg(long, value_name = "LOGIT", default_value_t = 0.0)]
    pub frequency_penalty: f32,

    /// Add VALUE to the logit of token ID; -inf forbids it. Repeatable
    #[arg(long, value_name = "ID=VALUE", value_parser = parse_bias, allow_hyphen_values = true)]
    pub logit_bias: Vec<(u32, f32)>,

    /// The same seed gives the same text [default: drawn anew, and reported]
    #[arg(short, long)]
    pub seed: Option<u64>,
}

impl SamplingOptions {
    /// What the sampler is told; the seed is the request's.
    pub fn settings(&self) -> SamplerSettings {
        SamplerSettings {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            ..SamplerSettings::default()
        }
    }
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let wanted = || format!("{text:?} is not ID=VALUE, such as 42=-1.5 or 42=-inf");
    let (token, value) = text.split_once('=').ok_or_else(wanted)?;
    Ok((token.trim().parse().map_err(|_| wanted())?, value.trim().parse().map_err(|_| wanted())?))
}

/// What ends an answer.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ending")]
pub struct EndOptions {
    /// End when this text appears; it is not printed. Repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,

    /// Go on after the model's own end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,

    /// Do not end before this many tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = count)]
    pub min_tokens: usize,
}

/// Everything that `generate` and `chat` can be told about an answer.
#[derive(Args, Clone, Debug)]
pub struct AnswerOptions {
    #[command(flatten)]
    pub model: ModelOptions,
    #[command(flatten)]
    pub draft: DraftOptions,
    #[command(flatten)]
    pub sampling: SamplingOptions,
    #[command(flatten)]
    pub ending: EndOptions,
    #[command(flatten)]
    pub structure: StructureOptions,
    #[command(flatten)]
    pub acceptance: AcceptanceOptions,
}

impl AnswerOptions {
    /// What the engine is asked for; at most `max_tokens`, or as many as there is room for when it is 0. `file` is the
    /// model's.
    pub fn request(&self, file: &ModelFile, prompt: Vec<u32>, max_tokens: usize) -> Result<Request, CliError> {
        let Self { draft, sampling, ending, structure, acceptance, .. } = self;
        let mut request = Request {
            sampler: sampling.settings(),
            seed: sampling.seed,
            max_tokens: (max_tokens > 0).then_some(max_tokens),
            min_tokens: ending.min_tokens,
            stop: ending.stop.clone(),
            ignore_eos: ending.ignore_eos,
            constraint: structure.constraint(file)?,
            acceptor: acceptance.acceptor,
            ..Request::new(prompt)
        };
        draft.draft.apply(draft.draft_width, &mut request);
        Ok(request)
    }
}
