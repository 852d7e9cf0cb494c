//! The model inside the program: what happens when none is named.

#[allow(dead_code, reason = "no file of a model is needed here")]
mod common;

use common::{fails, json, run, stderr};

const FIBONACCI: &str = "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n";

#[test]
fn generate_uses_it_says_so_and_shows_tokens_per_pass() {
    let output = run(&["generate", "--threads", "1", "-n", "64", "--temperature", "0", FIBONACCI]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no model is named (-m): the embedded one writes") && said.contains(" a pass)"), "{said}");
}

#[test]
fn its_heads_change_no_byte() {
    for temperature in ["0", "0.8"] {
        let with = |draft: &str| {
            let all =
                ["generate", "--json", "--threads", "1", "-n", "160", "--seed", "5", "--temperature", temperature];
            json(&all.into_iter().chain(["--draft", draft, FIBONACCI]).collect::<Vec<_>>())
        };
        let plain = with("none");
        for draft in ["auto", "mtp", "blockwise", "mtp+recall"] {
            let drafted = with(draft);
            assert_eq!(drafted["token_ids"], plain["token_ids"], "{draft} at {temperature}");
            assert!(drafted["passes"].as_u64() < plain["passes"].as_u64(), "{draft} at {temperature}");
        }
    }
}

#[test]
fn inspect_shows_its_heads() {
    let output = run(&["inspect"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("prediction heads") && said.contains("7 beside the model's own, resblock"), "{said}");
    assert_eq!(json(&["inspect", "embedded", "--json"])["heads"]["count"], 7);
}

#[test]
fn demo_without_a_terminal_prints_what_came_out() {
    let output = run(&["demo", "--threads", "1", "-n", "100", "--seed", "1"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("def fibonacci(n):\n"), "{said}");
    for words in ["plain  100 tokens, 100 passes, 1.00 tokens a pass", "auto   100 tokens, ", "texts identical: yes\n"]
    {
        assert!(said.contains(words), "{words:?} is missing in: {said}");
    }
    assert!(!said.contains('\u{1b}'), "no escapes where nobody draws");
}

#[test]
fn a_conversation_needs_another_model() {
    fails(&["chat"], 1, &["no chat template"]);
}
