//! The OpenAPI document, from the same tables that requests are read with.

use serde_json::{Map, Value, json};

use crate::ask::{chat, completion, settings, structure, tokens, tools};
use crate::fields::{Field, Kind};

/// The document.
pub fn document(model: &str) -> Value {
    let completion = [settings::FIELDS, structure::FIELDS, completion::FIELDS].concat();
    let chat = [settings::FIELDS, structure::FIELDS, tools::FIELDS, chat::FIELDS].concat();
    let post = |about: &str, fields: &[Field], answer: Value| {
        let schema = object(fields);
        json!({ "post": {
            "summary": about,
            "requestBody": { "required": true, "content": { "application/json": { "schema": schema } } },
            "responses": responses(answer),
        }})
    };
    let get = |about: &str, answer: Value| json!({ "get": { "summary": about, "responses": responses(answer) } });
    let status = || only_json(record(&[("status", "string")]));
    let named = json!([{ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }]);
    let mut model_of_name = get("The model of this name", only_json(reference("Model")));
    model_of_name["get"]["parameters"] = named;
    let models = json!({ "type": "object", "required": ["object", "data"], "properties": {
        "object": { "const": "list" }, "data": { "type": "array", "items": reference("Model") },
    } });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "foretoken",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("Serves {model}. OpenAI's interface, with fields of its own."),
        },
        "paths": {
            "/v1/completions": post("Continue a text", &completion, whole_or_streamed("text_completion")),
            "/v1/chat/completions": post("Answer a conversation", &chat, whole_or_streamed("chat.completion")),
            "/v1/models": get("The model that is served", only_json(models)),
            "/v1/models/{id}": model_of_name,
            "/tokenize": post(
                "A text's tokens",
                tokens::TOKENIZE,
                only_json(record(&[("tokens", "array"), ("count", "integer"), ("max_model_len", "integer")])),
            ),
            "/detokenize": post(
                "The text of tokens",
                tokens::DETOKENIZE,
                only_json(record(&[("prompt", "string"), ("content", "string")])),
            ),
            "/tokenizer_info": get(
                "What clients that make tokens themselves have to know",
                only_json(record(&[("vocab_size", "integer"), ("model_max_length", "integer"), ("add_bos_token", "boolean")])),
            ),
            "/health": get("Whether the engine lives", status()),
            "/ready": get("Whether requests are taken in", status()),
            "/metrics": get(
                "Counters for Prometheus",
                json!({ "application/openmetrics-text": { "schema": { "type": "string" } } }),
            ),
            "/stats": get(
                "Totals as JSON",
                only_json(record(&[("passes", "integer"), ("output_tokens", "integer"), ("requests_running", "integer")])),
            ),
        },
        "components": {
            "schemas": { "Error": error_schema(), "Usage": usage_schema(), "Model": model_schema() },
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
        // With keys or, where the server has none, without.
        "security": [{ "key": [] }, {}],
    })
}

/// An object with the fields of a table.
fn object(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.is_needed).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn property(field: &Field) -> Value {
    let mut schema = match field.kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Number(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        Kind::Above(least, f64::MAX) => json!({ "type": "number", "exclusiveMinimum": least }),
        Kind::Above(least, most) => json!({ "type": "number", "exclusiveMinimum": least, "maximum": most }),
        Kind::Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Object => json!({ "type": "object" }),
        Kind::Fields(fields) => object(fields),
        Kind::ListOf(fields) => json!({ "type": "array", "items": object(fields) }),
        Kind::Any(schema) => serde_json::from_str(schema).expect("the tables' schemas are JSON"),
    };
    // `null` is the same as absence.
    if !field.is_needed && schema["type"].as_str().is_some_and(|kind| kind != "null") {
        schema["type"] = json!([schema["type"], "null"]);
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.push(Value::Null);
        }
    }
    schema["description"] = json!(field.about);
    schema
}

/// An object that has these fields, of these types, among others.
fn record(fields: &[(&str, &str)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|&(name, kind)| (name.to_owned(), json!({ "type": kind }))).collect();
    let required: Vec<&str> = fields.iter().map(|&(name, _)| name).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn only_json(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// An answer with choices, or a stream of events with its pieces.
fn whole_or_streamed(kind: &str) -> Value {
    let mut schema = record(&[
        ("id", "string"),
        ("created", "integer"),
        ("model", "string"),
        ("system_fingerprint", "string"),
        ("seed", "integer"),
        ("choices", "array"),
        ("timings", "object"),
    ]);
    schema["properties"]["object"] = json!({ "const": kind });
    schema["properties"]["usage"] = reference("Usage");
    schema["properties"]["choices"]["items"] = json!({
        "type": "object", "required": ["index", "finish_reason"],
        "properties": {
            "index": { "type": "integer" }, "finish_reason": { "enum": ["stop", "length", "tool_calls"] },
        },
    });
    let mut answer = only_json(schema);
    answer["text/event-stream"] = json!({ "schema": { "type": "string" } });
    answer
}

fn responses(answer: Value) -> Value {
    let error = only_json(reference("Error"));
    json!({
        "200": { "description": "Done", "content": answer },
        "4XX": { "description": "Refused", "content": error },
        "5XX": { "description": "Failed", "content": error },
    })
}

fn usage_schema() -> Value {
    record(&[("prompt_tokens", "integer"), ("completion_tokens", "integer"), ("total_tokens", "integer")])
}

fn model_schema() -> Value {
    record(&[("id", "string"), ("object", "string"), ("created", "integer"), ("max_model_len", "integer")])
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
