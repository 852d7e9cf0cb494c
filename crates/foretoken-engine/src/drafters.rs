//! The drafters that exist for a model: those that need nothing but the text, and those that run a model.

use foretoken_decode::budget::DraftCost;
use foretoken_decode::drafters::{self, Blockwise, Companion, DraftModel, Drafter, ExitEarly, Mtp, WriterOptions};
use foretoken_decode::target::Target;
use foretoken_model::{HeadsInfo, KvType, LoadOptions, Model, Weights};

use crate::by_text::ByText;
use crate::engine::EngineOptions;
use crate::error::EngineError;
use crate::file::ModelFile;
use crate::footprint::Footprint;
use crate::load::{Loaded, Progress, file_bytes};
use crate::pair::Pair;

/// Names of the drafters that run a model or a part of one. The first is there without being asked for, the next two where
/// the model has prediction heads.
pub(crate) const WITH_A_MODEL: &[&str] = &["early_exit", "mtp", "blockwise", "draft_model", "requantised"];

/// Tokens that a draft model's cache holds beyond those of the target's: each sequence may begin a page for its draft.
const DRAFT_ROOM: usize = 512;

/// The models to be loaded beside the target, their files open and checked.
pub(crate) struct Beside {
    draft_model: Option<(ModelFile, Pair)>,
    exit_layers: Option<usize>,
    requantised: Option<Weights>,
}

impl Beside {
    /// Opens and checks what `options` ask for.
    pub fn open(target: &ModelFile, options: &EngineOptions<'_>) -> Result<Self, EngineError> {
        let draft_model = match &options.draft_model {
            Some(path) => {
                let file = ModelFile::open(path)?;
                let pair = Pair::of(target, &file)?;
                Some((file, pair))
            }
            None => None,
        };
        let layers = target.hyper().layers;
        let exit_layers = match options.exit_layers {
            Some(n) if !(1..layers).contains(&n) => {
                return Err(EngineError::option("exit_layers", n, &format!("1 to {}: fewer than all", layers - 1)));
            }
            Some(n) => Some(n),
            None => (layers > 1).then_some(layers.div_ceil(3)),
        };
        Ok(Self { draft_model, exit_layers, requantised: requantised(target, options)? })
    }

    /// Bytes that will be read from files.
    pub fn file_bytes(&self, target: &ModelFile) -> u64 {
        let again = self.requantised.map(|_| target);
        self.draft_model.iter().map(|(file, _)| file).chain(again).map(|file| file_bytes(file.gguf())).sum()
    }

    /// Loads the models and makes every drafter.
    pub fn load(
        self,
        file: &ModelFile,
        loaded: &Loaded,
        options: &EngineOptions<'_>,
        progress: &Progress<'_>,
    ) -> Result<Vec<Box<dyn Drafter<Model>>>, EngineError> {
        let Loaded { model: target, footprint } = loaded;
        let by_name = |name: &&str| drafters::by_name(name).expect("it is a name of the list");
        let mut all: Vec<_> = drafters::NAMES.iter().map(by_name).collect();
        if let Some(n_layers) = self.exit_layers {
            let shallow = footprint.first_layers(n_layers, target.hyper().layers);
            let cost = shallow.draft_cost(options.isa, target.threads(), options.weights);
            all.push(Box::new(ExitEarly::new(n_layers, cost, WriterOptions::default())));
        }
        if let Some(heads) = HeadsInfo::of(file.gguf())? {
            let cost = footprint.heads_cost(options.isa, target.threads(), options.weights, &heads);
            all.push(Box::new(Mtp::new(cost)));
            all.push(Box::new(Blockwise::new(cost)));
        }
        if let Some((draft, pair)) = self.draft_model {
            let weights = options.draft_weights.unwrap_or_else(|| smaller(&draft, options.kv_type));
            let (companion, cost) = companion(&draft, weights, target, options, progress)?;
            all.push(match pair {
                Pair::SameTokens => Box::new(DraftModel::new("draft_model", companion, cost, WriterOptions::default())),
                Pair::ByText(shared) => {
                    let (target, draft) = (file.tokenizer().clone(), draft.tokenizer().clone());
                    Box::new(ByText::new(companion, target, draft, shared, cost))
                }
            });
        }
        if let Some(weights) = self.requantised {
            let (companion, cost) = companion(file, weights, target, options, progress)?;
            all.push(Box::new(DraftModel::new("requantised", companion, cost, WriterOptions::default())));
        }
        Ok(all)
    }
}

/// The form in which a draft model is read fastest. Four bits guess nearly as well as more: of a model that gets a fifth smaller
/// they cost less time than they lose guesses.
fn smaller(draft: &ModelFile, kv_type: KvType) -> Weights {
    let [as_stored, in_four_bits] = [Weights::AsStored, Weights::Q4_0].map(|weights| {
        let Footprint { trunk_bytes, head_bytes, .. } = draft.footprint(weights, kv_type);
        trunk_bytes + head_bytes
    });
    if in_four_bits * 5 <= as_stored * 4 { Weights::Q4_0 } else { Weights::AsStored }
}

/// The form in which the target drafts for itself, if it would be smaller than the one that writes.
fn requantised(target: &ModelFile, options: &EngineOptions<'_>) -> Result<Option<Weights>, EngineError> {
    let Some(weights) = options.draft_requant else { return Ok(None) };
    let [own, drafting] =
        [options.weights, weights].map(|weights| target.footprint(weights, options.kv_type).packed_bytes);
    if drafting >= own {
        let wanted =
            format!("left out: the model has {} MB of weights as it is, and would have {}", own >> 20, drafting >> 20);
        return Err(EngineError::option("draft_requant", format!("{weights:?}"), &wanted));
    }
    Ok(Some(weights))
}

/// Loads a model that runs on the target's threads when the target does not; also a first guess of its cost.
fn companion(
    file: &ModelFile,
    weights: Weights,
    target: &Model,
    options: &EngineOptions<'_>,
    progress: &Progress<'_>,
) -> Result<(Companion<Model>, DraftCost), EngineError> {
    let context = target.context_size().min(file.hyper().context);
    let load = LoadOptions {
        weights,
        kv_type: options.kv_type,
        threads: target.share_threads(),
        isa: options.isa,
        context,
        progress: &progress.part(file_bytes(file.gguf())),
    };
    let model = Model::load(file.gguf(), &load)?;
    let n_tokens = target.context_size() + DRAFT_ROOM;
    let cache = model.cache(n_tokens)?;
    let footprint = file.footprint(weights, options.kv_type);
    let bytes = footprint.packed_bytes + footprint.kv_bytes_per_token * n_tokens as u64;
    let cost = footprint.draft_cost(options.isa, target.threads(), weights);
    Ok((Companion::new(model, cache, options.prompt_rows, bytes as usize), cost))
}

#[cfg(test)]
mod tests {
    use foretoken_testkit::models;

    use super::*;

    #[test]
    fn a_draft_model_is_made_smaller_where_that_saves_a_fifth() {
        let Some(path) = models::find("qwen-coder-0.5b") else { return };
        let file = ModelFile::open(&path).expect("a sound model file");
        assert_eq!(smaller(&file, KvType::F16), Weights::Q4_0, "5 to 8 bits");
    }
}
