//! The program as people run it: what cannot be is refused by name, and what is there already stays as it was.

mod import;
mod refusals;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder with texts, their token files, a run that ended and its settings; gone when it is dropped.
pub(crate) struct Work(PathBuf);

const SETTINGS: &str = r#"
[run]
folder = "run"
steps = 2
windows = 2
log_every = 1
evaluate_every = 2
evaluate_windows = 2
checkpoint_every = 1
[model]
vocabulary = 256
width = 32
layers = 2
attention_heads = 2
kv_heads = 1
feed_forward = 48
context = 32
heads = { n = 3 }
[loss]
lambda = 1.0
[optimiser]
learning_rate = 0.01
[data]
folder = "data"
held_out = 0.3
sources = [{ path = "texts", licence = "none", extensions = ["py"] }]
"#;

impl Work {
    /// An empty folder.
    pub(crate) fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("foretoken-train-commands-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// With a run that ended.
    pub(crate) fn trained() -> Self {
        let work = Self::empty();
        std::fs::create_dir(work.path("texts")).unwrap();
        for i in 0..12 {
            let line = |j: i32| format!("def f{i}_{j}(x):\n    return x * {} + {} # {}\n", i * j, i + j, i * i * j);
            std::fs::write(work.path(&format!("texts/{i}.py")), (0..8).map(line).collect::<String>()).unwrap();
        }
        std::fs::write(work.path("run.toml"), SETTINGS).unwrap();
        for command in ["prepare", "train"] {
            let output = work.run(&[command, "run.toml"]);
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        work
    }

    /// A file of it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file's bytes; none when it is not there.
    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(name)).ok()
    }

    /// Runs the program in it, on one thread.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken-train"));
        command.args(words).current_dir(&self.0).env("RAYON_NUM_THREADS", "1").env("RUST_BACKTRACE", "0");
        command.output().unwrap()
    }

    /// Runs a command that has to be refused with all of `said`, in letters large or small; what was there stays.
    pub(crate) fn refused(&self, words: &[&str], said: &[&str]) {
        let kept = ["run/checkpoint.safetensors", "run/log.jsonl", "data/train.tokens", "data/held-out.tokens"];
        let before = kept.map(|name| self.bytes(name));
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr).trim_end().to_lowercase();
        let code = output.status.code();
        assert!(matches!(code, Some(1 | 2)), "{words:?} ended with {code:?}, {said:?} was wanted: {error}");
        assert!(error.starts_with("error: ") && !error.contains("panicked"), "{words:?}: {error}");
        let missing: Vec<_> = said.iter().filter(|word| !error.contains(&word.to_lowercase())).collect();
        assert!(missing.is_empty(), "{words:?}: {missing:?} is not in: {error}");
        assert!(kept.map(|name| self.bytes(name)) == before, "{words:?} changed a file");
    }

    /// The settings with one of them changed, `None` for one less, in `changed.toml`.
    pub(crate) fn change(&self, setting: &str, value: Option<&str>) -> &'static str {
        let mut settings: toml::Table = SETTINGS.parse().unwrap();
        let mut path: Vec<_> = setting.split('.').collect();
        let key = path.pop().unwrap();
        let table = path.iter().fold(&mut settings, |table, part| {
            table.entry(*part).or_insert(toml::Value::Table(Default::default())).as_table_mut().unwrap()
        });
        match value {
            Some(value) => {
                table.insert(key.into(), format!("x = {value}").parse::<toml::Table>().unwrap()["x"].clone())
            }
            None => table.remove(key),
        };
        std::fs::write(self.path("changed.toml"), settings.to_string()).unwrap();
        "changed.toml"
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A model that PyTorch made, and what it computed: see `fixtures/make_meta.py`.
pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/meta")
}
