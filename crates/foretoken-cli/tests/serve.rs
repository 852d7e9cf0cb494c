//! `foretoken serve` and `foretoken batch` as processes: they end when told to, and nothing is lost when they are killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

fn foretoken(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    command.args(args).stdin(Stdio::null()).env_remove("FORETOKEN_MODEL").env_remove("FORETOKEN_API_KEY");
    command
}

/// What it said on standard error, on one line.
fn stderr(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A server of the model inside the program.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let mut command =
            foretoken(&["serve", "-m", "embedded", "--port", "0", "--threads", "1", "--shadow", "0.5", "--log-json"]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line of text");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { child, address }
    }

    fn ask(&self, body: &Value) -> Value {
        self.ask_with_id(body).1
    }

    /// The answer's `x-request-id`, and its JSON.
    fn ask_with_id(&self, body: &Value) -> (String, Value) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, json) = answer.split_once("\r\n\r\n").expect("a body");
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect("an id").to_owned();
        (id, serde_json::from_str(json).unwrap_or_else(|_| panic!("{answer}")))
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().expect("there is a kill").success());
}

#[test]
#[cfg(unix)]
fn a_server_answers_and_ends_when_it_is_told_to() {
    let server = Server::start(&[]);
    let body = json!({ "prompt": "def add(a, b):", "max_tokens": 20, "temperature": 0 });
    let answer = server.ask(&body);
    assert_eq!(answer["choices"][0]["text"], server.ask(&body)["choices"][0]["text"], "{answer}");
    let (id, refused) = server.ask_with_id(&json!({ "prompt": "a", "wish": 1 }));
    assert_eq!(refused["error"]["code"], "unknown_field");
    signal(&server.child, "TERM");
    let output = server.child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let log = String::from_utf8_lossy(&output.stderr);
    let log: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    assert!(log.iter().all(|line| line["level"].is_string()));
    let line = log.iter().find(|line| line["fields"]["id"] == id).unwrap_or_else(|| panic!("{id} is not in {log:?}"));
    assert_eq!((&line["fields"]["path"], &line["fields"]["status"]), (&json!("/v1/completions"), &json!(400)));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// The texts of a batch's answers, by name.
fn texts(path: &Path) -> Vec<(String, Value)> {
    let text = |line: &Value| {
        let text = line["response"]["body"]["choices"][0]["text"].clone();
        (line["custom_id"].as_str().expect("a name").to_owned(), text)
    };
    let mut texts: Vec<_> = lines(path).iter().map(text).collect();
    texts.sort_by(|a, b| a.0.cmp(&b.0));
    texts
}

#[test]
#[cfg(unix)]
fn a_batch_that_is_killed_goes_on_and_gives_one_line_for_each() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let line = |index: usize| {
        let max_tokens = if index == 7 { -1 } else { 40 };
        json!({
            "custom_id": format!("{index:02}"), "method": "POST", "url": "/v1/completions",
            "body": { "prompt": format!("def f{index}(x):\n"), "max_tokens": max_tokens, "seed": index },
        })
        .to_string()
    };
    fs::write(path("in"), (0..24).map(line).collect::<Vec<_>>().join("\n")).expect("it can be written");
    let batch = |output: &str, more: &[&str]| {
        let (input, output) = (path("in"), path(output));
        let mut args =
            vec!["batch", "-m", "embedded", input.to_str().unwrap(), output.to_str().unwrap(), "--threads", "1"];
        args.extend(more);
        let mut command = foretoken(&args);
        command.stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let whole = batch("whole", &[]).wait_with_output().expect("it ends");
    assert!(whole.status.success(), "{}", stderr(&whole));
    assert!(stderr(&whole).contains("23 answered, 1 refused"), "{}", stderr(&whole));
    assert_eq!(lines(&path("whole")).len(), 24);

    // Killed again and again, whenever there is something new on the disk.
    for _ in 0..3 {
        let before = fs::metadata(path("killed")).map_or(0, |file| file.len());
        let mut child = batch("killed", &["--concurrency", "2"]);
        while fs::metadata(path("killed")).map_or(0, |file| file.len()) == before {
            if child.try_wait().expect("it can be asked").is_some() {
                break;
            }
            std::thread::yield_now();
        }
        let _ = child.kill();
        child.wait().expect("it ends");
    }
    let rest = batch("killed", &["--draft", "none"]).wait_with_output().expect("it ends");
    assert!(rest.status.success(), "{}", stderr(&rest));
    assert_eq!(lines(&path("killed")).len(), 24);
    assert_eq!(texts(&path("killed")), texts(&path("whole")), "whoever drafted, and however often it was begun");

    let server = Server::start(&[]);
    let there = batch("there", &["--endpoint", &format!("http://{}", server.address)]);
    let there = there.wait_with_output().expect("it ends");
    assert!(there.status.success(), "{}", stderr(&there));
    assert_eq!(texts(&path("there")), texts(&path("whole")));
    let mut child = server.child;
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn what_every_line_would_be_refused_for_costs_no_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let line = |index: usize| {
        let body = json!({ "prompt": "a", "max_tokens": 2, "model": "gpt-4o" });
        json!({ "custom_id": index.to_string(), "method": "POST", "url": "/v1/completions", "body": body }).to_string()
    };
    fs::write(path("in"), (0..3).map(line).collect::<Vec<_>>().join("\n")).expect("it can be written");
    fs::write(path("keys"), "secret\n").expect("it can be written");
    let batch = |more: &[&str], key: &str| {
        let mut command = foretoken(&["batch", &path("in"), &path("out"), "--threads", "1"]);
        command.args(more).env("FORETOKEN_API_KEY", key).output().expect("it runs")
    };
    let server = Server::start(&["--api-keys", &path("keys"), "--name", "gpt-4o"]);
    let (url, nowhere) = (format!("http://{}", server.address), format!("http://{}/nowhere", server.address));
    for (more, key, why) in [
        (&["-m", "embedded"][..], "", "there is no model \"gpt-4o\" here"),
        (&["--endpoint", &url], "", "it does not know $FORETOKEN_API_KEY"),
        (&["--endpoint", &url], "wrong", "it does not know $FORETOKEN_API_KEY"),
        (&["--endpoint", &nowhere], "secret", "it answers 404 Not Found"),
    ] {
        let refused = batch(more, key);
        assert!(!refused.status.success() && stderr(&refused).contains(why), "{}", stderr(&refused));
        assert_eq!(fs::read_to_string(path("out")).expect("it is there"), "");
    }
    let answered = batch(&["--endpoint", &url], "secret");
    assert!(answered.status.success() && stderr(&answered).contains("3 answered"), "{}", stderr(&answered));
    fs::remove_file(path("out")).expect("it is there");
    let here = batch(&["-m", "embedded", "--name", "gpt-4o"], "");
    assert!(here.status.success() && stderr(&here).contains("3 answered"), "{}", stderr(&here));
    let mut child = server.child;
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
#[cfg(unix)]
fn a_batch_that_waits_can_be_interrupted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let line = json!({ "custom_id": "1", "method": "POST", "url": "/v1/completions", "body": { "prompt": "a" } });
    fs::write(path("in"), line.to_string()).expect("it can be written");
    // A server that takes requests and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut command = foretoken(&["batch", &path("in"), &path("out"), "--endpoint", &url]);
    let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let (mut stream, _) = listener.accept().expect("it asks");
    stream.read_exact(&mut [0; 16]).expect("it asks something");
    signal(&child, "INT");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("the same command goes on"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(path("out")).expect("it is there"), "");
}

#[test]
fn a_cache_that_no_machine_has_is_refused_by_its_size() {
    for tokens in ["99999999999", "18446744073709551615"] {
        let args = ["serve", "-m", "embedded", "--port", "0", "--threads", "1", "--cache-tokens", tokens];
        let output = foretoken(&args).output().unwrap();
        let said = stderr(&output);
        assert!(said.contains(&format!("a cache of {tokens} tokens is too large")), "{said}");
        assert!(output.status.code() == Some(1) && said.contains("fewer tokens"), "{said}");
    }
}
