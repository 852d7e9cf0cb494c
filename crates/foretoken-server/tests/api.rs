//! The wire: what is asked for, what comes back, what is refused and how.

mod common;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use common::{CONTEXT_SIZE, END, Server, Setup, block_on, json, post, text};
use foretoken_server::speech::CallForm;
use foretoken_server::{Habits, Limits};
use serde_json::{Value, json as j};

const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";

fn chat(text: &str) -> Value {
    j!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 40, "seed": 5, "ignore_eos": true })
}

fn completion(text: &str) -> Value {
    j!({ "prompt": text, "max_tokens": 40, "seed": 5, "ignore_eos": true })
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[test]
fn an_answer_says_what_it_took() {
    block_on(async {
        let server = Server::new(Setup::default());
        let answer = server.ask(COMPLETIONS, &completion("hello")).await;
        assert_eq!(answer["object"], "text_completion");
        assert_eq!(answer["model"], "toy");
        assert_eq!(answer["seed"], 5);
        assert_eq!(answer["usage"]["prompt_tokens"], 5);
        assert_eq!(answer["usage"]["completion_tokens"], 40);
        assert_eq!(answer["usage"]["total_tokens"], 45);
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        let timings = &answer["timings"];
        let n = |name: &str| timings[name].as_u64().unwrap_or_else(|| panic!("{name} of {timings}"));
        assert_eq!(n("predicted_n"), n("passes") + n("draft_n_accepted"));
        assert_eq!((n("prompt_n"), n("cache_n")), (5, 0));
        assert!(n("draft_n") >= n("draft_n_accepted"));
        let drafted = with(completion("abcabcabc"), j!({ "draft": "recycle", "draft_width": 4, "max_tokens": 100 }));
        let shares = server.ask(COMPLETIONS, &drafted).await["timings"]["acceptance_by_depth"].clone();
        let shares: Vec<f64> = shares.as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).collect();
        assert!(
            shares.len() > 1 && shares[0] > 0.0 && shares.iter().all(|share| (0.0..=1.0).contains(share)),
            "{shares:?}"
        );
        // A drawn seed is told, and gives the same text again.
        let mut body = completion("hello");
        body["seed"] = Value::Null;
        let drawn = server.ask(COMPLETIONS, &body).await;
        body["seed"] = drawn["seed"].clone();
        let again = server.ask(COMPLETIONS, &body).await;
        assert_eq!(again["choices"][0]["text"], drawn["choices"][0]["text"]);
        assert_ne!(drawn["choices"][0]["text"], answer["choices"][0]["text"]);
        let chat = server.ask(CHATS, &chat("hello")).await;
        assert_eq!(chat["object"], "chat.completion");
        assert_eq!(chat["choices"][0]["message"]["role"], "assistant");
        assert!(chat["id"].as_str().unwrap().starts_with("chatcmpl-"));
        server.end();
    });
}

#[test]
fn drafts_change_the_passes_and_nothing_else() {
    block_on(async {
        let server = Server::new(Setup::default());
        for temperature in [0.0, 0.7] {
            let body = with(
                completion("abababab"),
                j!({ "temperature": temperature, "logprobs": 3, "n": 2, "max_tokens": 120 }),
            );
            let plain = server.ask(COMPLETIONS, &with(body.clone(), j!({ "draft": "none" }))).await;
            assert_eq!(plain["timings"]["draft_n"], 0);
            for more in [
                j!({}),
                j!({ "draft": "recycle", "draft_width": 4 }),
                j!({ "draft": "suffix+recycle", "draft_width": 8 }),
            ] {
                let drafted = server.ask(COMPLETIONS, &with(body.clone(), more.clone())).await;
                for index in 0..2 {
                    let (one, other) = (&plain["choices"][index], &drafted["choices"][index]);
                    assert_eq!(one["text"], other["text"], "{more}");
                    assert_eq!(one["logprobs"], other["logprobs"], "{more}");
                    assert_eq!(one["finish_reason"], other["finish_reason"]);
                }
                assert_eq!(plain["usage"]["total_tokens"], drafted["usage"]["total_tokens"]);
            }
        }
        server.end();
    });
}

#[test]
fn every_setting_does_what_it_says() {
    block_on(async {
        let server = Server::new(Setup::default());
        let ask = async |more: Value| {
            let body = with(completion("abcabc"), more);
            let drafted = with(body.clone(), j!({ "draft": "recycle+suffix", "draft_width": 3 }));
            let [plain, drafted] = [
                server.ask(COMPLETIONS, &with(body, j!({ "draft": "none" }))).await,
                server.ask(COMPLETIONS, &drafted).await,
            ];
            let mut choices = [plain, drafted].map(|mut answer| answer["choices"].take());
            let untimed = |choice: &mut Value| choice.as_object_mut().expect("an object").remove("timings");
            choices
                .iter_mut()
                .for_each(|list| list.as_array_mut().expect("a list").iter_mut().for_each(|c| drop(untimed(c))));
            let [plain, drafted] = choices;
            assert_eq!(plain, drafted);
            plain
        };
        let text = async |more: Value| ask(more).await[0]["text"].as_str().expect("a text").to_owned();
        let drawn = text(j!({})).await;
        let likeliest = text(j!({ "temperature": 0 })).await;
        assert_ne!(drawn, likeliest);
        for only_one in
            [j!({ "top_k": 1 }), j!({ "min_p": 1 }), j!({ "top_p": 0 }), j!({ "temperature": 0, "seed": 99 })]
        {
            assert_eq!(text(only_one.clone()).await, likeliest, "{only_one}");
        }
        let letter = server.ask("/detokenize", &j!({ "tokens": [12] })).await["content"].as_str().unwrap().to_owned();
        assert_eq!(text(j!({ "logit_bias": { "12": 100 } })).await, letter.repeat(40));
        assert!(!text(j!({ "logit_bias": { "12": -100 }, "temperature": 2 })).await.contains(&letter));
        for penalty in ["frequency_penalty", "presence_penalty"] {
            let choice = ask(j!({ penalty: 100, "max_tokens": 12, "logprobs": 0 })).await;
            let tokens = choice[0]["logprobs"]["tokens"].as_array().expect("tokens").clone();
            let seen: std::collections::HashSet<&str> = tokens.iter().filter_map(Value::as_str).collect();
            assert_eq!(seen.len(), tokens.len(), "{penalty}: none comes twice in {tokens:?}");
        }
        assert_ne!(text(j!({ "repetition_penalty": 3, "temperature": 0 })).await, likeliest);
        assert_ne!(text(j!({ "seed": 6 })).await, drawn);
        let many = ask(j!({ "n": 3 })).await;
        assert_eq!(many[0]["text"], drawn, "the first is the one that is asked for alone");
        assert!(many[1]["text"] != many[0]["text"] && many[1]["text"] != many[2]["text"]);
        let stop: String = drawn.chars().skip(7).take(2).collect();
        let stopped = ask(j!({ "stop": [stop] })).await;
        assert_eq!((&stopped[0]["finish_reason"], &stopped[0]["stop_reason"]), (&j!("stop"), &j!(stop)));
        assert!(
            drawn.starts_with(stopped[0]["text"].as_str().unwrap())
                && !stopped[0]["text"].as_str().unwrap().contains(&stop)
        );
        let end = j!({ END.to_string(): 100 });
        let early = ask(j!({ "ignore_eos": false, "logit_bias": end, "logprobs": 0 })).await;
        assert_eq!((&early[0]["text"], &early[0]["finish_reason"]), (&j!(""), &j!("stop")));
        let late = ask(j!({ "ignore_eos": false, "logit_bias": end, "min_tokens": 9, "logprobs": 0 })).await;
        assert_eq!(late[0]["logprobs"]["tokens"].as_array().map(Vec::len), Some(9));
        server.end();
    });
}

#[test]
fn a_stream_is_the_answer_in_pieces() {
    block_on(async {
        let server = Server::new(Setup::default());
        let more = j!({ "n": 2, "stop": ["ab", "q"], "ignore_eos": false, "draft": "recycle", "draft_width": 6 });
        let cases = [
            (COMPLETIONS, with(with(completion("the text"), more.clone()), j!({ "logprobs": 2, "echo": true }))),
            (COMPLETIONS, with(completion("the text"), more.clone())),
            (CHATS, with(with(chat("the text"), more.clone()), j!({ "logprobs": true, "top_logprobs": 2 }))),
            (CHATS, with(chat("the text"), more)),
        ];
        for (path, body) in cases {
            for seed in 0..8 {
                let body = with(body.clone(), j!({ "seed": seed }));
                let whole = server.ask(path, &body).await;
                let options = j!({ "stream_options": { "include_usage": true } });
                let chunks = server.stream(path, &with(body.clone(), options)).await;
                let last = chunks.last().unwrap();
                assert_eq!(last["choices"], j!([]));
                for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
                    assert_eq!(last["usage"][count], whole["usage"][count]);
                }
                for index in 0..2 {
                    let (text, finish, logprobs) = put_together(&chunks, index);
                    let choice = &whole["choices"][index];
                    let expected = if path == CHATS { &choice["message"]["content"] } else { &choice["text"] };
                    assert_eq!(&text, expected);
                    assert_eq!(finish, choice["finish_reason"]);
                    let list = if path == CHATS {
                        &choice["logprobs"]["content"]
                    } else {
                        &choice["logprobs"]["token_logprobs"]
                    };
                    let expected = list.as_array().cloned().unwrap_or_default();
                    assert_eq!(logprobs, expected, "{body}");
                    let tokens = choice["logprobs"]["tokens"].as_array();
                    assert!(tokens.is_none_or(|tokens| tokens.len() == expected.len()));
                }
            }
        }
        server.end();
    });
}

/// A choice's text, end and log-probabilities.
fn put_together(chunks: &[Value], index: usize) -> (String, Value, Vec<Value>) {
    let (mut text, mut finish, mut logprobs) = (String::new(), Value::Null, Vec::new());
    for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()).filter(|c| c["index"] == index) {
        assert!(finish.is_null(), "nothing follows the end");
        let piece = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str());
        text.push_str(piece.unwrap_or_default());
        finish = choice["finish_reason"].clone();
        let list = choice["logprobs"]["content"].as_array().or_else(|| choice["logprobs"]["token_logprobs"].as_array());
        logprobs.extend(list.into_iter().flatten().cloned());
    }
    (text, finish, logprobs)
}

#[test]
fn a_prompt_s_tokens_score_what_they_scored_when_they_were_written() {
    block_on(async {
        let server = Server::new(Setup::default());
        let written = server
            .ask(
                COMPLETIONS,
                &j!({
                    "prompt": [12, 13, 14], "max_tokens": 50, "seed": 3, "logprobs": 2, "ignore_eos": true,
                    "logit_bias": { "8": 2 }, "trace": true,
                }),
            )
            .await;
        let passes = written["choices"][0]["foretoken"]["passes"].as_array().unwrap();
        let ids = passes.iter().flat_map(|pass| pass["tokens"].as_array().unwrap()).map(|token| token["id"].clone());
        assert!(ids.clone().any(|id| id == END), "what ends a text is scored like the rest");
        let prompt: Vec<Value> = [j!(12), j!(13), j!(14)].into_iter().chain(ids).collect();
        let body = j!({ "prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 2 });
        let scored = server.ask(COMPLETIONS, &body).await;
        let (old, new) = (&written["choices"][0]["logprobs"], &scored["choices"][0]["logprobs"]);
        assert_eq!(new["token_logprobs"].as_array().unwrap().len(), 53);
        assert!(new["token_logprobs"][0].is_null());
        for list in ["tokens", "token_logprobs", "top_logprobs"] {
            assert_eq!(new[list].as_array().unwrap()[3..], old[list].as_array().unwrap()[..], "{list}");
        }
        assert_eq!(scored["usage"]["completion_tokens"], 0);
        // With a token of its own, as evaluation harnesses ask.
        let more = server.ask(COMPLETIONS, &with(body, j!({ "max_tokens": 1 }))).await;
        assert_eq!(more["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), 54);
        server.end();
    });
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let long = "a".repeat(CONTEXT_SIZE);
    let message = |content: Value| j!({ "messages": [{ "role": "user", "content": content }] });
    let cases = [
        (COMPLETIONS, j!({ "prompt": "a", "colour": 1 }), "colour", "unknown_field"),
        (COMPLETIONS, j!({ "prompt": "a", "use_beam_search": true }), "use_beam_search", "unsupported"),
        (COMPLETIONS, j!({ "prompt": "a", "best_of": 3 }), "best_of", "unsupported"),
        (COMPLETIONS, j!({ "prompt": "a", "max_tokens": 0 }), "max_tokens", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "max_tokens": 1.5 }), "max_tokens", "invalid_type"),
        (COMPLETIONS, j!({ "prompt": "a", "max_tokens": -1 }), "max_tokens", "invalid_type"),
        (COMPLETIONS, j!({ "prompt": "a", "temperature": -1 }), "temperature", "out_of_range"),
        (COMPLETIONS, j!({ "prompt": "a", "temperature": "hot" }), "temperature", "invalid_type"),
        (COMPLETIONS, j!({ "prompt": "a", "top_p": 2 }), "top_p", "out_of_range"),
        (COMPLETIONS, j!({ "prompt": "a", "logit_bias": { "99": 1 } }), "logit_bias", "out_of_range"),
        (COMPLETIONS, j!({ "prompt": "a", "logit_bias": { "x": 1 } }), "logit_bias", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "stop": [""] }), "stop", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "stop": [3] }), "stop", "invalid_type"),
        (COMPLETIONS, j!({ "prompt": "a", "n": 0 }), "n", "out_of_range"),
        (COMPLETIONS, j!({ "prompt": "a", "draft": "magic" }), "draft", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "draft": "jacobi" }), "draft", "unknown_drafter"),
        (COMPLETIONS, j!({ "prompt": "a", "acceptor": "typical" }), "acceptor", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "stream_options": {} }), "stream_options", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "store": true }), "store", "unsupported"),
        (COMPLETIONS, j!({ "prompt": "a", "logprobs": 21 }), "logprobs", "out_of_range"),
        (COMPLETIONS, j!({ "prompt": [99] }), "prompt[0]", "unknown_token"),
        (COMPLETIONS, j!({ "prompt": [] }), "prompt", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "" }), "prompt", "empty_prompt"),
        (COMPLETIONS, j!({ "prompt": long }), "prompt", "context_length_exceeded"),
        (COMPLETIONS, j!({ "prompt": "a", "suffix": "b", "echo": true }), "echo", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "regex": "x", "grammar": "y" }), "grammar", "invalid_value"),
        (COMPLETIONS, j!({ "prompt": "a", "regex": "x", "ignore_eos": true }), "ignore_eos", "invalid_value"),
        (COMPLETIONS, j!({}), "prompt", "missing_field"),
        (CHATS, j!({}), "messages", "missing_field"),
        (CHATS, j!({ "messages": [] }), "messages", "invalid_value"),
        (CHATS, j!({ "messages": [{ "role": "user" }] }), "messages[0].content", "missing_field"),
        (CHATS, j!({ "messages": [{ "role": "boss", "content": "a" }] }), "messages[0].role", "invalid_value"),
        (CHATS, message(j!([{ "type": "image_url", "image_url": {} }])), "messages[0].content[0].type", "unsupported"),
        (CHATS, with(message(j!("a")), j!({ "functions": [] })), "functions", "unsupported"),
        (CHATS, with(message(j!("a")), j!({ "prediction": {} })), "prediction", "unsupported"),
        (CHATS, with(message(j!("a")), j!({ "top_logprobs": 2 })), "top_logprobs", "invalid_value"),
        (CHATS, with(message(j!("a")), j!({ "modalities": ["audio"] })), "modalities", "unsupported"),
        (CHATS, with(message(j!("a")), j!({ "tool_choice": "required" })), "tool_choice", "invalid_value"),
        (
            CHATS,
            with(message(j!("a")), j!({ "response_format": { "type": "json_object" } })),
            "response_format",
            "invalid_grammar",
        ),
        (
            CHATS,
            with(message(j!("a")), j!({ "response_format": { "type": "xml" } })),
            "response_format.type",
            "invalid_value",
        ),
        (
            CHATS,
            with(message(j!("a")), j!({ "chat_template_kwargs": { "messages": [] } })),
            "chat_template_kwargs",
            "invalid_value",
        ),
        (CHATS, message(j!(long)), "messages", "context_length_exceeded"),
        ("/tokenize", j!({}), "prompt", "missing_field"),
        ("/detokenize", j!({ "tokens": [1000] }), "tokens[0]", "unknown_token"),
    ];
    block_on(async {
        let server = Server::new(Setup::default());
        for (path, body, param, code) in cases {
            let response = server.post(path, &body).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
            let error = json(response).await["error"].take();
            assert_eq!((&error["param"], &error["code"]), (&j!(param), &j!(code)), "{body} -> {error}");
            assert_eq!(error["type"], "invalid_request_error");
            let names_it = error["message"].as_str().unwrap().contains(param.split(['[', '.']).next().unwrap());
            // Some messages are the engine's own, and say it in words.
            let ours = ["unknown_field", "unsupported", "invalid_type", "missing_field"].contains(&code);
            assert!(names_it || !ours, "{error}");
        }
        let tools = j!({ "tools": [{ "type": "function", "function": { "name": "f" } }] });
        let error = json(server.post(CHATS, &with(chat("a"), tools)).await).await["error"].take();
        assert_eq!(error["param"], "tools");
        server.end();
    });
}

#[test]
fn limits_are_named_with_the_value() {
    block_on(async {
        let server = Server::new(Setup::default());
        let message = |value: Value| value["error"]["message"].as_str().unwrap().to_owned();
        let long = message(json(server.post(COMPLETIONS, &j!({ "prompt": "a".repeat(600) })).await).await);
        assert!(long.contains("600") && long.contains("512"), "{long}");
        for len in [CONTEXT_SIZE - 2, CONTEXT_SIZE - 1] {
            let answer = server.ask(COMPLETIONS, &with(completion(&"a".repeat(len)), j!({ "max_tokens": 9 }))).await;
            assert_eq!(answer["usage"]["completion_tokens"], CONTEXT_SIZE - len);
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
        }
        server.end();
    });
}

#[test]
fn other_models_paths_methods_and_types_are_refused() {
    block_on(async {
        let limits = Limits { body_bytes: 1000, ..Limits::default() };
        let server = Server::new(Setup { limits, ..Setup::default() });
        let status = |request: Request<Body>| {
            let server = &server;
            async move {
                let response = server.send(request).await;
                let status = response.status().as_u16();
                assert!(json(response).await["error"]["message"].is_string());
                status
            }
        };
        assert_eq!(status(post(COMPLETIONS, "{\"model\": \"gpt\", \"prompt\": \"a\"}")).await, 404);
        assert_eq!(status(post(COMPLETIONS, "{")).await, 400);
        assert_eq!(status(post(COMPLETIONS, "[]")).await, 400);
        assert_eq!(status(post(COMPLETIONS, "[".repeat(900))).await, 400);
        assert_eq!(status(post(COMPLETIONS, " ".repeat(2000))).await, 413);
        assert_eq!(status(post("/v1/embeddings", "{}")).await, 404);
        assert_eq!(status(Request::get(COMPLETIONS).body(Body::empty()).unwrap()).await, 405);
        let plain = Request::post(COMPLETIONS).header(header::CONTENT_TYPE, "text/plain");
        assert_eq!(status(plain.body(Body::from("{\"prompt\": \"a\"}")).unwrap()).await, 415);
        let models = json(server.get("/v1/models").await).await;
        assert_eq!(models["data"][0]["id"], "toy");
        assert_eq!(json(server.get("/v1/models/toy").await).await["max_model_len"], CONTEXT_SIZE);
        assert_eq!(server.get("/v1/models/none").await.status(), StatusCode::NOT_FOUND);
        assert_eq!(server.get("/health").await.status(), StatusCode::OK);
        server.end();
    });
}

#[test]
fn keys_are_asked_for_and_tell_callers_apart() {
    block_on(async {
        let server = Server::new(Setup { keys: "one\ntwo", ..Setup::default() });
        let ask = |key: &'static str| {
            let server = &server;
            async move {
                let mut request = post(COMPLETIONS, completion("the quick brown fox").to_string());
                request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
                let response = server.send(request).await;
                (response.status(), json(response).await)
            }
        };
        assert_eq!(server.post(COMPLETIONS, &completion("a")).await.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(ask("three").await.0, StatusCode::UNAUTHORIZED);
        let (status, first) = ask("one").await;
        assert_eq!(status, StatusCode::OK);
        let again = ask("one").await.1;
        assert_eq!(first["choices"][0]["text"], again["choices"][0]["text"]);
        assert!(again["timings"]["cache_n"].as_u64() > Some(0), "one's own prompt is reused");
        for path in ["/health", "/ready", "/"] {
            assert_eq!(server.get(path).await.status(), StatusCode::OK, "{path}");
        }
        for path in ["/metrics", "/stats", "/v1/models", "/openapi.json"] {
            assert_eq!(server.get(path).await.status(), StatusCode::UNAUTHORIZED, "{path}");
        }
        server.end();
    });
}

#[test]
fn what_one_key_wrote_makes_nothing_faster_for_another() {
    for draft in ["suffix", "recycle", "suffix+recycle"] {
        block_on(async {
            let server = Server::new(Setup { keys: "one\ntwo", ..Setup::default() });
            let body = with(completion("the quick brown fox"), j!({ "draft": draft, "draft_width": 4 }));
            let ask = async |key: &str| {
                let mut request = post(COMPLETIONS, body.to_string());
                request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
                let answer = json(server.send(request).await).await;
                let n = |name: &str| answer["timings"][name].as_u64().unwrap_or_else(|| panic!("{answer}"));
                (answer["choices"][0]["text"].clone(), n("cache_n"), n("passes"))
            };
            let (text, _, cold) = ask("one").await;
            let (again, cached, warm) = ask("one").await;
            assert!(cached > 0 && warm < cold, "one's own text is remembered: {cold} and {warm} passes");
            let (others, cached, passes) = ask("two").await;
            assert_eq!((&again, &others, cached), (&text, &text, 0));
            // How often guesses of a drafter come true is known from everybody, so a guess more or less may be run.
            assert!(2 * passes > cold + warm, "{draft}: {cold} passes, then {warm}, and {passes} for another");
            server.end();
        });
    }
}

#[test]
fn dashboards_find_their_metrics() {
    // Names of vLLM's that dashboards for speculative decoding ask for.
    let known = [
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
    ];
    let board: Value = serde_json::from_str(include_str!("../../../contrib/grafana.json")).unwrap();
    let mut asked: Vec<String> = known.map(str::to_owned).into();
    expressions(&board, &mut |expression| {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        asked.extend(words.filter(|word| word.starts_with("foretoken_") || word.contains(':')).map(str::to_owned));
    });
    assert!(asked.len() > known.len() + 10, "{asked:?}");
    block_on(async {
        let server = Server::new(Setup::default());
        server.ask(COMPLETIONS, &with(completion("abcabcabc"), j!({ "draft": "recycle", "draft_width": 4 }))).await;
        let text = text(server.get("/metrics").await).await;
        for name in asked {
            let base = ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let kind = format!("# TYPE {} ", base.unwrap_or(&name));
            assert!(text.lines().any(|line| line.starts_with(&kind)), "there is no {name}");
        }
        server.end();
    });
}

/// The queries of a dashboard.
fn expressions(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            fields.get("expr").and_then(Value::as_str).into_iter().for_each(&mut *found);
            fields.values().for_each(|value| expressions(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn counters_agree_with_the_answers() {
    block_on(async {
        let server = Server::new(Setup::default());
        let (mut prompt, mut output, mut drafted, mut accepted, mut passes) = (0, 0, 0, 0, 0);
        for seed in 0..10 {
            let more = j!({ "seed": seed, "ignore_eos": false, "draft": "recycle+suffix", "draft_width": 4, "max_tokens": 60 });
            let answer = server.ask(COMPLETIONS, &with(completion("abcabcabc"), more)).await;
            let n = |value: &Value| value.as_u64().unwrap();
            prompt += n(&answer["usage"]["prompt_tokens"]);
            output += n(&answer["usage"]["completion_tokens"]);
            drafted += n(&answer["timings"]["draft_n"]);
            accepted += n(&answer["timings"]["draft_n_accepted"]);
            passes += n(&answer["timings"]["passes"]);
        }
        assert!(accepted > 0);
        let expect = [
            ("foretoken_prompt_tokens_total", prompt),
            ("foretoken_output_tokens_total", output),
            ("foretoken_draft_tokens_total", drafted),
            ("foretoken_draft_tokens_accepted_total", accepted),
            ("foretoken_passes_total", passes),
            ("vllm:generation_tokens_total{model_name=\"toy\"}", output),
            ("vllm:spec_decode_num_draft_tokens_total{model_name=\"toy\"}", drafted),
            ("vllm:spec_decode_num_accepted_tokens_total{model_name=\"toy\"}", accepted),
            ("foretoken_first_token_seconds_count", 10),
            ("foretoken_requests_running", 0),
        ];
        for (line, value) in expect {
            assert_eq!(server.metric(line).await, value as f64, "{line}");
        }
        let body = text(server.get("/metrics").await).await;
        let sum = |prefix: &str, part: &str| {
            let lines = body.lines().filter(|line| line.starts_with(prefix) && line.contains(part));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
        };
        assert_eq!(sum("foretoken_drafter_tokens_total", "fate=\"checked\""), drafted as f64);
        assert_eq!(sum("foretoken_drafter_tokens_total", "fate=\"accepted\""), accepted as f64);
        assert_eq!(sum("vllm:spec_decode_num_accepted_tokens_per_pos_total", ""), accepted as f64);
        assert_eq!(sum("foretoken_requests_finished_total", ""), 10.0);
        assert!(body.ends_with("# EOF\n"));
        server.end();
    });
}

#[test]
fn prompts_that_are_scored_count_as_no_text() {
    block_on(async {
        let server = Server::new(Setup { shadows: 1.0, ..Setup::default() });
        let echo = with(completion(&"abc ".repeat(10)), j!({ "echo": true, "logprobs": 1, "draft": "none" }));
        let (mut prompt, mut output) = (0, 0);
        for (n, max_tokens) in [(1, 0), (2, 0), (3, 5)] {
            let answer = server.ask(COMPLETIONS, &with(echo.clone(), j!({ "max_tokens": max_tokens }))).await;
            prompt += answer["usage"]["prompt_tokens"].as_u64().unwrap();
            output += answer["usage"]["completion_tokens"].as_u64().unwrap();
            for (line, value) in [
                ("foretoken_prompt_tokens_total", prompt),
                ("foretoken_output_tokens_total", output),
                ("foretoken_requests_finished_total{reason=\"length\"}", n),
                ("foretoken_draft_tokens_total", 0),
                ("foretoken_draft_tokens_accepted_total", 0),
                ("foretoken_drafts_total", 0),
            ] {
                assert_eq!(server.metric(line).await, value as f64, "{line} after {n}");
            }
        }
        assert_eq!((prompt, output), (120, 5));
        assert_eq!(server.metric("foretoken_first_token_seconds_count").await, 1.0);
        assert_eq!(server.metric("foretoken_shadows_total").await, 0.0, "what was no text is not run again");
        server.end();
    });
}

#[test]
fn a_share_is_run_again_without_drafts_and_compared() {
    block_on(async {
        let server = Server::new(Setup { shadows: 0.5, ..Setup::default() });
        let body = with(completion("abcabcabc"), j!({ "draft": "recycle", "draft_width": 4 }));
        for _ in 0..8 {
            server.ask(COMPLETIONS, &body).await;
        }
        server.ask(COMPLETIONS, &with(body, j!({ "draft": "none" }))).await;
        // The engine goes through what waits before it sleeps, unless it is stopped before.
        let all_run = async {
            while server.metric("foretoken_shadows_total").await < 4.0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), all_run).await.expect("four are run again");
        assert_eq!(server.metric("foretoken_shadow_mismatches_total").await, 0.0);
        assert!(server.metric("foretoken_shadow_plain_seconds_total").await > 0.0);
        assert_eq!(server.metric("foretoken_output_tokens_total").await, 9.0 * 40.0);
        server.end();
    });
}

#[test]
fn tools_are_told_apart_in_answers() {
    block_on(async {
        let habits = Habits { calls: Some(CallForm::Tagged), thinks: true };
        let server = Server::new(Setup { habits, ..Setup::default() });
        let tools =
            j!({ "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }] });
        let answer = server.ask(CHATS, &with(chat("a"), tools.clone())).await;
        assert!(answer["choices"][0]["message"]["tool_calls"].is_null());
        assert_eq!(answer["choices"][0]["message"]["reasoning_content"], "");
        let turns = j!({ "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "a" }] },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{\"x\": 1}" } },
            ] },
            { "role": "tool", "tool_call_id": "call_1", "content": "7" },
        ] });
        server.ask(CHATS, &with(with(chat("a"), tools), turns)).await;
        server.end();
    });
}

#[test]
fn texts_become_tokens_and_back() {
    block_on(async {
        let server = Server::new(Setup::default());
        let tokens = server.ask("/tokenize", &j!({ "prompt": "hello you", "with_pieces": true })).await;
        assert_eq!(tokens["count"], 9);
        assert_eq!(tokens["pieces"][0], "h");
        let text = server.ask("/detokenize", &j!({ "tokens": tokens["tokens"] })).await;
        assert_eq!(text["content"], "hello you");
        let chat = server.ask("/tokenize", &j!({ "messages": [{ "role": "user", "content": "hi" }] })).await;
        assert_eq!(chat["count"], 8);
        server.end();
    });
}

#[test]
fn the_document_names_every_field() {
    block_on(async {
        let server = Server::new(Setup::default());
        let document = json(server.get("/openapi.json").await).await;
        for (path, needed) in [
            (COMPLETIONS, j!(["prompt"])),
            (CHATS, j!(["messages"])),
            ("/tokenize", j!([])),
            ("/detokenize", j!(["tokens"])),
        ] {
            let schema = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!((&schema["additionalProperties"], &schema["required"]), (&j!(false), &needed), "{path}");
            assert_eq!(schema["properties"]["model"]["type"], j!(["string", "null"]), "{path}");
            for (name, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{path} {name}");
                assert!(property.get("enum").is_none_or(Value::is_array), "{path} {name}");
            }
        }
        // Every path of the document is one of the server's.
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                let request =
                    Request::builder().method(method.to_uppercase().as_str()).uri(path.replace("{id}", "toy"));
                let response = server.send(request.body(Body::empty()).unwrap()).await;
                let expected = if method == "get" { StatusCode::OK } else { StatusCode::UNSUPPORTED_MEDIA_TYPE };
                assert_eq!(response.status(), expected, "{method} {path}");
            }
        }
        server.end();
    });
}
