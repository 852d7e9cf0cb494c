//! How much may be asked at the same time, in all and by each key. What is beyond is told to come back later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ApiError;

/// Counts the choices under way.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    most: usize,
    most_of_one: usize,
    total: usize,
    by_scope: HashMap<u64, usize>,
    /// Of the latest requests, about how many seconds one took.
    seconds: f64,
}

/// Leave for some choices. They are over when it is dropped.
#[derive(Debug)]
pub struct Permit {
    gate: Gate,
    scope: u64,
    n: usize,
}

impl Gate {
    /// Lets `most` choices in at a time, and of each scope `most_of_one`.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self(Arc::new(Mutex::new(State { most, most_of_one, total: 0, by_scope: HashMap::new(), seconds: 1.0 })))
    }

    /// Lets `n` choices of a scope in, or says why not.
    pub fn enter(&self, scope: u64, n: usize) -> Result<Permit, ApiError> {
        let mut state = self.lock();
        let State { most, most_of_one, total, seconds, .. } = *state;
        let of_scope = state.by_scope.get(&scope).copied().unwrap_or(0);
        if n > most.min(most_of_one) {
            // Waiting would not help.
            let message =
                format!("the request has {n} choices, and at most {} are served at once", most.min(most_of_one));
            return Err(ApiError::invalid(Some("n".into()), "out_of_range", message));
        }
        let later = seconds.clamp(1.0, 60.0) as u64;
        if total + n > most {
            let message = format!("{total} requests are under way and at most {most} may be; try again later");
            return Err(ApiError::too_many(message, later));
        }
        if of_scope + n > most_of_one {
            let message =
                format!("this key has {of_scope} requests under way and may have {most_of_one}; try again later");
            return Err(ApiError::too_many(message, later));
        }
        state.total += n;
        *state.by_scope.entry(scope).or_default() += n;
        Ok(Permit { gate: self.clone(), scope, n })
    }

    /// Choices under way.
    pub fn under_way(&self) -> usize {
        self.lock().total
    }

    /// A request took so long.
    pub fn took(&self, seconds: f64) {
        let mut state = self.lock();
        state.seconds += 0.1 * (seconds - state.seconds);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.total -= self.n;
        if let Some(of_scope) = state.by_scope.get_mut(&self.scope) {
            *of_scope -= self.n;
            if *of_scope == 0 {
                state.by_scope.remove(&self.scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_told_to_come_back() {
        let gate = Gate::new(4, 3);
        let first = gate.enter(1, 3).unwrap();
        assert_eq!(gate.enter(1, 1).unwrap_err().retry_after, Some(1));
        let second = gate.enter(2, 1).unwrap();
        assert!(gate.enter(3, 1).unwrap_err().message.contains("at most 4"));
        assert_eq!(gate.enter(3, 4).unwrap_err().retry_after, None, "it would never be let in");
        drop(first);
        drop(second);
        assert_eq!(gate.under_way(), 0);
        (0..50).for_each(|_| gate.took(30.0));
        let _all = gate.enter(1, 3).unwrap();
        assert!(gate.enter(2, 2).unwrap_err().retry_after > Some(20));
    }
}
