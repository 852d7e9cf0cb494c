//! What a text has to look like: `response_format`, and the grammars that OpenAI's interface does not know.

use foretoken_engine::Grammar;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field, needed};

/// The fields that [`read`] reads. At most one of them.
pub const FIELDS: &[Field] = &[
    field(
        "response_format",
        Kind::Fields(FORMAT),
        "text, json_object, or json_schema with a schema that the text will fit",
    ),
    field("regex", Kind::Text, "A regular expression that the whole text matches"),
    field("grammar", Kind::Text, "A Lark grammar that the text is of, in llguidance's dialect"),
];

const FORMAT: &[Field] = &[
    needed("type", Kind::Word(&["text", "json_object", "json_schema"]), "text, json_object or json_schema"),
    field("json_schema", Kind::Fields(SCHEMA), "name, schema, strict, description"),
];

const SCHEMA: &[Field] = &[
    field("name", Kind::Text, "Has no effect"),
    field("description", Kind::Text, "Has no effect"),
    needed("schema", Kind::Any(ANY_SCHEMA), "The schema"),
    field("strict", Kind::Flag, "Has no effect: every schema is kept strictly"),
];

const ANY_SCHEMA: &str = r#"{"type": ["object", "boolean"]}"#;

/// The grammar asked for, and the field that asked for it.
pub fn read(fields: &mut Fields) -> Result<Option<(Grammar, &'static str)>, ApiError> {
    let format = response_format(fields)?.map(|grammar| (grammar, "response_format"));
    let regex = fields.text("regex")?.map(|regex| (Grammar::Regex(regex), "regex"));
    let lark = fields.text("grammar")?.map(|grammar| (Grammar::Lark(grammar), "grammar"));
    let mut asked = [format, regex, lark].into_iter().flatten();
    let first = asked.next();
    match (&first, asked.next()) {
        (Some((_, one)), Some((_, other))) => Err(fields.wrong(other, format!("cannot be used together with {one}"))),
        _ => Ok(first),
    }
}

fn response_format(fields: &mut Fields) -> Result<Option<Grammar>, ApiError> {
    let Some(mut format) = fields.object("response_format", FORMAT)? else { return Ok(None) };
    let kind = format.text("type")?;
    let kind = format.required("type", kind)?;
    let schema = format.object("json_schema", SCHEMA)?;
    match (kind.as_str(), schema) {
        ("text", None) => Ok(None),
        ("json_object", None) => Ok(Some(Grammar::JsonObject)),
        ("json_schema", Some(mut json_schema)) => {
            json_schema.text("name")?;
            json_schema.text("description")?;
            json_schema.flag("strict")?;
            let schema = json_schema.any("schema");
            let schema = json_schema.required("schema", schema)?;
            match schema {
                Value::Object(_) | Value::Bool(_) => Ok(Some(Grammar::JsonSchema(schema.to_string()))),
                other => Err(crate::fields::wrong_kind("response_format.json_schema.schema", &other, "an object")),
            }
        }
        ("json_schema", None) => Err(format.required("json_schema", None::<()>).expect_err("it is missing")),
        ("text" | "json_object", Some(_)) => Err(format.wrong("json_schema", "needs the type json_schema")),
        (other, _) => {
            let shown: String = other.chars().take(40).collect();
            Err(format.wrong("type", format!("is {shown:?}, and must be text, json_object or json_schema")))
        }
    }
}
