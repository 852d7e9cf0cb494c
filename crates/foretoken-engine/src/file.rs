//! A model file before its weights are loaded: enough to turn text into tokens and to find out what is wrong with either.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use foretoken_decode::TokenId;
use foretoken_decode::constraint::Constraint;
use foretoken_formats::chat::{ChatTemplate, Conversation, Message};
use foretoken_formats::gguf::Gguf;
use foretoken_formats::tokenizer::{Special, Tokenizer};
use foretoken_model::{Hyper, KvType, Weights};

use crate::error::EngineError;
use crate::footprint::Footprint;
use crate::grammar::{Compiler, Grammar};
use crate::infill::{self, Infill};
use crate::load::DEFAULT_CONTEXT;

/// An open model file with its tokenizer and chat template.
pub struct ModelFile {
    gguf: Gguf,
    hyper: Hyper,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<ChatTemplate>,
    /// Made for the first grammar.
    compiler: OnceLock<Compiler>,
}

impl ModelFile {
    /// Opens a GGUF file and reads everything but the weights.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// The same for a file whose header was read; it may be in memory.
    pub fn from_gguf(gguf: Gguf) -> Result<Self, EngineError> {
        // Before the tokenizer: a model of another architecture most often has another kind of vocabulary too.
        let hyper = foretoken_model::check(&gguf)?;
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf)?);
        let chat_template = ChatTemplate::from_gguf(&gguf, &tokenizer)?;
        Ok(Self { gguf, hyper, tokenizer, chat_template, compiler: OnceLock::new() })
    }

    /// Where it is; `None` for a file in memory.
    pub fn path(&self) -> Option<&Path> {
        self.gguf.path()
    }

    /// The model's name, from its metadata or its file's name.
    pub fn name(&self) -> String {
        let from_file = || match self.path() {
            Some(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            None => "a model in memory".into(),
        };
        self.gguf.summary().name.unwrap_or_else(from_file)
    }

    /// Metadata and tensors.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The model's sizes.
    pub fn hyper(&self) -> &Hyper {
        &self.hyper
    }

    /// What the model weighs when it is kept so.
    pub fn footprint(&self, weights: Weights, kv_type: KvType) -> Footprint {
        Footprint::of(&self.gguf, &self.hyper, weights, kv_type)
    }

    /// The model's vocabulary.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model's chat template, if it has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }

    /// The context size for what was asked; `None`: the model's own limit, up to [`DEFAULT_CONTEXT`].
    pub fn context_size(&self, wanted: Option<usize>) -> Result<usize, EngineError> {
        context_size(&self.hyper, wanted)
    }

    /// The tokens of a prompt that is continued as it stands.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<TokenId>, EngineError> {
        Ok(self.tokenizer.encode_prompt(text, special)?)
    }

    /// A constraint for requests to this model, or what is wrong with the grammar and where. The first takes a fraction of
    /// a second more.
    pub fn constraint(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, EngineError> {
        let compiler = match self.compiler.get() {
            Some(compiler) => compiler,
            None => {
                let made = Compiler::new(&self.tokenizer)?;
                self.compiler.get_or_init(|| made)
            }
        };
        compiler.compile(grammar)
    }

    /// The tokens of a conversation in the model's chat template, up to where the assistant's answer begins. Special
    /// tokens inside the messages are text unless they are to be parsed.
    pub fn encode_chat(&self, messages: &[Message], special: Special) -> Result<Vec<TokenId>, EngineError> {
        match special {
            Special::AsText => self.encode_conversation(&Conversation::new(messages)),
            Special::Parse => {
                let text = self.template()?.render_at(messages, true, today())?;
                Ok(self.tokenizer.encode(&text, Special::Parse)?)
            }
        }
    }

    /// The same for messages with tools and variables; special tokens inside are text.
    pub fn encode_conversation(&self, conversation: &Conversation) -> Result<Vec<TokenId>, EngineError> {
        Ok(self.template()?.encode_conversation(&self.tokenizer, conversation, true, today())?)
    }

    /// The tokens that ask for what stands between two texts, and those that end it besides the model's own; `None` when
    /// the model has no tokens for that.
    pub fn encode_infill(&self, before: &str, after: &str) -> Result<Option<Infill>, EngineError> {
        infill::encode(&self.tokenizer, before, after)
    }

    fn template(&self) -> Result<&ChatTemplate, EngineError> {
        self.chat_template().ok_or_else(|| EngineError::NoChatTemplate { model: self.name() })
    }
}

/// Some templates tell the model what day it is: seconds since 1970.
fn today() -> Option<i64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs() as i64)
}

/// The context size for what was asked, checked against the model's own.
pub(crate) fn context_size(hyper: &Hyper, wanted: Option<usize>) -> Result<usize, EngineError> {
    let own = hyper.context;
    let context = wanted.unwrap_or(own.min(DEFAULT_CONTEXT));
    if !(2..=own).contains(&context) {
        let wanted = format!("2 to {own}, what this model was made for");
        return Err(EngineError::option("the context size", context, &wanted));
    }
    Ok(context)
}
