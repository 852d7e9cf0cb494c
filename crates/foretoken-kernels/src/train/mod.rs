//! What a training step needs: dense products, and forward and backward of the layers' small parts, fused.
//!
//! Each takes an [`Isa`](crate::Isa) and, but for [`product`], gives the same bits on every one. Backward functions *add* to the gradients of
//! weights and *write* those of activations.

mod attention;
mod dense;
mod gate;
mod memory;
mod norm;
mod product;
mod softmax;
mod tile;

pub use attention::{AttentionShape, Rotary, attention, attention_backward};
pub use dense::product;
pub use gate::{swiglu, swiglu_backward};
pub use memory::{LargeBlocks, keep_freed_memory};
pub use norm::rms_norm_backward;
pub use product::{Strided, add_product};
pub use softmax::{scale_assign, softmax_unscaled};
pub use tile::Precision;

/// The inner product, in sixteen lanes combined in a fixed tree.
#[inline(always)]
fn dot<S: crate::simd::Simd>(simd: S, x: &[f32], y: &[f32]) -> f32 {
    use crate::simd::{LANES, load_part};
    let (x_blocks, x_rest) = x.as_chunks::<LANES>();
    let (y_blocks, y_rest) = y.as_chunks::<LANES>();
    let mut sum = simd.splat(0.0);
    for (x, y) in x_blocks.iter().zip(y_blocks) {
        sum = simd.fma(simd.load(x), simd.load(y), sum);
    }
    simd.sum(simd.fma(load_part(simd, x_rest, 0.0), load_part(simd, y_rest, 0.0), sum))
}
