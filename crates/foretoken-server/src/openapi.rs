//! The OpenAPI document, from the same tables that requests are read with.

use serde_json::{Map, Value, json};

use crate::ask::{chat, completion, settings, structure, tokens, tools};
use crate::fields::{Field, Kind};

/// The document.
pub fn document(model: &str) -> Value {
    let completion = [settings::FIELDS, structure::FIELDS, completion::FIELDS].concat();
    let chat = [settings::FIELDS, structure::FIELDS, tools::FIELDS, chat::FIELDS].concat();
    let post = |about: &str, fields: &[Field], required: &[&str]| {
        let schema = json!({
            "type": "object", "properties": properties(fields), "required": required, "additionalProperties": false,
        });
        json!({ "post": {
            "summary": about,
            "requestBody": { "required": true, "content": { "application/json": { "schema": schema } } },
            "responses": responses(),
        }})
    };
    let get = |about: &str| json!({ "get": { "summary": about, "responses": responses() } });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "foretoken",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("Serves {model}. OpenAI's interface, with fields of its own."),
        },
        "paths": {
            "/v1/completions": post("Continue a text", &completion, &["prompt"]),
            "/v1/chat/completions": post("Answer a conversation", &chat, &["messages"]),
            "/v1/models": get("The model that is served"),
            "/tokenize": post("A text's tokens", tokens::TOKENIZE, &[]),
            "/detokenize": post("The text of tokens", tokens::DETOKENIZE, &["tokens"]),
            "/tokenizer_info": get("What clients that make tokens themselves have to know"),
            "/health": get("Whether the engine lives"),
            "/ready": get("Whether requests are taken in"),
            "/metrics": get("Counters for Prometheus"),
            "/stats": get("Totals as JSON"),
        },
        "components": {
            "schemas": { "Error": error_schema() },
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn properties(fields: &[Field]) -> Value {
    let property = |field: &Field| {
        let mut schema = match field.kind {
            Kind::Text => json!({ "type": ["string", "null"] }),
            Kind::Number => json!({ "type": ["number", "null"] }),
            Kind::Whole => json!({ "type": ["integer", "null"], "minimum": 0 }),
            Kind::Flag => json!({ "type": ["boolean", "null"] }),
            Kind::Object => json!({ "type": ["object", "null"] }),
            Kind::List => json!({ "type": ["array", "null"], "items": {} }),
            Kind::Any => json!({}),
        };
        schema["description"] = json!(field.about);
        (field.name.to_owned(), schema)
    };
    Value::Object(fields.iter().map(property).collect::<Map<_, _>>())
}

fn responses() -> Value {
    let error = json!({ "$ref": "#/components/schemas/Error" });
    json!({
        "200": { "description": "Done" },
        "4XX": { "description": "Refused", "content": { "application/json": { "schema": error } } },
        "5XX": { "description": "Failed", "content": { "application/json": { "schema": error } } },
    })
}

fn error_schema() -> Value {
    json!({
        "type": "object", "required": ["error"],
        "properties": { "error": {
            "type": "object", "required": ["message", "type", "param", "code"],
            "properties": {
                "message": { "type": "string" }, "type": { "type": "string" },
                "param": { "type": ["string", "null"] }, "code": { "type": "string" },
            },
        } },
    })
}
