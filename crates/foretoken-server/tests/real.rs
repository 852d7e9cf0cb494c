//! A real model behind the server: its template, its grammars, its text, alone and among others.

mod common;

use axum::body::Body;
use axum::http::Request;
use common::real::RealServer;
use common::{block_on, json, post, text};
use futures_util::future::join_all;
use serde_json::{Value, json as j};
use tower::ServiceExt;

const CHATS: &str = "/v1/chat/completions";

#[test]
fn a_code_model_calls_tools_and_fills_in_the_middle() {
    let Some(server) = RealServer::new("qwen-coder-0.5b", 512, 512) else { return };
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
        let answer = server.ask(CHATS, &body).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "get_weather");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
        assert!(arguments["city"].is_string());
        let mut streamed = body.clone();
        streamed["stream"] = j!(true);
        streamed["draft"] = j!("none");
        let response =
            server.router.clone().oneshot(post(CHATS, streamed.to_string())).await.expect("routers do not fail");
        let chunks = common::chunks(&text(response).await);
        let calls: Vec<&Value> = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["tool_calls"].get(0)).collect();
        assert_eq!((&calls[0]["function"]["name"], &calls[0]["function"]["arguments"]), (&call["name"], &j!("")));
        assert!(calls[0]["id"].is_string() && calls.iter().all(|call| call["index"] == 0));
        let pieces: Vec<&str> = calls[1..].iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
        assert!(pieces.len() > 1, "they come as they are written: {pieces:?}");
        assert_eq!(pieces.concat(), call["arguments"]);
        let infill = j!({
            "prompt": "def mean(numbers):\n", "suffix": "\n    return total / len(numbers)\n", "max_tokens": 40,
            "temperature": 0,
        });
        let answer = server.ask("/v1/completions", &infill).await;
        let text = answer["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.contains("total"), "{text:?}");
    });
    server.end();
}

#[test]
fn a_real_model_answers_many_as_it_answers_each() {
    let Some(server) = RealServer::new("smollm2-135m", 512, 512) else { return };
    let ask = |body: Value| {
        let server = &server;
        async move {
            let answer = server.ask(CHATS, &body).await;
            let content = answer["choices"][0]["message"]["content"].as_str();
            content.unwrap_or_else(|| panic!("{body} -> {answer}")).to_owned()
        }
    };
    let user = |text: &str, more: Value| {
        with(j!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 40, "seed": 1 }), more)
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
        let response = server.router.clone().oneshot(post(CHATS, body.to_string())).await.expect("routers do not fail");
        let chunks = common::chunks(&text(response).await);
        let streamed: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(streamed, together[0]);
    });
    server.end();
}

#[test]
fn an_evaluation_harness_finds_what_it_asks_for() {
    let Some(server) = RealServer::new("smollm2-135m", 512, 512) else { return };
    block_on(async {
        let request = Request::get("/tokenizer_info").body(Body::empty()).expect("a sound request");
        let info = json(server.router.clone().oneshot(request).await.expect("routers do not fail")).await;
        assert_eq!((&info["bos_token"], &info["eos_token"]), (&j!("<|im_start|>"), &j!("<|im_end|>")));
        assert!(info["chat_template"].as_str().is_some_and(|template| template.contains("<|im_start|>")));
        let tokens = async |body: Value| server.ask("/tokenize", &body).await["tokens"].clone();
        let ids = |tokens: Value| tokens.as_array().expect("a list").clone();
        let end = tokens(j!({ "prompt": "<|im_end|>", "add_special_tokens": false })).await;
        assert_eq!(end.as_array().map(Vec::len), Some(1));
        let as_text = tokens(j!({ "prompt": "<|im_end|>", "parse_special": false })).await;
        assert!(as_text.as_array().map(Vec::len) > Some(1));

        // Prompts as lists of ids, each with an end of text in its midst; one is what the model itself would go on with.
        let turn =
            ids(tokens(j!({ "prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nOne, two, three," }))
                .await);
        let greedy = j!({ "prompt": turn, "max_tokens": 6, "temperature": 0, "trace": true, "ignore_eos": true });
        let greedy = server.ask("/v1/completions", &greedy).await;
        let passes = greedy["choices"][0]["foretoken"]["passes"].as_array().expect("passes");
        let written =
            passes.iter().flat_map(|pass| pass["tokens"].as_array().expect("tokens")).map(|t| t["id"].clone());
        let likely = [turn.clone(), written.collect()].concat();
        let other = [turn.clone(), ids(tokens(j!({ "prompt": " green walls" })).await)].concat();
        let body = j!({
            "prompt": [likely, other], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
            "echo": true,
        });
        let scored = server.ask("/v1/completions", &body).await;
        for (index, (prompt, is_greedy)) in [(likely, true), (other, false)].into_iter().enumerate() {
            let choice = &scored["choices"][index];
            assert_eq!(choice["index"], index, "{scored}");
            let logprobs = choice["logprobs"]["token_logprobs"].as_array().expect("a list");
            let top = choice["logprobs"]["top_logprobs"].as_array().expect("a list");
            assert_eq!((logprobs.len(), top.len()), (prompt.len() + 1, prompt.len() + 1));
            assert!(logprobs[0].is_null() && logprobs[1..].iter().all(|value| value.as_f64() <= Some(0.0)));
            let is_likeliest = |at: usize| {
                let values = top[at].as_object().expect("names and values").values();
                values.map(|value| value.as_f64()).fold(None, |most, value| if value > most { value } else { most })
                    == logprobs[at].as_f64()
            };
            assert_eq!((turn.len()..prompt.len()).all(is_likeliest), is_greedy);
        }
        let plain = server.ask("/v1/completions", &with(body, j!({ "draft": "none" }))).await;
        for index in 0..2 {
            let [plain, scored] = [&plain, &scored].map(|answer| &answer["choices"][index]);
            assert_eq!((&plain["text"], &plain["logprobs"]), (&scored["text"], &scored["logprobs"]));
        }
    });
    server.end();
}

#[test]
fn grammars_that_want_too_much_are_refused_and_hold_nobody_up() {
    let Some(server) = RealServer::new("smollm2-135m", 512, 512) else { return };
    let schema = |schema: Value| j!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema } } });
    let layers: String = (0..60).map(|n| format!("a{n}: a{} a{}\n", n + 1, n + 1)).collect();
    let chain: String = (0..9000).map(|n| format!("a{n}: a{}\n", n + 1)).collect();
    let links: Value = (0..5000).map(|n| (n.to_string(), j!({ "$ref": format!("#/$defs/{}", n + 1) }))).collect();
    let hostile = [
        j!({ "regex": "(".repeat(5000) + &")".repeat(5000) }),
        j!({ "regex": "a".repeat(900_000) }),
        j!({ "grammar": format!("start: a0\n{layers}a60: \"x\"") }),
        j!({ "grammar": format!("start: a0\n{chain}a9000: \"x\"") }),
        schema(j!({ "$ref": "#/$defs/0", "$defs": links })),
        schema(
            j!({ "allOf": (0..20).map(|n| j!({ "type": "string", "pattern": format!(".*{n}.*") })).collect::<Vec<_>>() }),
        ),
        j!({ "grammar": "start: x{1000000}\nx: \"a\"" }),
        j!({ "grammar": "%import \"/etc/passwd\"\nstart: \"a\"" }),
        j!({ "grammar": "start: %json { \"type\": \"integer\", \"multipleOf\": 12345678 }" }),
        schema(j!({ "type": "integer", "multipleOf": 12_345_678 })),
        schema(j!({ "type": "array", "minItems": 1_000_000_000, "items": { "type": "null" } })),
        schema(j!({ "$ref": "#" })),
        schema(j!({ "$ref": "file:///etc/passwd" })),
        schema(j!({ "$ref": "http://127.0.0.1/schema" })),
        schema(j!({ "enum": vec!["x".repeat(1000); 2000] })),
    ];
    let plain = j!({ "prompt": "One, two,", "max_tokens": 4, "temperature": 0 });
    block_on(async {
        let before = server.ask("/v1/completions", &plain).await["choices"].take();
        let refuse = async |more: Value| {
            let body = with(j!({ "prompt": "a", "max_tokens": 12, "seed": 1 }), more).to_string();
            let request = post("/v1/completions", body.clone());
            let response = server.router.clone().oneshot(request).await.expect("routers do not fail");
            let (status, answer) = (response.status().as_u16(), text(response).await);
            assert_eq!(status, 400, "{body:.200} -> {answer:.400}");
            let code = serde_json::from_str::<Value>(&answer).expect("JSON")["error"]["code"].take();
            assert!(code == "invalid_grammar" || code == "grammar_too_complex", "{body:.200} -> {answer:.400}");
        };
        // A plain request beside them is served as ever.
        let others = async { server.ask("/v1/completions", &plain).await["choices"].take() };
        let (beside, _) = tokio::join!(others, join_all(hostile.into_iter().map(refuse)));
        assert_eq!((&beside, &server.ask("/v1/completions", &plain).await["choices"]), (&before, &before));
    });
    server.end();
}

#[test]
fn words_without_an_end_are_refused_at_once() {
    let Some(server) = RealServer::new("smollm2-135m", 512, 512) else { return };
    block_on(async {
        for word in ["a", " ", "\n", "é"] {
            let word = word.repeat(1_000_000);
            let chat = j!({ "messages": [{ "role": "user", "content": word }] });
            for (path, body) in [
                ("/v1/completions", j!({ "prompt": word })),
                ("/tokenize", j!({ "prompt": word, "add_special_tokens": false })),
                (CHATS, chat),
            ] {
                let refused = server.ask(path, &body).await["error"]["message"].take();
                assert!(
                    refused.as_str().is_some_and(|why| why.contains("a word of") && why.contains("131072")),
                    "{refused}"
                );
            }
        }
        let words = server.ask("/tokenize", &j!({ "prompt": "some words and more, ".repeat(10_000) })).await;
        assert!(words["count"].as_u64() >= Some(50_000), "{:.200}", words.to_string());
    });
    server.end();
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}
