//! Weights from a GGUF file, tile by tile into one arena.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use foretoken_formats::FormatError;
use foretoken_formats::gguf::{Gguf, TensorInfo};
use foretoken_kernels::arena::{Arena, ArenaError};
use foretoken_kernels::attention::KvType;
use foretoken_kernels::matmul::Matrix;
use foretoken_kernels::{Isa, WeightType, quant};

use crate::error::ModelError;
use crate::forward::Linear;
use crate::threads::Threads;

/// How weights are kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Weights {
    /// As the file has them.
    #[default]
    AsStored,
    /// Widened to f32.
    F32,
    /// Widened to f16.
    F16,
    /// Made smaller: 4-bit codes with one scale per 32.
    Q4_0,
}

/// How a model is loaded.
pub struct LoadOptions<'a> {
    /// How weights are kept.
    pub weights: Weights,
    /// How K/V rows are kept.
    pub kv_type: KvType,
    /// Threads of a pass.
    pub threads: Threads,
    /// The kernels' version.
    pub isa: Isa,
    /// Most tokens of a sequence; 0: the model's own limit.
    pub context: usize,
    /// Told the bytes read and the bytes in all, from any thread.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// Reads tensors by name and checks their shapes.
pub(crate) struct Loader<'a> {
    gguf: &'a Gguf,
    arena: Arena,
    /// None: only looks whether all could be read, and hands out empty tensors.
    options: Option<&'a LoadOptions<'a>>,
    read: AtomicU64,
    total: u64,
}

impl<'a> Loader<'a> {
    /// A loader that reads nothing and finds every fault that the header shows.
    pub fn dry(gguf: &'a Gguf) -> Result<Self, ModelError> {
        gguf.tensors().iter().try_for_each(|tensor| weight_type(tensor).map(drop))?;
        Ok(Self { gguf, arena: Arena::new(0)?, options: None, read: AtomicU64::new(0), total: 0 })
    }

    /// Takes the memory for all weights.
    pub fn new(gguf: &'a Gguf, options: &'a LoadOptions<'a>) -> Result<Self, ModelError> {
        let mut bytes = 0usize;
        for tensor in gguf.tensors() {
            let source = weight_type(tensor)?;
            if let [n_in, n_out] = tensor.shape[..] {
                let packed = Matrix::packed_bytes(options.weights.storage(source, n_in), n_out, n_in);
                bytes = bytes.saturating_add(Arena::rounded(packed));
            }
        }
        let total = gguf.tensors().iter().map(|t| t.n_bytes as u64).sum();
        Ok(Self { gguf, arena: Arena::new(bytes)?, options: Some(options), read: AtomicU64::new(0), total })
    }

    pub fn gguf(&self) -> &'a Gguf {
        self.gguf
    }

    fn find(&self, name: &str, shape: &[usize]) -> Result<&'a TensorInfo, ModelError> {
        let info = self.gguf.tensor(name)?;
        if info.shape != shape {
            let (found, wanted) = (info.shape.clone(), shape.to_vec());
            return Err(ModelError::Shape { tensor: name.into(), found, wanted });
        }
        Ok(info)
    }

    fn tell(&self, options: &LoadOptions<'_>, bytes: usize) {
        let read = self.read.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        (options.progress)(read, self.total);
    }

    /// A matrix of `n_out` rows of `n_in` values.
    pub fn matrix(&mut self, name: &str, n_in: usize, n_out: usize) -> Result<Matrix, ModelError> {
        let info = self.find(name, &[n_in, n_out])?;
        let source = weight_type(info)?;
        let Some(options) = self.options else { return Ok(empty_matrix(source, n_in, &mut self.arena)?) };
        let storage = options.weights.storage(source, n_in);
        let row_bytes = info.n_bytes / n_out;
        let read = |rows: Range<usize>, bytes: &mut [u8]| -> Result<(), FormatError> {
            self.gguf.read_at(info, rows.start * row_bytes, bytes)
        };
        let slice = self.arena.take(Matrix::packed_bytes(storage, n_out, n_in))?;
        Ok(Matrix::pack(storage, source, n_out, n_in, slice, read, |bytes| self.tell(options, bytes))?)
    }

    /// A vector of `n` values, widened to f32.
    pub fn vector(&mut self, name: &str, n: usize) -> Result<Vec<f32>, ModelError> {
        let info = self.find(name, &[n])?;
        let Some(options) = self.options else { return Ok(Vec::new()) };
        let mut bytes = vec![0; info.n_bytes];
        self.gguf.read_at(info, 0, &mut bytes)?;
        let mut values = vec![0.0; n];
        quant::dequantize_row(weight_type(info)?, &bytes, &mut values);
        self.tell(options, bytes.len());
        Ok(values)
    }

    /// The same, or an empty vector when the file has no such tensor.
    pub fn optional_vector(&mut self, name: &str, n: usize) -> Result<Vec<f32>, ModelError> {
        if self.gguf.find(name).is_some() { self.vector(name, n) } else { Ok(Vec::new()) }
    }

    /// `name.weight`, and `name.bias` where the file has it.
    pub fn linear(&mut self, name: &str, n_in: usize, n_out: usize) -> Result<Linear, ModelError> {
        Ok(Linear {
            weights: self.matrix(&format!("{name}.weight"), n_in, n_out)?,
            bias: self.optional_vector(&format!("{name}.bias"), n_out)?,
        })
    }
}

fn empty_matrix(ty: WeightType, n_in: usize, arena: &mut Arena) -> Result<Matrix, ArenaError> {
    let nothing = |_: Range<usize>, _: &mut [u8]| Ok(());
    Matrix::pack(ty, ty, 0, n_in, arena.take(0)?, nothing, |_| {})
}

impl Weights {
    /// How a matrix of this type is kept, whose rows have `n_in` weights.
    fn storage(self, source: WeightType, n_in: usize) -> WeightType {
        match self {
            Self::AsStored => source,
            Self::F32 => WeightType::F32,
            Self::F16 => WeightType::F16,
            Self::Q4_0 if n_in.is_multiple_of(WeightType::Q4_0.block_len()) => WeightType::Q4_0,
            Self::Q4_0 => source,
        }
    }
}

/// The kernels' name for the tensor's type.
fn weight_type(info: &TensorInfo) -> Result<WeightType, ModelError> {
    let name = info.ty.name();
    let kernel_name = |ty: WeightType| format!("{ty:?}");
    WeightType::ALL.into_iter().find(|&ty| kernel_name(ty) == name).ok_or_else(|| ModelError::TensorType {
        tensor: info.name.clone(),
        found: name.into(),
        known: WeightType::ALL.map(kernel_name).join(", "),
    })
}
