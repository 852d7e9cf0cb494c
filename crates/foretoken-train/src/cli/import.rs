//! `import`: a model of Meta's as GGUF.

use std::path::PathBuf;

use foretoken_formats::gguf::Gguf;
use foretoken_train::TrainError;
use foretoken_train::import::{MetaOptions, from_meta};

use super::export::Type;

/// Makes a GGUF file of a model in the layout of facebook/multi-token-prediction, its extra heads included.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder of `params.json` and `consolidated.safetensors`: the state dict of `consolidated.pth` as `torch.load` and
    /// `safetensors.torch.save_file` give it.
    folder: PathBuf,
    /// The GGUF file to write.
    output: PathBuf,
    /// How matrices are stored.
    #[arg(long, value_enum, default_value_t = Type::F16)]
    r#type: Type,
    /// A GGUF file whose tokenizer is the model's; a model of bytes needs none.
    #[arg(long)]
    tokenizer: Option<PathBuf>,
    /// The context length.
    #[arg(long, default_value_t = 4096)]
    context: usize,
    /// The model's name.
    #[arg(long, default_value = "multi-token-prediction")]
    name: String,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let open = |path: &PathBuf| Gguf::open(path).map_err(|error| TrainError::file(path, error.to_string()));
    let tokenizer = args.tokenizer.as_ref().map(open).transpose()?;
    let options = MetaOptions {
        name: &args.name,
        storage: args.r#type.into(),
        context: args.context,
        tokenizer: tokenizer.as_ref(),
    };
    let file = from_meta(&args.folder, options)?;
    file.write(&args.output).map_err(|error| TrainError::file(&args.output, error.to_string()))?;
    println!("{}", args.output.display());
    Ok(())
}
