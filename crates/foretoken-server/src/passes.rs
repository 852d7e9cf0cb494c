//! The latest pass, from the decoder's recorder to whoever counts and shows it. Both are on the engine's thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretoken_decode::{PassTrace, Recorder, SequenceTrace};
use foretoken_engine::RequestId;

/// Remembers the latest pass.
#[derive(Clone, Debug, Default)]
pub struct PassLog(Arc<Mutex<Option<PassTrace>>>);

impl PassLog {
    /// The recorder to give to a decoder.
    pub fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(self.clone())
    }

    /// The pass, once.
    pub(crate) fn take(&self) -> Option<PassTrace> {
        self.lock().take()
    }

    /// A request's part in the pass.
    pub(crate) fn of(&self, request: RequestId) -> Option<SequenceTrace> {
        self.lock().as_ref()?.sequences.iter().find(|sequence| sequence.request == request.0).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<PassTrace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for PassLog {
    fn pass(&mut self, trace: &PassTrace) {
        *self.lock() = Some(trace.clone());
    }
}
