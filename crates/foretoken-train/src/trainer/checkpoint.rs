//! Checkpoints: a safetensors file with weights, moments and counters, replaced in one step of the file system.
//!
//! The new file is written beside the old one and flushed to the disk before it takes the name, so a run killed at any
//! moment finds one whole checkpoint. It carries a hash of all that is in it, and what of the model its arrays' shapes do
//! not tell, so that a damaged file or one of another model is no run's beginning. (Files of earlier versions have neither.)

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};

use crate::TrainError;
use crate::config::ModelConfig;
use crate::optim::Optimiser;
use crate::params::Params;

/// The name of the checkpoint in a run's folder.
const NAME: &str = "checkpoint.safetensors";
/// What of the model the arrays do not show, beside the counters in the file's head.
const MODEL: &str = "model";
/// The hash of everything else, there.
const HASH: &str = "sha256";

/// A run's state besides its weights and moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps done, skipped ones included.
    pub step: u64,
    /// Steps skipped in all.
    pub skipped: u64,
}

/// Where a run's checkpoint lies.
#[derive(Clone, Debug)]
pub struct CheckpointFile {
    path: PathBuf,
}

impl CheckpointFile {
    /// The checkpoint of a run's folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(NAME) }
    }

    /// Any checkpoint file.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is one.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Writes a checkpoint in place of the old one.
    pub fn save(
        &self,
        state: Checkpoint,
        config: &ModelConfig,
        params: &Params,
        optimiser: &Optimiser,
    ) -> Result<(), TrainError> {
        let mut arrays: Vec<(String, [usize; 2], Vec<u8>)> = Vec::new();
        for ((id, spec), [first, second]) in params.iter().zip(&optimiser.moments) {
            let mut array = |kind, values: &[f32]| {
                arrays.push((format!("{kind}.{}", spec.name), spec.shape, bytemuck::cast_slice(values).to_vec()));
            };
            array("weight", &params.host(id));
            array("first", first);
            array("second", second);
        }
        let counters = [("step", state.step), ("skipped", state.skipped), ("updates", optimiser.n_steps)];
        let counters = counters.map(|(name, count)| (name.to_owned(), count.to_string()));
        let mut about = HashMap::from(counters);
        about.insert(MODEL.into(), unseen(config));
        arrays.sort_unstable_by(|(a, ..), (b, ..)| a.cmp(b));
        let hash = hash(&about, arrays.iter().map(|(name, _, bytes)| (name.as_str(), &bytes[..])));
        about.insert(HASH.into(), hash);
        let views = arrays.iter().map(|(name, shape, bytes)| {
            (name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("as many bytes as the shape says"))
        });
        let bytes = safetensors::serialize(views, Some(about))
            .map_err(|error| TrainError::file(&self.path, error.to_string()))?;
        write_atomically(&self.path, &bytes)
    }

    /// Reads a checkpoint of a model with these weights. `optimiser` is left out when only the weights are wanted.
    pub fn load(
        &self,
        config: &ModelConfig,
        params: &mut Params,
        optimiser: Option<&mut Optimiser>,
    ) -> Result<Checkpoint, TrainError> {
        let wrong = |message: String| {
            let fix = "move the file away to begin anew, or set another run.folder";
            TrainError::file(&self.path, format!("{message}; {fix}"))
        };
        let bytes = std::fs::read(&self.path).map_err(TrainError::io("read", &self.path))?;
        let broken = |error| wrong(format!("not a whole checkpoint ({error})"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
        let about = header.metadata().clone().unwrap_or_default();
        let counter = |name: &str| {
            let value = about.get(name).and_then(|value| value.parse().ok());
            value.ok_or_else(|| wrong(format!("no counter {name:?} in it: not a checkpoint of this trainer")))
        };
        let arrays = SafeTensors::deserialize(&bytes).map_err(broken)?;
        if let Some(stated) = about.get(HASH) {
            let mut views: Vec<_> = arrays.iter().collect();
            // As they were when it was written.
            views.sort_unstable_by_key(|(name, _)| *name);
            if *stated != hash(&about, views.iter().map(|(name, view)| (*name, view.data()))) {
                return Err(wrong("what is in it is not what was written: the file is damaged".into()));
            }
        }
        if let Some(theirs) = about.get(MODEL).filter(|theirs| **theirs != unseen(config)) {
            return Err(wrong(format!("it is of another model: {theirs}, and the settings say {}", unseen(config))));
        }
        let array = |kind: &str, name: &str, shape: [usize; 2]| -> Result<Vec<f32>, TrainError> {
            let name = format!("{kind}.{name}");
            let view = arrays.tensor(&name).map_err(|_| wrong(format!("{name} is missing: it is of another model")))?;
            if view.shape() != shape || view.dtype() != Dtype::F32 {
                return Err(wrong(format!("{name} is {:?} {:?} and not F32 {shape:?}", view.dtype(), view.shape())));
            }
            Ok(view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        let specs: Vec<_> = params.iter().map(|(id, spec)| (id, spec.name.clone(), spec.shape)).collect();
        let expected = 3 * specs.len();
        if arrays.len() != expected {
            return Err(wrong(format!("{} arrays and not {expected}: it is of another model", arrays.len())));
        }
        for (id, name, shape) in &specs {
            params.set(*id, array("weight", name, *shape)?);
        }
        if let Some(optimiser) = optimiser {
            optimiser.n_steps = counter("updates")?;
            for ((_, name, shape), moments) in specs.iter().zip(&mut optimiser.moments) {
                *moments = [array("first", name, *shape)?, array("second", name, *shape)?];
            }
        }
        Ok(Checkpoint { step: counter("step")?, skipped: counter("skipped")? })
    }
}

/// What the arrays' shapes do not tell of a model.
fn unseen(config: &ModelConfig) -> String {
    let ModelConfig { attention_heads, kv_heads, rope_theta, norm_eps, heads, .. } = config;
    format!(
        "attention_heads = {attention_heads}, kv_heads = {kv_heads}, rope_theta = {rope_theta}, norm_eps = {norm_eps}, \
         {} heads, kind = {:?}, recursive = {}",
        heads.n, heads.kind, heads.recursive
    )
}

/// SHA-256 of names and values in the order of the alphabet, the hash itself left out.
fn hash<'a>(about: &HashMap<String, String>, arrays: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hasher = Sha256::new();
    let mut put = |name: &str, value: &[u8]| {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((value.len() as u64).to_le_bytes());
        hasher.update(value);
    };
    let mut named: Vec<_> = about.iter().filter(|(name, _)| *name != HASH).collect();
    named.sort_unstable();
    named.into_iter().for_each(|(name, value)| put(name, value.as_bytes()));
    arrays.for_each(|(name, bytes)| put(name, bytes));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file so that its name always stands for whole content, the old or the new.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    replace(path, |file| file.write_all(bytes))
}

/// Has a file written so that its name always stands for whole content, the old or the new. What was written of a new one that
/// did not fit is removed.
pub(crate) fn replace(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), TrainError> {
    let beside = path.with_extension("partial");
    // The parent of a name alone is empty.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = BufWriter::new(File::create(&beside)?);
        content(&mut file)?;
        file.into_inner()?.sync_all()?;
        std::fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        match path.exists() {
            true => TrainError::file(path, format!("could not be replaced ({error}); it is as it was before")),
            false => TrainError::io("write", path)(error),
        }
    })
}
