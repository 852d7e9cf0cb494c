//! Counter-based noise: a hash of (key, token id), and the search for ids whose Gumbel noise may win.
//!
//! The token drawn is the argmax of `z_i + g_i` with `g = -ln(-log1p(-u))` and `u = (hash + 0.5) / 2^32`: a small hash is
//! large noise, since `g` falls as `u` grows and `g < -ln(u)`. So an id can only reach a score `best` when
//! `u <= exp(z_i - best)`, and the logarithms are needed for the few ids that pass this test.

use crate::simd::{LANES, Simd, load_part, per_isa};

/// Keeps key 0 and id 0 from the finalisers' fixed point.
const SALT: u32 = 0x9e37_79b9;

/// 32 random bits for `id` under `key`.
///
/// Two 32-bit finalisers, each keyed with half of `key`: Wellons's `lowbias32`, then MurmurHash3's `fmix32`. For one key it
/// permutes the 32-bit integers, so that no two ids tie. Every bit of the key and of the id flips each output bit with
/// probability 1/2, but related keys of one stream are best hashed first.
#[inline(always)]
pub fn hash32(key: u64, id: u32) -> u32 {
    let mut x = id ^ key as u32;
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^= x >> 16;
    x = x.wrapping_add((key >> 32) as u32 ^ SALT);
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// [`hash32`] of sixteen ids.
#[inline(always)]
fn hash32_lanes<S: Simd>(simd: S, key: u64, ids: S::U) -> S::U {
    let mut x = simd.xor_u(ids, simd.splat_u(key as u32));
    x = simd.mul_u(simd.xor_u(x, simd.shr_u::<16>(x)), simd.splat_u(0x7feb_352d));
    x = simd.mul_u(simd.xor_u(x, simd.shr_u::<15>(x)), simd.splat_u(0x846c_a68b));
    x = simd.xor_u(x, simd.shr_u::<16>(x));
    x = simd.add_u(x, simd.splat_u((key >> 32) as u32 ^ SALT));
    x = simd.mul_u(simd.xor_u(x, simd.shr_u::<16>(x)), simd.splat_u(0x85eb_ca6b));
    x = simd.mul_u(simd.xor_u(x, simd.shr_u::<13>(x)), simd.splat_u(0xc2b2_ae35));
    simd.xor_u(x, simd.shr_u::<16>(x))
}

const IOTA: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

per_isa! {
    /// Appends `(id, hash)` for the ids of `first_id..first_id + n` whose hash is at most `threshold`, in ascending order.
    pub fn hash_at_most(key: u64, first_id: u32, n: u32, threshold: u32, out: &mut Vec<(u32, u32)>) = hash_at_most_lanes;
}

#[inline(always)]
fn hash_at_most_lanes<S: Simd>(simd: S, key: u64, first_id: u32, n: u32, threshold: u32, out: &mut Vec<(u32, u32)>) {
    let threshold = simd.splat_u(threshold);
    for base in (0..n).step_by(LANES) {
        let first = first_id.wrapping_add(base);
        let hashes = hash32_lanes(simd, key, simd.add_u(simd.splat_u(first), simd.load_u(&IOTA)));
        let inside = (1u32 << (n - base).min(LANES as u32)) - 1;
        push_hits(simd, simd.bits(simd.le_u(hashes, threshold)) & inside, first, hashes, out);
    }
}

/// Appends the ids and hashes of the lanes in `hits`.
#[inline(always)]
fn push_hits<S: Simd>(simd: S, mut hits: u32, first: u32, hashes: S::U, out: &mut Vec<(u32, u32)>) {
    if hits != 0 {
        let mut lanes = [0; LANES];
        simd.store_u(hashes, &mut lanes);
        while hits != 0 {
            let lane = hits.trailing_zeros();
            out.push((first.wrapping_add(lane), lanes[lane as usize]));
            hits &= hits - 1;
        }
    }
}

per_isa! {
    /// Appends `(id, hash)` for every id of `first_id..first_id + z.len()` whose `z + gumbel(hash)` could reach `best`, in
    /// ascending order.
    ///
    /// `z` holds the scaled logits of these ids, minus infinity for those that may not win. No id that reaches `best`, even
    /// as a tie and with scores rounded to `f32`, is left out while `|z|` and `|best|` are at most 100; about
    /// `1.1 * sum(exp(z - best))` ids are given.
    pub fn contenders(key: u64, z: &[f32], first_id: u32, best: f32, out: &mut Vec<(u32, u32)>) = contenders_lanes;
}

#[inline(always)]
fn contenders_lanes<S: Simd>(simd: S, key: u64, z: &[f32], first_id: u32, best: f32, out: &mut Vec<(u32, u32)>) {
    let (blocks, rest) = z.as_chunks::<LANES>();
    let mut first = first_id;
    for block in blocks {
        push_contenders(simd, key, simd.load(block), first, best, out);
        first = first.wrapping_add(LANES as u32);
    }
    if !rest.is_empty() {
        push_contenders(simd, key, load_part(simd, rest, f32::NEG_INFINITY), first, best, out);
    }
}

/// `exp(z - best)` is bounded from above by the chord `2^(n + f) <= 2^n (1 + f)`, which a shifted integer gives as the bits
/// of a float, and compared with the hash's upper 24 bits, which bound it from below.
#[inline(always)]
fn push_contenders<S: Simd>(simd: S, key: u64, z: S::F, first: u32, best: f32, out: &mut Vec<(u32, u32)>) {
    /// The exponent's bias, and a margin of 0.1 % for every rounding on the way.
    const OFFSET: f32 = 127.0 + 0.002;
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    let log2 = simd.fma(simd.sub(z, simd.splat(best)), simd.splat(std::f32::consts::LOG2_E), simd.splat(OFFSET));
    // A NaN, from infinities of both sides, becomes zero too.
    let log2 = simd.min(simd.max(log2, simd.splat(0.0)), simd.splat(128.0));
    let bound = simd.float_from_bits(simd.round_to_u(simd.mul(log2, simd.splat((1 << 23) as f32))));
    let hashes = hash32_lanes(simd, key, simd.add_u(simd.splat_u(first), simd.load_u(&IOTA)));
    let u = simd.mul(simd.int_to_f32(simd.shr_u::<8>(hashes)), simd.splat(UNIT));
    push_hits(simd, simd.bits(simd.lt(u, bound)), first, hashes, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::testing::Rng;

    /// Asserts that the counts are those of a uniform distribution: chi-square within five sigma.
    #[track_caller]
    fn assert_uniform(counts: &[u32], what: &str) {
        let expected = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
        assert!(expected >= 10.0);
        let chi2: f64 = counts.iter().map(|&n| (f64::from(n) - expected) * (f64::from(n) - expected) / expected).sum();
        let freedom = (counts.len() - 1) as f64;
        assert!((chi2 - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{what}: chi-square {chi2}, expected {freedom}");
    }

    #[test]
    fn values_are_pinned() {
        // Texts drawn with a seed must not change from one version to the next.
        let values =
            [(0, 0), (0, 1), (1, 0), (1 << 32, 0), (0x0123_4567_89ab_cdef, 151_935)].map(|(k, id)| hash32(k, id));
        assert_eq!(values, [0x92ca_2f0e, 0x0c10_e424, 0x0c10_e424, 0x36de_b503, 0x921a_ebbb], "{values:08x?}");
    }

    #[test]
    fn bits_are_uniform_over_ids_and_over_keys() {
        let mut rng = Rng(2);
        for key in [0, 1, u64::MAX, rng.next_u64()] {
            let (mut high, mut low, mut pairs) = (vec![0; 1024], vec![0; 1024], vec![0; 1024]);
            for id in 0..152_000 {
                let [h, next] = [id, id + 1].map(|id| hash32(key, id));
                high[(h >> 22) as usize] += 1;
                low[(h & 1023) as usize] += 1;
                pairs[(h >> 27 << 5 | next >> 27) as usize] += 1;
            }
            for (counts, what) in [(high, "high bits"), (low, "low bits"), (pairs, "neighbours")] {
                assert_uniform(&counts, &format!("{what} of key {key:x}"));
            }
        }
        // Keys that count, as badly chosen as can be, in either half.
        for shift in [0, 32] {
            let (mut high, mut pairs) = (vec![0; 1024], vec![0; 1024]);
            for key in 0..152_000u64 {
                let [h, next] = [key, key + 1].map(|key| hash32(key << shift, 77));
                high[(h >> 22) as usize] += 1;
                pairs[(h >> 27 << 5 | next >> 27) as usize] += 1;
            }
            assert_uniform(&high, "counting keys");
            assert_uniform(&pairs, "neighbouring keys");
        }
    }

    #[test]
    fn each_input_bit_flips_each_output_bit_half_of_the_time() {
        const ROUNDS: u32 = 20_000;
        let mut rng = Rng(3);
        let mut flips = vec![[0u32; 32]; 96];
        for _ in 0..ROUNDS {
            let (key, id) = (rng.next_u64(), rng.next_u64() as u32);
            let h = hash32(key, id);
            for (bit, flips) in flips.iter_mut().enumerate() {
                let changed = h ^ if bit < 64 { hash32(key ^ 1 << bit, id) } else { hash32(key, id ^ 1 << (bit - 64)) };
                for (out, n) in flips.iter_mut().enumerate() {
                    *n += changed >> out & 1;
                }
            }
        }
        let share = |n: u32| f64::from(n) / f64::from(ROUNDS);
        let worst = flips.iter().flatten().map(|&n| (share(n) - 0.5).abs()).fold(0.0, f64::max);
        // Five and a half sigma of 20,000 fair flips, and one percent of bias.
        assert!(worst < 0.03, "{worst}");
    }

    #[test]
    fn the_search_finds_exactly_the_small_hashes() {
        let mut rng = Rng(4);
        for n in (0..50).chain([1000]) {
            let (key, first) = (rng.next_u64(), rng.next_u64() as u32 >> rng.below(32));
            for threshold in [0, 1 << 24, 1 << 31, u32::MAX] {
                let expected: Vec<_> = (0..n)
                    .map(|i| first.wrapping_add(i))
                    .map(|id| (id, hash32(key, id)))
                    .filter(|(_, hash)| *hash <= threshold)
                    .collect();
                for isa in Isa::available() {
                    let mut found = Vec::new();
                    hash_at_most(isa, key, first, n, threshold, &mut found);
                    assert_eq!(found, expected, "{isa}, {n} ids");
                }
            }
        }
    }

    fn gumbel(hash: u32) -> f64 {
        -libm::log(-libm::log1p(-(f64::from(hash) + 0.5) / 4_294_967_296.0))
    }

    #[test]
    fn no_contender_is_left_out_and_few_others_are_given() {
        let mut rng = Rng(5);
        for round in 0..300 {
            let (key, n) = (rng.next_u64(), rng.below(3000));
            let spread = [0.0, 1.0, 10.0, 60.0][round % 4];
            let mut z: Vec<f32> = rng.uniforms(n, -spread..0.0);
            for _ in 0..n / 10 {
                z[rng.below(n)] = f32::NEG_INFINITY;
            }
            let scores: Vec<f64> = z.iter().zip(0..).map(|(&z, id)| f64::from(z) + gumbel(hash32(key, id))).collect();
            // Any bound, or the very score of some id.
            let best = match round % 3 {
                0 if n > 0 => scores[rng.below(n)] as f32,
                1 => f32::NEG_INFINITY,
                _ => rng.uniform(-spread..20.0),
            };
            let mut expected = Vec::new();
            contenders(Isa::Scalar, key, &z, 0, best, &mut expected);
            for isa in Isa::available() {
                let mut found = Vec::new();
                contenders(isa, key, &z, 0, best, &mut found);
                assert_eq!(found, expected, "{isa}");
            }
            assert!(expected.is_sorted() && expected.iter().all(|&(id, hash)| hash == hash32(key, id)));
            for (id, score) in
                scores.iter().enumerate().filter(|(_, score)| **score as f32 >= best && score.is_finite())
            {
                assert!(expected.iter().any(|e| e.0 == id as u32), "{id} with {score} against {best}");
            }
            let mean: f64 = z.iter().map(|&z| libm::exp(f64::from(z - best)).min(1.0)).sum();
            assert!(expected.len() as f64 <= 1.1 * mean + 6.0 * mean.sqrt() + 6.0, "{} for {mean}", expected.len());
        }
    }
}
