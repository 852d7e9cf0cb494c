//! What the x86 kernels share: the types as types, and asking for weights before they are needed.
#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::layout::Layout;
use crate::quant::WeightType;

/// How far ahead of the codes in use memory is asked for: several blocks, and across the next tile. To the second-level
/// cache: weights in the first would drive the activations out.
const AHEAD_BYTES: usize = 6144;

/// 4-bit codes.
struct Nibbles;
/// 5-bit codes.
struct FiveBits;
/// 6-bit codes.
struct SixBits;
/// 8-bit codes.
struct Bytes;

/// A quantised type: its layout and how its codes are read.
trait Quantised {
    const TY: WeightType;
    const LAYOUT: Layout = Layout::of(Self::TY);
    /// Bytes of 32 codes.
    const STEP: usize = Self::LAYOUT.step_bytes();
    type Codes;
}

macro_rules! quantised {
    ($($name:ident: $codes:ident),*) => {$(
        #[allow(non_camel_case_types, reason = "GGUF's own names")]
        struct $name;
        impl Quantised for $name {
            const TY: WeightType = WeightType::$name;
            type Codes = $codes;
        }
    )*};
}
quantised!(Q4_0: Nibbles, Q4_1: Nibbles, Q5_0: FiveBits, Q5_1: FiveBits, Q8_0: Bytes, Q4_K: Nibbles, Q5_K: FiveBits, Q6_K: SixBits);

/// 32-bit floats.
struct F32;
/// Half precision.
struct F16;
/// The upper halves of 32-bit floats.
struct Bf16;

/// Asks for the lines of the `c`-th quarter of the codes of a step ahead: a few at a time, for a burst of them stalls.
///
/// Every line of a tile must be asked for, by this or by [`ask_for_scales`]: one that is left out comes from memory late,
/// because the lines around it no longer wake the hardware.
#[inline(always)]
fn ask_for_codes<Q: Quantised>(step: *const u8, c: usize) {
    let lines = const { Q::STEP / 64 };
    for line in c * lines / 4..(c + 1) * lines / 4 {
        ask_for(step.wrapping_add(64 * line));
    }
}

/// Asks for the lines of the scales of a block ahead.
#[inline(always)]
fn ask_for_scales<Q: Quantised>(scales: *const u8) {
    for line in 0..const { Q::LAYOUT.scales().div_ceil(64) } {
        ask_for(scales.wrapping_add(64 * line));
    }
}

/// Asks for the cache line [`AHEAD_BYTES`] after `at`.
#[inline(always)]
fn ask_for(at: *const u8) {
    // SAFETY: x86_64 has SSE, and a prefetch of an unmapped address does nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(AHEAD_BYTES).cast()) };
}
