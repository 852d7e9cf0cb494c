//! The text of a trace, token by token.

use std::collections::BTreeMap;

use crate::trace::Trace;

/// Tokens that together are whole characters, most often one.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub text: String,
    /// The drafter that guessed the first of them; 0 for none.
    pub by: u8,
    /// How many positions after the pass's anchor it was guessed; 0 when it was not.
    pub depth: usize,
    /// The drafter's word for its chance.
    pub p: f32,
    /// Index of the pass.
    pub pass: usize,
}

/// The text of each request.
pub fn pieces(trace: &Trace) -> BTreeMap<u64, Vec<Piece>> {
    let mut requests: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    // Bytes of a character that is not yet whole, and the piece that it began in.
    let mut pending: BTreeMap<u64, (Vec<u8>, Option<Piece>)> = BTreeMap::new();
    for (pass, sequence) in trace.passes.iter().enumerate().flat_map(|(i, p)| p.sequences.iter().map(move |s| (i, s))) {
        let path = sequence.path();
        for (index, token) in sequence.tokens.iter().enumerate() {
            let (by, depth, p) = match path.get(index) {
                Some(&guess) => (sequence.proposed[guess].source, index + 1, sequence.proposed[guess].p),
                None => (0, 0, 1.0),
            };
            let (bytes, first) = pending.entry(sequence.request).or_default();
            bytes.extend_from_slice(&trace.texts[token]);
            let piece = first.take().unwrap_or(Piece { text: String::new(), by, depth, p, pass });
            if ends_within_character(bytes) {
                *first = Some(piece);
                continue;
            }
            let text = String::from_utf8_lossy(bytes).into_owned();
            bytes.clear();
            requests.entry(sequence.request).or_default().push(Piece { text, ..piece });
        }
    }
    for (request, (bytes, first)) in pending {
        if let Some(piece) = first {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            requests.entry(request).or_default().push(Piece { text, ..piece });
        }
    }
    requests
}

/// Whether more bytes could make the last character whole.
fn ends_within_character(bytes: &[u8]) -> bool {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    !last.is_empty() && str::from_utf8(last).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_character_stay_together() {
        assert!(ends_within_character("aé".as_bytes().split_last().unwrap().1));
        assert!(ends_within_character(&"🦊".as_bytes()[..3]));
        for whole in [&b""[..], b"a", "é".as_bytes(), b"\xff", b"\xe2("] {
            assert!(!ends_within_character(whole), "{whole:?}");
        }
    }
}
