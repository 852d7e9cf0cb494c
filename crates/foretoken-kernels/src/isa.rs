//! Which instruction set a kernel runs on, decided at run time; holding a value proves that this CPU has it.

use std::fmt;

/// Proof that the CPU has AVX2, FMA and F16C. Only detection makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx2 {
    vnni: bool,
}

impl Avx2 {
    /// Whether it has AVX-VNNI besides, and it is to be used.
    pub fn vnni(self) -> bool {
        self.vnni
    }
}

/// Proof that the CPU has AVX-512 F, BW, VL, DQ and VNNI besides everything [`Avx2`] stands for. Only detection makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx512(());

/// Proof that the CPU multiplies bfloat16 in AVX-512 registers, besides everything [`Avx512`] stands for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Avx512Bf16(());

/// The instruction set to use. Every kernel gives the same bits on each of them; they differ in speed only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: the definition of every kernel, on any CPU.
    Scalar,
    /// 256-bit vectors with fused multiply-add and half-precision conversion; with AVX-VNNI byte dot products too.
    Avx2(Avx2),
    /// 512-bit vectors with byte dot products.
    Avx512(Avx512),
}

impl Isa {
    /// Everything this CPU has: scalar first, best last.
    pub fn available() -> Vec<Isa> {
        let vectors =
            [detect_avx2().map(Isa::Avx2), detect_avx_vnni().map(Isa::Avx2), detect_avx512().map(Isa::Avx512)];
        [Isa::Scalar].into_iter().chain(vectors.into_iter().flatten()).collect()
    }

    /// The fastest this CPU has.
    pub fn best() -> Isa {
        let avx2 = || detect_avx_vnni().or(detect_avx2()).map(Isa::Avx2);
        detect_avx512().map(Isa::Avx512).or_else(avx2).unwrap_or(Isa::Scalar)
    }

    /// The name users write: `scalar`, `avx2`, `avx-vnni` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2(Avx2 { vnni: true }) => "avx-vnni",
            Isa::Avx2(_) => "avx2",
            Isa::Avx512(_) => "avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
fn detect_avx2() -> Option<Avx2> {
    let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    has.then_some(Avx2 { vnni: false })
}

#[cfg(target_arch = "x86_64")]
fn detect_avx_vnni() -> Option<Avx2> {
    detect_avx2().filter(|_| is_x86_feature_detected!("avxvnni")).map(|_| Avx2 { vnni: true })
}

#[cfg(target_arch = "x86_64")]
fn detect_avx512() -> Option<Avx512> {
    let has = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni");
    (has && detect_avx2().is_some()).then_some(Avx512(()))
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn detect_avx512_bf16() -> Option<Avx512Bf16> {
    (is_x86_feature_detected!("avx512bf16") && detect_avx512().is_some()).then_some(Avx512Bf16(()))
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_avx2() -> Option<Avx2> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_avx_vnni() -> Option<Avx2> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_avx512() -> Option<Avx512> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_is_first_and_the_best_is_last() {
        let all = Isa::available();
        assert_eq!(all[0], Isa::Scalar);
        assert_eq!(*all.last().unwrap(), Isa::best());
    }
}
