//! Tools that a model may call, and grammars that leave it nothing but to call one.

use foretoken_engine::Grammar;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field, needed};
use crate::speech::CallForm;
use crate::text::Habits;

/// The fields that [`read`] reads.
pub const FIELDS: &[Field] = &[
    field("tools", Kind::ListOf(TOOL), "Functions that the model may call"),
    field("tool_choice", Kind::Any(TOOL_CHOICE), "none, auto, required, or one function by name"),
    field("parallel_tool_calls", Kind::Flag, "Whether an answer that has to call may call more than once"),
];

const TOOL: &[Field] = &[
    needed("type", Kind::Word(&["function"]), "Only function"),
    needed("function", Kind::Fields(FUNCTION), "name, description, parameters"),
];

const FUNCTION: &[Field] = &[
    needed("name", Kind::Any(NAME), "Letters, digits, - and _, at most 64"),
    field("description", Kind::Text, "What it does"),
    field("parameters", Kind::Object, "A JSON schema of its arguments"),
    field("strict", Kind::Flag, "With tool_choice required or by name, arguments always fit their schema"),
];

const CHOICE: &[Field] =
    &[field("type", Kind::Word(&["function"]), "Only function"), needed("function", Kind::Fields(CHOSEN), "name")];
const CHOSEN: &[Field] = &[needed("name", Kind::Text, "The function's name")];

const NAME: &str = r#"{"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}"#;
const TOOL_CHOICE: &str = r#"{"anyOf": [{"enum": ["none", "auto", "required", null]}, {"type": "object",
    "properties": {"type": {"const": "function"}, "function": {"type": "object", "properties": {"name": {"type": "string"}},
    "required": ["name"], "additionalProperties": false}}, "required": ["function"], "additionalProperties": false}]}"#;

const MAX_TOOLS: usize = 128;

/// The tools of a request.
#[derive(Debug, Default)]
pub struct Tools {
    /// How they are called, when there are any.
    pub form: Option<CallForm>,
    /// The functions' names.
    pub names: Vec<String>,
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
    let parallel = fields.flag_or("parallel_tool_calls", true)?;
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
    let Some(form) = habits.calls else {
        let why = "this model's chat template has no form for tools that this server knows";
        return Err(fields.unsupported("tools", why));
    };
    let grammar = match &choice {
        Some(Choice::None) => return Ok(Tools::default()),
        None | Some(Choice::Auto) => None,
        Some(Choice::Required | Choice::Named(_)) if form == CallForm::Marked => {
            return Err(fields.unsupported("tool_choice", "this model cannot be made to call; use auto"));
        }
        Some(Choice::Required) => Some(calls(form, &tools.iter().collect::<Vec<_>>(), parallel)),
        Some(Choice::Named(name)) => match tools.iter().find(|tool| tool.name == *name) {
            Some(tool) => Some(calls(form, &[tool], false)),
            None => return Err(fields.wrong("tool_choice", "names a function that is not among the tools")),
        },
    };
    let (names, shown) = tools.into_iter().map(|tool| (tool.name, tool.shown)).unzip();
    Ok(Tools { form: Some(form), names, shown, grammar })
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
fn calls(form: CallForm, tools: &[&Tool], parallel: bool) -> Grammar {
    let mut lark = String::from(match (form, parallel) {
        (CallForm::Tagged, false) => "start: call\n",
        (CallForm::Tagged, true) => "start: call (\"\\n\" call)*\n",
        // These models' templates know one call at a time.
        (CallForm::Bare | CallForm::Marked, _) => "start: body\n",
        (CallForm::Listed, false) => "start: \"[\" body \"]\"\n",
        (CallForm::Listed, true) => "start: \"[\" body (\", \" body)* \"]\"\n",
    });
    if form == CallForm::Tagged {
        lark.push_str("call: \"<tool_call>\\n\" body \"\\n</tool_call>\"\n");
    }
    let arguments = if form == CallForm::Bare { "parameters" } else { "arguments" };
    let names: Vec<String> = (0..tools.len()).map(|index| format!("body_{index}")).collect();
    lark.push_str(&format!("body: {}\n", names.join(" | ")));
    for (name, tool) in names.iter().zip(tools) {
        let mut schema = json!({
            "type": "object",
            "properties": { "name": { "const": tool.name }, arguments: tool.parameters },
            "required": ["name", arguments],
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

#[cfg(test)]
mod tests {
    use foretoken_engine::ModelFile;
    use foretoken_formats::tokenizer::Special;
    use foretoken_testkit::models;

    use super::*;
    use crate::speech::{Form, Part, Speech, Start};

    #[test]
    fn what_a_grammar_leaves_is_read_as_calls() {
        let Some(path) = models::find("smollm2-135m") else { return };
        let file = ModelFile::open(&path).expect("a sound model file");
        let tool = |name: &str| Tool {
            name: name.into(),
            parameters: json!({ "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] }),
            shown: Value::Null,
        };
        let tools = [tool("f"), tool("g")];
        let f = vec![Part::Call("f".into()), Part::Arguments("{\"x\": 1}".into())];
        let g = vec![Part::Call("g".into()), Part::Arguments("{\"x\": 2}".into())];
        let body =
            |arguments: &str, name: &str, x: u8| format!("{{\"name\": \"{name}\", \"{arguments}\": {{\"x\": {x}}}}}");
        let (one, two) = (body("arguments", "f", 1), body("arguments", "g", 2));
        for (form, start, text, expected) in [
            (
                CallForm::Tagged,
                Start::Content,
                format!("<tool_call>\n{one}\n</tool_call>\n<tool_call>\n{two}\n</tool_call>"),
                [f.clone(), g.clone()].concat(),
            ),
            (CallForm::Bare, Start::Content, body("parameters", "g", 2), g.clone()),
            (CallForm::Listed, Start::Call, format!("[{one}, {two}]"), [f, g].concat()),
        ] {
            let grammar = calls(form, &tools.iter().collect::<Vec<_>>(), true);
            let mut constraint = file.constraint(&grammar).unwrap_or_else(|error| panic!("{form:?}: {error}"));
            for &token in &file.tokenizer().encode(&text, Special::AsText).expect("a text") {
                assert!(constraint.allows(token), "{form:?}: {token} of {text:?}");
                constraint.advance(token);
            }
            assert!(constraint.may_end(), "{form:?}");
            let names = tools.iter().map(|tool| tool.name.clone()).collect();
            let mut speech = Speech::new(Form { calls: Some(form), names, thinks: false }, start);
            let mut parts = Vec::new();
            speech.push(&text, &mut parts);
            speech.finish(&mut parts);
            assert_eq!(parts, expected, "{form:?}");
        }
    }
}
