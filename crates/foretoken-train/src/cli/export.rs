//! `export`: a checkpoint as GGUF or as a Hugging Face folder.

use std::path::PathBuf;

use foretoken_train::TrainError;
use foretoken_train::data::Vocabulary;
use foretoken_train::export::{Storage, to_gguf, to_huggingface, write_gguf};
use foretoken_train::trainer::{Settings, Trainer};

/// Writes the run's checkpoint in a format that other programs load.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
    /// A `.gguf` file, or a folder for `config.json` and `model.safetensors`.
    output: PathBuf,
    /// How GGUF stores matrices.
    #[arg(long, value_enum, default_value_t = Type::F16)]
    r#type: Type,
    /// Leave out heads 2 to n, for readers that know only Llama.
    #[arg(long)]
    trunk_only: bool,
    /// The model's name in a GGUF file.
    #[arg(long, default_value = "foretoken")]
    name: String,
}

/// How matrices are stored.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum Type {
    F32,
    F16,
    Q8_0,
}

impl From<Type> for Storage {
    fn from(ty: Type) -> Self {
        match ty {
            Type::F32 => Self::F32,
            Type::F16 => Self::F16,
            Type::Q8_0 => Self::Q8,
        }
    }
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let settings = Settings::read(&args.config)?;
    let trainer = Trainer::open_trained(&settings)?;
    let (model, params) = (trainer.model(), trainer.params());
    if args.output.extension().is_none_or(|extension| extension != "gguf") {
        to_huggingface(model, params, &args.output)?;
    } else {
        let vocabulary = Vocabulary::in_folder(&settings.data.folder, settings.data.bpe)?;
        if settings.model.vocabulary != vocabulary.n_tokens() {
            let wanted = format!("{}: GGUF files have a tokenizer, bytes or data.bpe", vocabulary.n_tokens());
            return Err(TrainError::setting("model.vocabulary", settings.model.vocabulary, wanted));
        }
        let file = to_gguf(model, params, &vocabulary, &args.name, args.r#type.into(), !args.trunk_only);
        write_gguf(&file, &args.output)?;
    }
    println!("{} from step {}", args.output.display(), trainer.n_steps());
    Ok(())
}
