//! From sources to a training file, a held-out file and the recipe that makes them again.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Document, Shingles, Source, TokenWriter, Vocabulary, documents};
use crate::TrainError;
use crate::rng::Rng;
use crate::trainer::write_atomically;

/// Where the texts come from and what becomes of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The folder for `train.tokens`, `held-out.tokens` and `recipe.json`.
    pub folder: PathBuf,
    /// The share of packages held out, 0 to 1. A package is held out as a whole.
    #[serde(default = "defaults::held_out")]
    pub held_out: f64,
    /// Texts longer than this are cut there, at a line's end.
    #[serde(default = "defaults::max_bytes")]
    pub max_bytes: usize,
    /// Texts shorter than this are left out.
    #[serde(default = "defaults::min_bytes")]
    pub min_bytes: usize,
    /// A text is left out when more than this share of its 64-byte shingles was seen before.
    #[serde(default = "defaults::max_seen")]
    pub max_seen: f64,
    /// Decides which packages are held out and the order of documents.
    #[serde(default)]
    pub seed: u64,
    /// Tokens of a vocabulary of byte pairs, to be found in the training texts; without it, tokens are bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpe: Option<usize>,
    /// The sources.
    #[serde(default)]
    pub sources: Vec<Source>,
}

impl DataConfig {
    /// Checks that the settings fit a model of so many tokens.
    pub fn check(&self, vocabulary: usize) -> Result<(), TrainError> {
        for (setting, value) in [("data.held_out", self.held_out), ("data.max_seen", self.max_seen)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(TrainError::setting(setting, value, "a share, 0 to 1"));
            }
        }
        if self.max_bytes < self.min_bytes.max(1) {
            let wanted = format!("data.min_bytes, {}, at least: every text would be left out", self.min_bytes.max(1));
            return Err(TrainError::setting("data.max_bytes", self.max_bytes, wanted));
        }
        match self.bpe {
            Some(n) if !(257..1 << 16).contains(&n) => {
                Err(TrainError::setting("data.bpe", n, "257 to 65535: the end of a text, 256 bytes, and pairs"))
            }
            Some(n) if n != vocabulary => {
                let wanted = format!("{n}, as data.bpe says");
                Err(TrainError::setting("model.vocabulary", vocabulary, wanted))
            }
            _ => Ok(()),
        }
    }
}

mod defaults {
    pub fn held_out() -> f64 {
        0.05
    }
    pub fn max_bytes() -> usize {
        1 << 16
    }
    pub fn min_bytes() -> usize {
        128
    }
    pub fn max_seen() -> f64 {
        0.5
    }
}

/// The recipe: everything but the texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// The settings.
    pub data: DataConfig,
    /// SHA-256 of `train.tokens`.
    pub train_sha256: String,
    /// SHA-256 of `held-out.tokens`.
    pub held_out_sha256: String,
    /// Tokens for training and held out.
    pub n_tokens: [usize; 2],
    /// Documents for training and held out.
    pub n_documents: [usize; 2],
    /// Documents left out, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// Packages held out.
    pub held_out_packages: Vec<String>,
    /// By source and name: the SHA-256 of each text used.
    pub texts: BTreeMap<String, BTreeMap<String, String>>,
}

/// The files that [`prepare`] made.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// Tokens to train on.
    pub train: PathBuf,
    /// Tokens of packages that training never sees.
    pub held_out: PathBuf,
    /// How they were made.
    pub recipe: PathBuf,
}

impl Prepared {
    /// The files' places in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        let file = |name| folder.join(name);
        Self { train: file("train.tokens"), held_out: file("held-out.tokens"), recipe: file("recipe.json") }
    }
}

/// Reads the sources, leaves out duplicates, splits by package and writes the three files. Held-out texts are read first,
/// so that a training text much like one of them is the one left out.
pub fn prepare(config: &DataConfig) -> Result<Recipe, TrainError> {
    std::fs::create_dir_all(&config.folder).map_err(TrainError::io("create", &config.folder))?;
    let mut all: Vec<(usize, bool, Document)> = Vec::new();
    for (i, source) in config.sources.iter().enumerate() {
        let found = documents(source)?;
        all.extend(found.into_iter().map(|document| (i, held_out(config, &document.package), document)));
    }
    let order = Rng::new(config.seed, "documents").permutation(all.len());
    let (mut train, mut held) = (Vec::new(), Vec::new());
    let (mut hashes, mut shingles) = (HashSet::new(), Shingles::default());
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    let mut texts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut packages = std::collections::BTreeSet::new();
    for wanted in [true, false] {
        for (i, is_held_out, document) in
            order.iter().map(|&at| &all[at as usize]).filter(|(_, held, _)| *held == wanted)
        {
            let text = cut(&document.text, config.max_bytes);
            let hash = hex(&Sha256::digest(text));
            let is_text = text_of(config, text);
            let reason = is_text.err().or_else(|| {
                if !hashes.insert(hash.clone()) {
                    Some("the same text again")
                } else if shingles.share_seen(text) > config.max_seen {
                    Some("much of it seen before")
                } else {
                    None
                }
            });
            if let Some(reason) = reason {
                *left_out.entry(reason.to_owned()).or_default() += 1;
                continue;
            }
            shingles.add(text);
            let text = is_text.expect("a fault is a reason to leave it out");
            if *is_held_out {
                packages.insert(document.package.clone());
                held.push(text);
            } else {
                train.push(text);
            }
            let source = config.sources[*i].path.display().to_string();
            texts.entry(source).or_default().insert(document.name.clone(), hash);
        }
    }
    split_is_whole(config, [train.len(), held.len()], all.len(), &left_out)?;
    let vocabulary = match config.bpe {
        None => Vocabulary::bytes(),
        Some(n) => Vocabulary::train(train.iter().copied(), n, &config.folder)?,
    };
    let (train, held) = (tokens(&vocabulary, &train)?, tokens(&vocabulary, &held)?);
    let files = Prepared::in_folder(&config.folder);
    train.write(&files.train)?;
    held.write(&files.held_out)?;
    let recipe = Recipe {
        data: config.clone(),
        train_sha256: file_hash(&files.train)?,
        held_out_sha256: file_hash(&files.held_out)?,
        n_tokens: [train.n_tokens(), held.n_tokens()],
        n_documents: [train.n_documents(), held.n_documents()],
        left_out,
        held_out_packages: packages.into_iter().collect(),
        texts,
    };
    let json = serde_json::to_string_pretty(&recipe).expect("a recipe is plain data");
    write_atomically(&files.recipe, (json + "\n").as_bytes())?;
    Ok(recipe)
}

/// Fails when there is nothing to train on or nothing held out, before anything is written.
fn split_is_whole(
    config: &DataConfig,
    [train, held]: [usize; 2],
    found: usize,
    left_out: &BTreeMap<String, usize>,
) -> Result<(), TrainError> {
    if train + held == 0 {
        let reasons: Vec<_> = left_out.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        let wanted = match found {
            0 => "texts: no file with one of data.sources.extensions (written without a dot) is in any of the folders, or no \
                  line in the .jsonl files"
                .to_owned(),
            _ => format!("some text that is kept; all {found} are left out: {}", reasons.join(", ")),
        };
        return Err(TrainError::setting("data.sources", format!("{} of them", config.sources.len()), wanted));
    }
    if train == 0 || held == 0 {
        let all = if train == 0 { "all packages are held out" } else { "no package is held out" };
        let wanted = format!(
            "a share that leaves packages on both sides; {all}: another share, another data.seed or more packages"
        );
        return Err(TrainError::setting("data.held_out", config.held_out, wanted));
    }
    Ok(())
}

/// Whether a package is held out: by its name and the seed, so that adding sources moves no package.
fn held_out(config: &DataConfig, package: &str) -> bool {
    Rng::new(config.seed, package).uniform() < config.held_out
}

/// A document's text, or why it is none.
fn text_of<'a>(config: &DataConfig, bytes: &'a [u8]) -> Result<&'a str, &'static str> {
    if bytes.len() < config.min_bytes {
        Err("too short")
    } else if bytes.contains(&0) {
        Err("not UTF-8 text")
    } else {
        std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text")
    }
}

fn tokens(vocabulary: &Vocabulary, texts: &[&str]) -> Result<TokenWriter, TrainError> {
    let mut writer = TokenWriter::default();
    for text in texts {
        writer.push_tokens(vocabulary.encode(text)?);
    }
    Ok(writer)
}

/// At most `max` bytes, cut behind a line break when there is one.
fn cut(text: &[u8], max: usize) -> &[u8] {
    if text.len() <= max {
        return text;
    }
    let end = text[..max].iter().rposition(|&byte| byte == b'\n').map_or(max, |at| at + 1);
    &text[..end]
}

/// The SHA-256 of a file, in hexadecimal digits.
pub fn file_hash(path: &Path) -> Result<String, TrainError> {
    let mut file = std::fs::File::open(path).map_err(TrainError::io("open", path))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(TrainError::io("read", path))?;
    Ok(hex(&hasher.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TokenFile;

    fn corpus(folder: &Path) -> DataConfig {
        let source = folder.join("source");
        for package in 0..40 {
            let path = source.join(format!("p{package}"));
            std::fs::create_dir_all(&path).unwrap();
            let mut rng = Rng::new(package, "text");
            let text: String =
                (0..600).map(|i| if i % 40 == 39 { '\n' } else { (b'a' + rng.below(26) as u8).into() }).collect();
            std::fs::write(path.join("a.py"), &text).unwrap();
            // A copy elsewhere, one with a changed head, one that is no text.
            std::fs::write(path.join("b.py"), &text).unwrap();
            std::fs::write(path.join("c.py"), format!("# changed\n{text}")).unwrap();
            std::fs::write(path.join("d.py"), b"\xff".repeat(200)).unwrap();
        }
        DataConfig {
            folder: folder.join("out"),
            held_out: 0.2,
            max_bytes: 500,
            min_bytes: 100,
            max_seen: 0.5,
            seed: 1,
            bpe: None,
            sources: vec![Source {
                path: source,
                licence: "MIT".into(),
                extensions: vec!["py".into()],
                exclude: Vec::new(),
                package: None,
            }],
        }
    }

    #[test]
    fn copies_go_packages_stay_whole_and_the_recipe_repeats_it() {
        let folder = crate::scratch::Scratch::new();
        let config = corpus(folder.path());
        let recipe = prepare(&config).unwrap();
        assert_eq!(recipe.n_documents.iter().sum::<usize>(), 40);
        assert_eq!(recipe.left_out["not UTF-8 text"], 40);
        assert_eq!(recipe.left_out.values().sum::<usize>(), 120);
        assert!((2..20).contains(&recipe.held_out_packages.len()), "{:?}", recipe.held_out_packages);
        assert_eq!(recipe.held_out_packages.len(), recipe.n_documents[1]);
        let file = TokenFile::open(&Prepared::in_folder(&config.folder).train).unwrap();
        assert_eq!(file.n_tokens(), recipe.n_tokens[0]);
        assert!((0..file.n_documents()).all(|i| file.document(i).len() <= 501));
        assert_eq!(prepare(&config).unwrap(), recipe);
    }

    #[test]
    fn a_vocabulary_is_made_of_the_training_texts() {
        let folder = crate::scratch::Scratch::new();
        let bytes = corpus(folder.path());
        let pairs = DataConfig { folder: folder.path().join("pairs"), bpe: Some(270), ..bytes.clone() };
        let (recipe, by_pairs) = (prepare(&bytes).unwrap(), prepare(&pairs).unwrap());
        assert_eq!(by_pairs.texts, recipe.texts);
        assert!(by_pairs.n_tokens[0] < recipe.n_tokens[0]);
        let vocabulary = Vocabulary::in_folder(&pairs.folder, pairs.bpe).unwrap();
        let [a, b] =
            [&bytes, &pairs].map(|config| TokenFile::open(&Prepared::in_folder(&config.folder).train).unwrap());
        for document in 0..a.n_documents() {
            let tokens = |file: &TokenFile| {
                let range = file.document(document);
                file.window(range.start, range.len()).unwrap().0
            };
            assert_eq!(vocabulary.decode(&tokens(&b)), Vocabulary::bytes().decode(&tokens(&a)));
        }
        assert!(pairs.check(256).is_err() && pairs.check(270).is_ok() && bytes.check(97).is_ok());
    }

    #[test]
    fn long_texts_are_cut_at_a_line() {
        assert_eq!(cut(b"one\ntwo\nthree", 9), b"one\ntwo\n");
        assert_eq!(cut(b"onetwothree", 4), b"onet");
        assert_eq!(cut(b"one", 3), b"one");
    }
}
