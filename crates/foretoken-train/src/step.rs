//! Gradients of the loss over all heads, with the memory of one head's logits.
//!
//! The heads run forward and backward one after another on the trunk's *detached* output, where their gradients add up;
//! then the trunk's backward pass runs once. Parallel heads from the last to the first; sequential ones keep the small
//! hidden states of all depths and go from the furthest depth inwards, each handing its gradient to the one before.
//! (Gloeckle et al., arXiv 2404.19737, section 2.)

use burn::tensor::Tensor;

use crate::batch::Batch;
use crate::model::{Heads, Model, Pass};
use crate::params::{Gradients, Params};

/// What a head did on a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadResult {
    /// Mean cross entropy over its labels, in nats, and what tokens to avoid add to it.
    pub loss: f32,
    /// The share of its labels that it found likeliest.
    pub top_1: f32,
    /// Labels that are tokens; 0 when the head did not take part.
    pub n_labels: usize,
}

/// Adds the gradients of `sum of weights[k - 1] * CE_k`, each head's mean over its own labels, to `gradients`.
///
/// A head of weight 0 does not take part, unless a deeper sequential one needs its hidden state.
pub fn gradients(
    model: &Model,
    pass: &Pass<'_>,
    batch: &Batch,
    weights: &[f32],
    sums: &mut Gradients,
) -> Vec<HeadResult> {
    let z = model.trunk(pass, batch);
    let mut results = vec![HeadResult::default(); weights.len()];
    let start = z.clone().detach().require_grad();
    let mut at_trunk = None;
    match &model.heads {
        Heads::Sequential { modules, .. } => {
            let depth = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
            // Each depth's input, detached, and its output.
            let mut chain: Vec<(Tensor<2>, Tensor<2>)> = Vec::new();
            for (i, module) in modules[..depth.min(modules.len())].iter().enumerate() {
                let before = chain.last().map_or(start.clone(), |(_, h)| h.clone());
                let input = before.detach().require_grad();
                let output = module.forward(pass, input.clone(), model.embed(pass, batch.tokens(i + 1)));
                chain.push((input, output));
            }
            for (i, (input, output)) in chain.into_iter().enumerate().rev() {
                let k = i + 2;
                if weights[k - 1] > 0.0 {
                    let leaf = output.clone().detach().require_grad();
                    let features = modules[i].features(pass, leaf.clone());
                    results[k - 1] = head(model, pass, batch, k, features, weights, &leaf, &mut at_trunk, sums);
                }
                // What this depth handed on becomes what its input hands on.
                at_trunk = at_trunk.take().and_then(|slope| backward(pass.params, output, slope, &input, sums));
            }
            let features = model.features(pass, 1, start.clone());
            results[0] = head(model, pass, batch, 1, features, weights, &start, &mut at_trunk, sums);
        }
        _ => {
            for k in (1..=weights.len()).rev().filter(|k| weights[k - 1] > 0.0) {
                let features = model.features(pass, k, start.clone());
                results[k - 1] = head(model, pass, batch, k, features, weights, &start, &mut at_trunk, sums);
            }
        }
    }
    if let Some(slope) = at_trunk {
        let mut tape = (z * slope).sum().backward();
        sums.absorb(pass.params, &mut tape);
    }
    results
}

/// One head's loss and backward pass down to `leaf`, whose gradient is added to `slope`.
#[allow(clippy::too_many_arguments)]
fn head(
    model: &Model,
    pass: &Pass<'_>,
    batch: &Batch,
    k: usize,
    features: Tensor<2>,
    weights: &[f32],
    leaf: &Tensor<2>,
    slope: &mut Option<Tensor<2>>,
    sums: &mut Gradients,
) -> HeadResult {
    let (loss, result) = loss(model, pass, batch, k, features);
    let mut tape = (loss * weights[k - 1]).backward();
    sums.absorb(pass.params, &mut tape);
    let own = leaf.grad_remove(&mut tape);
    *slope = match (slope.take(), own) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    result
}

/// Carries a gradient of `output` back to the weights and to the detached `input`.
fn backward(
    params: &Params,
    output: Tensor<2>,
    slope: Tensor<2>,
    input: &Tensor<2>,
    sums: &mut Gradients,
) -> Option<Tensor<2>> {
    let mut tape = (output * slope).sum().backward();
    sums.absorb(params, &mut tape);
    input.grad_remove(&mut tape)
}

/// A head's mean loss, `[1]`, and its figures.
fn loss(model: &Model, pass: &Pass<'_>, batch: &Batch, k: usize, features: Tensor<2>) -> (Tensor<1>, HeadResult) {
    loss_of(pass, batch, k, model.logits(pass, k, features))
}

fn loss_of(pass: &Pass<'_>, batch: &Batch, k: usize, logits: Tensor<2>) -> (Tensor<1>, HeadResult) {
    let labels = batch.labels(k);
    let n_labels = labels.iter().filter(|&&label| label >= 0).count();
    let both = pass.ops.cross_entropy(logits, &labels, batch.avoid_weight());
    let figures: Vec<f32> = both.clone().inner().into_data().try_into_vec().expect("f32");
    (both.narrow(0, 0, 1), HeadResult { loss: figures[0], top_1: figures[1], n_labels })
}

/// The same in the plain way: all heads' logits at once, one backward pass. The definition for tests, and the baseline
/// for memory.
pub fn gradients_at_once(
    model: &Model,
    pass: &Pass<'_>,
    batch: &Batch,
    weights: &[f32],
    sums: &mut Gradients,
) -> Vec<HeadResult> {
    let mut hidden = model.trunk(pass, batch);
    let mut total: Option<Tensor<1>> = None;
    let mut results = Vec::new();
    for (i, weight) in weights.iter().enumerate() {
        let features = match &model.heads {
            Heads::Sequential { modules, .. } if i > 0 => {
                hidden = modules[i - 1].forward(pass, hidden, model.embed(pass, batch.tokens(i)));
                modules[i - 1].features(pass, hidden.clone())
            }
            _ => model.features(pass, i + 1, hidden.clone()),
        };
        let (loss, result) = loss(model, pass, batch, i + 1, features);
        let loss = loss * *weight;
        total = Some(total.map_or(loss.clone(), |total| total + loss));
        results.push(result);
    }
    if let Some(total) = total {
        sums.absorb(pass.params, &mut total.backward());
    }
    results
}

/// Losses and accuracies alone; of [frozen](Params::frozen) weights, no graph is made.
pub fn evaluate(model: &Model, pass: &Pass<'_>, batch: &Batch) -> Vec<HeadResult> {
    let mut results = Vec::new();
    logits_by_head(model, pass, batch, |k, logits| results.push(loss_of(pass, batch, k, logits).1));
    results
}

/// The logits of heads 1 to n on a batch, one head after another.
pub fn logits_by_head(model: &Model, pass: &Pass<'_>, batch: &Batch, mut f: impl FnMut(usize, Tensor<2>)) {
    let z = model.trunk(pass, batch);
    let mut hidden = z.clone();
    for k in 1..=model.config.heads.n {
        let features = match &model.heads {
            Heads::Sequential { modules, .. } if k > 1 => {
                hidden = modules[k - 2].forward(pass, hidden.clone(), model.embed(pass, batch.tokens(k - 1)));
                modules[k - 2].features(pass, hidden.clone())
            }
            _ => model.features(pass, k, z.clone()),
        };
        f(k, model.logits(pass, k, features));
    }
}

#[cfg(test)]
mod tests;
