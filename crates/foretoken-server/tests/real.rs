//! A real model behind the server: its template, its grammars, its text, alone and among others.

mod common;

use std::sync::Arc;

use axum::Router;
use common::{block_on, json, post, text};
use foretoken_engine::{Engine, EngineOptions};
use foretoken_server::{App, FileText, Keys, Limits, Metrics, PassLog, TextModel, router, worker};
use foretoken_testkit::models;
use futures_util::future::join_all;
use serde_json::{Value, json as j};
use tower::ServiceExt;

const CHATS: &str = "/v1/chat/completions";

/// A server of the model of this name, and how to end it; nothing when the model is not there.
fn server(name: &str) -> Option<(Router, impl FnOnce())> {
    let path = models::find(name)?;
    let passes = PassLog::default();
    let options = EngineOptions {
        threads: Some(1),
        context: Some(512),
        recorder: Some(passes.recorder()),
        ..EngineOptions::default()
    };
    let engine = Engine::open(&path, options).expect("a sound model file");
    let (context, drafters) = (engine.context_size(), engine.drafters());
    let (file, scheduler) = engine.into_parts();
    let fingerprint = FileText::fingerprint(&file, "test").expect("the file can be read");
    let model = FileText::new(Arc::new(file), None, context);
    let metrics = Arc::new(Metrics::new(model.id(), drafters.clone()));
    let (handle, thread) = worker::spawn(scheduler, passes, metrics.clone(), 0.0).expect("a thread");
    let (keys, limits) = (Keys::default(), Limits::default());
    let app = Arc::new(App::new(Box::new(model), handle, metrics, keys, limits, drafters, fingerprint));
    let end = {
        let app = app.clone();
        move || {
            app.engine.stop();
            assert!(thread.join().expect("the engine's thread does not panic").is_idle());
        }
    };
    Some((router(app), end))
}

async fn ask(router: &Router, path: &str, body: &Value) -> Value {
    let response = router.clone().oneshot(post(path, body.to_string())).await.expect("routers do not fail");
    json(response).await
}

#[test]
fn a_code_model_calls_tools_and_fills_in_the_middle() {
    let Some((router, end)) = server("qwen-coder-0.5b") else { return };
    let tool = |name: &str, field: &str| {
        let parameters = j!({
            "type": "object", "properties": { field: { "type": "string", "maxLength": 12 } }, "required": [field],
            "additionalProperties": false,
        });
        j!({ "type": "function", "function": { "name": name, "description": "Tells it", "parameters": parameters } })
    };
    let body = j!({
        "messages": [{ "role": "user", "content": "What is the weather in Paris?" }], "seed": 1, "temperature": 0,
        "tools": [tool("get_time", "zone"), tool("get_weather", "city")], "tool_choice": "required", "max_tokens": 80,
        "parallel_tool_calls": false,
    });
    block_on(async {
        let answer = ask(&router, CHATS, &body).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "get_weather");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
        assert!(arguments["city"].is_string());
        let mut streamed = body.clone();
        streamed["stream"] = j!(true);
        streamed["draft"] = j!("none");
        let response = router.clone().oneshot(post(CHATS, streamed.to_string())).await.expect("routers do not fail");
        let chunks = common::chunks(&text(response).await);
        let calls: Vec<&Value> = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["tool_calls"].get(0)).collect();
        assert_eq!(calls.iter().map(|call| &call["function"]).collect::<Vec<_>>(), [call]);
        let infill = j!({
            "prompt": "def mean(numbers):\n", "suffix": "\n    return total / len(numbers)\n", "max_tokens": 40,
            "temperature": 0,
        });
        let answer = ask(&router, "/v1/completions", &infill).await;
        let text = answer["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.contains("total"), "{text:?}");
    });
    end();
}

#[test]
fn a_real_model_answers_many_as_it_answers_each() {
    let Some((router, end)) = server("smollm2-135m") else { return };
    let ask = |body: Value| {
        let router = router.clone();
        async move {
            let answer = self::ask(&router, CHATS, &body).await;
            let content = answer["choices"][0]["message"]["content"].as_str();
            content.unwrap_or_else(|| panic!("{body} -> {answer}")).to_owned()
        }
    };
    let user = |text: &str, more: Value| {
        let mut body = j!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 40, "seed": 1 });
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    };
    let schema = j!({
        "type": "object", "properties": { "city": { "type": "string", "maxLength": 20 }, "people": { "type": "integer" } },
        "required": ["city", "people"], "additionalProperties": false,
    });
    let format = j!({ "type": "json_schema", "json_schema": { "name": "city", "schema": schema } });
    let requests = [
        user("Why is the sky blue?", j!({ "temperature": 0 })),
        user("Write a loop in Python.", j!({ "temperature": 0.8, "draft": "recycle", "draft_width": 4 })),
        user("Name a city.", j!({ "temperature": 0, "response_format": format.clone(), "max_tokens": 60 })),
        user("Count to ten.", j!({ "draft": "none", "temperature": 0 })),
        user(
            "Name a town.",
            j!({ "response_format": format, "draft": "grammar+suffix", "draft_width": 8, "max_tokens": 60 }),
        ),
    ];
    block_on(async {
        let together = join_all(requests.iter().map(|request| ask(request.clone()))).await;
        for (request, answer) in requests.iter().zip(&together) {
            assert_eq!(&ask(request.clone()).await, answer, "{request}");
        }
        for index in [2, 4] {
            let value: Value = serde_json::from_str(&together[index]).expect("it fits the schema");
            assert!(value["city"].is_string() && value["people"].is_i64(), "{value}");
        }
        let mut body = requests[0].clone();
        body["stream"] = j!(true);
        let response = router.clone().oneshot(post(CHATS, body.to_string())).await.expect("routers do not fail");
        let chunks = common::chunks(&text(response).await);
        let streamed: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(streamed, together[0]);
    });
    end();
}
