//! Finds stop strings in a stream of bytes, wherever they start and end.

/// Matches several strings at once; one Knuth-Morris-Pratt automaton each.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// `fallback[n]`: length of the longest proper prefix that is a suffix of the first `n` bytes.
    fallback: Vec<usize>,
    /// How many bytes at the end of the stream match its beginning.
    matched: usize,
}

impl StopMatcher {
    /// A matcher for strings that are not empty.
    pub fn new<S: AsRef<[u8]>>(strings: &[S]) -> Self {
        Self { patterns: strings.iter().map(|s| Pattern::new(s.as_ref())).collect() }
    }

    /// Takes the next byte. When strings end here: the longest's index and length.
    pub fn push(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        for (index, pattern) in self.patterns.iter_mut().enumerate() {
            if pattern.push(byte) && found.is_none_or(|(_, len)| pattern.bytes.len() > len) {
                found = Some((index, pattern.bytes.len()));
            }
        }
        found
    }

    /// How many bytes at the end of the stream may be the beginning of a stop string.
    pub fn held(&self) -> usize {
        self.patterns.iter().map(|p| p.matched).max().unwrap_or(0)
    }
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        assert!(!bytes.is_empty(), "a stop string has at least one byte");
        let mut fallback = vec![0; bytes.len() + 1];
        for n in 2..=bytes.len() {
            let mut k = fallback[n - 1];
            while k > 0 && bytes[k] != bytes[n - 1] {
                k = fallback[k];
            }
            fallback[n] = if bytes[k] == bytes[n - 1] { k + 1 } else { 0 };
        }
        Self { bytes: bytes.to_vec(), fallback, matched: 0 }
    }

    fn push(&mut self, byte: u8) -> bool {
        if self.matched == self.bytes.len() {
            self.matched = self.fallback[self.matched];
        }
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_search_would_and_holds_what_may_begin_one() {
        let mut rng = 7u64;
        let mut next = move |n: u64| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (rng >> 33) % n
        };
        for _ in 0..5000 {
            let mut string = |max| -> Vec<u8> { (0..1 + next(max)).map(|_| b'a' + next(2) as u8).collect() };
            let stops = [string(5), string(5), string(3)];
            let text = string(40);
            let mut matcher = StopMatcher::new(&stops);
            for end in 1..=text.len() {
                let seen = &text[..end];
                let longest = stops.iter().filter(|s| seen.ends_with(s)).map(Vec::len).max();
                assert_eq!(matcher.push(text[end - 1]).map(|(_, len)| len), longest);
                if longest.is_some() {
                    break;
                }
                let begins = |n: &usize| stops.iter().any(|s| s.starts_with(&seen[end - n..]));
                assert_eq!(matcher.held(), (0..=end).rev().find(begins).unwrap());
            }
        }
    }
}
