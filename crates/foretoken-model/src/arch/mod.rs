//! One file per architecture. To add one: write `arch/<name>.rs` and list it here.

mod llama;
mod qwen2;

use foretoken_formats::gguf::Gguf;
use foretoken_kernels::matmul::Matrix;
use foretoken_kernels::ops::RopeStyle;

use crate::error::ModelError;
use crate::forward::Run;
use crate::hyper::Hyper;
use crate::load::Loader;
use crate::rope::Rope;

/// A model's weights and the order in which they are used.
pub(crate) trait Architecture: Send + Sync {
    /// Its sizes.
    fn hyper(&self) -> &Hyper;

    /// What prediction heads share with it.
    fn ends(&self) -> Ends<'_>;

    /// Runs the rows of a pass through the first `n_layers` layers and the head. Calls [`Run::before_last_layer`] where its
    /// name says.
    fn forward(&self, run: &mut Run<'_>, n_layers: usize);
}

/// What stands before and behind a model's layers.
pub(crate) struct Ends<'a> {
    pub rope: &'a Rope,
    pub rope_style: RopeStyle,
    /// `[vocab][hidden]`
    pub embedding: &'a Matrix,
    /// The last norm.
    pub norm: &'a [f32],
    /// What turns a hidden state behind the last norm into logits: `[vocab][hidden]`.
    pub unembedding: &'a Matrix,
}

type Load = fn(&mut Loader<'_>) -> Result<Box<dyn Architecture>, ModelError>;

const REGISTRY: &[(&str, Load)] = &[("llama", llama::load), ("qwen2", qwen2::load)];

/// Names of the architectures, as in `general.architecture`.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|&(name, _)| name)
}

/// The loader of the file's architecture.
pub(crate) fn find(gguf: &Gguf) -> Result<Load, ModelError> {
    let name = gguf.metadata().get_str("general.architecture")?;
    let found = REGISTRY.iter().find(|(known, _)| *known == name);
    found.map(|&(_, load)| load).ok_or_else(|| ModelError::Architecture {
        found: name.into(),
        known: architectures().collect::<Vec<_>>().join(", "),
    })
}
