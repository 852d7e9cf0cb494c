//! `foretoken generate` and `chat` on a real model.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use common::{fails, foretoken, json, run, smollm2, stderr};

const STORY: &str =
    "Once upon a time, there was a little fox. The little fox lived in a little house. Once upon a time,";

fn args<'a>(model: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["generate", "--threads", "1", "-m", model.to_str().expect("a plain path")];
    args.extend(more);
    args
}

fn ids(outcome: &Value) -> Vec<u64> {
    outcome["token_ids"].as_array().expect("an array").iter().map(|id| id.as_u64().expect("an id")).collect()
}

#[test]
fn json_has_the_counts_and_they_add_up() {
    let Some(model) = smollm2() else { return };
    let outcome = json(&args(&model, &["--json", "-n", "40", "--temperature", "0", STORY]));
    let number = |key: &str| outcome[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", outcome[key]));
    assert!(!outcome["text"].as_str().expect("a text").is_empty());
    assert_eq!(ids(&outcome).len(), 40);
    assert_eq!(number("passes") + number("accepted"), 40.0);
    assert!((number("acceptance_length") - 40.0 / number("passes")).abs() < 1e-9);
    assert!(number("drafted") >= number("accepted"));
    assert!(number("prompt_tokens") > 10.0);
    assert!(number("prompt_seconds") > 0.0 && number("decode_seconds") > 0.0 && number("tokens_per_second") > 0.0);
    assert_eq!(outcome["finish_reason"], "length");
    assert_eq!(outcome["reproducible"], true);
    assert!(outcome["seed"].is_u64() && outcome["acceptance_by_depth"].is_array());
}

#[test]
fn drafts_change_no_token() {
    let Some(model) = smollm2() else { return };
    for temperature in ["0", "0.8"] {
        let with = |draft: &[&str]| {
            let mut more = vec!["--json", "-n", "48", "--temperature", temperature, "--seed", "7"];
            more.extend(draft);
            more.push(STORY);
            json(&args(&model, &more))
        };
        let plain = with(&["--draft", "none"]);
        assert_eq!(plain["drafted"], 0);
        let drafted = with(&["--draft", "prompt_lookup", "--draft-width", "3"]);
        assert!(drafted["drafted"].as_u64() > Some(0));
        for other in [drafted, with(&[]), with(&["--threads", "2", "--prompt-rows", "5"])] {
            assert_eq!(ids(&other), ids(&plain), "T = {temperature}");
            assert_eq!(other["text"], plain["text"]);
        }
    }
}

#[test]
fn seeds_are_drawn_reported_and_repeat_the_text() {
    let Some(model) = smollm2() else { return };
    let free = ["--json", "-n", "16", "--temperature", "1.5", "--top-p", "1", "--min-p", "0", "--top-k", "0", STORY];
    let first = json(&args(&model, &free));
    let second = json(&args(&model, &free));
    assert_ne!(first["seed"], second["seed"]);
    assert_ne!(ids(&first), ids(&second));
    let seed = first["seed"].to_string();
    let mut again = vec!["--seed", &seed];
    again.extend(free);
    assert_eq!(ids(&json(&args(&model, &again))), ids(&first));
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let Some(model) = smollm2() else { return };
    let plain = json(&args(&model, &["--json", "-n", "40", "--temperature", "0", STORY]));
    let text = plain["text"].as_str().expect("a text");
    let stop = text.split_whitespace().nth(5).expect("some words");
    let stopped = json(&args(&model, &["--json", "-n", "40", "--temperature", "0", "--stop", stop, STORY]));
    assert_eq!(stopped["finish_reason"], "stop_string");
    assert_eq!(stopped["stop_string"], stop);
    assert_eq!(stopped["text"], text[..text.find(stop).expect("it is there")]);
}

#[test]
fn the_end_token_can_be_put_off_and_ignored() {
    let Some(model) = smollm2() else { return };
    let with = |more: &[&str]| {
        let mut all = vec!["--json", "--chat", "--temperature", "0", "-n", "60"];
        all.extend(more);
        all.push("Say hello.");
        json(&args(&model, &all))
    };
    let plain = with(&[]);
    assert_eq!(plain["finish_reason"], "end_token");
    let len = ids(&plain).len();
    assert!(len < 40, "{plain}");
    let least = (len + 5).to_string();
    assert!(ids(&with(&["--min-tokens", &least])).len() >= len + 5);
    let on = with(&["--ignore-eos"]);
    assert_eq!(ids(&on).len(), 60);
    assert_eq!(ids(&on)[..len], ids(&plain)[..]);
}

#[test]
fn a_prompt_may_fill_the_context_but_for_one_token() {
    let Some(model) = smollm2() else { return };
    let prompt = json(&args(&model, &["--json", "-n", "1", STORY]))["prompt_tokens"].as_u64().expect("a count");
    for room in [1, 2, 5] {
        let context = (prompt + room).to_string();
        let outcome = json(&args(&model, &["--json", "-n", "0", "--ignore-eos", "--ctx-size", &context, STORY]));
        assert_eq!(outcome["finish_reason"], "context_full");
        // The last token needs no row of its own any more.
        assert_eq!(ids(&outcome).len() as u64, room);
    }
    let context = prompt.to_string();
    let words = [format!("{prompt} tokens"), "--ctx-size".into()];
    fails(&args(&model, &["--ctx-size", &context, STORY]), 1, &words.each_ref().map(String::as_str));
    fails(&args(&model, &["--ctx-size", "1000000", STORY]), 2, &["1000000", "8192"]);
}

#[test]
fn prompts_come_from_arguments_files_and_pipes() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompt.txt");
    fs::write(&file, STORY).expect("it can be written");
    let rest = ["--json", "-n", "5", "--temperature", "0"];
    let with =
        |more: &[&str]| args(&model, &[&rest[..], more].concat()).into_iter().map(String::from).collect::<Vec<_>>();
    let expected = ids(&json(&with(&[STORY])));
    assert_eq!(ids(&json(&with(&["--prompt", STORY]))), expected);
    assert_eq!(ids(&json(&with(&["--file", file.to_str().expect("a plain path")]))), expected);
    let mut child = foretoken(&with(&["-"])).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("piped").write_all(STORY.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(ids(&serde_json::from_slice(&output.stdout).expect("JSON")), expected);
    fails(&with(&[""]), 1, &["the prompt is empty"]);
}

#[test]
fn the_text_streams_and_the_summary_counts_passes() {
    let Some(model) = smollm2() else { return };
    let output = run(&args(&model, &["-n", "12", "--temperature", "0", STORY]));
    let plain = json(&args(&model, &["-n", "12", "--temperature", "0", "--json", STORY]));
    let text = plain["text"].as_str().expect("a text");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), text.trim_end());
    let said = stderr(&output);
    let shown = run(&args(&model, &["-n", "12", "--temperature", "0", "--show", STORY]));
    assert_eq!(shown.stdout, output.stdout, "plain where there is no terminal");
    assert!(stderr(&shown).contains("■ the model itself"), "{}", stderr(&shown));
    assert!(said.contains("12 tokens in ") && said.contains(" passes") && said.contains("tokens/s"), "{said}");
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let Some(model) = smollm2() else { return };
    for (option, value, words) in [
        ("--temperature", "-1", &["--temperature is -1", "between 0 and 100"][..]),
        ("--top-p", "1.5", &["--top-p is 1.5", "between 0 and 1"]),
        ("--logit-bias", "999999=1", &["999999", "49152"]),
        ("--min-tokens", "1000", &["--min-tokens is 1000", "--max-tokens"]),
        ("--stop", "", &["--stop is empty"]),
    ] {
        fails(&args(&model, &[option, value, "x"]), 2, words);
    }
    fails(&args(&model, &["--draft", "magic", "x"]), 2, &["magic", "prompt_lookup"]);
    for (draft, wanted) in
        [("draft_model", "--draft-model"), ("requantised", "--draft-requant"), ("suffix+mtp", "heads")]
    {
        fails(&args(&model, &["--draft", draft, "x"]), 2, &[wanted]);
        fails(&["chat", "-m", model.to_str().expect("a plain path"), "--draft", draft], 2, &[wanted]);
    }
    for option in ["--max-tokens", "--draft-width", "--top-k", "--seed", "--ctx-size"] {
        fails(&args(&model, &[option, "-1", "x"]), 2, &["invalid value '-1'", option]);
    }
    fails(&args(&model, &["--logit-bias", "5", "x"]), 2, &["ID=VALUE"]);
    fails(&args(&model, &["--threads", "0", "x"]), 2, &["threads"]);
}

#[test]
fn a_trace_has_a_line_for_every_pass() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.jsonl");
    let path = file.to_str().expect("a plain path");
    let outcome = json(&args(&model, &["--json", "-n", "20", "--temperature", "0", "--trace", path, STORY]));
    let trace = fs::read_to_string(&file).expect("it was written");
    let lines: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (header, passes) = lines.split_first().expect("a header");
    assert_eq!(header["foretoken_trace"], 1);
    assert_eq!(header["settings"]["seed"], outcome["seed"]);
    let all = outcome["passes"].as_u64().unwrap() + outcome["prompt_passes"].as_u64().unwrap();
    assert_eq!(passes.len() as u64, all);
    let tokens: Vec<&Value> =
        passes.iter().flat_map(|pass| pass["sequences"][0]["tokens"].as_array().unwrap()).collect();
    assert_eq!(tokens.len(), 20);
    let guessed = tokens.iter().filter(|token| token["by"] != 0).count() as u64;
    assert_eq!(guessed, outcome["accepted"].as_u64().unwrap());
    let text: String = tokens.iter().filter_map(|token| token["text"].as_str()).collect();
    assert_eq!(text, outcome["text"].as_str().unwrap());

    let explained = run(&["explain", path]);
    assert!(explained.status.success(), "{}", stderr(&explained));
    let said = String::from_utf8(explained.stdout).expect("text");
    assert!(said.starts_with(&text) && said.contains("tokens per pass") && !said.contains('\x1b'), "{said}");
    let html = folder.path().join("trace.html");
    assert!(run(&["explain", path, "--html", html.to_str().unwrap()]).status.success());
    let html = fs::read_to_string(html).expect("it was written");
    assert!(
        html.starts_with("<!doctype html>")
            && html.contains("<svg")
            && !html.contains("http:")
            && !html.contains("https:")
    );
    let analysis = json(&["explain", path, "--json"]);
    assert_eq!(analysis["by_source"].as_array().unwrap().len(), header["drafters"].as_array().unwrap().len());
    fs::write(&file, &trace[..trace.len() - 10]).expect("it can be written");
    let cut = run(&["explain", path]);
    assert!(
        cut.status.success() && stderr(&cut).contains(&format!("line {} breaks off", lines.len())),
        "{}",
        stderr(&cut)
    );
    // What is no trace is not written over, and what is no page is not either.
    fs::write(&file, STORY).expect("it can be written");
    fails(&args(&model, &["-n", "1", "--trace", path, "x"]), 1, &["trace.jsonl", "left as it is"]);
    fails(&["explain", path, "--html", path], 1, &["trace.jsonl", "not the header"]);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), STORY);
}

#[cfg(target_os = "linux")]
#[test]
fn a_trace_that_cannot_be_written_is_told_at_the_end() {
    let Some(model) = smollm2() else { return };
    let output = run(&args(&model, &["-n", "3", "--trace", "/dev/full", STORY]));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("3 tokens in ") && said.contains("cannot write /dev/full"), "{said}");
}

#[test]
fn a_fixed_cost_model_makes_passes_repeat() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("costs.json");
    fs::write(&file, r#"{"rows": [0.01, 0.0101, 0.0102, 0.0103, 0.0104]}"#).expect("it can be written");
    let path = file.to_str().expect("a plain path");
    let with = || json(&args(&model, &["--json", "-n", "30", "--temperature", "0", "--cost-model", path, STORY]));
    let (first, second) = (with(), with());
    assert!(first["drafted"].as_u64() > Some(0));
    for key in ["token_ids", "passes", "drafted", "accepted", "acceptance_by_depth"] {
        assert_eq!(first[key], second[key], "{key}");
    }
    fs::write(&file, r#"{"rows": [0.02, 0.01]}"#).expect("it can be written");
    fails(&args(&model, &["--cost-model", path, "x"]), 1, &["more rows never take less time"]);
    fs::write(&file, "rows").expect("it can be written");
    fails(&args(&model, &["--cost-model", path, "x"]), 1, &["costs.json", "not a cost table"]);
}

#[test]
fn chat_keeps_the_conversation() {
    let Some(model) = smollm2() else { return };
    let model = model.to_str().expect("a plain path");
    let args = ["chat", "-m", model, "--threads", "1", "--temperature", "0", "-n", "12"];
    let mut child =
        foretoken(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let lines = "My name is Ada.\nWhat is my name?\n/nonsense\n/reset\n//help me.\n/quit\nnever read\n";
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert_eq!(said.matches(" a pass)").count(), 3, "{said}");
    let cached = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.windows(3).filter(|w| w[1] == "of" && w[0] != "0").filter_map(|w| w[0].parse::<usize>().ok()).max()
    };
    let answers: Vec<&str> = said.split(" prompt tokens were cached)").collect();
    assert!(cached(answers[1].rsplit(';').next().expect("some")) > Some(20), "{said}");
    assert!(said.contains("no command /nonsense"), "{said}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_sigterm_end_with_the_statistics() {
    let Some(model) = smollm2() else { return };
    for signal in ["-INT", "-TERM"] {
        ends_with_the_statistics(&model, signal);
    }
}

#[cfg(unix)]
fn ends_with_the_statistics(model: &Path, signal: &str) {
    let long = ["-n", "0", "--ignore-eos", "--temperature", "0", STORY];
    let mut child =
        foretoken(&args(model, &long)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut text = [0; 8];
    child.stdout.as_mut().expect("piped").read_exact(&mut text).expect("it writes");
    let interrupt = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(interrupt.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let said = stderr(&output);
    assert!(said.contains("interrupted") && said.contains(" in ") && said.contains(" pass"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let Some(model) = smollm2() else { return };
    let long = ["-n", "0", "--ignore-eos", STORY];
    let mut child =
        foretoken(&args(&model, &long)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut text = [0; 4];
    child.stdout.take().expect("piped").read_exact(&mut text).expect("it writes");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn reasons_for_drafting_are_told_when_they_change() {
    let Some(model) = smollm2() else { return };
    let text = "one two three four one two three four one two three";
    let output = run(&args(&model, &["-n", "24", "--temperature", "0", "--why", text]));
    let said = stderr(&output);
    assert!(said.contains("token 0: ") && said.contains(" tokens in ") && said.contains(" ms"), "{said}");
    let plain = stderr(&run(&args(&model, &["-n", "24", "--temperature", "0", text])));
    assert!(!plain.contains("token 0: "), "{plain}");
}

#[test]
fn what_stands_between_two_texts_is_filled_in() {
    fails(&["generate", "-m", "embedded", "--suffix", "b", "a"], 2, &["no tokens to fill in the middle"]);
    let Some(model) = foretoken_testkit::models::find("qwen-coder-0.5b") else { return };
    let suffix = "\n    return total / len(numbers)\n";
    let fill = |draft: &str| {
        let more = ["--suffix", suffix, "--temperature", "0", "-n", "40", "--draft", draft, "--json", "--threads", "1"];
        let path = model.to_str().expect("a path");
        json(&[&["generate", "-m", path, "--ctx-size", "256", "def mean(numbers):\n"][..], &more[..]].concat())
    };
    let filled = fill("none");
    assert!(filled["text"].as_str().is_some_and(|text| text.contains("total")), "{filled}");
    assert_eq!(filled["token_ids"], fill("auto")["token_ids"]);
}
