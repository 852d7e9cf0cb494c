//! SIMD kernels for few rows and the worker pool: slices in, slices out.

pub mod arena;
pub mod attention;
mod isa;
pub mod matmul;
pub mod ops;
pub mod pool;
pub mod quant;
mod simd;
pub mod train;

pub use isa::{Avx2, Avx512, Isa};
pub use quant::WeightType;
