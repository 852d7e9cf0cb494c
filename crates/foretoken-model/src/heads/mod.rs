//! Prediction heads of a file (`docs/heads.md`): each scores a token further ahead, from the hidden state of a row.

mod chains;
mod info;
mod layers;
mod maps;

use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, SequenceId};
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
use chains::{Chains, Text};
use layers::Layers;
use maps::Maps;

/// The heads of a loaded model, with the memory to run them.
pub(crate) struct PredictionHeads {
    info: HeadsInfo,
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
    Chains(Box<Chains>),
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
        let Some(info) = HeadsInfo::of(loader.gguf())? else { return Ok(None) };
        let HeadsInfo { kind, count, distinct } = info;
        let body = match kind {
            HeadKind::Linear => Body::Maps(Maps::load(loader, hyper, count, false)?),
            HeadKind::ResBlock => Body::Maps(Maps::load(loader, hyper, count, true)?),
            HeadKind::Transformer => Body::Layers(Box::new(Layers::load(loader, hyper, count, threads)?)),
            HeadKind::Sequential => Body::Chains(Box::new(Chains::load(loader, hyper, distinct, threads)?)),
        };
        let unembedding = |k: usize| {
            let name = format!("head.{k}.output.weight");
            let there = loader.gguf().find(&name).is_some();
            there.then(|| loader.matrix(&name, hyper.hidden, hyper.vocab)).transpose()
        };
        Ok(Some(Self {
            info,
            body,
            unembeddings: (2..count + 2).map(unembedding).collect::<Result<_, _>>()?,
            activations: Activations::new(),
            features: Vec::new(),
            scores: Vec::new(),
        }))
    }

    /// Their kind and number.
    pub fn info(&self) -> &HeadsInfo {
        &self.info
    }

    /// Layers that store K/V rows in every pass.
    pub fn blocks(&self) -> Option<&[Block]> {
        match &self.body {
            Body::Maps(_) | Body::Chains(_) => None,
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
        let Self { body, unembeddings, activations, features, scores, .. } = self;
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
            Body::Chains(_) => panic!("sequential heads are followed"),
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
    /// [`foretoken_decode::target::Heads::follow`].
    pub fn follow(
        &mut self,
        asking: &Asking<'_>,
        cache: &mut PagedCache,
        n: usize,
        texts: &[(SequenceId, &[TokenId])],
        each: &mut dyn FnMut(usize, &[f32]) -> Option<TokenId>,
    ) {
        let Self { body: Body::Chains(chains), unembeddings, activations, features, scores, .. } = self else {
            panic!("heads that do not depend on each other are scored");
        };
        let &Asking { pool, isa, hyper: &Hyper { hidden: width, vocab, .. }, .. } = asking;
        let mut open = if n > 0 { Text::open(cache, n, texts) } else { Vec::new() };
        for (depth, unembedding) in unembeddings[..n].iter().enumerate() {
            if open.is_empty() {
                break;
            }
            chains.features(asking, cache, depth, &mut open, features);
            let weights = unembedding.as_ref().unwrap_or(asking.ends.unembedding);
            scores.resize(open.len() * vocab, 0.0);
            activations.set(pool, isa, features, open.len(), width, [weights.storage()].into_iter());
            matmul::matmul(pool, isa, activations, &mut [Product { weights, out: scores }]);
            let mut scored = scores.chunks_exact(vocab);
            open.retain_mut(|text| {
                let token = each(text.index, scored.next().expect("a row for each text"));
                text.tokens.extend(token);
                token.is_some()
            });
        }
        texts.iter().for_each(|&(sequence, _)| cache.commit(sequence, &[]));
    }
}
