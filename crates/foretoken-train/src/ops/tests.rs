//! The fused operations against the composed ones: values and gradients.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use foretoken_kernels::train::AttentionShape;

use super::{AttentionInputs, Ops, Precision};
use crate::batch::{IGNORE, avoid};
use crate::model::rotary;
use crate::rng::Rng;

fn random(rng: &mut Rng, shape: [usize; 2]) -> Tensor<2> {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| rng.normal() as f32).collect();
    Tensor::<2>::from_data(TensorData::new(values, shape), &Device::flex()).autodiff().require_grad()
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.inner().into_data().try_into_vec().unwrap()
}

#[track_caller]
fn assert_near(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    let norm = b.iter().map(|x| x * x).sum::<f32>().sqrt();
    let error = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
    assert!(norm > 0.0 && error <= 2e-6 * norm, "{} apart", error / norm);
}

/// Values and the gradients of all inputs are the same for a random direction of the output.
fn check<const D: usize>(inputs: &[Tensor<2>], f: impl Fn(Ops, &[Tensor<2>]) -> Tensor<D>) {
    let run = |ops| {
        let y = f(ops, inputs);
        let mut rng = Rng::new(7, "direction");
        let n: usize = y.dims().iter().product();
        let direction: Vec<f32> = (0..n).map(|_| rng.normal() as f32).collect();
        let direction = Tensor::<D>::from_data(TensorData::new(direction, y.dims()), &Device::flex());
        let mut tape = (y.clone() * direction).sum().backward();
        let gradients: Vec<_> = inputs.iter().map(|x| host(x.grad_remove(&mut tape).unwrap())).collect();
        (host(y), gradients)
    };
    let ((y, gradients), (expected, expected_gradients)) = (run(Ops::Fused(Precision::F32)), run(Ops::Composed));
    assert_near(&y, &expected);
    for (gradient, expected) in gradients.iter().zip(&expected_gradients) {
        assert_near(gradient, expected);
    }
}

#[test]
fn products_with_a_weight_either_way() {
    let mut rng = Rng::new(1, "linear");
    let inputs = [random(&mut rng, [131, 48]), random(&mut rng, [48, 80]), random(&mut rng, [80, 48])];
    check(&inputs[..2], |ops, x| ops.linear(x[0].clone(), x[1].clone()));
    check(&[inputs[0].clone(), inputs[2].clone()], |ops, x| ops.linear_transposed(x[0].clone(), x[1].clone()));
}

#[test]
fn norm() {
    let mut rng = Rng::new(1, "norm");
    let inputs = [random(&mut rng, [131, 48]), random(&mut rng, [1, 48])];
    check(&inputs, |ops, x| ops.rms_norm(x[0].clone(), x[1].clone(), 1e-5));
}

#[test]
fn gate() {
    let inputs = [random(&mut Rng::new(1, "gate"), [70, 54])];
    check(&inputs, |ops, x| ops.swiglu(x[0].clone()));
    check(&inputs, |ops, x| ops.silu(x[0].clone()));
}

#[test]
fn attention_over_windows_and_documents() {
    let shape = AttentionShape { n_tokens: 37, n_heads: 4, n_kv_heads: 2, head_dim: 16 };
    let first_keys = (0..74).map(|row| if row % 37 >= 20 { 20 } else { 0 }).collect();
    let inputs = AttentionInputs { shape, rotary: Arc::new(rotary(37, 16, 1e4)), first_keys: Arc::new(first_keys) };
    let qkv = [random(&mut Rng::new(1, "attention"), [74, shape.width()])];
    check(&qkv, |ops, x| ops.attention(x[0].clone(), &inputs));
}

#[test]
fn cross_entropy_with_labels_to_ignore_and_to_avoid() {
    let inputs = [random(&mut Rng::new(1, "logits"), [150, 37])];
    let label = |i: i32| match i % 7 {
        3 => IGNORE,
        5 => avoid((i * 5 % 37) as u32),
        _ => i * 5 % 37,
    };
    let labels: Vec<i32> = (0..150).map(label).collect();
    check(&inputs, |ops, x| ops.cross_entropy(x[0].clone(), &labels, 3.0).narrow(0, 0, 1));
    let share = |ops: Ops| host(ops.cross_entropy(inputs[0].clone(), &labels, 3.0))[1];
    assert_eq!(share(Ops::Fused(Precision::F32)), share(Ops::Composed));
}

#[test]
fn a_token_to_avoid_becomes_less_likely_and_its_loss_is_finite_even_where_it_is_certain() {
    let logits =
        Tensor::<2>::from_data([[200.0, 0.0, 0.0], [9.0, 0.0, 0.0]], &Device::flex()).autodiff().require_grad();
    for ops in [Ops::Fused(Precision::F32), Ops::Composed] {
        let loss = ops.cross_entropy(logits.clone(), &[avoid(0), avoid(0)], 1.0).narrow(0, 0, 1);
        assert!(host(loss.clone())[0].is_finite());
        let gradient = host(logits.grad(&loss.sum().backward()).unwrap());
        assert!(gradient.iter().all(|g| g.is_finite()) && gradient[3] > 0.45 && gradient[4] < 0.0, "{gradient:?}");
    }
}

#[test]
fn no_labels_give_no_loss_and_no_gradient() {
    let logits = random(&mut Rng::new(1, "logits"), [5, 16]);
    for ops in [Ops::Fused(Precision::F32), Ops::Composed] {
        let loss = ops.cross_entropy(logits.clone(), &[IGNORE; 5], 1.0);
        assert_eq!(host(loss.clone()), [0.0, 0.0]);
        let gradient = logits.grad(&loss.narrow(0, 0, 1).sum().backward()).unwrap();
        assert!(host(gradient).iter().all(|&g| g == 0.0));
    }
}
