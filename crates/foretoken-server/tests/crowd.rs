//! A real model under fire: crowds of up to 32 clients in a cache too small for them, some of which leave in the middle. Every
//! answer is the one that the same request gets alone and without drafts, and memory stays what it was.

mod common;

use common::real::RealServer;
use common::{block_on, post};
use foretoken_testkit::Rng;
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::{Value, json as j};
use tower::ServiceExt;

const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";
const CONTEXT: usize = 256;
/// For about a quarter of what the largest crowd would need.
const CACHE_TOKENS: usize = 512;
/// Rounds of two crowds in which memory has to settle.
const MAX_ROUNDS: u64 = 8;
const DRAFTS: [&str; 4] = ["auto", "none", "recycle", "suffix+grammar"];

/// Requests of every kind: short and long, at any temperature, with structure, stops, several choices, log-probabilities.
fn requests() -> Vec<(&'static str, Value)> {
    let long = "The sea was calm and the sky was blue. ".repeat(9);
    let schema = j!({
        "type": "object", "properties": { "city": { "type": "string", "maxLength": 8 }, "people": { "type": "integer" } },
        "required": ["city", "people"], "additionalProperties": false,
    });
    let format = j!({ "type": "json_schema", "json_schema": { "name": "city", "schema": schema } });
    let chat = |text: &str| j!([{ "role": "user", "content": text }]);
    vec![
        (COMPLETIONS, j!({ "prompt": "One, two, three,", "temperature": 0, "max_tokens": 24 })),
        (COMPLETIONS, j!({ "prompt": long, "temperature": 0, "max_tokens": 12 })),
        (COMPLETIONS, j!({ "prompt": long, "temperature": 0.8, "seed": 3, "max_tokens": 16, "stop": ["sea", "."] })),
        (COMPLETIONS, j!({ "prompt": "def add(a, b):", "seed": 1, "max_tokens": 20, "logprobs": 2 })),
        (COMPLETIONS, j!({ "prompt": "def add(a, b):", "seed": 2, "max_tokens": 4, "n": 2 })),
        (COMPLETIONS, j!({ "prompt": "Paris is", "temperature": 0, "max_tokens": 0, "echo": true, "logprobs": 1 })),
        (COMPLETIONS, j!({ "prompt": "A number:", "regex": "[0-9]{3}-[0-9]{2}", "seed": 4 })),
        (COMPLETIONS, j!({ "prompt": ["Once", "There was"], "seed": 5, "max_tokens": 6, "frequency_penalty": 1.0 })),
        (CHATS, j!({ "messages": chat("Why is the sky blue?"), "temperature": 0, "max_tokens": 16 })),
        (CHATS, j!({ "messages": chat("Count to ten."), "seed": 6, "top_p": 0.9, "max_tokens": 20 })),
        (CHATS, j!({ "messages": chat("Name a city."), "seed": 7, "max_tokens": 40, "response_format": format })),
        (CHATS, j!({ "messages": chat("Hello"), "seed": 8, "temperature": 1.3, "min_p": 0.1, "max_tokens": 10 })),
        (CHATS, j!({ "messages": chat(&long), "temperature": 0, "max_tokens": 8, "logprobs": true })),
    ]
}

/// What must not depend on anything but the request.
fn visible(answer: &Value) -> Vec<Value> {
    let choices = answer["choices"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    let parts =
        |c: &Value| j!([c["text"], c["message"]["content"], c["finish_reason"], c["logprobs"], c["stop_reason"]]);
    choices.map(parts).collect()
}

/// Reads a few chunks and leaves.
async fn vanish(server: &RealServer, path: &str, body: &Value, n_chunks: usize) {
    let mut body = body.clone();
    body["stream"] = j!(true);
    let response = server.router.clone().oneshot(post(path, body.to_string())).await.expect("routers do not fail");
    let mut data = response.into_body().into_data_stream();
    for _ in 0..n_chunks {
        if data.next().await.is_none() {
            break;
        }
    }
}

/// Bytes of this process in memory, where the system tells it in the way of Linux.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
}

/// Crowds come until two in a row add less than one part in a hundred to memory. The first ones of a size find the allocator and the
/// drafters' tables still growing, by how much is chance; what each answer left behind for ever would be seen after every one.
async fn settle(crowd: impl AsyncFn(u64)) {
    let Some(mut before) = resident() else { return };
    for seed in 0..MAX_ROUNDS {
        crowd(100 + 2 * seed).await;
        crowd(101 + 2 * seed).await;
        let after = resident().expect("it was there before");
        eprintln!("resident: {} KB, then {} KB", before >> 10, after >> 10);
        if after <= before + before / 100 {
            return;
        }
        before = after;
    }
    panic!("memory grows with every crowd: {before} bytes now");
}

#[test]
fn crowds_get_what_each_would_get_alone() {
    let Some(server) = RealServer::new("smollm2-135m", CONTEXT, CACHE_TOKENS) else { return };
    let requests = requests();
    block_on(async {
        let mut alone = Vec::new();
        for (path, body) in &requests {
            let mut body = body.clone();
            body["draft"] = j!("none");
            alone.push(visible(&server.ask(path, &body).await));
        }
        let crowd = async |n_clients: usize, seed: u64| {
            let client = |index: usize| {
                let (server, requests, alone) = (&server, &requests, &alone);
                async move {
                    let mut rng = Rng::new(1000 * seed + index as u64);
                    let which = rng.below(requests.len());
                    let (path, body) = &requests[which];
                    let mut body = body.clone();
                    body["draft"] = j!(DRAFTS[rng.below(DRAFTS.len())]);
                    body["priority"] = j!(rng.below(3));
                    if body["draft"] != "auto" {
                        body["draft_width"] = j!(1 + rng.below(6));
                    }
                    match rng.below(5) {
                        0 => vanish(server, path, &body, rng.below(5)).await,
                        _ => assert_eq!(visible(&server.ask(path, &body).await), alone[which], "{body}"),
                    }
                }
            };
            join_all((0..n_clients).map(client)).await;
        };
        for (seed, n_clients) in [1, 2, 4, 8, 16, 32, 32, 32].into_iter().enumerate() {
            crowd(n_clients, seed as u64).await;
        }
        settle(|seed| crowd(32, seed)).await;
    });
    server.end();
}
