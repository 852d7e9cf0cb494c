//! The processes of a run: data-parallel training, in which each takes a share of a step's batches.
//!
//! Gradients are summed before the update, which every process then makes for itself from the same numbers. The first one alone
//! logs, evaluates and saves.

use crate::step::HeadResult;

/// Who takes part in a run.
pub trait Peers {
    /// This process, from 0.
    fn rank(&self) -> usize;

    /// Processes.
    fn count(&self) -> usize;

    /// Replaces the values by their sums over all processes: the same bits in each.
    fn sum(&self, values: &mut [f32]);
}

/// A run in one process.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Peers for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        1
    }

    fn sum(&self, _values: &mut [f32]) {}
}

/// The processes that `mpirun` started. Dropping it ends MPI.
#[cfg(feature = "mpi")]
pub struct Mpi {
    world: mpi::topology::SimpleCommunicator,
    _universe: mpi::environment::Universe,
}

#[cfg(feature = "mpi")]
impl Mpi {
    /// Begins MPI; `None` when it was begun before.
    pub fn start() -> Option<Self> {
        let universe = mpi::initialize()?;
        Some(Self { world: universe.world(), _universe: universe })
    }
}

#[cfg(feature = "mpi")]
impl Peers for Mpi {
    fn rank(&self) -> usize {
        use mpi::topology::Communicator as _;
        self.world.rank() as usize
    }

    fn count(&self) -> usize {
        use mpi::topology::Communicator as _;
        self.world.size() as usize
    }

    fn sum(&self, values: &mut [f32]) {
        use mpi::collective::{Root as _, SystemOperation};
        use mpi::topology::Communicator as _;
        if self.count() == 1 {
            return;
        }
        // One process adds and tells: a sum in each could differ in its order, and the weights would drift apart.
        let first = self.world.process_at_rank(0);
        match self.rank() {
            0 => {
                let own = values.to_vec();
                first.reduce_into_root(&own[..], values, SystemOperation::sum());
            }
            _ => first.reduce_into(&values[..], SystemOperation::sum()),
        }
        first.broadcast_into(values);
    }
}

/// The results of all processes' batches, of which each did those of its rank modulo their count.
pub(super) fn gather(peers: &dyn Peers, own: Vec<Vec<HeadResult>>, n: usize, n_heads: usize) -> Vec<Vec<HeadResult>> {
    if peers.count() == 1 {
        return own;
    }
    let mut flat = vec![0.0; n * n_heads * 3];
    for (i, batch) in own.iter().enumerate() {
        let place = peers.rank() + i * peers.count();
        for (head, values) in batch.iter().zip(flat[place * n_heads * 3..].chunks_exact_mut(3)) {
            values.copy_from_slice(&[head.loss, head.top_1, head.n_labels as f32]);
        }
    }
    peers.sum(&mut flat);
    let result = |values: &[f32]| HeadResult { loss: values[0], top_1: values[1], n_labels: values[2] as usize };
    flat.chunks_exact(n_heads * 3).map(|batch| batch.chunks_exact(3).map(result).collect()).collect()
}
