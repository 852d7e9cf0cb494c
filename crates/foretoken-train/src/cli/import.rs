//! `import`: a model of Meta's as GGUF.

use std::path::PathBuf;

use foretoken_formats::gguf::Gguf;
use foretoken_train::TrainError;
use foretoken_train::export::write_gguf;
use foretoken_train::import::{MetaOptions, from_meta};

use super::export::Type;

/// Makes a GGUF file of a model in the layout of facebook/multi-token-prediction, its extra heads included.
///
/// `foretoken generate -m FILE "def f(x):"` then drafts with them. What is downloaded is made readable by two lines of
/// Python: `from safetensors.torch import save_file` and `save_file(torch.load("consolidated.pth", map_location="cpu"),
/// "consolidated.safetensors")`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder of `params.json` and `consolidated.safetensors`.
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
    if args.context == 0 {
        return Err(TrainError::setting("--context", 0, "at least 1"));
    }
    let open = |path: &PathBuf| Gguf::open(path).map_err(|error| TrainError::file(path, error.to_string()));
    let tokenizer = args.tokenizer.as_ref().map(open).transpose()?;
    let options = MetaOptions {
        name: &args.name,
        storage: args.r#type.into(),
        context: args.context,
        tokenizer: tokenizer.as_ref(),
    };
    let file = from_meta(&args.folder, options)?;
    write_gguf(&file, &args.output)?;
    let written = open(&args.output)?;
    let number =
        |key| written.metadata().get_u32_or(key, 1).map_err(|error| TrainError::file(&args.output, error.to_string()));
    let (heads, layers) = (number("foretoken.heads.count")?, number("llama.block_count")?);
    println!("{}: {heads} heads, {layers} layers in the trunk and head 1", args.output.display());
    Ok(())
}
