//! Architectures on the kernels and the paged cache: the Target of the decode loop.
