//! The token file: tokens of many documents one after another, read window by window where they lie.
//!
//! Layout, little-endian: `FTTOKEN1`, number of tokens (u64), number of documents (u64), the end of each document (u64, in
//! tokens), the tokens (u16). A file is never held in memory as a whole: windows are read at their offsets, and the
//! system's page cache keeps what is used. (A mapping would do the same and crash on a file that somebody truncates.)

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::TrainError;
use crate::trainer::replace;

const MAGIC: &[u8; 8] = b"FTTOKEN1";

/// The token between documents. In the byte vocabulary it is the zero byte: texts with one are no texts and never get in.
pub const END_OF_TEXT: u16 = 0;

/// Collects documents and writes a token file.
#[derive(Debug, Default)]
pub struct TokenWriter {
    tokens: Vec<u16>,
    ends: Vec<u64>,
}

impl TokenWriter {
    /// Adds a document of bytes, each a token, and the token that ends it.
    pub fn push(&mut self, text: &[u8]) {
        self.push_tokens(text.iter().map(|&byte| u16::from(byte)));
    }

    /// Adds a document of tokens, and the token that ends it.
    pub fn push_tokens(&mut self, tokens: impl IntoIterator<Item = u16>) {
        self.tokens.extend(tokens);
        self.tokens.push(END_OF_TEXT);
        self.ends.push(self.tokens.len() as u64);
    }

    /// Tokens so far.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Documents so far.
    pub fn n_documents(&self) -> usize {
        self.ends.len()
    }

    /// Writes the file, in place of an old one only when it is whole.
    pub fn write(&self, path: &Path) -> Result<(), TrainError> {
        replace(path, |out| {
            out.write_all(MAGIC)?;
            out.write_all(&(self.tokens.len() as u64).to_le_bytes())?;
            out.write_all(&(self.ends.len() as u64).to_le_bytes())?;
            self.ends.iter().try_for_each(|end| out.write_all(&end.to_le_bytes()))?;
            self.tokens.iter().try_for_each(|token| out.write_all(&token.to_le_bytes()))
        })
    }
}

/// A token file opened for reading.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    file: File,
    /// The end of each document, in tokens, ascending.
    ends: Vec<u64>,
    n_tokens: usize,
    /// Where the tokens start, in bytes.
    offset: u64,
}

impl TokenFile {
    /// Opens a file and checks its head against its length.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let mut file = File::open(path).map_err(TrainError::io("open", path))?;
        let len = file.metadata().map_err(TrainError::io("read", path))?.len();
        let mut head = [0; 24];
        let short = |_| TrainError::file(path, "too short for a token file");
        file.read_exact(&mut head).map_err(short)?;
        if &head[..8] != MAGIC {
            return Err(TrainError::file(path, "no token file: it does not begin with FTTOKEN1"));
        }
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (n_tokens, n_documents) = (number(8), number(16));
        let wanted = n_documents.checked_mul(8).zip(n_tokens.checked_mul(2)).and_then(|(a, b)| a.checked_add(b));
        if wanted.and_then(|n| n.checked_add(24)) != Some(len) {
            let message = format!("{len} bytes do not hold the {n_tokens} tokens of {n_documents} documents it names");
            return Err(TrainError::file(path, message));
        }
        let mut bytes = vec![0; 8 * n_documents as usize];
        file.read_exact(&mut bytes).map_err(short)?;
        let ends: Vec<u64> = bytes.as_chunks().0.iter().map(|end| u64::from_le_bytes(*end)).collect();
        if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != n_tokens {
            return Err(TrainError::file(path, "the documents' ends are not in order"));
        }
        let offset = 24 + 8 * n_documents;
        Ok(Self { path: path.to_path_buf(), file, ends, n_tokens: n_tokens as usize, offset })
    }

    /// Tokens of all documents.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Documents.
    pub fn n_documents(&self) -> usize {
        self.ends.len()
    }

    /// Where a document starts and ends, in tokens.
    pub fn document(&self, index: usize) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[index] as usize
    }

    /// `n` tokens from `start` on, and for each whether a document begins there. The range must lie inside.
    pub fn window(&self, start: usize, n: usize) -> Result<(Vec<u32>, Vec<bool>), TrainError> {
        assert!(start + n <= self.n_tokens, "tokens {start} to {} of {}", start + n, self.n_tokens);
        let mut bytes = vec![0; 2 * n];
        let at = self.offset + 2 * start as u64;
        self.file.read_exact_at(&mut bytes, at).map_err(TrainError::io("read", &self.path))?;
        let tokens = bytes.as_chunks().0.iter().map(|token| u32::from(u16::from_le_bytes(*token))).collect();
        let mut begins = vec![false; n];
        let first = self.ends.partition_point(|end| (*end as usize) < start);
        for end in self.ends[first..].iter().take_while(|end| (**end as usize) < start + n) {
            begins[*end as usize - start] = true;
        }
        if start == 0 && n > 0 {
            begins[0] = true;
        }
        Ok((tokens, begins))
    }

    /// Fails when a token is none of a model's `vocabulary`. Reads the whole file.
    pub fn check_below(&self, vocabulary: usize) -> Result<(), TrainError> {
        const AT_A_TIME: usize = 1 << 20;
        for start in (0..self.n_tokens).step_by(AT_A_TIME) {
            let (tokens, _) = self.window(start, AT_A_TIME.min(self.n_tokens - start))?;
            if let Some(token) = tokens.into_iter().find(|token| *token as usize >= vocabulary) {
                let wanted = format!("more than {token}, which {} has a token of", self.path.display());
                return Err(TrainError::setting("model.vocabulary", vocabulary, wanted));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_back_with_their_borders() {
        let folder = crate::scratch::Scratch::new();
        let path = folder.path().join("a.tokens");
        let mut writer = TokenWriter::default();
        writer.push(b"abc");
        writer.push(b"de");
        writer.push(b"fghi");
        writer.write(&path).unwrap();
        let file = TokenFile::open(&path).unwrap();
        assert_eq!((file.n_tokens(), file.n_documents(), file.document(1)), (12, 3, 4..7));
        let (tokens, begins) = file.window(2, 6).unwrap();
        assert_eq!(tokens, [99, 0, 100, 101, 0, 102]);
        assert_eq!(begins, [false, false, true, false, false, true]);
        assert!(file.window(0, 2).unwrap().1[0]);
    }

    #[test]
    fn broken_files_are_refused() {
        let folder = crate::scratch::Scratch::new();
        let path = folder.path().join("a.tokens");
        let mut writer = TokenWriter::default();
        writer.push(b"abc");
        writer.write(&path).unwrap();
        let good = std::fs::read(&path).unwrap();
        for (change, word) in [(3usize, "FTTOKEN1"), (8, "do not hold"), (16, "do not hold"), (24, "order")] {
            let mut bytes = good.clone();
            bytes[change] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let message = TokenFile::open(&path).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(TokenFile::open(&path).is_err());
    }
}
