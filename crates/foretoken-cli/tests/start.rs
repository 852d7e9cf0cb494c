//! What a model takes until it writes: memory little above its file and its cache, and a moment.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "one model is not enough here")]
mod common;

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{foretoken, json};

/// Bytes over the file's and the cache's that a process may hold at most.
const MORE: u64 = 150_000_000;

/// The greatest resident size of a process so far, in bytes.
fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    line.split_whitespace().next().expect("a number").parse::<u64>().expect("a number") * 1024
}

#[test]
fn memory_is_the_file_the_cache_and_little_more() {
    let prompt = "The quick brown fox jumps over the lazy dog and runs away. ".repeat(40);
    for name in ["smollm2-135m", "qwen-coder-0.5b"] {
        let Some(model) = foretoken_testkit::models::find(name) else { continue };
        let size = fs::metadata(&model).expect("it is there").len();
        let model = model.to_str().expect("a plain path");
        let row = json(&["inspect", model, "--json"])["memory"]["kv_bytes_per_token"].as_u64().expect("a size");
        let run = |prompt: &str| {
            let start = Instant::now();
            let args = ["generate", "-m", model, "-c", "2048", "-n", "0", "--ignore-eos", "--temperature", "0", prompt];
            let mut child = foretoken(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
            let text = child.stdout.as_mut().expect("piped");
            text.read_exact(&mut [0]).expect("it writes");
            let first = start.elapsed();
            text.read_exact(&mut [0; 300]).expect("it writes");
            let peak = peak(child.id());
            child.kill().and_then(|()| child.wait()).expect("it can be ended");
            (first, peak)
        };
        let (first, _) = run("Once upon a time");
        println!("{name}: {first:?} to the first token");
        // The promise is 1.5 seconds, of a model twice as large; a machine that is busy with other tests gets more.
        assert!(first < Duration::from_secs(8), "{name}: {first:?}");
        let (_, peak) = run(&prompt);
        let most = size + 2048 * row + MORE;
        println!("{name}: {peak} bytes of at most {most}");
        assert!(peak <= most, "{name}: {peak} bytes resident, {most} allowed");
    }
}
