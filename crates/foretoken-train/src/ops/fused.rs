//! The fused versions for the CPU back end: kernels over rows, spread over the threads in pieces whose bounds depend on the
//! shapes alone, so that sums over rows are the same for any number of threads.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops as Step, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Tensor, TensorData};
use foretoken_kernels::{Isa, train};
use rayon::prelude::*;

use super::{AttentionInputs, SURE};
use crate::batch::avoided;

/// Rows that one task works on.
const ROWS: usize = 64;

pub(super) type Flat = FloatTensor<Flex>;

/// The fused operations as the back end sees them.
#[backend_extension(Flex, Autodiff)]
trait TrainOps: Backend {
    fn rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, eps: f32) -> FloatTensor<Self>;
    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self>;
    fn silu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    fn attention(qkv: FloatTensor<Self>, inputs: AttentionInputs) -> FloatTensor<Self>;
    fn cross_entropy(logits: FloatTensor<Self>, labels: Arc<Vec<i32>>, avoid_weight: f32) -> FloatTensor<Self>;
}

pub(super) fn rms_norm(x: Tensor<2>, weight: Tensor<2>, eps: f32) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as TrainOps>::rms_norm(x.into_dispatch(), weight.into_dispatch(), eps))
}

pub(super) fn swiglu(gate_up: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as TrainOps>::swiglu(gate_up.into_dispatch()))
}

pub(super) fn silu(x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as TrainOps>::silu(x.into_dispatch()))
}

pub(super) fn attention(qkv: Tensor<2>, inputs: &AttentionInputs) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as TrainOps>::attention(qkv.into_dispatch(), inputs.clone()))
}

pub(super) fn cross_entropy(logits: Tensor<2>, labels: &[i32], avoid_weight: f32) -> Tensor<1> {
    let labels = Arc::new(labels.to_vec());
    Tensor::from_dispatch(<Dispatch as TrainOps>::cross_entropy(logits.into_dispatch(), labels, avoid_weight))
}

/// The values of a contiguous tensor.
pub(super) fn values(tensor: &Flat) -> &[f32] {
    tensor.as_slice().expect("contiguous f32")
}

pub(super) fn flat(values: Vec<f32>, shape: &[usize]) -> Flat {
    Flat::from_data(TensorData::new(values, shape.to_vec()))
}

pub(super) fn width(tensor: &Flat) -> usize {
    tensor.shape()[1]
}

impl TrainOps for Flex {
    fn rms_norm(x: Flat, weight: Flat, eps: f32) -> Flat {
        let (x, weight, isa) = (x.to_contiguous(), weight.to_contiguous(), Isa::best());
        let d = width(&x);
        let (rows, weight) = (values(&x), values(&weight));
        let mut out = vec![0.0; rows.len()];
        out.par_chunks_mut(ROWS * d).zip(rows.par_chunks(ROWS * d)).for_each(|(out, x)| {
            for (out, x) in out.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
                foretoken_kernels::ops::rms_norm(isa, x, weight, eps, out);
            }
        });
        flat(out, &[rows.len() / d, d])
    }

    fn swiglu(gate_up: Flat) -> Flat {
        let (gate_up, isa) = (gate_up.to_contiguous(), Isa::best());
        let f = width(&gate_up) / 2;
        let rows = values(&gate_up);
        let mut out = vec![0.0; rows.len() / 2];
        out.par_chunks_mut(ROWS * f).zip(rows.par_chunks(ROWS * 2 * f)).for_each(|(out, rows)| {
            for (out, row) in out.chunks_exact_mut(f).zip(rows.chunks_exact(2 * f)) {
                train::swiglu(isa, &row[..f], &row[f..], out);
            }
        });
        flat(out, &[rows.len() / (2 * f), f])
    }

    fn silu(x: Flat) -> Flat {
        let (x, isa) = (x.to_contiguous(), Isa::best());
        let d = width(&x);
        let (rows, ones) = (values(&x), vec![1.0; d]);
        let mut out = vec![0.0; rows.len()];
        out.par_chunks_mut(ROWS * d).zip(rows.par_chunks(ROWS * d)).for_each(|(out, rows)| {
            for (out, row) in out.chunks_exact_mut(d).zip(rows.chunks_exact(d)) {
                train::swiglu(isa, row, &ones, out);
            }
        });
        flat(out, &[rows.len() / d, d])
    }

    fn attention(qkv: Flat, inputs: AttentionInputs) -> Flat {
        attention_forward(&qkv.to_contiguous(), &inputs).0
    }

    fn cross_entropy(logits: Flat, labels: Arc<Vec<i32>>, avoid_weight: f32) -> Flat {
        cross_entropy_forward(logits, &labels, avoid_weight).0
    }
}

impl<C: CheckpointStrategy> TrainOps for Autodiff<Flex, C> {
    fn rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, eps: f32) -> FloatTensor<Self> {
        let (x, x_node) = x.into_parts();
        let (weight, weight_node) = weight.into_parts();
        let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
        let out = <Flex as TrainOps>::rms_norm(x.clone(), weight.clone(), eps);
        match RmsNorm.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((x, weight, eps), out),
            OpsKind::UnTracked(step) => step.finish(out),
        }
    }

    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self> {
        let (gate_up, node) = gate_up.into_parts();
        let gate_up = gate_up.to_contiguous();
        let out = <Flex as TrainOps>::swiglu(gate_up.clone());
        match Swiglu.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish(gate_up, out),
            OpsKind::UnTracked(step) => step.finish(out),
        }
    }

    fn silu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let x = x.to_contiguous();
        let out = <Flex as TrainOps>::silu(x.clone());
        match Silu.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish(x, out),
            OpsKind::UnTracked(step) => step.finish(out),
        }
    }

    fn attention(qkv: FloatTensor<Self>, inputs: AttentionInputs) -> FloatTensor<Self> {
        let (qkv, node) = qkv.into_parts();
        let qkv = qkv.to_contiguous();
        let (out, stats) = attention_forward(&qkv, &inputs);
        match Attention.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((qkv, inputs, out.clone(), Arc::new(stats)), out),
            OpsKind::UnTracked(step) => step.finish(out),
        }
    }

    fn cross_entropy(logits: FloatTensor<Self>, labels: Arc<Vec<i32>>, avoid_weight: f32) -> FloatTensor<Self> {
        let (logits, node) = logits.into_parts();
        let (out, gradient) = cross_entropy_forward(logits, &labels, avoid_weight);
        match CrossEntropy.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish(gradient, out),
            OpsKind::UnTracked(step) => step.finish(out),
        }
    }
}

#[derive(Debug)]
struct RmsNorm;

impl Backward<Flex, 2> for RmsNorm {
    type State = (Flat, Flat, f32);

    fn backward(self, step: Step<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, weight, eps) = step.state;
        let dy = grads.consume::<Flex>(&step.node).to_contiguous();
        let (d, isa) = (width(&x), Isa::best());
        let (x, weight, dy) = (values(&x), values(&weight), values(&dy));
        let mut dx = vec![0.0; x.len()];
        let pieces: Vec<Vec<f32>> = dx
            .par_chunks_mut(ROWS * d)
            .zip(x.par_chunks(ROWS * d))
            .zip(dy.par_chunks(ROWS * d))
            .map(|((dx, x), dy)| {
                let mut dw = vec![0.0; d];
                for ((dx, x), dy) in dx.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(dy.chunks_exact(d)) {
                    train::rms_norm_backward(isa, x, weight, dy, eps, dx, &mut dw);
                }
                dw
            })
            .collect();
        let [x_parent, weight_parent] = step.parents;
        if let Some(parent) = x_parent {
            grads.register::<Flex>(parent.id, flat(dx, &[x.len() / d, d]));
        }
        if let Some(parent) = weight_parent {
            let mut dw = vec![0.0; d];
            for piece in pieces {
                foretoken_kernels::ops::add_assign(isa, &mut dw, &piece);
            }
            grads.register::<Flex>(parent.id, flat(dw, &[1, d]));
        }
    }
}

#[derive(Debug)]
struct Swiglu;

impl Backward<Flex, 1> for Swiglu {
    type State = Flat;

    fn backward(self, step: Step<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&step.node).to_contiguous();
        let [Some(parent)] = step.parents else { return };
        let (f, isa) = (width(&dy), Isa::best());
        let (rows, dy) = (values(&step.state), values(&dy));
        let mut d_rows = vec![0.0; rows.len()];
        d_rows.par_chunks_mut(ROWS * 2 * f).zip(rows.par_chunks(ROWS * 2 * f)).zip(dy.par_chunks(ROWS * f)).for_each(
            |((d_rows, rows), dy)| {
                let rows = rows.chunks_exact(2 * f).zip(dy.chunks_exact(f));
                for (d_row, (row, dy)) in d_rows.chunks_exact_mut(2 * f).zip(rows) {
                    let (d_gate, d_up) = d_row.split_at_mut(f);
                    train::swiglu_backward(isa, &row[..f], &row[f..], dy, d_gate, d_up);
                }
            },
        );
        grads.register::<Flex>(parent.id, flat(d_rows, &[dy.len() / f, 2 * f]));
    }
}

#[derive(Debug)]
struct Silu;

impl Backward<Flex, 1> for Silu {
    type State = Flat;

    fn backward(self, step: Step<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&step.node).to_contiguous();
        let [Some(parent)] = step.parents else { return };
        let (d, isa) = (width(&dy), Isa::best());
        let (rows, dy, ones) = (values(&step.state), values(&dy), vec![1.0; d]);
        let mut d_rows = vec![0.0; rows.len()];
        d_rows.par_chunks_mut(ROWS * d).zip(rows.par_chunks(ROWS * d)).zip(dy.par_chunks(ROWS * d)).for_each(
            |((d_rows, rows), dy)| {
                let mut unused = vec![0.0; d];
                let rows = rows.chunks_exact(d).zip(dy.chunks_exact(d));
                for (d_row, (row, dy)) in d_rows.chunks_exact_mut(d).zip(rows) {
                    train::swiglu_backward(isa, row, &ones, dy, d_row, &mut unused);
                }
            },
        );
        grads.register::<Flex>(parent.id, flat(d_rows, &[dy.len() / d, d]));
    }
}

/// The output and what the backward pass needs.
fn attention_forward(qkv: &Flat, inputs: &AttentionInputs) -> (Flat, Vec<f32>) {
    let (shape, isa) = (inputs.shape, Isa::best());
    let n = qkv.shape()[0];
    let mut out = vec![0.0; n * shape.width_out()];
    let mut stats = vec![0.0; n / shape.n_tokens * shape.n_stats()];
    out.par_chunks_mut(shape.n_tokens * shape.width_out())
        .zip(stats.par_chunks_mut(shape.n_stats()))
        .zip(values(qkv).par_chunks(shape.n_tokens * shape.width()))
        .zip(inputs.first_keys.par_chunks(shape.n_tokens))
        .for_each(|(((out, stats), qkv), first_key)| {
            train::attention(isa, shape, qkv, &inputs.rotary, first_key, out, stats);
        });
    (flat(out, &[n, shape.width_out()]), stats)
}

#[derive(Debug)]
struct Attention;

impl Backward<Flex, 1> for Attention {
    type State = (Flat, AttentionInputs, Flat, Arc<Vec<f32>>);

    fn backward(self, step: Step<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (qkv, inputs, out, stats) = step.state;
        let dy = grads.consume::<Flex>(&step.node).to_contiguous();
        let [Some(parent)] = step.parents else { return };
        let (shape, isa) = (inputs.shape, Isa::best());
        let (rows, rows_out) = (shape.n_tokens * shape.width(), shape.n_tokens * shape.width_out());
        let mut d_qkv = vec![0.0; values(&qkv).len()];
        d_qkv
            .par_chunks_mut(rows)
            .zip(values(&qkv).par_chunks(rows))
            .zip(values(&out).par_chunks(rows_out))
            .zip(values(&dy).par_chunks(rows_out))
            .zip(stats.par_chunks(shape.n_stats()))
            .zip(inputs.first_keys.par_chunks(shape.n_tokens))
            .for_each(|(((((d_qkv, qkv), out), dy), stats), first)| {
                train::attention_backward(isa, shape, qkv, &inputs.rotary, first, out, stats, dy, d_qkv);
            });
        grads.register::<Flex>(parent.id, flat(d_qkv, &[qkv.shape()[0], shape.width()]));
    }
}

/// Loss and share of hits, and the loss's gradient, written over the logits when nobody else holds them.
fn cross_entropy_forward(logits: Flat, labels: &[i32], avoid_weight: f32) -> (Flat, Flat) {
    let mut logits = logits.to_contiguous();
    let (v, isa) = (width(&logits), Isa::best());
    let n_followed = labels.iter().filter(|&&label| label >= 0).count();
    let rate = 1.0 / if n_followed > 0 { n_followed } else { labels.len().max(1) } as f32;
    let rows: &mut [f32] = logits.storage_mut();
    let pieces: Vec<(f64, usize)> = rows
        .par_chunks_mut(ROWS * v)
        .zip(labels.par_chunks(ROWS))
        .map(|(rows, labels)| {
            let (mut loss, mut hits) = (0.0, 0);
            for (row, &label) in rows.chunks_exact_mut(v).zip(labels) {
                let unwanted = avoided(label);
                let Some(token) = unwanted.or_else(|| usize::try_from(label).ok()) else {
                    row.fill(0.0);
                    continue;
                };
                let logit = row[token];
                let (max, sum) = train::softmax_unscaled(isa, row);
                let mut slope = rate;
                if unwanted.is_some() {
                    let share = SURE * row[token] / sum;
                    loss -= f64::from(avoid_weight) * libm::log(f64::from(1.0 - share));
                    slope *= -avoid_weight * share / (1.0 - share);
                } else {
                    loss += libm::log(f64::from(sum)) - f64::from(logit - max);
                    hits += usize::from(logit >= max);
                }
                train::scale_assign(isa, row, slope / sum);
                row[token] -= slope;
            }
            (loss, hits)
        })
        .collect();
    let loss: f64 = pieces.iter().map(|piece| piece.0).sum();
    let hits: usize = pieces.iter().map(|piece| piece.1).sum();
    let out = vec![(loss * f64::from(rate)) as f32, hits as f32 * rate];
    (flat(out, &[2]), logits)
}

#[derive(Debug)]
struct CrossEntropy;

impl Backward<Flex, 1> for CrossEntropy {
    type State = Flat;

    fn backward(self, step: Step<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&step.node).to_contiguous();
        let [Some(parent)] = step.parents else { return };
        let (mut gradient, isa) = (step.state, Isa::best());
        let factor = values(&dy)[0];
        let rows: &mut [f32] = gradient.storage_mut();
        rows.par_chunks_mut(ROWS * 256).for_each(|rows| train::scale_assign(isa, rows, factor));
        grads.register::<Flex>(parent.id, gradient);
    }
}
