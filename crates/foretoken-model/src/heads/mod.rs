//! Prediction heads of a file (`docs/heads.md`): each scores a token further ahead, from the hidden state of a row.

mod info;
mod layers;
mod maps;

use foretoken_decode::target::SequenceId;
use foretoken_kernels::Isa;
use foretoken_kernels::matmul::{self, Activations, Matrix, Product};
use foretoken_kernels::pool::Pool;

pub use info::{HeadKind, HeadsInfo};

use crate::arch::Ends;
use crate::block::Block;
use crate::cache::PagedCache;
use crate::error::ModelError;
use crate::hyper::Hyper;
use crate::load::Loader;
use layers::Layers;
use maps::Maps;

/// The heads of a loaded model, with the memory to run them.
pub(crate) struct PredictionHeads {
    body: Body,
    /// By head; `None`: head 1's serves.
    unembeddings: Vec<Option<Matrix>>,
    activations: Activations,
    /// `[head][rows][hidden]`
    features: Vec<f32>,
    /// `[head][rows][vocab]`
    scores: Vec<f32>,
}

/// What comes before the unembeddings.
enum Body {
    Maps(Maps),
    Layers(Box<Layers>),
}

/// Who asks, and what heads share with the model.
pub(crate) struct Asking<'a> {
    pub pool: &'a Pool,
    pub isa: Isa,
    pub hyper: &'a Hyper,
    pub ends: Ends<'a>,
}

impl PredictionHeads {
    /// Loads the heads that the file has.
    pub fn load(loader: &mut Loader<'_>, hyper: &Hyper, threads: usize) -> Result<Option<Self>, ModelError> {
        let Some(HeadsInfo { kind, count }) = HeadsInfo::of(loader.gguf())? else { return Ok(None) };
        let body = match kind {
            HeadKind::Linear => Body::Maps(Maps::load(loader, hyper, count, false)?),
            HeadKind::ResBlock => Body::Maps(Maps::load(loader, hyper, count, true)?),
            HeadKind::Transformer => Body::Layers(Box::new(Layers::load(loader, hyper, count, threads)?)),
        };
        let unembedding = |k: usize| {
            let name = format!("head.{k}.output.weight");
            let there = loader.gguf().find(&name).is_some();
            there.then(|| loader.matrix(&name, hyper.hidden, hyper.vocab)).transpose()
        };
        Ok(Some(Self {
            body,
            unembeddings: (2..count + 2).map(unembedding).collect::<Result<_, _>>()?,
            activations: Activations::new(),
            features: Vec::new(),
            scores: Vec::new(),
        }))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.unembeddings.len()
    }

    /// Layers that keep K/V rows, which store them in every pass.
    pub fn blocks(&self) -> Option<&[Block]> {
        match &self.body {
            Body::Maps(_) => None,
            Body::Layers(layers) => Some(&layers.blocks),
        }
    }

    /// Scores `[n][rows][vocab]` of the first `n` heads for the last committed row of each sequence, whose state `hidden`
    /// `[rows][hidden]` is.
    pub fn score(
        &mut self,
        asking: &Asking<'_>,
        cache: &mut PagedCache,
        n: usize,
        sequences: &[SequenceId],
        hidden: &[f32],
    ) -> &[f32] {
        let Self { body, unembeddings, activations, features, scores } = self;
        let &Asking { pool, isa, hyper: &Hyper { hidden: width, vocab, .. }, .. } = asking;
        let unembeddings = &unembeddings[..n];
        let rows = sequences.len();
        assert_eq!(hidden.len(), rows * width, "a hidden state for each sequence");
        features.resize(n * hidden.len(), 0.0);
        scores.resize(n * rows * vocab, 0.0);
        if n * rows == 0 {
            return scores;
        }
        match body {
            Body::Maps(maps) => maps.features(pool, isa, n, width, hidden, features),
            Body::Layers(layers) => layers.features(asking, cache, n, sequences, hidden, features),
        }
        // Heads that share an unembedding are so many rows of one product.
        let mut first = 0;
        for run in unembeddings.chunk_by(|a, b| a.is_none() && b.is_none()) {
            let weights = run[0].as_ref().unwrap_or(asking.ends.unembedding);
            let part = |width: usize| first * rows * width..(first + run.len()) * rows * width;
            let (input, out) = (&features[part(width)], &mut scores[part(vocab)]);
            activations.set(pool, isa, input, run.len() * rows, width, [weights.storage()].into_iter());
            matmul::matmul(pool, isa, activations, &mut [Product { weights, out }]);
            first += run.len();
        }
        scores
    }
}
