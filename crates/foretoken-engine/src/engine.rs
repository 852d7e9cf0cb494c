//! The engine: a model file, its tokenizer and template, and a scheduler over the model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::Drafter;
use foretoken_decode::target::Target;
use foretoken_decode::{Clock, Decoder, DecoderOptions, Detokenize, DrafterStats, Recorder, TokenId};
use foretoken_formats::tokenizer::Tokenizer;
use foretoken_kernels::Isa;
use foretoken_model::{KvType, Model, Weights};

use crate::drafters::Beside;
use crate::error::EngineError;
use crate::file::ModelFile;
use crate::footprint::Footprint;
use crate::load::{Loaded, PROMPT_ROWS, Progress, file_bytes};
use crate::scheduler::{Scheduler, WallClock};

/// The drafters that `auto` asks, where they are there.
const AUTO: &[&str] = &["suffix", "recycle", "grammar", "mtp", "draft_model", "requantised"];

/// Multiply-adds of a row below which a model is so small that reading every row of a pass, as `recycle` does, takes longer
/// than its guesses save: a fifth of the pass of a model with 5 million weights.
const SMALL: u64 = 50_000_000;

/// Whether `auto` asks a drafter.
fn is_auto(drafter: &str, footprint: &Footprint) -> bool {
    AUTO.contains(&drafter) && (drafter != "recycle" || footprint.trunk_macs >= SMALL)
}

/// How a model is opened and run. None of these but `weights` and `kv_type` can change a text.
pub struct EngineOptions<'a> {
    /// Threads of a pass; `None`: as many as have enough to do, up to all cores.
    pub threads: Option<usize>,
    /// Most tokens of a sequence; `None`: the model's own limit, up to [`crate::DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// How K/V rows are kept.
    pub kv_type: KvType,
    /// How weights are kept.
    pub weights: Weights,
    /// The kernels' version.
    pub isa: Isa,
    /// A smaller model that drafts.
    pub draft_model: Option<PathBuf>,
    /// How its weights are kept; `None`: in four bits where it gets a fifth smaller by that, else as stored.
    pub draft_weights: Option<Weights>,
    /// Layers that `early_exit` drafts with; `None`: about a third.
    pub exit_layers: Option<usize>,
    /// The model itself in another form, which drafts: [`Weights::Q4_0`].
    pub draft_requant: Option<Weights>,
    /// Fixed costs of passes; `None`: learned from the passes.
    pub cost_table: Option<CostTable>,
    /// Tokens that the cache holds for all requests together; `None`: one full context.
    pub cache_tokens: Option<usize>,
    /// Most requests under way at once; others wait.
    pub max_running: usize,
    /// Rows of a prompt per pass.
    pub prompt_rows: usize,
    /// Receives every pass.
    pub recorder: Option<Box<dyn Recorder>>,
    /// Told the bytes loaded and the bytes in all, from any thread.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl Default for EngineOptions<'_> {
    fn default() -> Self {
        Self {
            threads: None,
            context: None,
            kv_type: KvType::F16,
            weights: Weights::AsStored,
            isa: Isa::best(),
            draft_model: None,
            draft_weights: None,
            exit_layers: None,
            draft_requant: None,
            cost_table: None,
            cache_tokens: None,
            max_running: DecoderOptions::default().max_running,
            prompt_rows: PROMPT_ROWS,
            recorder: None,
            progress: &|_, _| {},
        }
    }
}

/// Control tokens that begin a tool's call or part it: what follows cannot be understood without them.
const CALL_MARKS: [&str; 4] = ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>"];

/// The text of tokens; control tokens have none, but for the marks of calls.
#[derive(Clone, Debug)]
pub struct TokenText {
    tokenizer: Arc<Tokenizer>,
    marks: Vec<TokenId>,
}

impl TokenText {
    /// For a vocabulary.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let marks = CALL_MARKS.iter().filter_map(|mark| tokenizer.special_token(mark)).collect();
        Self { tokenizer, marks }
    }
}

impl Detokenize for TokenText {
    fn append(&self, token: TokenId, text: &mut Vec<u8>) {
        if !self.tokenizer.is_special(token) || self.marks.contains(&token) {
            text.extend_from_slice(self.tokenizer.token_bytes(token));
        }
    }
}

/// A model that is ready to write.
pub struct Engine {
    file: ModelFile,
    scheduler: Scheduler<Model, TokenText>,
    footprint: Footprint,
    isa: Isa,
    load_seconds: f64,
}

impl Engine {
    /// Opens a GGUF file and loads its model.
    pub fn open(path: &Path, options: EngineOptions<'_>) -> Result<Self, EngineError> {
        Self::load(ModelFile::open(path)?, options)
    }

    /// Loads the model of an open file.
    pub fn load(file: ModelFile, options: EngineOptions<'_>) -> Result<Self, EngineError> {
        let clock = WallClock::start();
        if let Some(Err(why)) = options.cost_table.as_ref().map(CostTable::validate) {
            return Err(EngineError::option("cost_table", "not usable", &format!("mended: {why}")));
        }
        let beside = Beside::open(&file, &options)?;
        let progress = Progress::new(options.progress, file_bytes(file.gguf()) + beside.file_bytes(&file));
        let part = progress.part(file_bytes(file.gguf()));
        let loaded = Loaded::load(file.gguf(), file.hyper(), &options, &part)?;
        let drafters = beside.load(&file, &loaded, &options, &progress)?;
        let Loaded { model, footprint } = loaded;
        let cache = model.cache(options.cache_tokens.unwrap_or(model.context_size()))?;
        let cost = match options.cost_table {
            Some(table) => CostModel::fixed(table),
            None => {
                let prior = footprint.prior(options.isa, model.threads(), options.weights);
                CostModel::learning(CostTable::from_prior(&prior))
            }
        };
        let sizes = DecoderOptions {
            max_rows: options.prompt_rows,
            max_running: options.max_running,
            ..DecoderOptions::default()
        };
        let text = TokenText::new(file.tokenizer().clone());
        let mut decoder = Decoder::new(model, cache, text, clock, cost).with_options(sizes);
        for drafter in drafters {
            decoder = match is_auto(Drafter::name(&*drafter), &footprint) {
                true => decoder.with_drafter(drafter),
                false => decoder.with_drafter_by_name(drafter),
            };
        }
        if let Some(recorder) = options.recorder {
            decoder = decoder.with_recorder(recorder);
        }
        let end_tokens = file.tokenizer().end_of_generation().into();
        Ok(Self {
            file,
            scheduler: Scheduler::new(decoder, clock, end_tokens),
            footprint,
            isa: options.isa,
            load_seconds: clock.now().as_secs_f64(),
        })
    }

    /// The model file: its tokenizer and chat template.
    pub fn file(&self) -> &ModelFile {
        &self.file
    }

    /// Runs requests.
    pub fn scheduler(&mut self) -> &mut Scheduler<Model, TokenText> {
        &mut self.scheduler
    }

    /// The file and the scheduler apart, for a thread that runs requests while others read texts.
    pub fn into_parts(self) -> (ModelFile, Scheduler<Model, TokenText>) {
        (self.file, self.scheduler)
    }

    /// What the model weighs.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// What came of each drafter, in the order of [`Self::drafters`].
    pub fn drafter_stats(&self) -> impl Iterator<Item = &DrafterStats> {
        self.scheduler.drafter_stats()
    }

    /// Bytes that the drafters hold now: their tables, and models with a full context of each.
    pub fn drafting_bytes(&self) -> usize {
        self.scheduler.drafter_bytes().map(|(_, bytes)| bytes).sum()
    }

    /// What passes cost, as far as is known.
    pub fn cost_table(&self) -> &CostTable {
        self.scheduler.cost_table()
    }

    /// Names of the drafters, by the source that traces give their guesses less one.
    pub fn drafters(&self) -> Vec<&'static str> {
        self.scheduler.drafters()
    }

    /// Most tokens of a sequence.
    pub fn context_size(&self) -> usize {
        self.scheduler.target().context_size()
    }

    /// Threads of a pass.
    pub fn threads(&self) -> usize {
        self.scheduler.target().threads()
    }

    /// The kernels' version.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Seconds that loading the weights took.
    pub fn load_seconds(&self) -> f64 {
        self.load_seconds
    }
}
