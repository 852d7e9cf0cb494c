//! The verbs a transformer is written in. Each works on all rows of the pass at once.

use foretoken_kernels::Isa;
use foretoken_kernels::matmul::{self, Activations, Matrix, Product};
use foretoken_kernels::ops::{self, RopeStyle};
use foretoken_kernels::pool::Pool;

use crate::attend::{Attention, Queries};
use crate::block::Block;
use crate::cache::PagedCache;
use crate::hyper::Hyper;
use crate::plan::Plan;
use crate::rope::Rope;

/// A linear layer.
pub(crate) struct Linear {
    pub weights: Matrix,
    /// `[n_out]`, or empty.
    pub bias: Vec<f32>,
}

/// The three projections of an attention layer.
pub(crate) struct Qkv {
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
}

/// Memory for the values of a pass, kept from pass to pass: `[rows][...]` each.
pub(crate) struct Buffers {
    /// The residual stream.
    x: Vec<f32>,
    normed: Vec<f32>,
    activations: Activations,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// `[kv_heads][rows][group][head_dim]`
    queries: Vec<f32>,
    attended: Vec<f32>,
    /// Output of the last projection before it is added to the residual stream.
    delta: Vec<f32>,
    feed_forward: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    attention: Attention,
    /// `[wanted rows][hidden]`
    pub hidden: Vec<f32>,
    /// `[wanted rows][hidden]`: what went into the last layer, where prediction heads start from that.
    pub before_last: Vec<f32>,
    /// `[rows that want logits][vocab]`
    pub logits: Vec<f32>,
}

impl Buffers {
    pub fn new(threads: usize) -> Self {
        Self {
            x: Vec::new(),
            normed: Vec::new(),
            activations: Activations::new(),
            q: Vec::new(),
            k: Vec::new(),
            v: Vec::new(),
            queries: Vec::new(),
            attended: Vec::new(),
            delta: Vec::new(),
            feed_forward: Vec::new(),
            cos: Vec::new(),
            sin: Vec::new(),
            attention: Attention::new(threads),
            hidden: Vec::new(),
            before_last: Vec::new(),
            logits: Vec::new(),
        }
    }
}

/// One forward pass under way.
pub(crate) struct Run<'a> {
    pub pool: &'a Pool,
    pub isa: Isa,
    pub hyper: &'a Hyper,
    pub plan: &'a Plan,
    pub cache: &'a mut PagedCache,
    pub buffers: &'a mut Buffers,
    /// Rows whose hidden state is wanted; those that want logits come first.
    pub wanted: &'a [usize],
    pub n_logits: usize,
    /// Prediction heads that keep K/V rows, behind those of the layers.
    pub heads: Option<&'a [Block]>,
}

/// Rows from which on work between the products is shared among threads.
const SHARED_ROWS: usize = 8;

impl Run<'_> {
    fn rows(&self) -> usize {
        self.plan.rows.len()
    }

    /// Looks the tokens up, and their positions' angles.
    pub fn embed(&mut self, embedding: &Matrix, rope: &Rope) {
        let hidden = self.hyper.hidden;
        self.buffers.x.resize(self.rows() * hidden, 0.0);
        for (row, x) in self.plan.rows.iter().zip(self.buffers.x.chunks_exact_mut(hidden)) {
            embedding.row(row.token as usize, x);
        }
        self.set_positions(rope);
    }

    /// Sets what goes into the next layer.
    pub fn set_rows(&mut self, x: &[f32]) {
        self.buffers.x.clear();
        self.buffers.x.extend_from_slice(x);
    }

    /// Looks the positions' angles up, and divides the attention.
    pub fn set_positions(&mut self, rope: &Rope) {
        let half = rope.len();
        let n = self.rows();
        let Buffers { cos, sin, attention, .. } = &mut *self.buffers;
        cos.resize(n * half, 0.0);
        sin.resize(n * half, 0.0);
        for (i, row) in self.plan.rows.iter().enumerate() {
            let angles = i * half..(i + 1) * half;
            rope.angles(row.position, &mut cos[angles.clone()], &mut sin[angles]);
        }
        attention.divide(self.plan, self.hyper.kv_heads);
    }

    /// Lets prediction heads with layers of their own read what goes into the last layer.
    pub fn before_last_layer(&mut self, style: RopeStyle) {
        let Some(heads) = self.heads else { return };
        let width = self.hyper.hidden;
        let Buffers { x, before_last, .. } = &mut *self.buffers;
        before_last.clear();
        for &row in self.wanted {
            before_last.extend_from_slice(&x[row * width..(row + 1) * width]);
        }
        for (index, block) in heads.iter().enumerate() {
            block.store(self, self.hyper.layers + index, style);
        }
    }

    /// What the rows have become: `[rows][hidden]`.
    pub fn states(&self) -> &[f32] {
        &self.buffers.x
    }

    /// What the rows have become, behind a norm: `[rows][hidden]`.
    pub fn normed(&mut self, weight: &[f32]) -> &[f32] {
        let Buffers { x, normed, .. } = &mut *self.buffers;
        normed.resize(x.len(), 0.0);
        norm_rows(self.pool, self.isa, x, weight, self.hyper.norm_eps, normed);
        normed
    }

    /// RMS norm of the residual stream, made ready for the products with `readers`.
    pub fn norm<'m>(&mut self, weight: &[f32], readers: impl IntoIterator<Item = &'m Matrix>) {
        let Buffers { x, normed, activations, .. } = &mut *self.buffers;
        let n = self.plan.rows.len();
        normed.resize(x.len(), 0.0);
        norm_rows(self.pool, self.isa, x, weight, self.hyper.norm_eps, normed);
        activations.set(self.pool, self.isa, normed, n, self.hyper.hidden, readers.into_iter().map(Matrix::storage));
    }

    /// Projects to queries, keys and values, turns them by their positions, and stores K/V rows in the cache.
    pub fn project_qkv(&mut self, layer: usize, qkv: &Qkv, style: RopeStyle) {
        let (n, q_dim, kv_dim) = (self.rows(), self.hyper.q_dim(), self.hyper.kv_dim());
        let Buffers { activations, q, k, v, .. } = &mut *self.buffers;
        q.resize(n * q_dim, 0.0);
        k.resize(n * kv_dim, 0.0);
        v.resize(n * kv_dim, 0.0);
        let products = &mut [
            Product { weights: &qkv.q.weights, out: q },
            Product { weights: &qkv.k.weights, out: k },
            Product { weights: &qkv.v.weights, out: v },
        ];
        matmul::matmul(self.pool, self.isa, activations, products);
        self.turn_queries(&qkv.q.bias, style);
        self.store_kv(layer, qkv, style);
    }

    /// Projects to keys and values alone, and stores them.
    pub fn project_kv(&mut self, layer: usize, qkv: &Qkv, style: RopeStyle) {
        let (n, kv_dim) = (self.rows(), self.hyper.kv_dim());
        let Buffers { activations, k, v, .. } = &mut *self.buffers;
        k.resize(n * kv_dim, 0.0);
        v.resize(n * kv_dim, 0.0);
        let products = &mut [Product { weights: &qkv.k.weights, out: k }, Product { weights: &qkv.v.weights, out: v }];
        matmul::matmul(self.pool, self.isa, activations, products);
        self.store_kv(layer, qkv, style);
    }

    /// Projects to queries alone.
    pub fn project_q(&mut self, linear: &Linear, style: RopeStyle) {
        let (n, q_dim) = (self.rows(), self.hyper.q_dim());
        let Buffers { activations, q, .. } = &mut *self.buffers;
        q.resize(n * q_dim, 0.0);
        matmul::matmul(self.pool, self.isa, activations, &mut [Product { weights: &linear.weights, out: q }]);
        self.turn_queries(&linear.bias, style);
    }

    /// Turns the queries by their positions and scales them.
    fn turn_queries(&mut self, bias: &[f32], style: RopeStyle) {
        let n = self.rows();
        let Hyper { head_dim, heads, kv_heads, .. } = *self.hyper;
        let (q_dim, half, group, isa) = (self.hyper.q_dim(), head_dim / 2, heads / kv_heads, self.isa);
        let Buffers { q, queries, cos, sin, .. } = &mut *self.buffers;
        queries.resize(n * q_dim, 0.0);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let turn_group = |index: usize, out: &mut [f32]| {
            let (kv_head, row) = (index / n, index % n);
            let from = row * q_dim + kv_head * group * head_dim;
            out.copy_from_slice(&q[from..from + group * head_dim]);
            add_bias(isa, out, bias, kv_head * group * head_dim);
            let angles = row * half..(row + 1) * half;
            for head in out.chunks_exact_mut(head_dim) {
                ops::rope(isa, head, &cos[angles.clone()], &sin[angles.clone()], style);
                head.iter_mut().for_each(|value| *value *= scale);
            }
        };
        if n < SHARED_ROWS {
            queries.chunks_exact_mut(group * head_dim).enumerate().for_each(|(i, out)| turn_group(i, out));
        } else {
            self.pool.chunks_mut(queries, group * head_dim, |_, i, out| turn_group(i, out));
        }
    }

    /// Turns the keys by their positions and puts them and the values into the cache.
    fn store_kv(&mut self, layer: usize, qkv: &Qkv, style: RopeStyle) {
        let Hyper { head_dim, .. } = *self.hyper;
        let (kv_dim, half, isa) = (self.hyper.kv_dim(), head_dim / 2, self.isa);
        let Buffers { k, v, cos, sin, .. } = &mut *self.buffers;
        for (i, row) in self.plan.rows.iter().enumerate() {
            let (k, v) = (&mut k[i * kv_dim..(i + 1) * kv_dim], &mut v[i * kv_dim..(i + 1) * kv_dim]);
            add_bias(isa, k, &qkv.k.bias, 0);
            add_bias(isa, v, &qkv.v.bias, 0);
            let at = self.cache.position(row.sequence, row.node, row.position);
            let angles = i * half..(i + 1) * half;
            for (head, (k, v)) in k.chunks_exact_mut(head_dim).zip(v.chunks_exact(head_dim)).enumerate() {
                ops::rope(isa, k, &cos[angles.clone()], &sin[angles.clone()], style);
                self.cache.store(isa, layer, head, at, k, v);
            }
        }
    }

    /// Attention over the cache, made ready for the product with `reader`.
    pub fn attend(&mut self, layer: usize, reader: &Matrix) {
        let q_dim = self.hyper.q_dim();
        let n = self.rows();
        let Buffers { queries, attended, attention, activations, .. } = &mut *self.buffers;
        attended.resize(n * q_dim, 0.0);
        let group = self.hyper.heads / self.hyper.kv_heads;
        let queries = Queries { q: queries, layer, group, isa: self.isa };
        attention.run(self.pool, self.plan, self.cache, queries, attended);
        activations.set(self.pool, self.isa, attended, n, q_dim, [reader.storage()].into_iter());
    }

    /// A product added to the residual stream.
    pub fn add_projected(&mut self, linear: &Linear) {
        let Buffers { x, delta, activations, .. } = &mut *self.buffers;
        delta.resize(x.len(), 0.0);
        let products = &mut [Product { weights: &linear.weights, out: delta }];
        matmul::matmul(self.pool, self.isa, activations, products);
        for row in delta.chunks_exact_mut(self.hyper.hidden) {
            add_bias(self.isa, row, &linear.bias, 0);
        }
        ops::add_assign(self.isa, x, delta);
    }

    /// The gated feed-forward network up to its last product: silu(gate x) * (up x), made ready for `reader`.
    pub fn gate_up(&mut self, gate: &Matrix, up: &Matrix, reader: &Matrix) {
        let n = self.rows();
        let Buffers { activations, feed_forward, .. } = &mut *self.buffers;
        feed_forward.resize(n * self.hyper.feed_forward, 0.0);
        matmul::matmul_glu(self.pool, self.isa, activations, gate, up, feed_forward);
        let width = self.hyper.feed_forward;
        activations.set(self.pool, self.isa, feed_forward, n, width, [reader.storage()].into_iter());
    }

    /// Keeps every row's hidden state in the cache, where prediction heads read them later.
    fn keep_states(&mut self) {
        let width = self.cache.shape().state;
        if width == 0 {
            return;
        }
        for (row, state) in self.plan.rows.iter().zip(self.buffers.x.chunks_exact(width)) {
            let at = self.cache.position(row.sequence, row.node, row.position);
            self.cache.keep_state(at, state);
        }
    }

    /// Hidden states and logits of the rows that want them.
    pub fn finish(&mut self, norm: &[f32], head: &Matrix) {
        self.keep_states();
        let Hyper { hidden: width, vocab, norm_eps, .. } = *self.hyper;
        let Buffers { x, normed, hidden, logits, activations, .. } = &mut *self.buffers;
        normed.resize(self.wanted.len() * width, 0.0);
        for (out, &row) in normed.chunks_exact_mut(width).zip(self.wanted) {
            out.copy_from_slice(&x[row * width..(row + 1) * width]);
        }
        hidden.resize(self.wanted.len() * width, 0.0);
        norm_rows(self.pool, self.isa, normed, norm, norm_eps, hidden);
        logits.resize(self.n_logits * vocab, 0.0);
        if self.n_logits > 0 {
            let rows = &hidden[..self.n_logits * width];
            activations.set(self.pool, self.isa, rows, self.n_logits, width, [head.storage()].into_iter());
            matmul::matmul(self.pool, self.isa, activations, &mut [Product { weights: head, out: logits }]);
        }
    }
}

fn add_bias(isa: Isa, values: &mut [f32], bias: &[f32], from: usize) {
    if !bias.is_empty() {
        ops::add_assign(isa, values, &bias[from..from + values.len()]);
    }
}

fn norm_rows(pool: &Pool, isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    let norm = |i: usize, out: &mut [f32]| ops::rms_norm(isa, &x[i * width..(i + 1) * width], weight, eps, out);
    if x.len() < SHARED_ROWS * width {
        out.chunks_exact_mut(width).enumerate().for_each(|(i, out)| norm(i, out));
    } else {
        pool.chunks_mut(out, width, |_, i, out| norm(i, out));
    }
}
