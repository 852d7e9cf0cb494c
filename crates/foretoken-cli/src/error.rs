//! Everything that can end the program early, with what to do about it, and the exit codes.

use std::io;
use std::path::PathBuf;

use foretoken_decode::sampler::SettingsError;
use foretoken_engine::{EngineError, RequestError};
use foretoken_formats::{FormatError, printable};
use foretoken_model::ModelError;
use miette::Diagnostic;

/// Exit code after an error.
pub const FAILED: u8 = 1;
/// Exit code after wrong options, whether clap or we found them.
pub const WRONG_OPTIONS: u8 = 2;
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
    #[error("cannot {action} {}: {error}", path.display())]
    #[diagnostic(help("check the path, its permissions and the space on its disk"))]
    File {
        /// "read", "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },

    /// Standard input could not be read.
    #[error("cannot read standard input: {0}")]
    #[diagnostic(help("a prompt can also be given as an argument, or with --file FILE"))]
    Stdin(io::Error),

    /// Text in another encoding, or no text.
    #[error("byte {byte} of {what} is not UTF-8")]
    #[diagnostic(help("convert it, for example with iconv -f ISO-8859-1 -t UTF-8"))]
    NotUtf8 {
        /// The first wrong byte, counted from 1.
        byte: usize,
        /// The file, "standard input", "this line".
        what: String,
    },

    /// The address to listen at.
    #[error("cannot listen at {address}: {error}")]
    #[diagnostic(help("{}", match error.kind() {
        io::ErrorKind::AddrNotAvailable => "--host is an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has",
        io::ErrorKind::PermissionDenied => "ports below 1024 are the administrator's: choose another --port",
        _ => "another program may be there: choose another --port, or --port 0 for a free one",
    }))]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's reason.
        error: io::Error,
    },

    /// A server elsewhere could not be reached.
    #[error("the endpoint gives no answers: {error}")]
    #[diagnostic(help(
        "what is answered is on the disk: the same command goes on from there. A certificate of one's own is trusted with --ca-file"
    ))]
    Endpoint {
        /// What was in the way.
        error: String,
    },

    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),

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
        "name a model that was made for conversations with -m, such as smollm2; others continue raw text with `foretoken generate`, without --chat"
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
    #[diagnostic(help("{}", failed_help(error)))]
    Failed {
        /// What happened.
        error: String,
    },

    /// The request.
    #[error("{}", request_message(error))]
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
            EngineError::NoChatTemplate { model } => Self::NoChatTemplate { model: printable(&model) },
            EngineError::Option { name, value, wanted } => Self::Argument {
                found: format!("{} is {value}, and must be {wanted}", option(name)),
                wanted: "--help lists the options and their ranges".into(),
            },
            error @ EngineError::Draft { .. } => Self::Argument {
                found: printable(&error.to_string()),
                wanted: "give --draft-model a smaller model, best of the same family".into(),
            },
            error @ EngineError::Grammar { .. } => {
                Self::Argument { found: error.to_string(), wanted: "change --schema, --regex or --grammar".into() }
            }
            error @ EngineError::Target(_) => Self::Engine(error),
        }
    }
}

impl CliError {
    /// What the process exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Different { .. } => DIFFERENT,
            // A prompt is no option, and options are not always to blame for its length.
            Self::Request { error: RequestError::EmptyPrompt | RequestError::PromptTooLong { .. } } => FAILED,
            Self::Request { .. } | Self::Argument { .. } => WRONG_OPTIONS,
            _ => FAILED,
        }
    }
}

/// What the engine calls `name`, as it is typed.
fn option(name: &str) -> String {
    match name {
        "the context size" => "--ctx-size".into(),
        "drafter" => "--draft".into(),
        "cost_table" => "--cost-model".into(),
        _ => format!("--{}", name.replace('_', "-")),
    }
}

/// The engine's message, with options named as they are typed.
fn request_message(error: &RequestError) -> String {
    match error {
        RequestError::NoTokens => "--max-tokens is 0, and must be at least 1".into(),
        RequestError::MinAboveMax { min, max } => {
            format!("--min-tokens is {min}, and must be at most --max-tokens, which is {max}")
        }
        RequestError::EmptyStop => "--stop is empty, and must have at least one character".into(),
        RequestError::Settings(SettingsError::OutOfRange { name, value, range }) => {
            format!("{} is {value}, and must be {range}", option(name))
        }
        RequestError::Settings(SettingsError::UnknownToken { token, vocab_size }) => {
            format!("--logit-bias names token {token}, and the vocabulary has {vocab_size}")
        }
        RequestError::Settings(SettingsError::Bias { token, value }) => {
            format!("--logit-bias of token {token} is {value}, and must be finite or -inf")
        }
        RequestError::EmptyPrompt
        | RequestError::PromptTooLong { .. }
        | RequestError::UnknownDrafter { .. }
        | RequestError::Acceptor(_)
        | RequestError::NotFixed { .. }
        | RequestError::ConstraintWithoutEnd
        | RequestError::UnknownToken { .. } => error.to_string(),
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
        RequestError::UnknownToken { .. } | RequestError::Settings(SettingsError::UnknownToken { .. }) => {
            "`foretoken tokenize` shows the ids of a text in this model's vocabulary"
        }
        RequestError::Settings(SettingsError::Bias { .. }) => {
            "give numbers such as 42=-1.5, or 42=-inf to forbid a token"
        }
        RequestError::Acceptor(_) => "`foretoken generate --help` lists the acceptors and their parameters",
        RequestError::ConstraintWithoutEnd => "leave --ignore-eos away",
        RequestError::NotFixed { .. } => "add --draft NAME and --draft-width N, or --draft none",
        RequestError::UnknownDrafter { .. } => "name drafters of this list in --draft, joined by +",
        RequestError::Settings(_) => "`foretoken generate --help` lists the sampling options and their ranges",
    }
}

/// The outcome has the error's text alone.
fn failed_help(error: &str) -> &'static str {
    match error {
        _ if error.starts_with("no token is allowed") => {
            "loosen what leaves no token over: --logit-bias with -inf, or the filters --top-k, --top-p and --min-p"
        }
        _ if error.starts_with("the cache has") || error.starts_with("the sequence would reach") => {
            "shorten the prompt, or lower --ctx-size or --max-tokens"
        }
        _ => "the model file is probably damaged: compare its checksum, or download it again",
    }
}

#[cfg(test)]
mod tests {
    use foretoken_decode::sampler::SampleError;
    use foretoken_decode::target::TargetError;

    use super::*;

    fn message(error: CliError) -> String {
        format!("{:?}", miette::Report::new(error)).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn help_fits_the_cause() {
        let failed = |error: &dyn std::fmt::Display| message(CliError::Failed { error: error.to_string() });
        assert!(failed(&SampleError::EmptySupport { position: 3 }).contains("--logit-bias"));
        assert!(failed(&SampleError::Nan { token: 1, position: 3 }).contains("damaged"));
        assert!(failed(&TargetError::CacheFull { needed: 2, free: 1 }).contains("--ctx-size"));
        assert!(failed(&TargetError::ContextFull { needed: 9, limit: 8 }).contains("--ctx-size"));
        let settings = SettingsError::UnknownToken { token: 9, vocab_size: 8 };
        let unknown = message(CliError::Request { error: settings.into() });
        assert!(unknown.contains("--logit-bias names token 9") && unknown.contains("foretoken tokenize"), "{unknown}");
    }

    #[test]
    fn a_file_s_reason_is_said_once() {
        let error = io::Error::other("the dog ate it");
        let said = message(CliError::File { action: "read", path: "a.txt".into(), error });
        assert_eq!(said.matches("the dog ate it").count(), 1, "{said}");
    }

    #[test]
    fn a_model_s_name_cannot_steer_the_terminal() {
        let said = message(EngineError::NoChatTemplate { model: "\x1b[2Jnice\u{202e}".into() }.into());
        assert!(said.contains(r"\u{1b}[2Jnice\u{202e} has no chat template"), "{said}");
    }
}
