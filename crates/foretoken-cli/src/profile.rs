//! A profile: what `foretoken tune` has measured, to start from instead of from nothing.

use std::collections::BTreeMap;
use std::path::Path;

use foretoken_decode::budget::{AcceptanceTable, CostModel, CostTable, SharedAcceptance};
use foretoken_engine::Engine;
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::machine::Machine;
use crate::options::ModelOptions;
use crate::output;
use crate::prompt::read_text;

/// The format's version: raised when a reader of the old one would misread the new one.
const VERSION: u32 = 1;

/// What was measured, and of what it holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// The format's version.
    pub foretoken_profile: u32,
    /// The model, and the options that what its passes cost depends on.
    pub model: ModelId,
    /// Where it was measured.
    pub machine: Machine,
    /// What passes and drafting cost there.
    pub cost_table: CostTable,
    /// How often guesses of each drafter come true on this model's texts.
    pub acceptance: BTreeMap<String, AcceptanceTable>,
}

/// Tells models apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelId {
    /// Its name, for messages.
    pub name: String,
    /// Of the file's content.
    pub hash: String,
    /// `--weights` and `--kv-type`.
    pub kept: String,
}

impl ModelId {
    /// Of an engine's model.
    pub fn of(engine: &Engine, options: &ModelOptions) -> Result<Self, CliError> {
        let hash = engine.file().gguf().fingerprint()?;
        let kept = format!("{:?} weights, {:?} keys and values", options.weights.weights(), options.kv_type.kv_type());
        Ok(Self { name: engine.file().name(), hash, kept })
    }
}

impl Profile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let bad = |found: String| CliError::BadFile {
            path: path.into(),
            found: format!("not a usable profile: {found}"),
            wanted: "`foretoken tune MODEL --prompts FILE --out PROFILE` writes profiles".into(),
        };
        let profile: Self = serde_json::from_str(&read_text(path)?).map_err(|error| bad(error.to_string()))?;
        if profile.foretoken_profile != VERSION {
            let version = profile.foretoken_profile;
            return Err(bad(format!("the format has version {version}, and this program reads {VERSION}")));
        }
        profile.cost_table.validate().map_err(&bad)?;
        profile.acceptance.values().try_for_each(AcceptanceTable::validate).map_err(&bad)?;
        Ok(profile)
    }

    /// Puts together what was measured.
    pub fn new(
        model: ModelId,
        machine: Machine,
        cost_table: CostTable,
        acceptance: BTreeMap<String, AcceptanceTable>,
    ) -> Self {
        Self { foretoken_profile: VERSION, model, machine, cost_table, acceptance }
    }

    /// Lets an engine start from it, as far as it holds there; what does not is told. Both go on learning. Costs that are
    /// fixed stay as they are.
    pub fn apply(self, engine: &mut Engine, options: &ModelOptions) -> Result<(), CliError> {
        let here = Machine::here(engine.isa(), engine.threads());
        let parts = Valid::of(&self, &ModelId::of(engine, options)?, &here);
        parts.warnings.iter().for_each(|warning| output::note(format_args!("the profile's {warning}")));
        let names = engine.drafters();
        let acceptance = match parts.acceptance {
            true => SharedAcceptance::from_names(&self.acceptance, &names),
            false => SharedAcceptance::default(),
        };
        let scheduler = engine.scheduler();
        let cost = match parts.costs && !scheduler.cost_model().is_fixed() {
            true => CostModel::learning(self.cost_table),
            false => scheduler.cost_model().clone(),
        };
        scheduler.believe(cost, acceptance);
        Ok(())
    }
}

/// What of a profile holds.
#[derive(Debug, PartialEq, Eq)]
struct Valid {
    costs: bool,
    acceptance: bool,
    warnings: Vec<String>,
}

impl Valid {
    fn of(profile: &Profile, model: &ModelId, here: &Machine) -> Self {
        let mut warnings = Vec::new();
        let same_model = profile.model.hash == model.hash;
        if !same_model {
            warnings.push(format!("figures are of another model, {:?}, and are not used", profile.model.name));
        }
        let there = &profile.machine;
        let same_machine = there.cpu == here.cpu && there.isa == here.isa && there.threads == here.threads;
        let same_kind = profile.model.kept == model.kept;
        if same_model && !same_machine {
            let place = |m: &Machine| format!("{}, {} kernels, {} threads", m.cpu, m.isa, m.threads);
            warnings.push(format!("costs are of {}, and are not used on {}", place(there), place(here)));
        }
        if same_model && !same_kind {
            warnings.push(format!("costs are of {}, and are not used with {}", profile.model.kept, model.kept));
        }
        Self { costs: same_model && same_machine && same_kind, acceptance: same_model, warnings }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn profile() -> Profile {
        let model = ModelId { name: "toy".into(), hash: "1".into(), kept: "f16".into() };
        Profile::new(model, machine("a"), CostTable::linear(0.01, 0.001), BTreeMap::new())
    }

    fn machine(cpu: &str) -> Machine {
        Machine { cpu: cpu.into(), isa: "avx2".into(), threads: 2, version: "1".into(), commit: None }
    }

    #[test]
    fn only_what_holds_is_used() {
        let profile = profile();
        let valid = |model: &ModelId, cpu: &str| {
            let valid = Valid::of(&profile, model, &machine(cpu));
            (valid.costs, valid.acceptance, valid.warnings.len())
        };
        let same = profile.model.clone();
        assert_eq!(valid(&same, "a"), (true, true, 0));
        assert_eq!(valid(&same, "b"), (false, true, 1));
        assert_eq!(valid(&ModelId { kept: "q8".into(), ..same.clone() }, "a"), (false, true, 1));
        assert_eq!(valid(&ModelId { hash: "2".into(), ..same }, "a"), (false, false, 1));
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        let good = serde_json::to_string(&profile()).unwrap();
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            Profile::read(&path).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(read(&good), Ok(()));
        for (text, word) in [
            ("{}".to_owned(), "foretoken_profile"),
            (good.replace("\"foretoken_profile\":1", "\"foretoken_profile\":7"), "version 7"),
            (good.replace("\"rows\":[", "\"rows\":[9.5,"), "must not fall"),
            (good[..good.len() / 2].to_owned(), "EOF"),
        ] {
            assert!(read(&text).unwrap_err().contains(word), "{word}");
        }
    }
}
