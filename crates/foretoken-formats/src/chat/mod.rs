//! The model file's own chat template: messages to the text, and to the token ids, that the model was trained on.
//!
//! Templates are Jinja programs from an untrusted file. They run on fuel, which bounds time and memory, and see nothing
//! but the messages.

mod conversation;
mod functions;
mod guard;

use std::io::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Value, context};

use crate::gguf::Gguf;
use crate::tokenizer::{Special, Tokenizer};
use crate::{FormatError, TokenId, deep, printable};
pub use conversation::{Conversation, Message};
use guard::Guard;

const KEY: &str = "tokenizer.chat_template";
const NAME: &str = "chat template";
/// The longest templates in use have some 20 kB.
const MAX_TEMPLATE_BYTES: usize = 64 << 10;
/// Most bytes of one tag, which templates in use keep below 2 kB: the compiler's time grows with the square of what is chained
/// in it.
const MAX_TAG_BYTES: usize = 8 << 10;
/// Instructions, or 64 bytes of data each: for any template a hundred messages over, and stopped within a second.
const FUEL: u64 = 1_000_000;
/// More for long messages, which a template may cut and copy several times.
const FUEL_PER_BYTE: u64 = 1;
const MAX_EXTRA_FUEL: u64 = 1_000_000;
/// For as deep as a template of that size may be nested, and as deep as it can nest values on its fuel.
const STACK_BYTES: usize = 512 << 20;
/// What a template may add to the messages.
const MAX_EXTRA_BYTES: usize = 4 << 20;

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// The template of a model file; `None` when it has none. Errors when the template is not valid Jinja.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Option<Self>, FormatError> {
        if !gguf.metadata().contains(KEY) {
            return Ok(None);
        }
        let text = |id: Option<TokenId>| id.map_or(String::new(), |id| tokenizer.token_text(id).into_owned());
        let source = gguf.metadata().get_str(KEY);
        let template = source.and_then(|source| Self::new(source, &text(tokenizer.bos()), &text(tokenizer.eos())));
        template.map(Some).map_err(|error| gguf.about(error))
    }

    /// Compiles a template; `bos` and `eos` are what it sees as `bos_token` and `eos_token`.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, FormatError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            let reason = format!("it has {} bytes; at most {MAX_TEMPLATE_BYTES} are accepted", source.len());
            return Err(FormatError::Template { reason });
        }
        let longest = longest_tag(source);
        if longest > MAX_TAG_BYTES {
            let reason = format!("it has a tag of {longest} bytes; at most {MAX_TAG_BYTES} are accepted");
            return Err(FormatError::Template { reason });
        }
        let mut environment = Environment::new();
        // As Hugging Face's transformers sets Jinja up.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(describe)?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_debug(false);
        functions::add(&mut environment);
        let compiled = functions::without_generation_tags(source);
        let adding = || environment.add_template_owned(NAME, compiled.into_owned());
        deep::run(STACK_BYTES, adding).map_err(no_thread)?.map_err(describe)?;
        Ok(Self { environment, source: source.to_owned(), bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The conversation as one text; with `add_generation_prompt` it ends where the assistant's answer begins.
    ///
    /// Errors when the template refuses the messages (its own words are in the error), fails, or does not come to an end.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, FormatError> {
        self.render_at(messages, add_generation_prompt, None)
    }

    /// The same for a template that asks for the date: `now` is seconds since 1970-01-01 on the reader's clock (local
    /// time, if that is what it shall say). Without it, asking is an error.
    pub fn render_at(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        now: Option<i64>,
    ) -> Result<String, FormatError> {
        self.render_conversation(&Conversation::new(messages), add_generation_prompt, now)
    }

    /// The same with tools and variables.
    pub fn render_conversation(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
        now: Option<i64>,
    ) -> Result<String, FormatError> {
        let content_bytes: usize = conversation.texts().iter().map(|text| text.len()).sum();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + MAX_EXTRA_FUEL.min(FUEL_PER_BYTE * content_bytes as u64)));
        environment.add_function("strftime_now", functions::strftime_now(now));
        let template = environment.get_template(NAME).map_err(describe)?;
        let own = context! {
            messages => conversation.messages.iter().map(Message::value).collect::<Value>(),
            add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        // Templates ask whether there are tools by asking for the list.
        let tools = match conversation.tools.is_empty() {
            true => context! {},
            false => context! { tools => conversation::jinja(&conversation.tools) },
        };
        let context = context! { ..own, ..tools, ..conversation::jinja(&conversation.variables) };
        let mut out = Limited { bytes: Vec::new(), limit: 4 * content_bytes + MAX_EXTRA_BYTES };
        let limit = out.limit;
        // What the template leaves behind is dropped there too.
        let rendering = || template.render_captured_to(context, &mut out).map(drop);
        deep::run(STACK_BYTES, rendering).map_err(no_thread)?.map_err(|error| match error.kind() {
            minijinja::ErrorKind::WriteFailure => {
                FormatError::Template { reason: format!("its output is longer than {limit} bytes") }
            }
            _ => describe(error),
        })?;
        String::from_utf8(out.bytes).map_err(|_| FormatError::NotUtf8 { what: "the chat template's output".to_owned() })
    }

    /// The conversation as token ids. The template's special tokens become tokens; those that somebody wrote into a
    /// message stay text, so that nobody can end a turn or speak for another role by typing.
    ///
    /// In the assistant's messages only control tokens are held back: what a model has written, such as `<tool_call>`
    /// (user-defined), goes back to it as it came.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        add_generation_prompt: bool,
        now: Option<i64>,
    ) -> Result<Vec<TokenId>, FormatError> {
        self.encode_conversation(tokenizer, &Conversation::new(messages), add_generation_prompt, now)
    }

    /// The same with tools and variables, in which special tokens are text too.
    pub fn encode_conversation(
        &self,
        tokenizer: &Tokenizer,
        conversation: &Conversation,
        add_generation_prompt: bool,
        now: Option<i64>,
    ) -> Result<Vec<TokenId>, FormatError> {
        let mut guard = Guard::new(conversation.texts().into_iter().chain([self.source(), &self.bos, &self.eos]));
        let guarded = conversation.guarded(&mut guard, tokenizer);
        let guarded = guarded.ok_or_else(|| FormatError::Template {
            reason: "the messages use all private characters, which are needed to tell typed text from special tokens"
                .to_owned(),
        })?;
        let text = self.render_conversation(&guarded, add_generation_prompt, now)?;
        if guard.is_idle() {
            return tokenizer.encode(&text, Special::Parse);
        }
        let mut ids = Vec::new();
        for (plain, token) in tokenizer.split_special(&text) {
            ids.extend(tokenizer.encode(&guard.show(plain), Special::AsText)?);
            ids.extend(token);
        }
        Ok(ids)
    }
}

/// Bytes of the longest `{{ ... }}` or `{% ... %}`: to the last end before another begins, since texts and maps inside may
/// hold what looks like an end.
fn longest_tag(source: &str) -> usize {
    let begins = |text: &str| {
        let mut braces = text.match_indices('{').map(|(at, _)| at);
        braces.find(|at| text[at + 1..].starts_with(['{', '%']))
    };
    let (mut longest, mut rest) = (0, source);
    while let Some(at) = begins(rest) {
        rest = &rest[at + 2..];
        let tag = &rest[..begins(rest).unwrap_or(rest.len())];
        longest = longest.max(tag.rfind('}').unwrap_or(tag.len()));
    }
    longest
}

/// Output that stops a template which does not.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.limit - self.bytes.len() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn no_thread(error: std::io::Error) -> FormatError {
    FormatError::Template { reason: format!("there is no thread to run it: {error}") }
}

fn describe(error: minijinja::Error) -> FormatError {
    use minijinja::ErrorKind;
    if let Some(refusal) = functions::refusal(&error) {
        return FormatError::Template { reason: format!("it refuses these messages: {}", printable(&refusal)) };
    }
    let mut reason = match error.line() {
        Some(line) => format!("line {line}: {}", error.kind()),
        None => error.kind().to_string(),
    };
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => reason.push_str("; it takes too long for these messages"),
        (_, Some(detail)) => reason = format!("{reason}: {detail}"),
        (_, None) => {}
    }
    // The detail may quote the template.
    FormatError::Template { reason: printable(&reason) }
}

#[cfg(test)]
mod tests;
