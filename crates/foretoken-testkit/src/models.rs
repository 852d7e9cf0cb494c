//! Finds real model files and benchmark prompts, which live outside the tree; tests without them say so.

use std::path::{Path, PathBuf};

/// Short names and file names of the models that tests use.
pub const MODELS: [(&str, &str); 4] = [
    ("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("qwen-coder-0.5b", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"),
    ("qwen-coder-1.5b", "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"),
    ("gemma-3-270m", "gemma-3-270m.Q4_K_M.gguf"),
];

/// The model's file in `$FORETOKEN_MODELS` or `~/.cache/foretoken/models`; prints why the test is skipped when it is
/// not there.
///
/// Panics on an unknown name, and on absence when `FORETOKEN_REQUIRE_MODELS=1`: so CI cannot skip without being noticed.
pub fn find(name: &str) -> Option<PathBuf> {
    let (_, file) = MODELS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no model {name:?}"));
    let folder = std::env::var_os("FORETOKEN_MODELS")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/foretoken/models")));
    let Some(folder) = folder else {
        return absent(&format!("model {name}: neither FORETOKEN_MODELS nor HOME is set"));
    };
    present(folder.join(file), &format!("model {name}"))
}

/// A file of benchmark prompts, such as `spec_bench.jsonl`, in `$FORETOKEN_PROMPTS` or `../shared/prompts` beside the
/// workspace; absence is treated as in [`find`].
pub fn prompts(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FORETOKEN_PROMPTS").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/prompts");
    present(folder.unwrap_or_else(beside).join(file), "prompts")
}

fn present(path: PathBuf, what: &str) -> Option<PathBuf> {
    if path.is_file() { Some(path) } else { absent(&format!("{what}: {} is not there", path.display())) }
}

fn absent(why: &str) -> Option<PathBuf> {
    let required = std::env::var_os("FORETOKEN_REQUIRE_MODELS").is_some_and(|value| value == "1");
    assert!(!required, "{why}, and FORETOKEN_REQUIRE_MODELS=1");
    eprintln!("skipped: {why}");
    None
}
