//! Everything that can end the program early, with what to do about it, and the exit codes.

use std::io;
use std::path::PathBuf;

use foretoken_engine::{EngineError, RequestError};
use foretoken_formats::FormatError;
use foretoken_model::ModelError;
use miette::Diagnostic;

/// Exit code after an error.
pub const FAILED: u8 = 1;
/// Exit code when text differed between methods that may not change it.
pub const DIFFERENT: u8 = 3;
/// Exit code after Ctrl-C, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// Why a subcommand gave up.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum CliError {
    /// No such file, and no model of that name.
    #[error("there is no file {name:?}, and no model in {} of that name", folder.display())]
    #[diagnostic(help("{there_is}"))]
    NoModel {
        /// As the user wrote it.
        name: String,
        /// Where models are looked for.
        folder: PathBuf,
        /// The models that are there.
        there_is: String,
    },

    /// A name that fits several models.
    #[error("{name:?} fits several models: {found}")]
    #[diagnostic(help("write more of the name, or the path of the file"))]
    AmbiguousModel {
        /// As the user wrote it.
        name: String,
        /// The file names.
        found: String,
    },

    /// A file of the user's could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    #[diagnostic(help("check the path and its permissions"))]
    File {
        /// "read", "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },

    /// The prompt on standard input could not be read.
    #[error("cannot read the prompt from standard input: {0}")]
    #[diagnostic(help("the prompt must be UTF-8 text; give it with --prompt or --file to see where it ends"))]
    Stdin(io::Error),

    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),

    /// The reader of our standard output went away: nothing to tell anybody.
    #[error("standard output was closed")]
    OutputClosed,

    /// No prompt in any of the ways to give one.
    #[error("there is no prompt")]
    #[diagnostic(help(
        "give it as an argument, with --file FILE, or on standard input: echo 'Once' | foretoken generate -m MODEL"
    ))]
    NoPrompt,

    /// A model without a chat template was asked to chat.
    #[error("{model} has no chat template")]
    #[diagnostic(help(
        "it is probably not an instruction-tuned model; continue raw text with `foretoken generate` (without --chat)"
    ))]
    NoChatTemplate {
        /// The model file.
        model: String,
    },

    /// A line of a prompt file, cost table or the like is not what it should be.
    #[error("{}: {found}", path.display())]
    #[diagnostic(help("{wanted}"))]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        found: String,
        /// What would be right.
        wanted: String,
    },

    /// An argument whose value makes no sense together with others or with the model.
    #[error("{found}")]
    #[diagnostic(help("{wanted}"))]
    Argument {
        /// The value.
        found: String,
        /// What would be right.
        wanted: String,
    },

    /// A benchmark's answer was wrong, so its time says nothing.
    #[error("{found}")]
    #[diagnostic(help("this breaks the promise that drafts never change the text: please report it with this output"))]
    Different {
        /// The first difference.
        found: String,
    },

    /// The model file.
    #[error(transparent)]
    Format(#[from] FormatError),

    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// The engine.
    #[error(transparent)]
    Engine(EngineError),

    /// A request went wrong on its way.
    #[error("the text broke off: {error}")]
    #[diagnostic(help(
        "with a full cache, shorten the prompt or lower --ctx-size; otherwise the model file is probably damaged"
    ))]
    Failed {
        /// What happened.
        error: String,
    },

    /// The request.
    #[error("{error}")]
    #[diagnostic(help("{}", request_help(error)))]
    Request {
        /// Why it was refused.
        error: RequestError,
    },
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Format(error) => Self::Format(error),
            EngineError::Model(error) => Self::Model(error),
            EngineError::Request(error) => Self::Request { error },
            EngineError::NoChatTemplate { model } => Self::NoChatTemplate { model },
            error @ (EngineError::Option { .. } | EngineError::Target(_)) => Self::Engine(error),
        }
    }
}

impl CliError {
    /// What the process exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Different { .. } => DIFFERENT,
            _ => FAILED,
        }
    }
}

fn request_help(error: &RequestError) -> &'static str {
    match error {
        RequestError::EmptyPrompt => {
            "give at least one character; some models also begin every text with a token of their own"
        }
        RequestError::PromptTooLong { .. } => {
            "shorten the prompt, or raise --ctx-size (up to what the model was made for: see `foretoken inspect`)"
        }
        RequestError::NoTokens | RequestError::MinAboveMax { .. } => "change --max-tokens or --min-tokens",
        RequestError::EmptyStop => "leave --stop away, or give it some text",
        RequestError::UnknownToken { .. } => "`foretoken tokenize` shows the ids of a text in this model's vocabulary",
        RequestError::Settings(_) => "`foretoken generate --help` lists the sampling options and their ranges",
    }
}
