//! What a drafter remembers from past requests, one memory for each scope.

/// Memories of the scopes used last.
#[derive(Debug)]
pub(super) struct Scopes<M> {
    /// The scope used last at the end.
    memories: Vec<(u64, M)>,
}

impl<M> Default for Scopes<M> {
    fn default() -> Self {
        Self { memories: Vec::new() }
    }
}

impl<M: Default> Scopes<M> {
    /// Scopes that are remembered at the same time.
    const MOST: usize = 16;

    /// The memory of a scope, an empty one when it is new or has been forgotten.
    pub fn of(&mut self, scope: u64) -> &mut M {
        let memory = match self.memories.iter().position(|&(other, _)| other == scope) {
            Some(place) => self.memories.remove(place),
            None => (scope, M::default()),
        };
        if self.memories.len() == Self::MOST {
            self.memories.remove(0);
        }
        self.memories.push(memory);
        &mut self.memories.last_mut().expect("just pushed").1
    }

    /// Every memory.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.memories.iter().map(|(_, memory)| memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_share_nothing_and_the_one_unused_longest_goes() {
        let mut scopes: Scopes<Vec<u64>> = Scopes::default();
        for scope in 0..Scopes::<Vec<u64>>::MOST as u64 {
            scopes.of(scope).push(scope);
        }
        assert_eq!(scopes.of(0), &[0]);
        scopes.of(99);
        assert_eq!(scopes.of(0), &[0]);
        assert_eq!(scopes.iter().count(), Scopes::<Vec<u64>>::MOST);
        assert_eq!(scopes.of(1), &[0u64; 0]);
    }
}
