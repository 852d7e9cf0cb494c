//! Clients that leave, servers that are full or go away: nothing is lost and nothing is left behind.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use common::{HELD, Server, Setup, block_on, json, text};
use foretoken_server::{Limits, READERS};
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::json as j;

const COMPLETIONS: &str = "/v1/completions";
/// Far longer than anything here takes.
const LATE: Duration = Duration::from_secs(30);

fn long() -> serde_json::Value {
    j!({ "prompt": "abc", "max_tokens": 400, "ignore_eos": true, "stream": true, "seed": 1 })
}

#[test]
fn a_client_that_leaves_takes_its_request_back() {
    block_on(async {
        let server = Server::new(Setup::default());
        for pieces in 0..6 {
            let mut body = server.post(COMPLETIONS, &long()).await.into_body().into_data_stream();
            for _ in 0..pieces {
                body.next().await.expect("there is more to come").expect("and it comes");
            }
            drop(body);
        }
        // A whole answer that nobody waits for any more.
        let whole = j!({ "prompt": "abc", "max_tokens": 400, "ignore_eos": true });
        let abandoned = tokio::time::timeout(std::time::Duration::from_micros(50), server.post(COMPLETIONS, &whole));
        let _ = abandoned.await;
        server.end();
    });
}

#[test]
fn a_slow_reader_gets_everything_and_holds_nobody_up() {
    block_on(async {
        let server = Server::new(Setup::default());
        let slow = server.post(COMPLETIONS, &long()).await;
        let other =
            server.ask(COMPLETIONS, &j!({ "prompt": "abc", "max_tokens": 400, "ignore_eos": true, "seed": 1 })).await;
        // Only now is the first one read.
        let chunks = common::chunks(&text(slow).await);
        let read: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
        assert_eq!(other["choices"][0]["text"], read);
        server.end();
    });
}

#[test]
fn plain_requests_do_not_wait_for_the_grammars_of_others() {
    let hold = Arc::new(Mutex::new(()));
    let server = Server::new(Setup { hold: hold.clone(), ..Setup::default() });
    block_on(async {
        let held = hold.lock().expect("nobody panics");
        let (grammar, plain) = (j!({ "prompt": "a", "regex": HELD }), j!({ "prompt": "a", "max_tokens": 3 }));
        let slow = join_all((0..3 * READERS).map(|_| server.ask(COMPLETIONS, &grammar)));
        let others = async {
            for _ in 0..3 {
                server.ask(COMPLETIONS, &plain).await;
            }
            drop(held);
        };
        let both = async { tokio::join!(slow, others) };
        let (slow, ()) = tokio::time::timeout(LATE, both).await.expect("plain ones are served meanwhile");
        assert!(slow.iter().all(|answer| answer["choices"][0]["finish_reason"] == "stop"), "{slow:?}");
    });
    server.end();
}

#[test]
fn beyond_the_limit_is_told_to_come_back() {
    block_on(async {
        let limits = Limits { requests: 3, requests_of_key: 2, ..Limits::default() };
        let server = Server::new(Setup { limits, ..Setup::default() });
        let held = [server.post(COMPLETIONS, &long()).await, server.post(COMPLETIONS, &long()).await];
        let refused = server.post(COMPLETIONS, &long()).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
        assert_eq!(json(refused).await["error"]["type"], "rate_limit_error");
        drop(held);
        let many = j!({ "prompt": "a", "n": 4 });
        assert_eq!(
            server.post(COMPLETIONS, &many).await.status(),
            StatusCode::BAD_REQUEST,
            "there is never room for it"
        );
        server.ask(COMPLETIONS, &j!({ "prompt": "a" })).await;
        server.end();
    });
}

#[test]
fn a_deadline_ends_an_answer_with_what_there_is() {
    block_on(async {
        let server = Server::new(Setup::default());
        let body = j!({ "prompt": "abc", "max_tokens": 500, "ignore_eos": true, "n": 32, "timeout": 1e-6 });
        let late = server.ask(COMPLETIONS, &body).await;
        for choice in late["choices"].as_array().unwrap() {
            assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&j!("length"), &j!("timeout")));
        }
        assert!(late["usage"]["completion_tokens"].as_u64() < Some(32 * 500));
        server.end();
    });
}

#[test]
fn a_draining_server_ends_what_it_has_and_takes_nothing_more() {
    block_on(async {
        let server = Server::new(Setup::default());
        let under_way = server.post(COMPLETIONS, &long()).await;
        server.app.drain();
        assert_eq!(server.get("/ready").await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(server.get("/health").await.status(), StatusCode::OK);
        let refused = server.post(COMPLETIONS, &j!({ "prompt": "a" })).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        common::chunks(&text(under_way).await);
        server.end();
    });
}

#[test]
fn an_engine_that_stops_ends_every_answer() {
    block_on(async {
        let server = Server::new(Setup::default());
        let under_way = server.post(COMPLETIONS, &long()).await;
        server.app.engine.stop();
        let text = text(under_way).await;
        assert!(text.contains("\"error\"") || text.ends_with("[DONE]\n\n"), "{text}");
        server.end();
    });
}
