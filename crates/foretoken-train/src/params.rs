//! All weights of a model in one list: what optimisers, checkpoints and exports walk over.

use burn::tensor::{Device, Gradients as Tape, Tensor, TensorData};

use crate::rng::Rng;

/// A weight's place in [`Params`]. Layers hold ids, so sharing a weight is using its id twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamId(usize);

/// Which clip group a weight belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The plain Llama model.
    Trunk,
    /// Heads 2 to n.
    Heads,
}

/// How a weight begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal, of this deviation.
    Normal(f64),
    /// This value everywhere.
    Constant(f32),
    /// One on the diagonal.
    Identity,
    /// The same as another weight of this shape.
    CopyOf(ParamId),
}

/// What a weight is called and how it is treated.
#[derive(Clone, Debug)]
pub struct Spec {
    /// A dotted path, unique.
    pub name: String,
    /// Rows and columns. Matrices are `[inputs, outputs]`, so that `y = x W`; vectors are `[1, n]`.
    pub shape: [usize; 2],
    /// Its clip group.
    pub group: Group,
    /// Columns of each map between hidden states that lies in it, side by side; empty for embeddings and vectors.
    pub maps: Vec<usize>,
}

impl Spec {
    /// Whether weight decay applies: to matrices and not to norms and biases.
    pub fn decays(&self) -> bool {
        self.shape[0] > 1
    }

    /// Values.
    pub fn len(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The weights, as leaves of the autodiff graph.
#[derive(Clone)]
pub struct Params {
    device: Device,
    seed: u64,
    specs: Vec<Spec>,
    values: Vec<Tensor<2>>,
}

impl Params {
    /// No weights yet, to be made on a device from a seed.
    pub fn new(device: &Device, seed: u64) -> Self {
        Self { device: device.clone().inner(), seed, specs: Vec::new(), values: Vec::new() }
    }

    /// Adds a weight. Random ones depend on the seed and the name alone.
    pub fn add(&mut self, name: impl Into<String>, shape: [usize; 2], init: Init, group: Group) -> ParamId {
        let name = name.into();
        assert!(self.specs.iter().all(|spec| spec.name != name), "{name} is there already");
        let n = shape[0] * shape[1];
        let values = match init {
            Init::Normal(deviation) => {
                let mut rng = Rng::new(self.seed, &name);
                (0..n).map(|_| (deviation * rng.normal()) as f32).collect()
            }
            Init::Constant(value) => vec![value; n],
            Init::Identity => (0..n).map(|i| f32::from(i / shape[1] == i % shape[1])).collect(),
            Init::CopyOf(ParamId(other)) => {
                assert_eq!(self.specs[other].shape, shape, "a copy has the shape of the original");
                self.host(ParamId(other))
            }
        };
        self.specs.push(Spec { name, shape, group, maps: Vec::new() });
        self.values.push(leaf(values, shape, &self.device));
        ParamId(self.specs.len() - 1)
    }

    /// Adds a matrix that maps hidden states to hidden states: `maps` have as many columns each, side by side.
    pub fn add_maps(
        &mut self,
        name: impl Into<String>,
        inputs: usize,
        maps: &[usize],
        init: Init,
        group: Group,
    ) -> ParamId {
        let id = self.add(name, [inputs, maps.iter().sum()], init, group);
        self.specs[id.0].maps = maps.to_vec();
        id
    }

    /// The same weights outside autodiff: passes over them make no graph.
    pub fn frozen(&self) -> Self {
        let values = self.values.iter().map(|value| value.clone().inner()).collect();
        Self { values, ..self.clone() }
    }

    /// The device, without autodiff.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A weight, tracked.
    pub fn get(&self, id: ParamId) -> Tensor<2> {
        self.values[id.0].clone()
    }

    /// A weight's values, row by row.
    pub fn host(&self, id: ParamId) -> Vec<f32> {
        self.values[id.0].clone().inner().into_data().try_into_vec().expect("weights are f32")
    }

    /// Replaces a weight's values.
    pub fn set(&mut self, id: ParamId, values: Vec<f32>) {
        assert_eq!(values.len(), self.specs[id.0].len(), "as many values as before");
        self.values[id.0] = leaf(values, self.specs[id.0].shape, &self.device);
    }

    /// Takes a weight out to be updated in place; [`Params::set`] puts it back.
    pub(crate) fn take(&mut self, id: ParamId) -> Vec<f32> {
        let hole = Tensor::zeros([1, 1], &self.device);
        let tensor = std::mem::replace(&mut self.values[id.0], hole);
        tensor.inner().into_data().try_into_vec().expect("weights are f32")
    }

    /// Every weight's id and description, in the order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &Spec)> {
        self.specs.iter().enumerate().map(|(i, spec)| (ParamId(i), spec))
    }

    /// A weight's description.
    pub fn spec(&self, id: ParamId) -> &Spec {
        &self.specs[id.0]
    }

    /// The weight of a name.
    pub fn find(&self, name: &str) -> Option<ParamId> {
        self.specs.iter().position(|spec| spec.name == name).map(ParamId)
    }

    /// Weights.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Values of all weights of a group.
    pub fn n_values(&self, group: Group) -> usize {
        self.specs.iter().filter(|spec| spec.group == group).map(Spec::len).sum()
    }
}

fn leaf(values: Vec<f32>, shape: [usize; 2], device: &Device) -> Tensor<2> {
    Tensor::<2>::from_data(TensorData::new(values, shape), device).autodiff().require_grad()
}

/// The sum of the gradients of several backward passes, one for each weight that took part.
pub struct Gradients {
    sums: Vec<Option<Tensor<2>>>,
}

impl Gradients {
    /// None yet.
    pub fn new(params: &Params) -> Self {
        Self { sums: vec![None; params.len()] }
    }

    /// Adds what a backward pass left.
    pub fn absorb(&mut self, params: &Params, tape: &mut Tape) {
        for (sum, leaf) in self.sums.iter_mut().zip(&params.values) {
            if let Some(gradient) = leaf.grad_remove(tape) {
                *sum = Some(match sum.take() {
                    Some(sum) => sum + gradient,
                    None => gradient,
                });
            }
        }
    }

    /// A weight's gradient, without autodiff.
    pub fn get(&self, id: ParamId) -> Option<&Tensor<2>> {
        self.sums[id.0].as_ref()
    }

    /// Replaces every gradient by what `change` makes of its values, row by row, in the order of the weights.
    pub fn each_on_host(&mut self, params: &Params, mut change: impl FnMut(&mut [f32])) {
        for (sum, spec) in self.sums.iter_mut().zip(&params.specs) {
            if let Some(gradient) = sum.take() {
                let mut values: Vec<f32> = gradient.into_data().try_into_vec().expect("gradients are f32");
                change(&mut values);
                *sum = Some(Tensor::from_data(TensorData::new(values, spec.shape), &params.device));
            }
        }
    }

    /// Takes a weight's gradient out, row by row.
    pub fn take(&mut self, id: ParamId) -> Option<Vec<f32>> {
        self.sums[id.0].take().map(|gradient| gradient.into_data().try_into_vec().expect("gradients are f32"))
    }
}
