//! Texts that are much the same as one seen before, found by their 64-byte shingles.

use std::collections::HashSet;

/// Bytes of a shingle.
const LENGTH: usize = 64;
/// One shingle in this many is remembered, chosen by its hash, so that the choice is the same in every text.
const SAMPLE: u64 = 16;
const BASE: u64 = 0x0100_0000_01b3;

/// Shingles of the texts taken so far. (Broder, "On the resemblance and containment of documents", 1997.)
#[derive(Debug, Default)]
pub struct Shingles {
    seen: HashSet<u64>,
}

impl Shingles {
    /// The share of a text's sampled shingles that were seen in earlier texts; 0 for a text too short to have any.
    pub fn share_seen(&self, text: &[u8]) -> f64 {
        let own: HashSet<u64> = sampled(text).collect();
        match own.len() {
            0 => 0.0,
            n => own.iter().filter(|shingle| self.seen.contains(shingle)).count() as f64 / n as f64,
        }
    }

    /// Remembers a text.
    pub fn add(&mut self, text: &[u8]) {
        self.seen.extend(sampled(text));
    }
}

/// Hashes of every 64 bytes in a row, rolled from one to the next, of which the sample is kept.
fn sampled(text: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let oldest = (0..LENGTH).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = 0u64;
    text.iter().enumerate().filter_map(move |(i, byte)| {
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1);
        if i >= LENGTH {
            hash = hash.wrapping_sub(oldest.wrapping_mul(u64::from(text[i - LENGTH]) + 1));
        }
        // The low bits of a rolling hash are poor; these are mixed.
        let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = mixed ^ (mixed >> 32);
        (i + 1 >= LENGTH && mixed.is_multiple_of(SAMPLE)).then_some(mixed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn text(seed: u64, n: usize) -> Vec<u8> {
        let mut rng = Rng::new(seed, "text");
        (0..n).map(|_| b'a' + rng.below(26) as u8).collect()
    }

    #[test]
    fn a_moved_copy_is_seen_and_another_text_is_not() {
        let mut shingles = Shingles::default();
        let original = text(1, 4000);
        shingles.add(&original);
        let moved = [b"a new first line\n".as_slice(), &original, b"and a last"].concat();
        assert!(shingles.share_seen(&moved) > 0.9);
        assert!(shingles.share_seen(&text(2, 4000)) < 0.01);
        let half = [original[..2000].to_vec(), text(3, 2000)].concat();
        assert!((0.3..0.7).contains(&shingles.share_seen(&half)));
        assert_eq!(shingles.share_seen(b"short"), 0.0);
    }
}
