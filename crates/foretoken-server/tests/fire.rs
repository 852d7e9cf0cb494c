//! Under fire: many clients at once in a cache that is too small for them, clients that vanish, and requests of every
//! wrong kind. Every answer is the one that the same request gets alone, and nothing is lost.

mod common;

use axum::body::Body;
use axum::http::Request;
use common::{Server, Setup, block_on, chunks, json, post, text};
use foretoken_server::Limits;
use foretoken_testkit::Rng;
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::{Value, json as j};

const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";
/// Pages of 8 tokens: one and a quarter full contexts.
const FEW_PAGES: usize = 80;

/// A request of any kind that can be served.
fn request(rng: &mut Rng) -> (&'static str, Value) {
    let most_chars = if rng.chance(0.2) { 150 } else { 30 };
    let n_chars = 1 + rng.below(most_chars);
    let text: String = (0..n_chars).map(|_| b"abc de"[rng.below(6)] as char).collect();
    let temperature = [0.0, 0.7, 1.3][rng.below(3)];
    let drafts = ["auto", "none", "suffix", "recycle", "suffix+recycle"];
    let mut body = j!({
        "seed": rng.below(1000), "temperature": temperature, "max_tokens": 1 + rng.below(120),
        "draft": drafts[rng.below(drafts.len())], "n": 1 + rng.below(2), "priority": rng.below(3),
    });
    if rng.chance(0.5) && body["draft"] != "auto" {
        body["draft_width"] = j!(1 + rng.below(12));
    }
    if rng.chance(0.3) {
        let stop = ["ab", "q", "zz"][rng.below(3)];
        body["stop"] = j!([stop]);
    }
    if rng.chance(0.3) {
        body["frequency_penalty"] = j!(1.5);
        body["top_k"] = j!(1 + rng.below(20));
    }
    match rng.below(4) {
        0 => body["regex"] = j!("x".repeat(1 + rng.below(9))),
        1 => body["ignore_eos"] = j!(true),
        _ => {}
    }
    if rng.chance(0.5) {
        body["prompt"] = j!(text);
        if rng.chance(0.5) {
            body["logprobs"] = j!(rng.below(4));
        }
        (COMPLETIONS, body)
    } else {
        body["messages"] = j!([{ "role": "user", "content": text }]);
        body["logprobs"] = j!(rng.chance(0.5));
        (CHATS, body)
    }
}

/// What must not depend on anything but the request: texts, ends, log-probabilities.
async fn visible(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let answer = server.ask(path, body).await;
    let choices = answer["choices"].as_array().expect("choices").iter();
    choices
        .map(|c| j!([c["text"], c["message"]["content"], c["finish_reason"], c["logprobs"], c["stop_reason"]]))
        .collect()
}

/// The texts of a streamed answer.
async fn streamed(server: &Server, path: &str, body: &Value) -> Vec<String> {
    let n = body["n"].as_u64().unwrap_or(1) as usize;
    let mut texts = vec![String::new(); n];
    for chunk in server.stream(path, body).await {
        for choice in chunk["choices"].as_array().expect("choices") {
            let piece = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str());
            texts[choice["index"].as_u64().expect("an index") as usize].push_str(piece.unwrap_or_default());
        }
    }
    texts
}

/// Reads a few chunks and leaves.
async fn vanish(server: &Server, path: &str, body: &Value, n_chunks: usize) {
    let mut body = body.clone();
    body["stream"] = j!(true);
    let mut data = server.post(path, &body).await.into_body().into_data_stream();
    for _ in 0..n_chunks {
        if data.next().await.is_none() {
            break;
        }
    }
}

#[test]
fn every_answer_is_the_one_that_the_request_gets_alone() {
    block_on(async {
        let limits = Limits { requests: 1000, requests_of_key: 1000, ..Limits::default() };
        let crowded = Server::new(Setup { pages: FEW_PAGES, limits: limits.clone(), ..Setup::default() });
        let alone = Server::new(Setup { limits, ..Setup::default() });
        for n_clients in [1, 2, 4, 8, 16, 32] {
            let client = |index: usize| {
                let (crowded, alone) = (&crowded, &alone);
                async move {
                    let mut rng = Rng::new(1000 * n_clients as u64 + index as u64);
                    for _ in 0..3 {
                        let (path, body) = request(&mut rng);
                        match rng.below(5) {
                            0 => vanish(crowded, path, &body, rng.below(5)).await,
                            1 => {
                                let texts = streamed(crowded, path, &body).await;
                                assert_eq!(texts, streamed(alone, path, &body).await, "{body}");
                            }
                            _ => {
                                let answer = visible(crowded, path, &body).await;
                                assert_eq!(answer, visible(alone, path, &body).await, "{body}");
                            }
                        }
                    }
                }
            };
            join_all((0..n_clients).map(client)).await;
        }
        crowded.end();
        alone.end();
    });
}

/// A body of any wrong kind, and some that are right by chance.
fn malformed(rng: &mut Rng) -> (&'static str, Vec<u8>) {
    let (path, mut body) = request(rng);
    body["max_tokens"] = j!(4);
    let names = [
        "prompt",
        "messages",
        "max_tokens",
        "temperature",
        "stop",
        "n",
        "seed",
        "logprobs",
        "draft",
        "stream",
        "regex",
        "logit_bias",
        "response_format",
        "tools",
        "tool_choice",
        "stream_options",
        "best_of",
        "echo",
        "suffix",
        "timeout",
        "priority",
        "draft_width",
        "acceptor",
        "metadata",
        "unknown",
        "top_logprobs",
        "min_tokens",
        "chat_template_kwargs",
        "max_completion_tokens",
        "grammar",
        "trace",
    ];
    let values = [
        j!(null),
        j!(true),
        j!(-1),
        j!(0),
        j!(1e300),
        j!(0.5),
        j!(u64::MAX),
        j!(""),
        j!("\u{0}\u{feff}é"),
        j!([]),
        j!([[]]),
        j!({}),
        j!({ "type": "json_schema" }),
        j!(["a", 1]),
        j!([{ "role": "user" }]),
        j!("auto+none"),
        j!([12, 13, 14]),
        j!({ "8": -100 }),
        j!("none"),
        j!({ "include_usage": true }),
        j!([{ "type": "function" }]),
    ];
    for _ in 0..1 + rng.below(3) {
        body[names[rng.below(names.len())]] = values[rng.below(values.len())].clone();
    }
    let mut bytes = body.to_string().into_bytes();
    match rng.below(6) {
        0 => bytes.truncate(rng.below(bytes.len())),
        1 => {
            let at = rng.below(bytes.len());
            bytes[at] = rng.below(256) as u8;
        }
        2 => bytes = [b"[".repeat(rng.below(300)), bytes].concat(),
        _ => {}
    }
    (path, bytes)
}

#[test]
fn ten_thousand_malformed_requests_get_an_answer_each() {
    block_on(async {
        let server = Server::new(Setup::default());
        let (mut good, mut refused) = (0, 0);
        for seed in 0..10_000 {
            let mut rng = Rng::new(seed);
            let (path, body) = malformed(&mut rng);
            let shown = String::from_utf8_lossy(&body).into_owned();
            let response = server.send(post(path, body)).await;
            let status = response.status().as_u16();
            let text = text(response).await;
            if status == 200 {
                good += 1;
                let is_event = text.starts_with(':') && (text.contains("[DONE]") || text.contains("\"error\""));
                assert!(is_event || serde_json::from_str::<Value>(&text).is_ok(), "{shown}: {text}");
            } else {
                refused += 1;
                assert!((400..500).contains(&status), "{shown}: {status} {text}");
                let error: Value = serde_json::from_str(&text).expect("errors are JSON");
                let error = &error["error"];
                assert!(error["message"].as_str().is_some_and(|m| !m.is_empty() && m.len() < 1000), "{shown}: {text}");
                assert!(error["code"].is_string() && error["type"].is_string(), "{shown}: {text}");
            }
        }
        assert!(good > 100 && refused > 5000, "{good} good, {refused} refused");
        let paths = ["/v1/completions/", "//", "/v1/models/../x", "/page/..%2f", "/metrics?x=%ff", "/v1/chat"];
        for path in paths {
            let status = server.get(path).await.status().as_u16();
            assert!(status == 404 || status == 200, "{path}: {status}");
        }
        let odd = Request::builder().method("BREW").uri("/v1/completions").body(Body::empty()).unwrap();
        assert_eq!(json(server.send(odd).await).await["error"]["code"], "method_not_allowed");
        let answer = server.ask(COMPLETIONS, &j!({ "prompt": "abc", "seed": 1 })).await;
        assert!(answer["usage"]["completion_tokens"].as_u64() > Some(0));
        server.end();
    });
}

#[test]
fn every_field_of_the_document_refuses_other_kinds_by_name() {
    let bases = [
        (COMPLETIONS, j!({ "prompt": "a" })),
        (CHATS, j!({ "messages": [{ "role": "user", "content": "a" }] })),
        ("/tokenize", j!({ "prompt": "a" })),
        ("/detokenize", j!({ "tokens": [12] })),
    ];
    let kinds = [
        ("boolean", j!(true)),
        ("integer", j!(1)),
        ("number", j!(0.5)),
        ("string", j!("x")),
        ("array", j!([])),
        ("object", j!({})),
    ];
    block_on(async {
        let server = Server::new(Setup::default());
        let document = json(server.get("/openapi.json").await).await;
        let mut n_refused = 0;
        for (path, base) in bases {
            let schema = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
            for (name, property) in schema["properties"].as_object().expect("properties") {
                // What is more than a type has tests of its own.
                let own = match &property["type"] {
                    Value::Array(types) => types.clone(),
                    Value::String(kind) => vec![j!(kind)],
                    _ => continue,
                };
                let fits = |kind: &str| own.iter().any(|own| own == kind || (own == "number" && kind == "integer"));
                for (_, value) in kinds.iter().filter(|(kind, _)| !fits(kind)) {
                    let mut body = base.clone();
                    body[name] = value.clone();
                    let response = server.post(path, &body).await;
                    assert_eq!(response.status().as_u16(), 400, "{body}");
                    let error = json(response).await["error"].take();
                    assert_eq!(error["param"], *name, "{body} -> {error}");
                    let code = error["code"].as_str();
                    assert!(matches!(code, Some("invalid_type" | "unsupported")), "{body} -> {error}");
                    n_refused += 1;
                }
            }
        }
        assert!(n_refused > 300, "{n_refused}");
        server.end();
    });
}

#[test]
fn every_bound_of_the_document_is_kept() {
    block_on(async {
        let server = Server::new(Setup::default());
        let document = json(server.get("/openapi.json").await).await;
        let mut n_refused = 0;
        for (path, base) in [
            (COMPLETIONS, j!({ "prompt": "a" })),
            (CHATS, j!({ "messages": [{ "role": "user", "content": "a" }], "logprobs": true })),
        ] {
            let schema = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
            for (name, property) in schema["properties"].as_object().expect("properties") {
                let bound = |name: &str| property[name].as_f64();
                let outside = [
                    bound("minimum").map(|least| least - 1.0),
                    bound("maximum").map(|most| if most > 1e15 { most * 2.0 } else { most + 1.0 }),
                    bound("exclusiveMinimum"),
                ];
                for value in outside.into_iter().flatten() {
                    let mut body = base.clone();
                    body[name] = if value.fract() == 0.0 && value.abs() < 1e15 { j!(value as i64) } else { j!(value) };
                    let response = server.post(path, &body).await;
                    assert_eq!(response.status().as_u16(), 400, "{body}");
                    let error = json(response).await["error"].take();
                    assert_eq!(error["param"], *name, "{body} -> {error}");
                    n_refused += 1;
                }
            }
        }
        assert!(n_refused > 40, "{n_refused}");
        server.end();
    });
}

#[test]
fn counters_hold_after_the_fire() {
    block_on(async {
        let server = Server::new(Setup { pages: FEW_PAGES, ..Setup::default() });
        let client = |index: usize| {
            let server = &server;
            async move {
                let mut rng = Rng::new(77 + index as u64);
                for _ in 0..4 {
                    let (path, body) = request(&mut rng);
                    vanish(server, path, &body, rng.below(4)).await;
                }
            }
        };
        join_all((0..8).map(client)).await;
        // The last to come is the last to go: when it has ended, the others have.
        chunks(&text(server.post(COMPLETIONS, &j!({ "prompt": "a", "stream": true, "priority": -100 })).await).await);
        assert_eq!(server.metric("foretoken_requests_running").await, 0.0);
        assert_eq!(server.metric("foretoken_requests_waiting").await, 0.0);
        server.end();
    });
}
