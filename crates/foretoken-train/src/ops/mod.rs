//! The small parts of a layer, each twice: composed of tensor operations, which is the definition and runs on every
//! device, and fused with a backward pass of its own for the CPU. Tests hold the two together.

mod composed;
mod fused;
mod linear;

use std::sync::Arc;

use burn::tensor::Tensor;
pub use foretoken_kernels::train::Precision;
use foretoken_kernels::train::{AttentionShape, Rotary};

/// Which version of the small parts runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ops {
    /// Tensor operations, on any device.
    Composed,
    /// One operation each, on the CPU back end alone; products with weights in this precision.
    Fused(Precision),
}

/// What attention needs beside queries, keys and values: the same for all layers of a pass.
#[derive(Clone, Debug)]
pub struct AttentionInputs {
    /// One window.
    pub shape: AttentionShape,
    /// The rotary tables of the window's positions.
    pub rotary: Arc<Rotary>,
    /// The first visible key of each row of all windows.
    pub first_keys: Arc<Vec<u32>>,
}

/// Times this, a probability is below 1 whatever the logits: `-ln(1 - p)` and its gradient stay finite. Nearer to 1 than this,
/// the gradient fades.
const SURE: f32 = 1.0 - 1e-5;

impl Ops {
    /// `x W` for `[n, inputs]` and a weight `[inputs, outputs]`.
    pub fn linear(self, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Composed => x.matmul(weight),
            Self::Fused(precision) => linear::linear(x, weight, false, precision),
        }
    }

    /// `x W^T` for `[n, inputs]` and a weight `[outputs, inputs]`.
    pub fn linear_transposed(self, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Composed => x.matmul(weight.transpose()),
            Self::Fused(precision) => linear::linear(x, weight, true, precision),
        }
    }

    /// `x / sqrt(mean(x^2) + eps) * weight` for each row; `x` is `[n, d]`, `weight` `[1, d]`.
    pub fn rms_norm(self, x: Tensor<2>, weight: Tensor<2>, eps: f32) -> Tensor<2> {
        match self {
            Self::Composed => composed::rms_norm(x, weight, eps),
            Self::Fused(_) => fused::rms_norm(x, weight, eps),
        }
    }

    /// `silu(gate) * up` for `[n, 2 f]` rows of gates, then ups; `[n, f]`.
    pub fn swiglu(self, gate_up: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Composed => composed::swiglu(gate_up),
            Self::Fused(_) => fused::swiglu(gate_up),
        }
    }

    /// `x / (1 + exp(-x))`, `[n, d]`.
    pub fn silu(self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Composed => burn::tensor::activation::silu(x),
            Self::Fused(_) => fused::silu(x),
        }
    }

    /// Causal attention within documents with rotary positions: `[n, width]` rows of queries, keys and values of whole
    /// windows to `[n, n_heads head_dim]`.
    pub fn attention(self, qkv: Tensor<2>, inputs: &AttentionInputs) -> Tensor<2> {
        match self {
            Self::Composed => composed::attention(qkv, inputs),
            Self::Fused(_) => fused::attention(qkv, inputs),
        }
    }

    /// The mean cross entropy over the labels that are tokens, in nats, and the share of them that has the greatest logit:
    /// `[2]`, of which the first alone has a gradient. Both are 0 without labels. A label to [avoid](crate::batch::avoid)
    /// adds `-avoid_weight * ln(1 - p)` where another adds `-ln p`, divided by the same number (by that of all rows where no label is a token); [`IGNORE`](crate::batch::IGNORE) adds nothing.
    /// (Welleck et al., "Neural text generation with unlikelihood training", arXiv 1908.04319.)
    pub fn cross_entropy(self, logits: Tensor<2>, labels: &[i32], avoid_weight: f32) -> Tensor<1> {
        match self {
            Self::Composed => composed::cross_entropy(logits, labels, avoid_weight),
            Self::Fused(_) => fused::cross_entropy(logits, labels, avoid_weight),
        }
    }
}

#[cfg(test)]
mod tests;
