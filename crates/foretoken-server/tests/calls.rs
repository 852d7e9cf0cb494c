//! Streamed calls: however many tokens a pass brings, and wherever its text is cut, the client puts the same calls together.

mod common;

use common::{Server, Setup};
use foretoken_server::reply::{Chunks, Head, Kind, Shape};
use foretoken_server::speech::{CallForm, Form, Start};
use foretoken_server::worker::Piece;
use serde_json::{Value, json as j};

const TEXT: &str = concat!(
    "Both.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>\n",
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": [1, {\"y\": \"</tool_call>\"}]}}\n</tool_call>",
);

/// What a client makes of the chunks of these pieces of a text: content, and each call's id, name and arguments.
fn put_together(server: &Server, pieces: &[&str]) -> (String, Vec<(String, String, String)>) {
    let (mut content, mut calls): (String, Vec<(String, String, String)>) = Default::default();
    let names = ["f".to_owned(), "g".to_owned()].into();
    for delta in deltas(server, Form { calls: Some(CallForm::Tagged), names, thinks: false }, Start::Content, pieces) {
        content.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("an index") as usize;
            if let Some(id) = call["id"].as_str() {
                assert_eq!(index, calls.len(), "calls begin one after the other");
                calls.push((id.into(), call["function"]["name"].as_str().expect("a name").into(), String::new()));
            }
            calls[index].2.push_str(call["function"]["arguments"].as_str().expect("arguments"));
        }
    }
    (content, calls)
}

/// The deltas of an answer whose text comes in these pieces.
fn deltas(server: &Server, form: Form, start: Start, pieces: &[&str]) -> Vec<Value> {
    let shape = Shape {
        kind: Kind::Chat { form, start, logprobs: None },
        n: 1,
        include_usage: false,
        trace: false,
        seed: 1,
        draft: "auto".into(),
        prompt_lens: vec![1],
    };
    let mut chunks = Chunks::new(Head { id: "chatcmpl-1".into(), created: 0 }, shape, 1);
    let mut deltas = Vec::new();
    for text in pieces {
        let piece = Piece {
            tokens: vec![12; 2],
            sources: vec![0; 2],
            text: (*text).to_owned(),
            logprobs: Vec::new(),
            trace: None,
            ends: false,
        };
        deltas.extend(chunks.piece(0, &piece, &server.app).iter().map(|chunk| chunk["choices"][0]["delta"].clone()));
    }
    deltas
}

#[test]
fn thoughts_are_told_apart_wherever_a_pass_ends() {
    let server = Server::new(Setup::default());
    let told = |start: Start, pieces: &[&str]| {
        let form = Form { thinks: true, ..Form::default() };
        let (mut thought, mut content) = (String::new(), String::new());
        for delta in deltas(&server, form, start, pieces) {
            thought.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
            assert!(content.is_empty() || delta["reasoning_content"].is_null(), "thoughts come first");
            content.push_str(delta["content"].as_str().unwrap_or_default());
        }
        (thought, content)
    };
    let expected = ("Hm,\n2 < 3.".to_owned(), "It is < 3.".to_owned());
    for (start, text) in [
        (Start::Content, "<think>\nHm,\n2 < 3.\n</think>\n\nIt is < 3."),
        (Start::Thought, "Hm,\n2 < 3.\n</think>\n\nIt is < 3."),
    ] {
        for at in 0..=text.len() {
            assert_eq!(told(start, &[&text[..at], &text[at..]]), expected, "cut at {at}");
        }
        let letters: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
        assert_eq!(told(start, &letters), expected);
    }
    server.end();
}

#[test]
fn nothing_of_two_calls_is_lost_wherever_a_pass_ends() {
    let server = Server::new(Setup::default());
    let whole = put_together(&server, &[TEXT]);
    assert_eq!(whole.0, "Both.");
    let [first, second] = &whole.1[..] else { panic!("{whole:?}") };
    assert_eq!((first.1.as_str(), second.1.as_str()), ("f", "g"));
    assert_ne!(first.0, second.0);
    let arguments = |call: &(String, String, String)| serde_json::from_str::<Value>(&call.2).expect("JSON");
    assert_eq!(arguments(first), j!({ "city": "Köln" }));
    assert_eq!(arguments(second), j!({ "x": [1, { "y": "</tool_call>" }] }));
    let places: Vec<usize> = (1..TEXT.len()).filter(|&at| TEXT.is_char_boundary(at)).collect();
    for &one in &places {
        for &other in places.iter().filter(|&&other| other > one) {
            let pieces = [&TEXT[..one], &TEXT[one..other], &TEXT[other..]];
            assert_eq!(put_together(&server, &pieces), whole, "{pieces:?}");
        }
    }
    server.end();
}
