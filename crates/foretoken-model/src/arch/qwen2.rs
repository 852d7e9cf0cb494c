//! Qwen2 (Yang et al., arXiv 2407.10671): Llama's layers with biases on q, k and v, and heads turned in halves.

use foretoken_kernels::ops::RopeStyle;

use super::Architecture;
use crate::error::ModelError;
use crate::load::Loader;

pub(super) fn load(loader: &mut Loader<'_>) -> Result<Box<dyn Architecture>, ModelError> {
    super::llama::load_family(loader, "qwen2", RopeStyle::Halves)
}
