//! `prompts`: functions to measure decoding with, or to let the model write texts to learn from.

use std::path::PathBuf;

use foretoken_train::TrainError;
use foretoken_train::data::{Prepared, TokenFile, Vocabulary, file_hash, function_prompts};
use foretoken_train::trainer::Settings;

/// Writes held-out Python functions, signature and docstring, as JSONL for `foretoken bench decode`.
///
/// With --training, functions of the texts that the model was trained on: what it writes after them, it can learn to write otherwise
/// (`repeats` in the TOML file).
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
    /// The file to write.
    output: PathBuf,
    /// Take functions that were trained on.
    #[arg(long)]
    training: bool,
    /// Prompts.
    #[arg(long, default_value_t = 200)]
    n: usize,
    /// The longest prompt, in bytes.
    #[arg(long, default_value_t = 256)]
    max_bytes: usize,
    /// Also write so many bytes of what follows each function in its file, as `then`: what the model could have gone on with.
    #[arg(long, default_value_t = 0)]
    then: usize,
    /// Decides which functions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let settings = Settings::read(&args.config)?;
    let Prepared { train, held_out, .. } = Prepared::in_folder(&settings.data.folder);
    let path = if args.training { train } else { held_out };
    let texts = TokenFile::open(&path)?;
    let vocabulary = Vocabulary::in_folder(&settings.data.folder, settings.data.bpe)?;
    if args.n == 0 {
        return Err(TrainError::setting("--n", 0, "at least 1"));
    }
    let prompts = function_prompts(&texts, &vocabulary, args.n, args.max_bytes, args.then, args.seed)?;
    if prompts.is_empty() {
        let message = format!(
            "no Python function with a docstring whose prompt has at most --max-bytes {} bytes",
            args.max_bytes
        );
        return Err(TrainError::file(&path, message));
    }
    let lines: String =
        prompts.iter().map(|prompt| serde_json::to_string(prompt).expect("plain data") + "\n").collect();
    std::fs::write(&args.output, lines).map_err(TrainError::io("write", &args.output))?;
    println!("{} prompts, SHA-256 {}", prompts.len(), file_hash(&args.output)?);
    Ok(())
}
