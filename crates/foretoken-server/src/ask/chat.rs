//! `/v1/chat/completions`: a conversation in the model's own chat template.

use foretoken_engine::{Grammar, Request, RequestError};
use foretoken_formats::chat::{Conversation, Message};
use serde_json::{Map, Value, json};

use super::completion::MAX_LOGPROBS;
use super::settings::{self, Settings};
use super::{Ask, structure, tools};
use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field, needed, wrong_kind};
use crate::reply::{Kind as ReplyKind, Shape};
use crate::speech::{CallForm, Form, Start};

/// The fields beside those of [`settings`], [`structure`] and [`tools`].
pub const FIELDS: &[Field] = &[
    needed("messages", Kind::ListOf(MESSAGE), "The turns so far; contents are texts or lists of text parts"),
    field("max_tokens", Kind::Whole(1, u64::MAX), "The older name of max_completion_tokens"),
    field(
        "max_completion_tokens",
        Kind::Whole(1, u64::MAX),
        "Most tokens to write, by default as many as there is room for",
    ),
    field("logprobs", Kind::Flag, "Log-probabilities of each token"),
    field(
        "top_logprobs",
        Kind::Whole(0, MAX_LOGPROBS as u64),
        "With logprobs: of this many of the likeliest too, 0 to 20",
    ),
    field("modalities", Kind::Any(ONLY_TEXT), "Only [\"text\"]"),
    field("chat_template_kwargs", Kind::Object, "Variables for the model's template, such as enable_thinking"),
];

/// The fields of a message.
pub const MESSAGE: &[Field] = &[
    needed(
        "role",
        Kind::Word(&["system", "developer", "user", "assistant", "tool"]),
        "system, developer, user, assistant or tool",
    ),
    field("content", Kind::Any(CONTENT), "A text, or a list of text parts"),
    field("name", Kind::Text, "Who speaks, for templates that know it"),
    field("tool_calls", Kind::ListOf(CALL), "An assistant's calls"),
    field("tool_call_id", Kind::Text, "The call that a tool's message answers"),
    field("refusal", Kind::Any(ONLY_NULL), "Only null"),
    field("reasoning_content", Kind::Text, "What an assistant thought, for templates that know it"),
];

const PART: &[Field] = &[field("type", Kind::Word(&["text"]), "Only text"), needed("text", Kind::Text, "The text")];

const CALL: &[Field] = &[
    field("id", Kind::Text, "The call's id"),
    field("type", Kind::Word(&["function"]), "Only function"),
    needed("function", Kind::Fields(CALLED), "name and arguments"),
    field("index", Kind::Whole(0, u64::MAX), "Has no effect"),
];
const CALLED: &[Field] =
    &[needed("name", Kind::Text, "The function"), field("arguments", Kind::Text, "Its arguments as JSON, in a string")];

const CONTENT: &str = r#"{"anyOf": [{"type": "null"}, {"type": "string"}, {"type": "array", "items": {"type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}}, "required": ["text"],
    "additionalProperties": false}}]}"#;
const ONLY_TEXT: &str = r#"{"enum": [["text"], null]}"#;
const ONLY_NULL: &str = r#"{"type": "null"}"#;

/// What a template calls by these names is not the caller's to set.
const RESERVED: [&str; 5] = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

/// Reads a request for the caller of this scope.
pub fn read(body: &[u8], app: &App, scope: u64) -> Result<Ask, ApiError> {
    let mut fields = Fields::parse(body, &[settings::FIELDS, structure::FIELDS, tools::FIELDS, FIELDS])?;
    let settings = Settings::read(&mut fields, app)?;
    let grammar = structure::read(&mut fields)?;
    let tools = tools::read(&mut fields, app.text.habits())?;
    let messages = fields.list("messages")?;
    let messages = fields.required("messages", messages)?;
    let max_tokens = max_tokens(&mut fields)?;
    let logprobs = logprobs(&mut fields)?;
    fields.only("modalities", &[json!(["text"])], "answers are text")?;
    let variables = fields.free_object("chat_template_kwargs")?.unwrap_or_default();
    debug_assert!(fields.is_empty(), "{fields:?} was not read");
    if let Some(name) = variables.keys().find(|name| RESERVED.contains(&name.as_str())) {
        return Err(fields.wrong("chat_template_kwargs", format!("names {name}, which has a field of its own")));
    }
    let form = Form { calls: tools.form, names: tools.names.into(), thinks: app.text.habits().thinks };
    let conversation = Conversation { tools: tools.shown, variables, ..self::conversation(messages)? };
    let mut prompt = app.text.encode_chat(&conversation).map_err(|error| ApiError::engine(error, "messages"))?;
    let mut start = Start::Content;
    if form.thinks && app.ends_with_think(&prompt) {
        start = Start::Thought;
    } else if let (Some(CallForm::Listed), Some(_)) = (form.calls, &tools.grammar) {
        // The mark is a control token, which no grammar can ask for: the call is begun instead.
        let mark = CallForm::Listed.opening().unwrap_or_default();
        prompt.extend(app.text.encode_part(mark, true).map_err(|error| ApiError::engine(error, "tools"))?);
        start = Start::Call;
    }
    let limit = app.text.context_size();
    if prompt.len() >= limit {
        let error = ApiError::from(RequestError::PromptTooLong { len: prompt.len(), limit });
        return Err(ApiError { param: Some("messages".into()), ..error });
    }
    let structure = match (tools.grammar, grammar) {
        (Some(_), Some((_, field))) => return Err(fields.wrong(field, "cannot be used together with tool_choice")),
        (Some(grammar), None) => Some((grammar, "tools")),
        (None, grammar) => grammar,
    };
    let structure = structure
        .map(|(grammar, field)| (if start == Start::Thought { after_thought(grammar) } else { grammar }, field));
    let request = |choice| Request { max_tokens, logprobs, ..settings.request(prompt.clone(), choice, scope) };
    let stream = settings.stream;
    let kind = ReplyKind::Chat { form, start, logprobs };
    let requests = (0..settings.n).map(request).collect();
    let shape = Shape::new(kind, &settings, vec![prompt.len()]);
    Ok(Ask { requests, structure, scoring: Vec::new(), shape, stream })
}

/// Structure binds what follows the thought.
fn after_thought(grammar: Grammar) -> Grammar {
    let thought = "start: thought answer\nthought[suffix=\"</think>\"]: /(.|\\n)*/\n";
    Grammar::Lark(match grammar {
        Grammar::JsonSchema(schema) => format!("{thought}answer: /\\s*/ json\njson: %json {schema}\n"),
        Grammar::JsonObject => format!("{thought}answer: /\\s*/ json\njson: %json {{\"type\": \"object\"}}\n"),
        Grammar::Regex(regex) => format!("{thought}answer: /{}/\n", between_slashes(&regex)),
        Grammar::Lark(lark) => format!("{thought}answer: /\\s*/ wanted\nwanted: %lark {{\n{lark}\n}}\n"),
    })
}

/// A regular expression as Lark has them: a slash would end it, and so would a line's end.
fn between_slashes(regex: &str) -> String {
    let mut text = String::with_capacity(regex.len());
    let mut escaped = false;
    for c in regex.chars() {
        match c {
            '/' if !escaped => text.push_str("\\/"),
            '\n' if escaped => text.push('n'),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    text
}

fn max_tokens(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let old = fields.size("max_tokens", 1, usize::MAX)?;
    let new = fields.size("max_completion_tokens", 1, usize::MAX)?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            Err(fields.wrong("max_tokens", format!("is {old}, and max_completion_tokens is {new}: give one of them")))
        }
        _ => Ok(new.or(old)),
    }
}

fn logprobs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.flag("logprobs")?;
    match fields.size("top_logprobs", 0, MAX_LOGPROBS)? {
        Some(_) if !wanted => Err(fields.wrong("top_logprobs", "needs logprobs to be true")),
        top => Ok(wanted.then_some(top.unwrap_or(0))),
    }
}

/// The turns of a conversation.
pub fn conversation(messages: Vec<Value>) -> Result<Conversation, ApiError> {
    if messages.is_empty() {
        let message = "messages is empty, and must have at least one message".to_owned();
        return Err(ApiError::invalid(Some("messages".into()), "invalid_value", message));
    }
    let message = |(index, value)| message(value, &format!("messages[{index}]"));
    let messages = messages.into_iter().enumerate().map(message).collect::<Result<_, _>>()?;
    Ok(Conversation { messages, ..Conversation::default() })
}

fn message(value: Value, path: &str) -> Result<Message, ApiError> {
    let mut fields = Fields::of(value, path, MESSAGE)?;
    let role = fields.text("role")?;
    let role = match fields.required("role", role)?.as_str() {
        "system" | "developer" => "system",
        "user" => "user",
        "assistant" => "assistant",
        "tool" => "tool",
        "function" => return Err(fields.unsupported("role", "function is the old name of tool")),
        _ => return Err(fields.wrong("role", "must be system, developer, user, assistant or tool")),
    };
    fields.only("refusal", &[], "this server does not refuse")?;
    let calls = fields.list("tool_calls")?;
    let mut more = Map::new();
    for name in ["name", "tool_call_id", "reasoning_content"] {
        more.extend(fields.text(name)?.map(|text| (name.to_owned(), json!(text))));
    }
    let content = content(&mut fields, calls.is_some())?;
    debug_assert!(fields.is_empty(), "{fields:?} was not read");
    if let Some(calls) = calls {
        if role != "assistant" {
            return Err(fields.wrong("tool_calls", "is for messages of the assistant"));
        }
        let call = |(index, value)| call(value, &format!("{path}.tool_calls[{index}]"));
        more.insert("tool_calls".into(), calls.into_iter().enumerate().map(call).collect::<Result<_, _>>()?);
    }
    Ok(Message { role: role.to_owned(), content, more })
}

fn content(fields: &mut Fields, may_be_absent: bool) -> Result<String, ApiError> {
    let path = fields.path("content");
    match fields.any("content") {
        None if may_be_absent => Ok(String::new()),
        None => fields.required("content", None),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => {
            let part = |(index, value)| part(value, &format!("{path}[{index}]"));
            parts.into_iter().enumerate().map(part).collect()
        }
        Some(other) => Err(wrong_kind(&path, &other, "a string or a list of parts")),
    }
}

fn part(value: Value, path: &str) -> Result<String, ApiError> {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or("text");
    if kind != "text" {
        let message = format!("{path} is of the type {kind:.40?}, which is not supported: this model reads text");
        return Err(ApiError::invalid(Some(format!("{path}.type")), "unsupported", message));
    }
    let mut fields = Fields::of(value, path, PART)?;
    fields.text("type")?;
    let text = fields.text("text")?;
    fields.required("text", text)
}

/// A call as templates see it: its arguments as values and not as a text.
fn call(value: Value, path: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of(value, path, CALL)?;
    let id = fields.text("id")?;
    fields.whole("index")?;
    fields.only("type", &[json!("function")], "tools are functions")?;
    let function = fields.object("function", CALLED)?;
    let mut function = fields.required("function", function)?;
    let name = function.text("name")?;
    let name = function.required("name", name)?;
    let text = function.text("arguments")?.unwrap_or_default();
    let arguments: Value = match text.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).map_err(|_| function.wrong("arguments", "is not JSON"))?,
    };
    let mut call = json!({ "type": "function", "function": { "name": name, "arguments": arguments } });
    if let Some(id) = id {
        call["id"] = json!(id);
    }
    Ok(call)
}

#[cfg(test)]
mod tests {
    use foretoken_engine::ModelFile;
    use foretoken_testkit::models;

    use super::*;

    #[test]
    fn every_structure_may_follow_a_thought() {
        let Some(path) = models::find("smollm2-135m") else { return };
        let file = ModelFile::open(&path).expect("a sound model file");
        let schema =
            r##"{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}}"##;
        for grammar in [
            Grammar::JsonSchema(schema.into()),
            Grammar::JsonObject,
            Grammar::Regex("(a/b|c)+".into()),
            Grammar::Regex("(a\\/b|c|\\\\|\n)+".into()),
            Grammar::Lark("restart: \"b\"\nstart : \"a\" NAME\nNAME: /[a-z]+/".into()),
        ] {
            let shown = format!("{grammar:?}");
            let mut constraint = file.constraint(&after_thought(grammar)).unwrap_or_else(|e| panic!("{shown}: {e}"));
            let answer = match shown.as_str() {
                shown if shown.starts_with("Json") => "{}",
                shown if shown.starts_with("Regex") => "a/bc",
                _ => "axyz",
            };
            let text = format!("Hm, a \"thought\".\n</think>{answer}");
            for &token in &file.tokenizer().encode(&text, foretoken_formats::tokenizer::Special::AsText).unwrap() {
                assert!(constraint.allows(token), "{shown}: {token} of {text:?}");
                constraint.advance(token);
            }
            assert!(constraint.may_end(), "{shown}");
        }
    }
}
