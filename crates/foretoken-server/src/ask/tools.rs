//! Tools that a model may call, in the form that Qwen and Hermes models were trained on:
//! `<tool_call>{"name": ..., "arguments": ...}</tool_call>`.

use foretoken_engine::Grammar;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field};
use crate::text::Habits;

/// The fields that [`read`] reads.
pub const FIELDS: &[Field] = &[
    field("tools", Kind::List, "Functions that the model may call"),
    field("tool_choice", Kind::Any, "none, auto, required, or one function by name"),
    field("parallel_tool_calls", Kind::Flag, "Whether an answer that has to call may call more than once"),
];

const TOOL: &[Field] =
    &[field("type", Kind::Text, "Only function"), field("function", Kind::Object, "name, description, parameters")];

const FUNCTION: &[Field] = &[
    field("name", Kind::Text, "Letters, digits, - and _, at most 64"),
    field("description", Kind::Text, "What it does"),
    field("parameters", Kind::Object, "A JSON schema of its arguments"),
    field("strict", Kind::Flag, "With tool_choice required or by name, arguments always fit their schema"),
];

const CHOICE: &[Field] = &[field("type", Kind::Text, "Only function"), field("function", Kind::Object, "name")];
const CHOSEN: &[Field] = &[field("name", Kind::Text, "The function's name")];

const MAX_TOOLS: usize = 128;

/// The tools of a request.
#[derive(Debug, Default)]
pub struct Tools {
    /// As the template is shown them; empty when the model may call none.
    pub shown: Vec<Value>,
    /// The model has to call one.
    pub grammar: Option<Grammar>,
}

enum Choice {
    None,
    Auto,
    Required,
    Named(String),
}

struct Tool {
    name: String,
    parameters: Value,
    shown: Value,
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`.
pub fn read(fields: &mut Fields, habits: Habits) -> Result<Tools, ApiError> {
    let list = fields.list("tools")?;
    let choice = choice(fields)?;
    let parallel = fields.any("parallel_tool_calls");
    if parallel.as_ref().is_some_and(|value| !value.is_boolean()) {
        return Err(fields.wrong("parallel_tool_calls", "must be true or false"));
    }
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        return match choice {
            Some(Choice::Required | Choice::Named(_)) => Err(fields.wrong("tool_choice", "needs tools to choose from")),
            _ => Ok(Tools::default()),
        };
    };
    if list.len() > MAX_TOOLS {
        return Err(fields.wrong("tools", format!("has {} tools, and at most {MAX_TOOLS} are accepted", list.len())));
    }
    let tools: Vec<Tool> =
        list.into_iter().enumerate().map(|(index, value)| tool(value, index)).collect::<Result<_, _>>()?;
    if !habits.calls_tools {
        let why = "this model's chat template has no form for tools that this server knows";
        return Err(fields.unsupported("tools", why));
    }
    let parallel = parallel != Some(json!(false));
    let grammar = match &choice {
        Some(Choice::None) => return Ok(Tools::default()),
        None | Some(Choice::Auto) => None,
        Some(Choice::Required) => Some(calls(&tools.iter().collect::<Vec<_>>(), parallel)),
        Some(Choice::Named(name)) => match tools.iter().find(|tool| tool.name == *name) {
            Some(tool) => Some(calls(&[tool], false)),
            None => return Err(fields.wrong("tool_choice", "names a function that is not among the tools")),
        },
    };
    Ok(Tools { shown: tools.into_iter().map(|tool| tool.shown).collect(), grammar })
}

fn choice(fields: &mut Fields) -> Result<Option<Choice>, ApiError> {
    let Some(value) = fields.any("tool_choice") else { return Ok(None) };
    Ok(Some(match value {
        Value::String(word) if word == "none" => Choice::None,
        Value::String(word) if word == "auto" => Choice::Auto,
        Value::String(word) if word == "required" => Choice::Required,
        Value::Object(_) => {
            let mut choice = Fields::of(value, "tool_choice", CHOICE)?;
            choice.only("type", &[json!("function")], "tools are functions")?;
            let function = choice.object("function", CHOSEN)?;
            let mut function = choice.required("function", function)?;
            let name = function.text("name")?;
            Choice::Named(function.required("name", name)?)
        }
        _ => return Err(fields.wrong("tool_choice", "must be none, auto, required or {\"type\": \"function\", ...}")),
    }))
}

fn tool(value: Value, index: usize) -> Result<Tool, ApiError> {
    let mut tool = Fields::of(value, &format!("tools[{index}]"), TOOL)?;
    let kind = tool.text("type")?;
    if tool.required("type", kind)? != "function" {
        return Err(tool.unsupported("type", "tools are functions"));
    }
    let function = tool.object("function", FUNCTION)?;
    let mut function = tool.required("function", function)?;
    let name = function.text("name")?;
    let name = function.required("name", name)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
        return Err(function.wrong("name", "must have 1 to 64 letters, digits, - and _"));
    }
    let description = function.text("description")?;
    let parameters = function.free_object("parameters")?;
    function.flag("strict")?;
    let parameters = Value::Object(parameters.unwrap_or_else(empty_schema));
    let mut shown = Map::from_iter([("name".to_owned(), json!(name))]);
    shown.extend(description.map(|text| ("description".to_owned(), json!(text))));
    shown.insert("parameters".to_owned(), parameters.clone());
    Ok(Tool { name, parameters, shown: json!({ "type": "function", "function": shown }) })
}

fn empty_schema() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object")), ("properties".to_owned(), json!({}))])
}

/// Texts that call one of these tools, or several after each other.
fn calls(tools: &[&Tool], parallel: bool) -> Grammar {
    let mut lark = String::from("start: call");
    if parallel {
        lark.push_str(" (\"\\n\" call)*");
    }
    lark.push_str("\ncall: \"<tool_call>\\n\" body \"\\n</tool_call>\"\n");
    let names: Vec<String> = (0..tools.len()).map(|index| format!("body_{index}")).collect();
    lark.push_str(&format!("body: {}\n", names.join(" | ")));
    for (name, tool) in names.iter().zip(tools) {
        let mut schema = json!({
            "type": "object",
            "properties": { "name": { "const": tool.name }, "arguments": tool.parameters },
            "required": ["name", "arguments"],
            "additionalProperties": false,
            "x-guidance": { "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " },
        });
        // References inside the parameters are to their own definitions.
        for shared in ["$defs", "definitions"] {
            if let Some(definitions) = tool.parameters.get(shared) {
                schema[shared] = definitions.clone();
            }
        }
        lark.push_str(&format!("{name}: %json {schema}\n"));
    }
    Grammar::Lark(lark)
}
