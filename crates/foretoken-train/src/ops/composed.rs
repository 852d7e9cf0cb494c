//! The definitions, of tensor operations that every back end has.

use burn::tensor::activation::{log_softmax, silu, softmax};
use burn::tensor::{Bool, Int, Tensor, TensorData};

use super::{AttentionInputs, SURE};
use crate::batch::avoided;

pub(super) fn rms_norm(x: Tensor<2>, weight: Tensor<2>, eps: f32) -> Tensor<2> {
    let rate = (x.clone().square().mean_dim(1) + eps).sqrt().recip();
    x * rate * weight
}

pub(super) fn swiglu(gate_up: Tensor<2>) -> Tensor<2> {
    let [_, both] = gate_up.dims();
    let gate = gate_up.clone().narrow(1, 0, both / 2);
    silu(gate) * gate_up.narrow(1, both / 2, both / 2)
}

pub(super) fn attention(qkv: Tensor<2>, inputs: &AttentionInputs) -> Tensor<2> {
    let shape = inputs.shape;
    let (n, dim, heads, kv_heads) = (shape.n_tokens, shape.head_dim, shape.n_heads, shape.n_kv_heads);
    let windows = qkv.dims()[0] / n;
    let device = qkv.device();
    let (cos, sin) = inputs.rotary.tables();
    let table = |values: &[f32]| {
        Tensor::<4>::from_data(TensorData::new(values.to_vec(), [1, 1, n, dim / 2]), &device.clone().inner())
    };
    let (cos, sin) = (table(cos), table(sin));
    let part = |from: usize, heads: usize| -> Tensor<4> {
        qkv.clone().narrow(1, from * dim, heads * dim).reshape([windows, n, heads, dim]).swap_dims(1, 2)
    };
    let turned = |x: Tensor<4>| {
        let (a, b) = (x.clone().narrow(3, 0, dim / 2), x.narrow(3, dim / 2, dim / 2));
        let first = a.clone() * cos.clone() - b.clone() * sin.clone();
        Tensor::cat(vec![first, b * cos.clone() + a * sin.clone()], 3)
    };
    let group = heads / kv_heads;
    let shared = |x: Tensor<4>| -> Tensor<4> {
        x.reshape([windows, kv_heads, 1, n, dim]).repeat_dim(2, group).reshape([windows, heads, n, dim])
    };
    let queries = turned(part(0, heads)) / (dim as f32).sqrt();
    let keys = shared(turned(part(heads, kv_heads)));
    let values = shared(part(heads + kv_heads, kv_heads));
    let hidden: Vec<bool> = inputs
        .first_keys
        .iter()
        .enumerate()
        .flat_map(|(row, &first)| (0..n).map(move |key| key < first as usize || key > row % n))
        .collect();
    let hidden = Tensor::<4, Bool>::from_data(TensorData::new(hidden, [windows, 1, n, n]), &device.inner());
    let hidden = hidden.expand([windows, heads, n, n]);
    let scores = queries.matmul(keys.swap_dims(2, 3)).mask_fill(hidden, f32::NEG_INFINITY);
    softmax(scores, 3).matmul(values).swap_dims(1, 2).reshape([windows * n, heads * dim])
}

pub(super) fn cross_entropy(logits: Tensor<2>, labels: &[i32], avoid_weight: f32) -> Tensor<1> {
    let device = logits.device().inner();
    let n_followed = labels.iter().filter(|&&label| label >= 0).count();
    let rate = 1.0 / if n_followed > 0 { n_followed } else { labels.len().max(1) } as f32;
    let column = |f: &dyn Fn(i32) -> bool| {
        let rates: Vec<f32> = labels.iter().map(|&label| if f(label) { rate } else { 0.0 }).collect();
        Tensor::<2>::from_data(TensorData::new(rates, [labels.len(), 1]), &device)
    };
    let (followed, not_wanted) = (column(&|label| label >= 0), column(&|label| avoided(label).is_some()));
    let at: Vec<i32> = labels.iter().map(|&label| avoided(label).map_or(label.max(0), |token| token as i32)).collect();
    let at = Tensor::<2, Int>::from_data(TensorData::new(at, [labels.len(), 1]), &device);
    let picked = logits.clone().gather(1, at.clone());
    let best = logits.clone().inner().max_dim(1);
    let hits = (best.lower_equal(picked.inner()).float() * followed.clone()).sum();
    let log_share = log_softmax(logits, 1).gather(1, at);
    let others = (log_share.clone().exp() * -SURE + 1.0).log();
    let loss = (log_share * followed + others * not_wanted * avoid_weight).sum().neg();
    Tensor::cat(vec![loss, hits], 0)
}
