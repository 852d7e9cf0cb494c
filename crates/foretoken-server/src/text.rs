//! What the server has to know about a model's texts: names, tokens, templates, grammars. Not its weights.

use std::sync::Arc;

use foretoken_decode::constraint::Constraint;
use foretoken_engine::{EngineError, Grammar, Infill, ModelFile, TokenId};
use foretoken_formats::FormatError;
use foretoken_formats::chat::Conversation;
use foretoken_formats::tokenizer::Special;

use crate::speech::CallForm;

/// How the model writes what is not plain content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// How it calls tools, if it was made for that.
    pub calls: Option<CallForm>,
    /// It thinks between `<think>` and `</think>` before it answers.
    pub thinks: bool,
}

/// What clients that make tokens themselves have to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerInfo {
    /// The text of the token that begins a text.
    pub bos_token: Option<String>,
    /// The text of the token that ends one.
    pub eos_token: Option<String>,
    /// Whether prompts begin with the former.
    pub add_bos: bool,
    /// The chat template's source.
    pub chat_template: Option<String>,
}

/// A model as far as texts go.
pub trait TextModel: Send + Sync {
    /// The name that clients ask for.
    fn id(&self) -> &str;

    /// Other names that it answers to.
    fn aliases(&self) -> &[String] {
        &[]
    }

    /// Number of tokens.
    fn vocab_size(&self) -> usize;

    /// Most tokens of prompt and answer together.
    fn context_size(&self) -> usize;

    /// The tokens of a prompt. `special`: names of special tokens are what they mean.
    fn encode(&self, text: &str, special: bool) -> Result<Vec<TokenId>, EngineError>;

    /// The tokens of a text without those that begin and end a prompt.
    fn encode_part(&self, text: &str, special: bool) -> Result<Vec<TokenId>, EngineError> {
        self.encode(text, special)
    }

    /// What clients that make tokens themselves have to know.
    fn tokenizer(&self) -> TokenizerInfo {
        TokenizerInfo::default()
    }

    /// The tokens of a conversation, up to where the answer begins.
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, EngineError>;

    /// The tokens that ask for what stands between two texts, and tokens that end it besides the model's own; `None` when
    /// the model has none for that.
    fn encode_infill(&self, before: &str, after: &str) -> Result<Option<Infill>, EngineError>;

    /// A constraint, or what is wrong with the grammar.
    fn constraint(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, EngineError>;

    /// The bytes of a token that is in the vocabulary.
    fn token_bytes(&self, token: TokenId) -> &[u8];

    /// Whether a token is never shown as text.
    fn is_control(&self, token: TokenId) -> bool;

    /// Whether the token ends a text.
    fn is_end(&self, token: TokenId) -> bool;

    /// How it writes what is not plain content.
    fn habits(&self) -> Habits;
}

/// The texts of a model file.
pub struct FileText {
    file: Arc<ModelFile>,
    id: String,
    aliases: Vec<String>,
    context_size: usize,
    habits: Habits,
}

impl FileText {
    /// For an engine with this context size. Clients may ask for the model by the `name` given, by its file's name or by
    /// the name inside the file.
    pub fn new(file: Arc<ModelFile>, name: Option<String>, context_size: usize) -> Self {
        let stem = file.path().and_then(|path| path.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
        let mut names = name.into_iter().chain(stem).chain([file.name()]);
        let id = names.next().expect("there is one at least");
        let aliases = names.filter(|name| *name != id).collect();
        let template = file.chat_template().map_or("", |template| template.source());
        let habits = Habits { calls: CallForm::of_template(template), thinks: template.contains("</think>") };
        Self { file, id, aliases, context_size, habits }
    }

    /// A short name for everything that a text depends on beside its request: the file, how it is kept and run
    /// (`settings`), and our version.
    pub fn fingerprint(file: &ModelFile, settings: &str) -> Result<String, EngineError> {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("{} {settings} {version}", file.gguf().fingerprint()?);
        Ok(format!("ft-{version}-{:016x}", fnv(&text)))
    }
}

/// FNV-1a of a text.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Most bytes of one word, such as a line of a binary file in base64. A word of megabytes would take a minute.
const MAX_WORD_BYTES: usize = 128 << 10;

impl FileText {
    fn check_words(&self, text: &str) -> Result<(), EngineError> {
        // Words are looked for only where there may be such a one.
        if text.len() <= MAX_WORD_BYTES {
            return Ok(());
        }
        match self.file.tokenizer().longest_word(text) {
            n if n > MAX_WORD_BYTES => {
                let reason = format!("it has a word of {n} bytes, and at most {MAX_WORD_BYTES} are accepted");
                Err(EngineError::Format(FormatError::Encode { reason }))
            }
            _ => Ok(()),
        }
    }
}

fn mode(special: bool) -> Special {
    if special { Special::Parse } else { Special::AsText }
}

impl TextModel for FileText {
    fn id(&self) -> &str {
        &self.id
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn vocab_size(&self) -> usize {
        self.file.tokenizer().vocab_size()
    }

    fn context_size(&self) -> usize {
        self.context_size
    }

    fn encode(&self, text: &str, special: bool) -> Result<Vec<TokenId>, EngineError> {
        self.check_words(text)?;
        self.file.encode(text, mode(special))
    }

    fn encode_part(&self, text: &str, special: bool) -> Result<Vec<TokenId>, EngineError> {
        self.check_words(text)?;
        Ok(self.file.tokenizer().encode(text, mode(special))?)
    }

    fn tokenizer(&self) -> TokenizerInfo {
        let tokenizer = self.file.tokenizer();
        let text = |id: Option<TokenId>| id.map(|id| tokenizer.token_text(id).into_owned());
        TokenizerInfo {
            bos_token: text(tokenizer.bos()),
            eos_token: text(tokenizer.eos()),
            add_bos: tokenizer.add_bos(),
            chat_template: self.file.chat_template().map(|template| template.source().to_owned()),
        }
    }

    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, EngineError> {
        conversation.messages.iter().try_for_each(|message| self.check_words(&message.content))?;
        self.file.encode_conversation(conversation)
    }

    fn encode_infill(&self, before: &str, after: &str) -> Result<Option<Infill>, EngineError> {
        self.check_words(before)?;
        self.check_words(after)?;
        self.file.encode_infill(before, after)
    }

    fn constraint(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, EngineError> {
        self.file.constraint(grammar)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.file.tokenizer().token_bytes(token)
    }

    fn is_control(&self, token: TokenId) -> bool {
        self.file.tokenizer().is_special(token)
    }

    fn is_end(&self, token: TokenId) -> bool {
        self.file.tokenizer().is_end_of_generation(token)
    }

    fn habits(&self) -> Habits {
        self.habits
    }
}
