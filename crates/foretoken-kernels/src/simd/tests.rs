//! Every lane operation against its definition.

use super::testing::{Rng, bits};
use super::*;

/// All results of all operations on these operands; NaNs made equal where the operation computes.
#[derive(Default, PartialEq, Debug)]
struct Results {
    floats: Vec<[u32; LANES]>,
    ints: Vec<[u32; LANES]>,
    masks: Vec<u32>,
    halves: [u16; LANES],
    doubles: Vec<u64>,
}

per_isa! {
    fn every_operation(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES], bytes: &[u8; 2 * LANES]) -> Results
        = every_operation_lanes;
}

#[inline(always)]
fn every_operation_lanes<S: Simd>(
    s: S,
    a: &[f32; LANES],
    b: &[f32; LANES],
    c: &[f32; LANES],
    bytes: &[u8; 2 * LANES],
) -> Results {
    let mut results = Results::default();
    let (va, vb, vc) = (s.load(a), s.load(b), s.load(c));
    let first: &[u8; LANES] = bytes[..LANES].try_into().unwrap();
    let eight: &[f32; LANES / 2] = a[..LANES / 2].try_into().unwrap();
    let mut floats = |v: S::F| {
        let mut lanes = [0.0; LANES];
        s.store(v, &mut lanes);
        results.floats.push(lanes.map(bits));
    };
    floats(s.splat(a[0]));
    floats(va);
    floats(s.load_f16(bytes));
    floats(s.load_i8(first));
    floats(s.load_twice(eight));
    floats(s.swap_pairs(va));
    floats(s.add(va, vb));
    floats(s.sub(va, vb));
    floats(s.mul(va, vb));
    floats(s.div(va, vb));
    floats(s.fma(va, vb, vc));
    floats(s.max(va, vb));
    floats(s.min(va, vb));
    floats(s.select(s.lt(va, vb), va, vc));
    floats(s.float_from_bits(s.to_bits(va)));
    let masks = [s.lt(va, vb), s.ge(va, vb), s.eq(va, vb), s.unordered(va, vb)];
    results.masks = masks.map(|m| s.bits(m)).to_vec();
    results.masks.push(s.bits(s.or_m(masks[0], masks[2])));
    s.store_f16(va, &mut results.halves);
    let sums = s.add_d(s.add_d(s.zero_d(), va), vb);
    let mut doubles = [0.0; LANES];
    s.store_d(sums, &mut doubles);
    results.doubles = doubles.map(|d| if d.is_nan() { 0 } else { d.to_bits() }).to_vec();

    results.floats.push([s.sum(va), s.greatest(vb)].map(bits)[..].repeat(8).try_into().unwrap());

    let (ua, ub) = (s.load_u(&a.map(f32::to_bits)), s.load_u(&b.map(f32::to_bits)));
    let small = s.min(s.max(va, s.splat(0.0)), s.splat((1u32 << 30) as f32));
    let ints = [
        s.splat_u(bytes[0].into()),
        s.add_u(ua, ub),
        s.mul_u(ua, ub),
        s.xor_u(ua, ub),
        s.shr_u::<13>(ua),
        s.shl_u::<23>(ua),
        s.round_to_u(small),
        s.to_bits(s.int_to_f32(s.shr_u::<1>(ua))),
    ];
    for v in ints {
        let mut lanes = [0; LANES];
        s.store_u(v, &mut lanes);
        results.ints.push(lanes);
    }
    results.masks.push(s.bits(s.le_u(ua, ub)));
    results
}

#[test]
fn every_operation_equals_its_definition() {
    let mut rng = Rng(1);
    for round in 0..20_000 {
        let mut lanes = || std::array::from_fn(|_| rng.nasty());
        let (a, mut b, c) = (lanes(), lanes(), lanes());
        if round % 2 == 0 {
            b[..LANES / 2].copy_from_slice(&a[..LANES / 2]);
        }
        let bytes = std::array::from_fn(|_| rng.next_u64() as u8);
        let expected = every_operation(crate::Isa::Scalar, &a, &b, &c, &bytes);
        for isa in crate::Isa::available() {
            assert_eq!(every_operation(isa, &a, &b, &c, &bytes), expected, "{isa}");
        }
    }
}

#[test]
fn the_tree_folds_halves() {
    let lanes: [String; LANES] = std::array::from_fn(|i| i.to_string());
    let lanes = lanes.each_ref().map(String::as_str);
    let folded = fold(&lanes, |a, b| Box::leak(format!("({a} {b})").into_boxed_str()));
    assert_eq!(folded, "((((0 8) (4 12)) ((2 10) (6 14))) (((1 9) (5 13)) ((3 11) (7 15))))");
}
