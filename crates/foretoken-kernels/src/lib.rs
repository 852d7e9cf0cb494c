//! SIMD kernels for few rows and the worker pool: slices in, slices out.

mod isa;

pub use isa::{Avx2, Avx512, Isa};
