//! `--schema` and its like, and `--acceptor`, on a real model.

mod common;

use std::fs;
use std::path::Path;

use serde_json::Value;

use common::{fails, json, smollm2};

const QUESTION: &str = "Describe a cat named Tom.";

fn answer(model: &Path, more: &[&str]) -> Value {
    json(&arguments(model, more))
}

fn arguments<'a>(model: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let model = model.to_str().expect("a plain path");
    let mut all = vec!["generate", "--threads", "1", "-m", model, "--json", "--chat", "-n", "80", "--temperature", "0"];
    all.extend(more);
    all.push(QUESTION);
    all
}

#[test]
fn texts_fit_their_schema_and_drafts_change_nothing() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "colour": {"enum": ["black", "white"]}}, "required": ["name", "colour"], "additionalProperties": false}"#;
    let path = folder.path().join("cat.json");
    fs::write(&path, schema).expect("it can be written");
    let path = path.to_str().expect("a plain path");
    let plain = answer(&model, &["--schema", schema, "--draft", "none"]);
    assert_eq!(plain["finish_reason"], "end_token");
    let value: Value = serde_json::from_str(plain["text"].as_str().expect("a text")).expect("JSON");
    assert!(["black", "white"].contains(&value["colour"].as_str().expect("a colour")), "{value}");
    for draft in [&[][..], &["--draft", "grammar", "--draft-width", "4"]] {
        let drafted = answer(&model, &[&["--schema", path], draft].concat());
        assert_eq!(drafted["token_ids"], plain["token_ids"]);
        assert!(drafted["passes"].as_u64() < plain["passes"].as_u64(), "forced tokens are drafted");
    }

    let regex = answer(&model, &["--regex", "Tom is a (black|white) cat\\."]);
    assert!(["Tom is a black cat.", "Tom is a white cat."].contains(&regex["text"].as_str().expect("a text")));
    let lark = folder.path().join("cat.lark");
    fs::write(&lark, "start: \"meow\" (\", meow\"){2}").expect("it can be written");
    let lark = answer(&model, &["--grammar", lark.to_str().expect("a plain path")]);
    assert_eq!(lark["text"], "meow, meow, meow");
}

#[test]
fn what_is_wrong_with_a_structure_is_told_at_once() {
    let Some(model) = smollm2() else { return };
    let wrong = |more: &[&str], words: &[&str]| fails(&arguments(&model, more), 2, words);
    wrong(&["--schema", r#"{"properties": {"a": {"type": "cat"}}}"#], &["#/properties/a", "cat"]);
    wrong(&["--schema", "{oops"], &["line 1 column 2"]);
    wrong(&["--regex", "a(b"], &["regular expression", "unclosed group"]);
    wrong(&["--regex", "a", "--json-object"], &["--regex", "--json-object"]);
    wrong(&["--regex", "a", "--ignore-eos"], &["ends where the grammar does"]);
    fails(&arguments(&model, &["--schema", "no/such/file.json"]), 1, &["no/such/file.json"]);
}

#[test]
fn other_acceptors_say_that_their_texts_depend_on_the_drafts() {
    let Some(model) = smollm2() else { return };
    let with = |acceptor: &str| {
        answer(&model, &["--acceptor", acceptor, "--draft", "recycle", "--draft-width", "4", "-n", "40"])
    };
    let coupled = with("coupled");
    assert_eq!((&coupled["reproducible"], &coupled["acceptor"]), (&true.into(), &"coupled".into()));
    assert_eq!(coupled["agreement"], Value::Null);
    for (acceptor, greedy) in [("top_k:1", true), ("top_k:4", false), ("typical", true), ("rejection", true)] {
        let outcome = with(acceptor);
        assert_eq!(outcome["reproducible"], false);
        assert!(outcome["acceptor"].as_str().expect("a name").starts_with(acceptor), "{outcome}");
        if greedy {
            assert_eq!(outcome["token_ids"], coupled["token_ids"], "{acceptor} at temperature 0");
        }
        if acceptor != "rejection" {
            let [perplexity, agreement] =
                ["target_perplexity", "agreement"].map(|key| outcome[key].as_f64().expect(key));
            assert!(perplexity > 1.0 && (0.0..=1.0).contains(&agreement), "{outcome}");
            assert_eq!(agreement == 1.0, greedy, "{outcome}");
        }
    }
    fails(&arguments(&model, &["--acceptor", "rejection"]), 2, &["rejection", "--draft-width"]);
    fails(&arguments(&model, &["--acceptor", "magic"]), 2, &["magic", "typical"]);
}
