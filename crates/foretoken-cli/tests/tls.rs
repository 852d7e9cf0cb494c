//! `foretoken batch` at an endpoint with TLS, whose certificates nobody knows but who is told.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// A certificate for a name and its key; it says that it may vouch for others, as those that people make by hand do.
fn certificate(name: &str) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new([name.to_owned()]).expect("a sound name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().expect("a key"))
}

/// A server with a certificate, which answers every request with its number of bytes; returns its port.
fn serve(certificate: CertificateDer<'static>, key: &KeyPair) -> u16 {
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .expect("a sound certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (config, stream) = (config.clone(), stream.expect("a connection"));
            thread::spawn(move || answer(config, stream));
        }
    });
    port
}

/// Answers the requests on a connection, until the client leaves.
fn answer(config: Arc<ServerConfig>, stream: TcpStream) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let (mut len, mut line) = (0, String::new());
        while stream.read_line(&mut line)? > 0 && line != "\r\n" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().map_err(std::io::Error::other)?;
            }
            line.clear();
        }
        let mut body = vec![0; len];
        stream.read_exact(&mut body)?;
        let text = json!({ "choices": [{ "text": len.to_string() }], "usage": { "completion_tokens": 1 } }).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.get_mut().write_all((head + &text).as_bytes())?;
    }
}

fn batch(folder: &Path, output: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    command.arg("batch").args([folder.join("in"), folder.join(output)]).args(more);
    command
        .stdin(Stdio::null())
        .env_remove("FORETOKEN_API_KEY")
        .env_remove("FORETOKEN_MODEL")
        .output()
        .expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_batch_believes_the_certificates_it_is_given() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let line = |index: usize| {
        let body = json!({ "prompt": "a".repeat(index) });
        json!({ "custom_id": index.to_string(), "method": "POST", "url": "/v1/completions", "body": body }).to_string()
    };
    fs::write(path("in"), (0..5).map(line).collect::<Vec<_>>().join("\n")).expect("it can be written");

    let (own, own_key) = certificate("localhost");
    let own_certificate = own.self_signed(&own_key).expect("a certificate");
    let (authority, authority_key) = certificate("an authority");
    let authority_certificate = authority.self_signed(&authority_key).expect("a certificate");
    let issuer = Issuer::new(authority, authority_key);
    let leaf_key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(["localhost".to_owned()]).expect("a sound name");
    let leaf = leaf.signed_by(&leaf_key, &issuer).expect("a certificate");
    fs::write(path("own.pem"), own_certificate.pem()).expect("it can be written");
    fs::write(path("authority.pem"), authority_certificate.pem()).expect("it can be written");
    let ports = [serve(own_certificate.der().clone(), &own_key), serve(leaf.der().clone(), &leaf_key)];

    for (port, good, other) in [(ports[0], "own.pem", "authority.pem"), (ports[1], "authority.pem", "own.pem")] {
        let url = format!("https://localhost:{port}/v1");
        let output = format!("out-{port}");
        let file = |name: &str| path(name).to_str().expect("a path").to_owned();
        // The certificate has no such address.
        let elsewhere = format!("https://127.0.0.1:{port}");
        let refused = [
            vec!["--endpoint", &url],
            vec!["--endpoint", &url, "--ca-file", &file(other)],
            vec!["--endpoint", &elsewhere, "--ca-file", &file(good)],
        ]
        .map(|more| batch(folder.path(), &output, &more));
        for run in refused {
            assert!(!run.status.success() && said(&run).contains("ertificate"), "{}", said(&run));
            assert_eq!(fs::read_to_string(path(&output)).unwrap_or_default(), "", "no line is lost");
        }
        let run = batch(folder.path(), &output, &["--endpoint", &url, "--ca-file", &file(good)]);
        assert!(run.status.success() && said(&run).contains("5 answered"), "{}", said(&run));
        assert_eq!(fs::read_to_string(path(&output)).expect("the answers").lines().count(), 5);
        for line in fs::read_to_string(path(&output)).expect("the answers").lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let index: usize = line["custom_id"].as_str().expect("a name").parse().expect("a number");
            let len = json!({ "prompt": "a".repeat(index) }).to_string().len();
            assert_eq!(line["response"]["body"]["choices"][0]["text"], len.to_string());
        }
    }
    let plain = batch(folder.path(), "none", &["--ca-file", "x.pem"]);
    assert!(said(&plain).contains("--endpoint"), "{}", said(&plain));
    let empty =
        batch(folder.path(), "none", &["--endpoint", "https://localhost:1", "--ca-file", path("in").to_str().unwrap()]);
    assert!(said(&empty).contains("there is no certificate in it"), "{}", said(&empty));
}
