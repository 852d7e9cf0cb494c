//! A loaded model: the target of the decode loop.

use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, EarlyExit, Heads, Pass, SequenceId, Target, TargetError, Want, Work};
use foretoken_decode::tree::NodeId;
use foretoken_formats::gguf::Gguf;
use foretoken_kernels::Isa;
use foretoken_kernels::attention::KvType;

use crate::arch::{self, Architecture};
use crate::cache::{KvShape, PagedCache};
use crate::error::ModelError;
use crate::forward::{Buffers, Run};
use crate::heads::{Asking, HeadKind, HeadsInfo, PredictionHeads};
use crate::hyper::Hyper;
use crate::load::{LoadOptions, Loader};
use crate::plan::Plan;
use crate::threads::Threads;

/// A language model in memory, with the threads and buffers to run it.
pub struct Model {
    weights: Box<dyn Architecture>,
    heads: Option<PredictionHeads>,
    threads: Threads,
    isa: Isa,
    kv_type: KvType,
    context: usize,
    results: Results,
}

/// The results of the last pass.
pub struct Results {
    plan: Plan,
    buffers: Buffers,
    /// Rows whose hidden state was wanted; those that wanted logits come first.
    wanted: Vec<usize>,
    n_logits: usize,
    /// Where a row stands in `wanted`.
    slots: Vec<usize>,
    hidden: usize,
    vocab: usize,
    /// Prediction heads start from what goes into the last layer.
    before_last: bool,
}

/// Finds every fault of a model that its file's header shows: an unknown architecture, tensors that are missing, of
/// another shape, or of a type without a kernel. Reads no weights.
pub fn check(gguf: &Gguf) -> Result<Hyper, ModelError> {
    let loaded = Loader::dry(gguf).and_then(|loader| load(gguf, loader, 1));
    loaded.map(|(weights, _)| weights.hyper().clone()).map_err(|error| error.about(gguf))
}

fn load(
    gguf: &Gguf,
    mut loader: Loader<'_>,
    threads: usize,
) -> Result<(Box<dyn Architecture>, Option<PredictionHeads>), ModelError> {
    let weights = arch::find(gguf)?(&mut loader)?;
    let heads = PredictionHeads::load(&mut loader, weights.hyper(), threads)?;
    Ok((weights, heads))
}

impl Model {
    /// Loads the weights of a file whose header was read. What [`check`] finds it finds too, but perhaps late.
    pub fn load(gguf: &Gguf, options: &LoadOptions<'_>) -> Result<Self, ModelError> {
        let loaded = Loader::new(gguf, options).and_then(|loader| load(gguf, loader, options.threads.count()));
        let (weights, heads) = loaded.map_err(|error| error.about(gguf))?;
        let Hyper { context, hidden, vocab, .. } = *weights.hyper();
        let threads = options.threads.clone();
        let results = Results {
            plan: Plan::default(),
            buffers: Buffers::new(threads.count()),
            wanted: Vec::new(),
            n_logits: 0,
            slots: Vec::new(),
            hidden,
            vocab,
            before_last: heads.as_ref().is_some_and(|heads| heads.blocks().is_some()),
        };
        let context = if options.context == 0 { context } else { options.context };
        Ok(Self { weights, heads, threads, isa: options.isa, kv_type: options.kv_type, context, results })
    }

    /// The model's sizes.
    pub fn hyper(&self) -> &Hyper {
        self.weights.hyper()
    }

    /// A cache of `n_tokens` positions in all.
    pub fn cache(&self, n_tokens: usize) -> Result<PagedCache, ModelError> {
        let Hyper { layers, hidden, kv_heads: heads, head_dim, .. } = *self.hyper();
        let info = self.heads.as_ref().map(PredictionHeads::info);
        let layers = layers + info.map_or(0, HeadsInfo::kv_layers);
        let state = info.map_or(0, |info| info.kept_state(hidden));
        let shape = KvShape { layers, heads, head_dim, kv_type: self.kv_type, state };
        PagedCache::new(shape, n_tokens).map_err(|source| ModelError::Cache { n_tokens, source })
    }

    /// Threads of a pass.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// A handle on these threads, for another model that runs when this one does not.
    pub fn share_threads(&self) -> Threads {
        self.threads.clone()
    }

    /// Runs rows through the first layers and the head. Their K/V rows in the other layers are left as they were.
    fn run(&mut self, n_layers: usize, cache: &mut PagedCache, work: &[Work<'_>]) -> Result<&Results, TargetError> {
        self.check(cache, work)?;
        for (i, item) in work.iter().enumerate() {
            if let Err(error) = cache.stage(item.sequence, item.tree) {
                work[..i].iter().for_each(|earlier| cache.commit(earlier.sequence, &[]));
                return Err(error);
            }
        }
        let Results { plan, buffers, wanted, n_logits, slots, .. } = &mut self.results;
        plan.make(cache, work);
        choose_wanted(plan, wanted, n_logits, slots);
        let mut run = Run {
            pool: &self.threads.lock(),
            isa: self.isa,
            hyper: self.weights.hyper(),
            plan,
            cache,
            buffers,
            wanted,
            n_logits: *n_logits,
            heads: self.heads.as_ref().and_then(PredictionHeads::blocks),
        };
        if !work.is_empty() {
            self.weights.forward(&mut run, n_layers);
        }
        Ok(&self.results)
    }

    fn check(&self, cache: &PagedCache, work: &[Work<'_>]) -> Result<(), TargetError> {
        let vocab_size = self.vocab_size();
        for item in work {
            assert_eq!(item.wants.len(), item.tree.len(), "one want a node");
            let nodes = item.tree.nodes();
            if let Some(node) = nodes.iter().find(|node| node.token as usize >= vocab_size) {
                return Err(TargetError::UnknownToken { token: node.token, vocab_size });
            }
            let deepest = nodes.iter().map(|node| node.depth as usize).max().unwrap_or(0);
            let needed = cache.committed(item.sequence) + deepest + 1;
            if needed > self.context {
                return Err(TargetError::ContextFull { needed, limit: self.context });
            }
        }
        Ok(())
    }
}

impl Target for Model {
    type Cache = PagedCache;
    type Pass = Results;

    fn vocab_size(&self) -> usize {
        self.hyper().vocab
    }

    fn context_size(&self) -> usize {
        self.context
    }

    fn verify(&mut self, cache: &mut PagedCache, work: &[Work<'_>]) -> Result<&Results, TargetError> {
        self.run(self.hyper().layers, cache, work)
    }
}

impl EarlyExit for Model {
    fn layers(&self) -> usize {
        self.hyper().layers
    }

    fn verify_first(
        &mut self,
        n_layers: usize,
        cache: &mut PagedCache,
        work: &[Work<'_>],
    ) -> Result<&Results, TargetError> {
        assert!((1..=self.layers()).contains(&n_layers), "{n_layers} of {} layers", self.layers());
        self.run(n_layers, cache, work)
    }
}

impl Heads for Model {
    fn n_heads(&self) -> usize {
        self.heads.as_ref().map_or(0, |heads| heads.info().count)
    }

    fn score(&mut self, cache: &mut PagedCache, n: usize, sequences: &[SequenceId], hidden: &[f32]) -> &[f32] {
        let Self { weights, heads, threads, isa, .. } = self;
        let heads = heads.as_mut().expect("the model has heads");
        let asking = Asking { pool: &threads.lock(), isa: *isa, hyper: weights.hyper(), ends: weights.ends() };
        heads.score(&asking, cache, n, sequences, hidden)
    }

    fn are_sequential(&self) -> bool {
        self.heads.as_ref().is_some_and(|heads| heads.info().kind == HeadKind::Sequential)
    }

    fn follow(
        &mut self,
        cache: &mut PagedCache,
        n: usize,
        texts: &[(SequenceId, &[TokenId])],
        each: &mut dyn FnMut(usize, &[f32]) -> Option<TokenId>,
    ) {
        let Self { weights, heads, threads, isa, .. } = self;
        let heads = heads.as_mut().expect("the model has heads");
        let asking = Asking { pool: &threads.lock(), isa: *isa, hyper: weights.hyper(), ends: weights.ends() };
        heads.follow(&asking, cache, n, texts, each);
    }
}

fn choose_wanted(plan: &Plan, wanted: &mut Vec<usize>, n_logits: &mut usize, slots: &mut Vec<usize>) {
    wanted.clear();
    slots.clear();
    slots.resize(plan.rows.len(), usize::MAX);
    for want in [Want::Logits, Want::Hidden] {
        let rows = plan.rows.iter().enumerate().filter(|(_, row)| row.want == want);
        for (index, _) in rows {
            slots[index] = wanted.len();
            wanted.push(index);
        }
        if want == Want::Logits {
            *n_logits = wanted.len();
        }
    }
}

impl Pass for Results {
    fn logits(&self, work: usize, node: NodeId) -> &[f32] {
        let slot = self.slots[self.plan.row(work, node)];
        assert!(slot < self.n_logits, "row {node} of work {work} did not ask for logits");
        &self.buffers.logits[slot * self.vocab..(slot + 1) * self.vocab]
    }

    fn hidden(&self, work: usize, node: NodeId) -> &[f32] {
        let slot = self.slots[self.plan.row(work, node)];
        assert!(slot < self.wanted.len(), "row {node} of work {work} did not ask for its hidden state");
        let from = if self.before_last { &self.buffers.before_last } else { &self.buffers.hidden };
        &from[slot * self.hidden..(slot + 1) * self.hidden]
    }
}
