//! Prediction heads of a file (`docs/heads.md`): each scores a token further ahead, from the hidden state of a row.

use std::fmt;

use foretoken_formats::gguf::Gguf;
use foretoken_kernels::Isa;
use foretoken_kernels::matmul::{self, Activations, Matrix, Product};
use foretoken_kernels::ops;
use foretoken_kernels::pool::Pool;

use crate::error::ModelError;
use crate::forward::Linear;
use crate::hyper::Hyper;
use crate::load::Loader;

const KIND: &str = "foretoken.heads.kind";
const COUNT: &str = "foretoken.heads.count";
/// Head 1 included.
const MOST_HEADS: u32 = 16;

/// How a head comes from the hidden state `y` behind the last norm to what its unembedding multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// `W y`.
    Linear,
    /// `y + silu(W y + b)` (Cai et al. 2024, Medusa, arXiv 2401.10774).
    ResBlock,
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linear => "linear",
            Self::ResBlock => "resblock",
        })
    }
}

/// The prediction heads that a file says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsInfo {
    /// Their kind.
    pub kind: HeadKind,
    /// How many, head 1 left out: that is the model itself.
    pub count: usize,
}

impl HeadsInfo {
    /// What the file's metadata says; `None` when it has no heads beside the first. An error names a kind that cannot be
    /// run, and a number that cannot be.
    pub fn of(gguf: &Gguf) -> Result<Option<Self>, ModelError> {
        let metadata = gguf.metadata();
        if !metadata.contains(KIND) {
            return Ok(None);
        }
        let bad = |key: &str, found: &dyn ToString, wanted: String| {
            Err(ModelError::Size { key: key.into(), found: found.to_string(), wanted })
        };
        let kind = match metadata.get_str(KIND)? {
            "linear" => HeadKind::Linear,
            "resblock" => HeadKind::ResBlock,
            other @ ("transformer" | "sequential") => {
                let wanted = "heads with layers of their own are not run here; known are linear and resblock".into();
                return bad(KIND, &other, wanted);
            }
            other => return bad(KIND, &other, "known are linear and resblock".into()),
        };
        let count = metadata.get_u32(COUNT)?;
        if !(1..=MOST_HEADS).contains(&count) {
            return bad(COUNT, &count, format!("1 to {MOST_HEADS}, the model's own head included"));
        }
        Ok((count > 1).then_some(Self { kind, count: count as usize - 1 }))
    }

    /// Whether a tensor of this name belongs to the heads beside the first.
    pub fn owns(tensor: &str) -> bool {
        tensor.starts_with("head.")
    }
}

/// One head.
struct Head {
    map: Linear,
    /// None: head 1's serves.
    unembedding: Option<Matrix>,
}

/// The heads of a loaded model, with the memory to run them.
pub(crate) struct PredictionHeads {
    kind: HeadKind,
    heads: Vec<Head>,
    activations: Activations,
    /// `[width]`
    ones: Vec<f32>,
    /// `[head][rows][width]`
    features: Vec<f32>,
    /// `[head][rows][vocab]`
    scores: Vec<f32>,
}

impl PredictionHeads {
    /// Loads the heads that the file has.
    pub fn load(loader: &mut Loader<'_>, hyper: &Hyper) -> Result<Option<Self>, ModelError> {
        let Some(HeadsInfo { kind, count }) = HeadsInfo::of(loader.gguf())? else { return Ok(None) };
        let heads = (2..count + 2).map(|k| load_head(loader, hyper, kind, k)).collect::<Result<_, _>>()?;
        Ok(Some(Self {
            kind,
            heads,
            activations: Activations::new(),
            ones: vec![1.0; hyper.hidden],
            features: Vec::new(),
            scores: Vec::new(),
        }))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Scores `[n][rows][vocab]` of the first `n` heads for `hidden` `[rows][width]`; `unembedding` is head 1's.
    pub fn score(&mut self, pool: &Pool, isa: Isa, unembedding: &Matrix, n: usize, hidden: &[f32]) -> &[f32] {
        let Self { kind, heads, activations, ones, features, scores } = self;
        let (heads, width, vocab) = (&heads[..n], ones.len(), unembedding.n_out());
        let rows = hidden.len() / width;
        features.resize(n * hidden.len(), 0.0);
        scores.resize(n * rows * vocab, 0.0);
        if n * rows == 0 {
            return scores;
        }
        activations.set(pool, isa, hidden, rows, width, heads.iter().map(|head| head.map.weights.storage()));
        let mut products: Vec<Product<'_>> = (heads.iter().zip(features.chunks_exact_mut(hidden.len())))
            .map(|(head, out)| Product { weights: &head.map.weights, out })
            .collect();
        matmul::matmul(pool, isa, activations, &mut products);
        if *kind == HeadKind::ResBlock {
            for (head, features) in heads.iter().zip(features.chunks_exact_mut(hidden.len())) {
                for (out, hidden) in features.chunks_exact_mut(width).zip(hidden.chunks_exact(width)) {
                    ops::add_assign(isa, out, &head.map.bias);
                    ops::silu_mul(isa, out, ones);
                    ops::add_assign(isa, out, hidden);
                }
            }
        }
        // Heads that share an unembedding are so many rows of one product.
        let matrix = |head: &Head| head.unembedding.is_some();
        for run in chunks_by(heads, |a, b| !matrix(a) && !matrix(b)) {
            let weights = heads[run.start].unembedding.as_ref().unwrap_or(unembedding);
            let input = &features[run.start * hidden.len()..run.end * hidden.len()];
            let out = &mut scores[run.start * rows * vocab..run.end * rows * vocab];
            activations.set(pool, isa, input, run.len() * rows, width, [weights.storage()].into_iter());
            matmul::matmul(pool, isa, activations, &mut [Product { weights, out }]);
        }
        scores
    }
}

/// Runs of neighbours that belong together.
fn chunks_by<T>(items: &[T], together: impl Fn(&T, &T) -> bool) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    items.chunk_by(together).map(move |chunk| {
        start += chunk.len();
        start - chunk.len()..start
    })
}

fn load_head(loader: &mut Loader<'_>, hyper: &Hyper, kind: HeadKind, k: usize) -> Result<Head, ModelError> {
    let Hyper { hidden, vocab, .. } = *hyper;
    let name = format!("head.{k}.linear");
    let map = Linear {
        weights: loader.matrix(&format!("{name}.weight"), hidden, hidden)?,
        bias: match kind {
            HeadKind::Linear => Vec::new(),
            HeadKind::ResBlock => loader.vector(&format!("{name}.bias"), hidden)?,
        },
    };
    let name = format!("head.{k}.output.weight");
    let unembedding = match loader.gguf().find(&name) {
        Some(_) => Some(loader.matrix(&name, hidden, vocab)?),
        None => None,
    };
    Ok(Head { map, unembedding })
}
