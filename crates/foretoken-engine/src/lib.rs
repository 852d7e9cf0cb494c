//! Requests, the scheduler and ragged batches: the one place that owns the clock.
