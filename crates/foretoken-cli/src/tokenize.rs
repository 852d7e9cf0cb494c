//! `foretoken tokenize`: text to token ids and back.

use std::path::PathBuf;
use std::process::ExitCode;

use foretoken_formats::tokenizer::{Special, Tokenizer};
use serde_json::json;

use crate::embedded;
use crate::error::CliError;
use crate::model_file;
use crate::output;
use crate::prompt::PromptSource;

/// Show the tokens of a text in a model's vocabulary
///
/// Special tokens such as <|im_end|> that stand in the text are read as plain text, as in every prompt, unless
/// --parse-special is given.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// A .gguf file, or parts of the name of one in the model folder, or the one inside this program
    #[arg(short, long, value_name = "FILE|NAME", env = "FORETOKEN_MODEL", default_value = embedded::NAME)]
    model: String,

    /// The text; `-` or nothing reads standard input
    #[arg(value_name = "TEXT")]
    text: Option<String>,

    /// Read the text from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,

    /// Read special tokens in the text as what they mean
    #[arg(long)]
    parse_special: bool,

    /// Print the ids only, on one line
    #[arg(long, conflicts_with = "json")]
    ids: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print the text of these ids instead: --decode 9707,11,1879
    #[arg(long, value_name = "IDS", value_delimiter = ',', num_args = 1.., conflicts_with_all = ["text", "file", "parse_special", "ids"])]
    decode: Option<Vec<u32>>,
}

const EXAMPLES: &str = "\
Examples:
  foretoken tokenize -m smollm2 'Hello, world'          each token with its text
  foretoken tokenize -m smollm2 --ids --file prompt.txt  ids only
  foretoken tokenize -m smollm2 --decode 19556,28,905   back to text";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let gguf = model_file::open(&args.model)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    match &args.decode {
        Some(ids) => decode(&tokenizer, ids, args.json)?,
        None => encode(&tokenizer, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn encode(tokenizer: &Tokenizer, args: &Args) -> Result<(), CliError> {
    let text = PromptSource { given: args.text.as_deref(), file: args.file.as_deref() }.read()?;
    let special = if args.parse_special { Special::Parse } else { Special::AsText };
    let ids = tokenizer.encode(&text, special)?;
    if args.json {
        let tokens: Vec<_> = ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id))).collect();
        return output::json(&json!({"ids": ids, "tokens": tokens, "count": ids.len()}));
    }
    if args.ids {
        return output::line(ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    }
    for &id in &ids {
        let note = if tokenizer.is_special(id) { "  (special)" } else { "" };
        output::line(format_args!("{id:>8}  {:?}{note}", String::from_utf8_lossy(tokenizer.token_bytes(id))))?;
    }
    output::line(format_args!("{} tokens", ids.len()))
}

fn decode(tokenizer: &Tokenizer, ids: &[u32], json: bool) -> Result<(), CliError> {
    let vocab_size = tokenizer.vocab_size();
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
        return Err(CliError::Argument {
            found: format!("token {id} is outside the vocabulary of {vocab_size}"),
            wanted: format!("give ids from 0 to {}", vocab_size - 1),
        });
    }
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).iter().copied()).collect();
    let text = String::from_utf8_lossy(&bytes);
    if json { output::json(&json!({"text": text})) } else { output::line(text) }
}
