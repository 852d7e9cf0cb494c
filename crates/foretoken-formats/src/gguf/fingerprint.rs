//! Tells files apart without reading all of them.

use super::Gguf;
use crate::FormatError;

/// Read whole: all names and sizes are here.
const BEGINNING: u64 = 1 << 20;
/// Read of the rest, evenly spread.
const PIECES: u64 = 64;
const PIECE: u64 = 4096;

impl Gguf {
    /// FNV-1a over the file's length, its beginning, and pieces spread over the rest, in hexadecimal: enough to tell models
    /// apart, in a moment.
    pub fn fingerprint(&self) -> Result<String, FormatError> {
        let len = self.file_len;
        let mut hash = Fnv::default();
        hash.update(&len.to_le_bytes());
        let last = len.saturating_sub(PIECE);
        let pieces = (1..=PIECES).map(|piece| (last.saturating_mul(piece) / PIECES, PIECE));
        for (start, n) in [(0, BEGINNING)].into_iter().chain(pieces) {
            let mut bytes = vec![0; n.min(len - start) as usize];
            let read = self.source.read_at(start, &mut bytes, || "the file".to_owned());
            read.map_err(|error| self.about(error))?;
            hash.update(&bytes);
        }
        Ok(format!("{:016x}", hash.0))
    }
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::gguf::{GgmlType, Gguf, GgufWriter};

    #[test]
    fn any_part_of_a_file_changes_its_fingerprint() {
        let with = |name: &str, first: u8, last: u8| {
            let mut data = vec![7; 3 << 20];
            (data[0], *data.last_mut().unwrap()) = (first, last);
            let n = data.len();
            let bytes = GgufWriter::new().set("general.name", name).tensor("t", &[n], GgmlType::I8, data).to_bytes();
            Gguf::from_bytes(bytes).unwrap().fingerprint().unwrap()
        };
        let one = with("a", 7, 7);
        assert_eq!(one, with("a", 7, 7));
        let others = [with("b", 7, 7), with("a", 8, 7), with("a", 7, 8)];
        assert!(others.iter().all(|other| *other != one), "{one} {others:?}");
    }
}
