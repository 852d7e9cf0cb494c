//! SIMD kernels for few rows and the worker pool: slices in, slices out.
