//! A tiny byte model with prediction heads, as a file: random, but given to repeating itself, so that heads are often right.

use foretoken_formats::gguf::{GgmlType, GgufWriter};
use foretoken_formats::tokenizer::with_byte_vocabulary;

use crate::rng::Rng;

const WIDTH: usize = 64;
const HEAD_DIM: usize = 32;
const FEED_FORWARD: usize = 96;
const LAYERS: usize = 2;
const VOCAB: usize = 256;
/// Most tokens of a sequence.
pub const CONTEXT: usize = 512;

/// The bytes of a GGUF file with `n_heads` heads of this kind, the model's own included: `linear`, `resblock`, `transformer`,
/// `sequential`, or `recursive`, which is `sequential` with one module for all. The last has an unembedding of its own.
pub fn byte_model(kind: &str, n_heads: u32, seed: u64) -> Vec<u8> {
    let size = |n: usize| n as u32;
    let file = GgufWriter::new()
        .set("general.architecture", "llama")
        .set("general.name", "tiny bytes")
        .set("llama.context_length", size(CONTEXT))
        .set("llama.embedding_length", size(WIDTH))
        .set("llama.block_count", size(LAYERS))
        .set("llama.feed_forward_length", size(FEED_FORWARD))
        .set("llama.attention.head_count", size(WIDTH / HEAD_DIM))
        .set("llama.attention.head_count_kv", 1u32)
        .set("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .set("llama.rope.dimension_count", size(HEAD_DIM))
        .set("llama.vocab_size", size(VOCAB))
        .set("foretoken.heads.kind", if kind == "recursive" { "sequential" } else { kind })
        .set("foretoken.heads.recursive", kind == "recursive")
        .set("foretoken.heads.count", n_heads);
    let mut tensors = Tensors { file: with_byte_vocabulary(file), rng: Rng::new(seed) };
    tensors.matrix("token_embd.weight", WIDTH, VOCAB, 1.0);
    for layer in 0..LAYERS {
        tensors.layer(&format!("blk.{layer}"));
    }
    // What comes out is near the token's own embedding, which multiplies it: the token itself is likely to come again.
    tensors.vector("output_norm.weight", WIDTH, 0.18);
    for k in 2..=n_heads {
        let head = format!("head.{k}");
        match kind {
            "transformer" => tensors.layer(&head),
            "recursive" if k > 2 => {}
            "sequential" | "recursive" => tensors.module(&head),
            "linear" => tensors.diagonal(&format!("{head}.linear.weight"), WIDTH, 1.0, 0.05),
            _ => {
                tensors.diagonal(&format!("{head}.linear.weight"), WIDTH, 0.0, 0.05);
                tensors.vector(&format!("{head}.linear.bias"), WIDTH, 0.01);
            }
        }
        if k == n_heads {
            tensors.matrix(&format!("head.{k}.output.weight"), WIDTH, VOCAB, 1.0);
        }
    }
    tensors.file.to_bytes()
}

struct Tensors {
    file: GgufWriter,
    rng: Rng,
}

impl Tensors {
    /// Numbers between -1 and 1.
    fn random(&mut self) -> f32 {
        self.rng.below(20_001) as f32 / 10_000.0 - 1.0
    }

    fn add(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.file = std::mem::take(&mut self.file).tensor(name, shape, GgmlType::F32, bytes);
    }

    fn matrix(&mut self, name: &str, n_in: usize, n_out: usize, scale: f32) {
        let values = (0..n_in * n_out).map(|_| self.random() * scale).collect();
        self.add(name, &[n_in, n_out], values);
    }

    fn vector(&mut self, name: &str, n: usize, value: f32) {
        let values = (0..n).map(|_| value * (1.0 + 0.1 * self.random())).collect();
        self.add(name, &[n], values);
    }

    fn layer(&mut self, prefix: &str) {
        let name = |part: &str| format!("{prefix}.{part}.weight");
        self.vector(&name("attn_norm"), WIDTH, 1.0);
        self.matrix(&name("attn_q"), WIDTH, WIDTH, 0.3);
        self.matrix(&name("attn_k"), WIDTH, HEAD_DIM, 0.3);
        self.matrix(&name("attn_v"), WIDTH, HEAD_DIM, 0.2);
        self.matrix(&name("attn_output"), WIDTH, WIDTH, 0.1);
        self.vector(&name("ffn_norm"), WIDTH, 1.0);
        self.matrix(&name("ffn_gate"), WIDTH, FEED_FORWARD, 0.2);
        self.matrix(&name("ffn_up"), WIDTH, FEED_FORWARD, 0.2);
        self.matrix(&name("ffn_down"), FEED_FORWARD, WIDTH, 0.1);
    }

    /// A module that mostly hands the token's embedding on.
    fn module(&mut self, head: &str) {
        let name = |part: &str| format!("{head}.{part}.weight");
        self.vector(&name("enorm"), WIDTH, 1.0);
        self.vector(&name("hnorm"), WIDTH, 1.0);
        let on = |i: usize| if i % (2 * WIDTH) == i / (2 * WIDTH) { 1.0 } else { 0.0 };
        let values = (0..2 * WIDTH * WIDTH).map(|i| on(i) + self.random() * 0.05).collect();
        self.add(&name("eh_proj"), &[2 * WIDTH, WIDTH], values);
        self.layer(head);
        self.vector(&name("shared_head_norm"), WIDTH, 0.18);
    }

    fn diagonal(&mut self, name: &str, n: usize, value: f32, scale: f32) {
        let on = |i: usize| if i / n == i % n { value } else { 0.0 };
        let values = (0..n * n).map(|i| on(i) + self.random() * scale).collect();
        self.add(name, &[n, n], values);
    }
}
