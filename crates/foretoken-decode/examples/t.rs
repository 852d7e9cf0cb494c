use foretoken_kernels::{Isa, ops};
use std::time::Instant;
fn main() {
    let isa = Isa::best();
    println!("{isa}");
    let row: Vec<f32> = (0..152_000u64).map(|i| ((i * 2654435761) % 1000) as f32 / 100.0 - 20.0).collect();
    let mut z = vec![0.0; row.len()];
    let mut hits = vec![];
    for _ in 0..3 {
        let t = Instant::now();
        for _ in 0..20 { ops::scale_logits(isa, &row, 0.0, 0.8, &mut z); }
        println!("scale {:?}", t.elapsed() / 20);
        let t = Instant::now();
        for k in 0..20 { hits.clear(); ops::noise::contenders(isa, k, &z, 0, 5.0, &mut hits); }
        println!("contenders {:?} {}", t.elapsed() / 20, hits.len());
        let t = Instant::now();
        for k in 0..20 { for (b, c) in z.chunks(64).enumerate() { hits.clear(); ops::noise::contenders(isa, k, c, b as u32 * 64, 5.0, &mut hits); }}
        println!("contenders by block {:?} {}", t.elapsed() / 20, hits.len());
        let t = Instant::now();
        for _ in 0..20 { for c in z.chunks_mut(64) { ops::exp_assign(isa, c); }}
        println!("exp by block {:?} {}", t.elapsed() / 20, hits.len());
        let mut s = 0;
        let t = Instant::now();
        for k in 0..20 { for i in 0..152_000 { s += ops::noise::hash32(k, i) >> 31; }}
        println!("hash {:?} {}", t.elapsed() / 20, s);
    }
}
