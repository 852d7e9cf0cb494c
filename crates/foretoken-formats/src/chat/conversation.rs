//! What a chat template is shown: messages, tools, and variables of its own.

use minijinja::Value as Jinja;
use minijinja::value::Serde;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::guard::Guard;
use crate::tokenizer::Tokenizer;

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: "system", "user", "assistant", or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
    /// What else the template may know about: `tool_calls`, `tool_call_id`, `name`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Message {
    /// A turn of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), more: Map::new() }
    }

    /// The turn as templates see it.
    pub(super) fn value(&self) -> Jinja {
        let own = [("role", Jinja::from(self.role.as_str())), ("content", Jinja::from(self.content.as_str()))];
        let more = self.more.iter().map(|(name, value)| (name.as_str(), jinja(value)));
        Jinja::from_pairs(own.into_iter().chain(more))
    }

    fn guarded(&self, guard: &mut Guard, tokenizer: &Tokenizer) -> Option<Self> {
        // What a model has written goes back to it as it came.
        let all_kinds = self.role != "assistant";
        let role = guard.hide(tokenizer, &self.role, true)?;
        let content = guard.hide(tokenizer, &self.content, all_kinds)?;
        Some(Self { role, content, more: guarded_map(&self.more, guard, tokenizer, all_kinds)? })
    }
}

/// Everything that a template is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The turns so far.
    pub messages: Vec<Message>,
    /// Tools that the model may call, as OpenAI describes them.
    pub tools: Vec<Value>,
    /// Variables that some templates ask for, such as `enable_thinking`.
    pub variables: Map<String, Value>,
}

impl Conversation {
    /// These turns and nothing else.
    pub fn new(messages: &[Message]) -> Self {
        Self { messages: messages.to_vec(), ..Self::default() }
    }

    /// Every string in it, names of fields included.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut texts = Vec::new();
        for message in &self.messages {
            texts.extend([message.role.as_str(), message.content.as_str()]);
            map_texts(&message.more, &mut texts);
        }
        self.tools.iter().for_each(|tool| value_texts(tool, &mut texts));
        map_texts(&self.variables, &mut texts);
        texts
    }

    /// The same with every special token inside broken up; `None` when `guard` has no characters left for it.
    pub(super) fn guarded(&self, guard: &mut Guard, tokenizer: &Tokenizer) -> Option<Self> {
        let messages = self.messages.iter().map(|message| message.guarded(guard, tokenizer)).collect::<Option<_>>()?;
        let tools = self.tools.iter().map(|tool| guarded_value(tool, guard, tokenizer, true)).collect::<Option<_>>()?;
        Some(Self { messages, tools, variables: guarded_map(&self.variables, guard, tokenizer, true)? })
    }
}

/// JSON as templates see it.
pub(super) fn jinja(value: impl Serialize) -> Jinja {
    Jinja::from(Serde(value))
}

fn map_texts<'v>(map: &'v Map<String, Value>, texts: &mut Vec<&'v str>) {
    for (name, value) in map {
        texts.push(name);
        value_texts(value, texts);
    }
}

fn value_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(list) => list.iter().for_each(|value| value_texts(value, texts)),
        Value::Object(map) => map_texts(map, texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn guarded_map(
    map: &Map<String, Value>,
    guard: &mut Guard,
    tokenizer: &Tokenizer,
    all_kinds: bool,
) -> Option<Map<String, Value>> {
    let mut guarded = Map::new();
    for (name, value) in map {
        guarded.insert(guard.hide(tokenizer, name, true)?, guarded_value(value, guard, tokenizer, all_kinds)?);
    }
    Some(guarded)
}

fn guarded_value(value: &Value, guard: &mut Guard, tokenizer: &Tokenizer, all_kinds: bool) -> Option<Value> {
    Some(match value {
        Value::String(text) => Value::String(guard.hide(tokenizer, text, all_kinds)?),
        Value::Array(list) => {
            let list = list.iter().map(|value| guarded_value(value, guard, tokenizer, all_kinds));
            Value::Array(list.collect::<Option<_>>()?)
        }
        Value::Object(map) => Value::Object(guarded_map(map, guard, tokenizer, all_kinds)?),
        other => other.clone(),
    })
}
