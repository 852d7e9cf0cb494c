//! The model inside the program, which writes when no model is named: a small byte model of Python code
//! (`docs/models/python-bytes.md`).

use foretoken_formats::FormatError;
use foretoken_formats::gguf::Gguf;

/// What `--model` calls it.
pub const NAME: &str = "embedded";

static FILE: &[u8] = include_bytes!("../models/python-bytes.gguf");

/// Its file.
pub fn open() -> Result<Gguf, FormatError> {
    Gguf::from_bytes(FILE)
}

/// What is said when it is used without having been named.
pub fn notice() -> String {
    let size = FILE.len() as f64 / 1e6;
    format!("no model is named (-m): the embedded one writes, {size:.1} MB that know Python code byte by byte")
}

#[cfg(test)]
mod tests {
    use foretoken_engine::ModelFile;

    #[test]
    fn it_is_sound_small_and_has_heads() {
        let file = ModelFile::from_gguf(super::open().unwrap()).unwrap();
        assert_eq!(file.tokenizer().vocab_size(), 256);
        assert!(foretoken_model::HeadsInfo::of(file.gguf()).unwrap().is_some_and(|heads| heads.count == 7));
        assert!(super::FILE.len() <= 12 << 20);
    }
}
