//! Element-wise operations, norms, and what a sampler needs of a row of logits.
//!
//! Each takes an [`Isa`](crate::Isa) and gives the same bits on every one.

mod elementwise;
mod exp;
pub mod noise;
mod norm;
mod rope;
mod scan;
mod select;
mod softmax;

pub use elementwise::{add_assign, f16_to_f32, f32_to_f16, silu_mul};
pub use exp::{exp, exp_assign};
pub use norm::rms_norm;
pub use rope::{RopeStyle, rope};
pub use scan::{Scan, scan};
pub use select::{MAX_BLOCK, block_max, collect_at_least};
pub use softmax::{exp_sum, scale_logits};

pub(crate) use exp::exp_lanes;
