//! `foretoken tune` and `--profile` on a real model.

mod common;

use std::fs;

use common::{fails, json, run, smollm2, stderr};

#[test]
fn a_profile_is_measured_and_used() {
    let Some(model) = smollm2() else { return };
    let model = model.to_str().expect("a plain path");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let (prompts, profile) = (path("prompts.jsonl"), path("profile.json"));
    let lines: Vec<String> = ["red", "blue", "green", "black"]
        .map(|word| format!(r#"{{"prompt": "Say {word} {word} {word} {word}."}}"#))
        .into();
    fs::write(&prompts, lines.join("\n")).expect("it can be written");
    let tune = ["tune", model, "--threads", "1", "--prompts", &prompts, "--out", &profile, "-n", "12"];
    let output = run(&tune);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("on the other prompts, replayed") && said.contains("--profile"), "{said}");
    let text = fs::read_to_string(&profile).expect("it was written");
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(written["cost_table"]["rows"].as_array().expect("an array").len() >= 32);
    assert_eq!(written["machine"]["threads"], 1);

    let plain =
        ["generate", "-m", model, "--threads", "1", "--temperature", "0", "-n", "24", "--json", "One one one one"];
    let with = [&plain[..], &["--profile", &profile]].concat();
    let output = run(&with);
    assert_eq!(stderr(&output), "");
    let tuned: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(tuned["token_ids"], json(&plain)["token_ids"]);

    // Two threads are another machine: its costs do not hold.
    let elsewhere: Vec<&str> = with.iter().map(|&word| if word == "1" { "2" } else { word }).collect();
    let said = stderr(&run(&elsewhere));
    assert!(said.contains("costs are of") && said.contains("2 threads"), "{said}");
    let hash = written["model"]["hash"].as_str().expect("a hash");
    fs::write(&profile, text.replace(hash, "0000")).expect("it can be written");
    let said = stderr(&run(&with));
    assert!(said.contains("another model") && said.contains("are not used"), "{said}");
    fs::write(&profile, "{}").expect("it can be written");
    fails(&with, 1, &["profile.json", "not a usable profile"]);
    fs::write(&prompts, &lines[0]).expect("it can be written");
    fails(&tune, 2, &["prompts.jsonl", "fewer than two prompts"]);
}
