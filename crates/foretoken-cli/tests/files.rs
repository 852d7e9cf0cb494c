//! Broken files, `inspect`, `tokenize` and `bench`.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{fails, json, run, smollm2, stderr};

#[test]
fn what_is_no_model_is_said_in_a_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("it can be written");
        path.to_str().expect("a plain path").to_owned()
    };
    let text = path("notes.txt", b"Dear diary");
    let empty = path("empty.gguf", b"");
    let short = path("short.gguf", b"GGUF\x03\0\0\0");
    let huge = path("huge.gguf", b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f");
    let commands = [&["generate", "-m"][..], &["inspect"], &["tokenize", "-m"]];
    let check = |file: &str, words: &[&str]| {
        // The fastest of three counts: a busy machine can make any of them wait.
        let times = commands.map(|command| {
            let start = Instant::now();
            let args = [command, &[file], &["x"][..usize::from(command.len() > 1)]].concat();
            fails(&args, 1, words);
            start.elapsed()
        });
        assert!(times.iter().min() < Some(&Duration::from_secs(2)), "{file}: {times:?}");
    };
    check(&text, &["notes.txt", "GGUF"]);
    check(&empty, &["empty.gguf", "it is empty"]);
    check(&short, &["short.gguf"]);
    check(&huge, &["huge.gguf"]);
    check("no/such/file.gguf", &["no/such/file.gguf"]);
    check(folder.path().to_str().expect("a plain path"), &["directory"]);
    check("nosuchmodel", &["nosuchmodel", "there is no file"]);
}

#[test]
fn a_truncated_model_is_an_error_that_names_the_tensor() {
    let Some(model) = smollm2() else { return };
    let bytes = fs::read(&model).expect("it can be read");
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("cut.gguf");
    fs::write(&cut, &bytes[..bytes.len() / 2]).expect("it can be written");
    fails(&["generate", "-m", cut.to_str().expect("a plain path"), "x"], 1, &["cut.gguf", "tensor", "truncated"]);
}

#[test]
fn inspect_shows_metadata_tensors_and_memory() {
    let Some(model) = smollm2() else { return };
    let model = model.to_str().expect("a plain path");
    let output = run(&["inspect", model, "--tensors"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["llama", "general.architecture", "token_embd.weight", "Q4_1", "keys and values", "8192"] {
        assert!(text.contains(word), "{word} is missing in: {text}");
    }
    let all = json(&["inspect", model, "--json", "--tensors"]);
    assert_eq!(all["summary"]["architecture"], "llama");
    assert_eq!(all["metadata"]["llama.block_count"], 30);
    assert_eq!(
        all["tensors"].as_array().expect("an array").len() as u64,
        all["summary"]["n_tensors"].as_u64().unwrap()
    );
    // 30 layers, 3 heads of 64, keys and values, 2 bytes each.
    assert_eq!(all["memory"]["kv_bytes_per_token"], 30 * 3 * 64 * 2 * 2);
    let wide = json(&["inspect", model, "--json", "--weights", "f32"]);
    assert!(wide["memory"]["weight_bytes"].as_f64() > all["memory"]["weight_bytes"].as_f64().map(|bytes| bytes * 3.0));
}

#[test]
fn tokenize_goes_there_and_back() {
    let Some(model) = smollm2() else { return };
    let model = model.to_str().expect("a plain path");
    let text = "Hello, wörld! <|im_end|> 🦊";
    let tokens = json(&["tokenize", "-m", model, "--json", text]);
    let ids: Vec<String> = tokens["ids"].as_array().expect("an array").iter().map(|id| id.to_string()).collect();
    assert_eq!(json(&["tokenize", "-m", model, "--json", "--decode", &ids.join(",")])["text"], text);
    let special = json(&["tokenize", "-m", model, "--json", "--parse-special", text]);
    assert!(special["count"].as_u64() < tokens["count"].as_u64());
    let output = run(&["tokenize", "-m", model, "--ids", text]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), ids.join(" "));
    fails(&["tokenize", "-m", model, "--decode", "999999"], 2, &["999999", "49152"]);
}

#[test]
fn bench_forward_reports_every_row_count() {
    let Some(model) = smollm2() else { return };
    let model = model.to_str().expect("a plain path");
    let args = ["bench", "forward", "--model", model, "--rows", "1,2,5", "--context", "40", "--threads", "1"];
    let more = ["--repeats", "1", "--prompt-tokens", "40", "--json"];
    let report = json(&[&args[..], &more].concat());
    for rows in ["1", "2", "5"] {
        for key in ["median_ms", "min_ms", "gb_per_s", "gmac_per_s", "floor_ratio"] {
            assert!(report["rows"][rows][key].as_f64() > Some(0.0), "{rows} {key}: {report}");
        }
    }
    assert!(report["prompt"]["tokens_per_second"].as_f64() > Some(0.0));
    assert!(report["machine"]["cpu"].is_string());
    fails(&[&args[..], &["--context", "9000"]].concat(), 2, &["9006 tokens are too many", "8192"]);
    fails(&[&args[..], &["--bandwidth", "0"]].concat(), 2, &["--bandwidth", "above 0"]);
}

#[test]
fn bench_decode_compares_methods() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.jsonl");
    let lines = [
        r#"{"id": "a", "category": "chat", "turns": ["Repeat after me: one two three one two three"]}"#,
        r#"{"id": "b", "category": "code", "prompt": "def add(a, b):\n", "entry_point": "add"}"#,
    ];
    fs::write(&file, lines.join("\n")).expect("it can be written");
    let file = file.to_str().expect("a plain path");
    let model = model.to_str().expect("a plain path");
    let args = ["bench", "decode", "--model", model, "--prompts", file, "--threads", "1"];
    let more = ["--draft", "none,prompt_lookup", "--max-tokens", "24", "--draft-width", "3", "--json"];
    let report = json(&[&args[..], &more].concat());
    let results = report["results"].as_array().expect("an array");
    let named = |result: &serde_json::Value| format!("{} {}", result["category"], result["method"]).replace('"', "");
    let names: Vec<String> = results.iter().map(named).collect();
    let expected =
        ["chat none", "chat prompt_lookup", "code none", "code prompt_lookup", "all none", "all prompt_lookup"];
    assert_eq!(names, expected);
    for result in results {
        assert_eq!(result["identical"], true);
        for key in ["tokens_per_second", "tokens_per_pass", "speedup", "replayed_speedup"] {
            assert!(result[key].as_f64() > Some(0.0), "{key}: {result}");
        }
        assert_eq!(result["drafted"] == 0, result["method"] == "none");
    }

    // Under a fixed table everything but the clock repeats.
    let costs = folder.path().join("costs.json");
    fs::write(&costs, r#"{"rows": [0.01, 0.0101, 0.0102, 0.0103, 0.0104]}"#).expect("it can be written");
    let html = folder.path().join("report.html");
    let (costs, html) = (costs.to_str().expect("a plain path"), html.to_str().expect("a plain path"));
    let more = ["--draft", "suffix,suffix+recycle", "--temperature", "0,0.8", "-n", "24", "--cost-model", costs];
    let repeats = || {
        let report = json(&[&args[..], &more, &["--json", "--html", html]].concat());
        let strip = |result: &serde_json::Value| {
            let mut result = result.clone();
            let figures = result.as_object_mut().expect("an object");
            figures.retain(|key, _| !["second", "speedup", "mean"].iter().any(|clocked| key.contains(clocked)));
            result
        };
        report["results"].as_array().expect("an array").iter().map(strip).collect::<Vec<_>>()
    };
    let results = repeats();
    assert_eq!(results, repeats());
    assert_eq!(results.len(), 3 * 2 * 3);
    for result in &results {
        let plain = result["method"] == "none";
        assert_eq!(result["identical"], true);
        assert_eq!(result["memory_bytes"] == 0, plain, "{result}");
        assert!(result["rows_per_token"].as_f64() >= Some(1.0), "{result}");
        assert_eq!(result["drafters"].as_object().expect("an object").contains_key("suffix"), !plain);
    }
    let html = fs::read_to_string(html).expect("it was written");
    assert!(html.contains("<svg") && html.contains("suffix+recycle, T 0.8"));
    let shown = run(&[&args[..], &["-n", "8", "--remember"]].concat());
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("geo. mean") && shown.lines().count() == 7, "{shown}");

    fails(&[&args[..], &["--category", "poems"]].concat(), 2, &["poems", "--category"]);
    fails(&[&args[..], &["--limit", "0"]].concat(), 2, &["--limit", "at least 1"]);
    fails(&[&args[..], &["-n", "0"]].concat(), 2, &["--max-tokens", "at least 1"]);
    fails(&[&args[..], &["--ctx-size", "8"]].concat(), 1, &["prompts.jsonl", "prompt \"a\"", "--ctx-size"]);
}

#[test]
fn help_teaches() {
    for command in [
        &["--help"][..],
        &["generate", "--help"],
        &["bench", "decode", "--help"],
        &["explain", "--help"],
        &["chat", "--help"],
    ] {
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(text.contains("Examples:") || text.contains("/reset"), "{command:?}: {text}");
    }
}
