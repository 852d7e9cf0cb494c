//! What a model weighs: the memory it needs, and what one pass reads and multiplies. From the header alone.

use foretoken_decode::budget::{CostTable, DraftCost, PassShape, Prior};
use foretoken_formats::gguf::{Gguf, TensorInfo};
use foretoken_kernels::Isa;
use foretoken_model::{HeadKind, HeadsInfo, Hyper, KvShape, KvType, Weights};

/// Name of the tensor that tokens are looked up in; a model without an output head of its own multiplies with it too.
const EMBEDDING: &str = "token_embd.weight";
/// Name of the output head.
const HEAD: &str = "output.weight";

/// Sizes of a model under given load options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of all weights in memory.
    pub packed_bytes: u64,
    /// Bytes of the weights that every pass reads, the output head excluded. An embedding is looked up, not read.
    pub trunk_bytes: u64,
    /// Multiply-adds of a row with those weights.
    pub trunk_macs: u64,
    /// Bytes of the output head.
    pub head_bytes: u64,
    /// Multiply-adds of a row with the output head.
    pub head_macs: u64,
    /// Bytes of the prediction heads beside the first, which drafting alone reads.
    pub prediction_bytes: u64,
    /// Multiply-adds of a row with them.
    pub prediction_macs: u64,
    /// Bytes of keys and values for each token of context, in all layers, and of what else prediction heads keep of it.
    pub kv_bytes_per_token: u64,
}

impl Footprint {
    /// Adds up the tensors of a file of these sizes.
    pub fn of(gguf: &Gguf, hyper: &Hyper, weights: Weights, kv_type: KvType) -> Self {
        let Hyper { layers, hidden, kv_heads: heads, head_dim, .. } = *hyper;
        let attached = HeadsInfo::of(gguf).ok().flatten();
        let layers = layers + attached.map_or(0, |heads| heads.kv_layers());
        let state = attached.map_or(0, |heads| heads.kept_state(hidden));
        let kv = KvShape { layers, heads, head_dim, kv_type, state };
        let mut footprint = Self {
            packed_bytes: 0,
            trunk_bytes: 0,
            trunk_macs: 0,
            head_bytes: 0,
            head_macs: 0,
            prediction_bytes: 0,
            prediction_macs: 0,
            kv_bytes_per_token: kv.page_bytes() as u64 / foretoken_kernels::attention::KEY_CHUNK as u64,
        };
        let tied = gguf.find(HEAD).is_none();
        for tensor in gguf.tensors() {
            let bytes = memory_bytes(tensor, weights);
            footprint.packed_bytes += bytes;
            let macs = if tensor.shape.len() == 2 { tensor.n_elements() as u64 } else { 0 };
            if HeadsInfo::owns(&tensor.name) {
                footprint.prediction_bytes += bytes;
                footprint.prediction_macs += macs;
            } else if tensor.name == HEAD || (tied && tensor.name == EMBEDDING) {
                footprint.head_bytes += bytes;
                footprint.head_macs += macs;
            } else if tensor.name != EMBEDDING {
                footprint.trunk_bytes += bytes;
                footprint.trunk_macs += macs;
            }
        }
        footprint
    }

    /// A first guess of what drafting with this model takes, a row at a time.
    pub fn draft_cost(&self, isa: Isa, threads: usize, weights: Weights) -> DraftCost {
        let prior = self.prior(isa, threads, weights);
        let table = CostTable::from_prior(&prior);
        DraftCost {
            call: 0.0,
            depth: table.seconds(PassShape { rows: 1, logits_rows: 1, ..PassShape::default() }),
            lag: prior.trunk_macs / prior.macs_per_second,
        }
    }

    /// A first guess of what asking prediction heads about a row takes.
    pub fn heads_cost(&self, isa: Isa, threads: usize, weights: Weights, heads: &HeadsInfo) -> DraftCost {
        if heads.kind == HeadKind::Sequential {
            return self.chain_cost(isa, threads, weights, heads);
        }
        let n = heads.count;
        let rates = Rates::of(isa, threads, weights);
        // A head without an unembedding of its own uses the first's, which is read once for all of them.
        let macs = self.prediction_macs.max(self.head_macs * n as u64) as f64;
        let read = (self.prediction_bytes as f64 / n as f64) / rates.bytes_per_second;
        let call = self.head_bytes as f64 / rates.bytes_per_second;
        DraftCost { call, depth: read.max(macs / n as f64 / rates.macs_per_second), lag: 0.0 }
    }

    /// A head after another: each reads its module and the unembedding, for the token before its own and, beside it, for those
    /// that have come since it was last asked.
    fn chain_cost(&self, isa: Isa, threads: usize, weights: Weights, heads: &HeadsInfo) -> DraftCost {
        let rates = Rates::of(isa, threads, weights);
        let of_one = |all: u64| all as f64 / heads.distinct as f64;
        let read = (of_one(self.prediction_bytes) + self.head_bytes as f64) / rates.bytes_per_second;
        let macs = (of_one(self.prediction_macs) + self.head_macs as f64) / rates.macs_per_second;
        let lag = of_one(self.prediction_macs) * heads.count as f64 / rates.macs_per_second;
        DraftCost { call: 0.0, depth: read.max(macs), lag }
    }

    /// The same model with the first `n` of `layers` layers alone.
    pub fn first_layers(&self, n: usize, layers: usize) -> Self {
        let share = |whole: u64| whole * n as u64 / layers as u64;
        Self {
            packed_bytes: 0,
            trunk_bytes: share(self.trunk_bytes),
            trunk_macs: share(self.trunk_macs),
            kv_bytes_per_token: share(self.kv_bytes_per_token),
            ..*self
        }
    }

    /// A first guess of what passes cost, before any has run.
    pub fn prior(&self, isa: Isa, threads: usize, weights: Weights) -> Prior {
        let rates = Rates::of(isa, threads, weights);
        Prior {
            trunk_bytes: self.trunk_bytes as f64,
            trunk_macs: self.trunk_macs as f64,
            head_bytes: self.head_bytes as f64,
            head_macs: self.head_macs as f64,
            kv_bytes: self.kv_bytes_per_token as f64,
            bytes_per_second: rates.bytes_per_second,
            macs_per_second: rates.macs_per_second,
            overhead: rates.overhead,
        }
    }
}

/// Bytes that a tensor takes in memory. Matrices are widened on request, vectors always are.
fn memory_bytes(tensor: &TensorInfo, weights: Weights) -> u64 {
    let n = tensor.n_elements() as u64;
    match weights {
        _ if tensor.shape.len() != 2 => 4 * n,
        Weights::AsStored => tensor.n_bytes as u64,
        Weights::F32 => 4 * n,
        Weights::F16 => 2 * n,
        Weights::Q4_0 => n / 32 * 18,
    }
}

/// Rates of the kernels, as measured on desktop and server CPUs of the years around 2023: orders of magnitude that the
/// first few passes replace by what this machine does.
struct Rates {
    bytes_per_second: f64,
    macs_per_second: f64,
    overhead: f64,
}

impl Rates {
    fn of(isa: Isa, threads: usize, weights: Weights) -> Self {
        let floats = matches!(weights, Weights::F32 | Weights::F16);
        let macs_per_core = match isa {
            Isa::Scalar => 1e9,
            Isa::Avx2(_) if floats => 35e9,
            Isa::Avx2(isa) if isa.vnni() => 90e9,
            Isa::Avx2(_) => 65e9,
            Isa::Avx512(_) if floats => 50e9,
            Isa::Avx512(_) => 130e9,
        };
        // Two or three cores saturate the memory of most machines.
        let readers = threads.min(3) as f64;
        Self { bytes_per_second: 24e9 * readers, macs_per_second: macs_per_core * threads as f64, overhead: 50e-6 }
    }
}
