//! Reads JSON objects strictly: every field has its type, and what is not known or not supported is refused by name.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A string.
    Text,
    /// One of these strings.
    Word(&'static [&'static str]),
    /// A number from here to there.
    Number(f64, f64),
    /// A number above the first and at most the second.
    Above(f64, f64),
    /// A whole number from here to there.
    Whole(u64, u64),
    /// True or false.
    Flag,
    /// An object with any fields.
    Object,
    /// An object with these fields.
    Fields(&'static [Field]),
    /// A list of objects with these fields.
    ListOf(&'static [Field]),
    /// What this JSON schema says.
    Any(&'static str),
}

/// A field that a request may have. The same tables are the source of the OpenAPI document.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it does.
    pub about: &'static str,
    /// It has to be there.
    pub is_needed: bool,
}

/// A field of a table.
pub const fn field(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, about, is_needed: false }
}

/// A field that has to be there.
pub const fn needed(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, about, is_needed: true }
}

/// Fields of OpenAI's interface that would change an answer, and why they cannot be had.
const REFUSED: &[(&str, &str)] = &[
    ("audio", "answers are text"),
    ("function_call", "use tool_choice"),
    ("functions", "use tools"),
    ("prediction", "drafts come from the drafters that draft names"),
    ("reasoning_effort", "use chat_template_kwargs if the model's template knows it"),
    ("verbosity", "say in the messages how long the answer shall be"),
    ("web_search_options", "this server does not search"),
    ("use_beam_search", "texts are drawn one token after the other"),
    ("lora_request", "adapters are not supported"),
];

fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, why)| *why)
}

/// The fields of an object that are not read yet. `null` is the same as absence.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// What comes before a field's name in messages: "" or "stream_options.".
    within: String,
}

impl Fields {
    /// The object in a request's body, checked for fields that are in none of the `tables`.
    pub fn parse(body: &[u8], tables: &[&[Field]]) -> Result<Self, ApiError> {
        let value = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(None, "invalid_json", format!("the body is not JSON: {error}")))?;
        let Value::Object(map) = value else {
            let message = format!("the body is {}, and must be an object", a_kind(&value));
            return Err(ApiError::invalid(None, "invalid_type", message));
        };
        Self::new(map, String::new(), tables)
    }

    fn new(map: Map<String, Value>, within: String, tables: &[&[Field]]) -> Result<Self, ApiError> {
        let known = |name: &str| tables.iter().copied().flatten().any(|field| field.name == name);
        let mut fields = Self { map, within };
        fields.map.retain(|_, value| !value.is_null());
        match fields.map.keys().find(|name| !known(name)) {
            Some(name) if refusal(name).is_some() && fields.within.is_empty() => {
                Err(fields.unsupported(name, refusal(name).unwrap_or_default()))
            }
            Some(name) => {
                let name = format!("{}{}", fields.within, shown(name));
                let message = format!("{name} is not a field that this server knows; leave it out");
                Err(ApiError::invalid(Some(name), "unknown_field", message))
            }
            None => Ok(fields),
        }
    }

    /// The object in a list or field named `within`.
    pub fn of(value: Value, within: &str, table: &[Field]) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Self::new(map, format!("{within}."), &[table]),
            other => Err(wrong_kind(within, &other, "an object")),
        }
    }

    /// The name of a field as messages have it.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.within)
    }

    /// Any value.
    pub fn any(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name)
    }

    /// A string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.map.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_kind(&self.path(name), &other, "a string")),
        }
    }

    /// True or false; false when absent.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        self.flag_or(name, false)
    }

    /// True or false, or what it is when absent.
    pub fn flag_or(&mut self, name: &str, absent: bool) -> Result<bool, ApiError> {
        match self.map.remove(name) {
            None => Ok(absent),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong_kind(&self.path(name), &other, "true or false")),
        }
    }

    /// A number.
    pub fn number(&mut self, name: &str) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.map.remove(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) => Ok(Some(number as f32)),
            None => Err(wrong_kind(&self.path(name), &value, "a number")),
        }
    }

    /// A whole number from 0 on. JSON knows no other kind than "number", so `10.0` is one too.
    pub fn whole(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.map.remove(name) else { return Ok(None) };
        whole(&value).map(Some).ok_or_else(|| wrong_kind(&self.path(name), &value, "a whole number from 0 on"))
    }

    /// A whole number in a range, as a size.
    pub fn size(&mut self, name: &str, least: usize, most: usize) -> Result<Option<usize>, ApiError> {
        let Some(number) = self.whole(name)? else { return Ok(None) };
        match usize::try_from(number).ok().filter(|size| (least..=most).contains(size)) {
            Some(size) => Ok(Some(size)),
            None => {
                let path = self.path(name);
                let message = format!("{path} is {number}, and must be between {least} and {most}");
                Err(ApiError::invalid(Some(path), "out_of_range", message))
            }
        }
    }

    /// A list.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.map.remove(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(wrong_kind(&self.path(name), &other, "a list")),
        }
    }

    /// An object with the fields of `table`.
    pub fn object(&mut self, name: &str, table: &[Field]) -> Result<Option<Self>, ApiError> {
        let path = self.path(name);
        self.map.remove(name).map(|value| Self::of(value, &path, table)).transpose()
    }

    /// An object with any fields.
    pub fn free_object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        match self.map.remove(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(wrong_kind(&self.path(name), &other, "an object")),
        }
    }

    /// A field that does nothing here unless it asks for something.
    pub fn only(&mut self, name: &str, harmless: &[Value], why: &str) -> Result<(), ApiError> {
        match self.map.remove(name) {
            Some(value) if !harmless.contains(&value) => Err(self.unsupported(name, why)),
            _ => Ok(()),
        }
    }

    /// The refusal of a field.
    pub fn unsupported(&self, name: &str, why: &str) -> ApiError {
        let path = self.path(name);
        let message = format!("{path} is not supported: {why}");
        ApiError::invalid(Some(path), "unsupported", message)
    }

    /// The refusal of a value.
    pub fn wrong(&self, name: &str, why: impl std::fmt::Display) -> ApiError {
        let path = self.path(name);
        let message = format!("{path} {why}");
        ApiError::invalid(Some(path), "invalid_value", message)
    }

    /// A field that has to be there.
    pub fn required<V>(&self, name: &str, value: Option<V>) -> Result<V, ApiError> {
        value.ok_or_else(|| {
            let path = self.path(name);
            ApiError::invalid(Some(path.clone()), "missing_field", format!("{path} is missing"))
        })
    }

    /// Whether every field was read: what is in a table shall not be forgotten by the code.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

/// The largest whole number up to which doubles have all of them.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number, however it is written.
pub fn whole(value: &Value) -> Option<u64> {
    let exact = |x: f64| ((0.0..=MAX_EXACT).contains(&x) && x.trunc() == x).then_some(x as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(exact))
}

/// The refusal of a value of the wrong type.
pub fn wrong_kind(path: &str, value: &Value, wanted: &str) -> ApiError {
    let found = match value {
        Value::Number(number) => number.to_string(),
        other => a_kind(other).to_owned(),
    };
    ApiError::invalid(Some(path.to_owned()), "invalid_type", format!("{path} is {found}, and must be {wanted}"))
}

fn a_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A stranger's name, fit to be repeated.
fn shown(name: &str) -> String {
    name.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
