//! Products with a weight, forward and backward, on our own kernel.
//!
//! The `gemm` crate below burn reaches the same rate on one large product, but not bfloat16 and not the shapes of weight
//! gradients; and a weight used transposed gets its gradient as it lies, with no copy.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops as Step, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::Tensor;
use foretoken_kernels::Isa;
use foretoken_kernels::train::{Precision, Strided, product};

use super::fused::{Flat, flat, values, width};

/// How the weight is used.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// As its transpose.
    transposed: bool,
    precision: Precision,
}

#[backend_extension(Flex, Autodiff)]
trait LinearOps: Backend {
    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, how: Use) -> FloatTensor<Self>;
}

pub(super) fn linear(x: Tensor<2>, weight: Tensor<2>, transposed: bool, precision: Precision) -> Tensor<2> {
    let how = Use { transposed, precision };
    Tensor::from_dispatch(<Dispatch as LinearOps>::linear(x.into_dispatch(), weight.into_dispatch(), how))
}

/// A matrix as it lies, or its transpose.
fn matrix(tensor: &Flat, transposed: bool) -> Strided<'_> {
    let (data, d) = (values(tensor), width(tensor));
    match transposed {
        false => Strided { data, row: d, col: 1 },
        true => Strided { data, row: 1, col: d },
    }
}

fn multiply(how: Use, size: [usize; 3], a: Strided<'_>, b: Strided<'_>) -> Flat {
    flat(product(Isa::best(), how.precision, size, a, b), &size[..2])
}

impl LinearOps for Flex {
    fn linear(x: Flat, weight: Flat, how: Use) -> Flat {
        let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
        let [n, inputs] = [x.shape()[0], width(&x)];
        let outputs = weight.shape()[usize::from(!how.transposed)];
        multiply(how, [n, outputs, inputs], matrix(&x, false), matrix(&weight, how.transposed))
    }
}

impl<C: CheckpointStrategy> LinearOps for Autodiff<Flex, C> {
    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, how: Use) -> FloatTensor<Self> {
        let (x, x_node) = x.into_parts();
        let (weight, weight_node) = weight.into_parts();
        let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
        let out = <Flex as LinearOps>::linear(x.clone(), weight.clone(), how);
        match Linear.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((x, weight, how), out),
            OpsKind::UnTracked(step) => step.finish(out),
        }
    }
}

#[derive(Debug)]
struct Linear;

impl Backward<Flex, 2> for Linear {
    type State = (Flat, Flat, Use);

    fn backward(self, step: Step<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, weight, how) = step.state;
        let dy = grads.consume::<Flex>(&step.node).to_contiguous();
        let [n, inputs, outputs] = [x.shape()[0], width(&x), width(&dy)];
        let [x_parent, weight_parent] = step.parents;
        if let Some(parent) = weight_parent {
            let dw = match how.transposed {
                false => multiply(how, [inputs, outputs, n], matrix(&x, true), matrix(&dy, false)),
                true => multiply(how, [outputs, inputs, n], matrix(&dy, true), matrix(&x, false)),
            };
            grads.register::<Flex>(parent.id, dw);
        }
        if let Some(parent) = x_parent {
            let dx = multiply(how, [n, inputs, outputs], matrix(&dy, false), matrix(&weight, !how.transposed));
            grads.register::<Flex>(parent.id, dx);
        }
    }
}
