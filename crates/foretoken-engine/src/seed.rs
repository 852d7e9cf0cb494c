//! Seeds for requests that bring none.

use std::hash::{BuildHasher, RandomState};

/// Bits of a drawn seed: JSON readers that keep numbers as doubles keep it exactly.
const BITS: u32 = 53;

/// A fresh seed below 2^53, from the operating system's randomness (by way of the standard library's hasher keys, which
/// differ in every call).
pub fn draw() -> u64 {
    RandomState::new().hash_one(0u64) >> (u64::BITS - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn all_are_distinct_and_small_enough() {
        let seeds: HashSet<u64> = (0..1000).map(|_| draw()).collect();
        assert_eq!(seeds.len(), 1000);
        assert!(seeds.iter().all(|seed| seed >> BITS == 0));
    }
}
