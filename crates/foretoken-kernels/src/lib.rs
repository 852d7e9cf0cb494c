//! SIMD kernels for few rows and the worker pool: slices in, slices out.

mod isa;
pub mod ops;
pub mod pool;
mod simd;

pub use isa::{Avx2, Avx512, Isa};
