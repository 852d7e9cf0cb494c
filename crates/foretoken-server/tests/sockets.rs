//! Real connections: slow and silent clients, and a server that goes away politely.

mod common;

use std::time::Duration;

use common::{Server, Setup, block_on, chunks};
use foretoken_server::{Limits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

const SOON: Duration = Duration::from_millis(50);
/// Far longer than anything here takes.
const LATE: Duration = Duration::from_secs(30);

/// Runs `client` against a server at a real address, then lets the server end.
fn with_server<F: Future<Output = ()>>(
    limits: Limits,
    client: impl FnOnce(std::net::SocketAddr, oneshot::Sender<()>) -> F,
) {
    block_on(async {
        let server = Server::new(Setup { limits, ..Setup::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, server.app.clone(), async {
            // A client that drops its end stops the server too.
            let _ = stopped.await;
        });
        let both = async { tokio::join!(serving, client(address, stop)) };
        timeout(LATE, both).await.expect("nobody waits for ever");
        server.end();
    });
}

fn request(body: &str) -> String {
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has said what it had to say.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn heads_and_bodies_that_do_not_come_are_not_waited_for() {
    let limits = Limits { read: SOON, ..Limits::default() };
    with_server(limits, |address, stop| async move {
        let whole = request("{\"prompt\": \"a\"}");
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert_eq!(read_all(&mut silent).await.matches("200 OK").count(), 0);
        let mut head = TcpStream::connect(address).await.unwrap();
        head.write_all(&whole.as_bytes()[..30]).await.unwrap();
        assert_eq!(read_all(&mut head).await.matches("200 OK").count(), 0);
        let mut body = TcpStream::connect(address).await.unwrap();
        body.write_all(&whole.as_bytes()[..whole.len() - 3]).await.unwrap();
        let answer = read_all(&mut body).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_too_slow"), "{answer}");
        drop(stop);
    });
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let limits = Limits { write: SOON, ..Limits::default() };
    with_server(limits, |address, stop| async move {
        let mut deaf = TcpStream::connect(address).await.unwrap();
        // More than the system's buffers take.
        let body = "{\"prompt\": \"abc\", \"n\": 32, \"max_tokens\": 500, \"ignore_eos\": true, \"stream\": true, \"trace\": true}";
        deaf.write_all(request(body).as_bytes()).await.unwrap();
        // It is cut off when another that reads has long been served.
        let mut probe = TcpStream::connect(address).await.unwrap();
        loop {
            probe.write_all(b"GET /stats HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut bytes = [0; 4096];
            let n = probe.read(&mut bytes).await.unwrap();
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            if text.contains("\"requests_running\":0")
                && text.contains("\"output_tokens\"")
                && !text.contains("\"output_tokens\":0,")
            {
                break;
            }
        }
        drop(stop);
    });
}

#[test]
fn a_server_that_goes_away_ends_what_it_has_begun() {
    with_server(Limits::default(), |address, stop| async move {
        let mut reader = TcpStream::connect(address).await.unwrap();
        let body = "{\"prompt\": \"abc\", \"max_tokens\": 300, \"ignore_eos\": true, \"stream\": true}";
        reader.write_all(request(body).as_bytes()).await.unwrap();
        let mut first = [0; 64];
        reader.read_exact(&mut first).await.unwrap();
        stop.send(()).unwrap();
        let rest = read_all(&mut reader).await;
        let events: String =
            rest.lines().filter(|line| line.starts_with("data: ")).map(|line| format!("{line}\n")).collect();
        assert!(!chunks(&events).is_empty());
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    });
}

#[test]
fn who_does_not_end_in_time_is_told() {
    let limits = Limits { drain: Duration::ZERO, ..Limits::default() };
    with_server(limits, |address, stop| async move {
        let body = "{\"prompt\": \"abc\", \"n\": 32, \"max_tokens\": 500, \"ignore_eos\": true, \"stream\": true}";
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request(body).as_bytes()).await.unwrap();
        let mut first = [0; 64];
        stream.read_exact(&mut first).await.unwrap();
        stop.send(()).unwrap();
        let rest = read_all(&mut stream).await;
        // The engine may have been faster than we are.
        assert!(rest.contains("shutting_down") || rest.contains("[DONE]"), "{rest}");
    });
}

#[test]
fn connections_are_kept_and_requests_that_do_not_fit_are_refused() {
    with_server(Limits::default(), |address, stop| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        for _ in 0..2 {
            stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut bytes = [0; 1024];
            let n = stream.read(&mut bytes).await.unwrap();
            assert!(String::from_utf8_lossy(&bytes[..n]).starts_with("HTTP/1.1 200 OK"));
        }
        let mut large = TcpStream::connect(address).await.unwrap();
        let head = format!("GET /health HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000));
        // The server may have hung up before all of it was sent.
        let _ = large.write_all(head.as_bytes()).await;
        assert!(!read_all(&mut large).await.contains("200 OK"));
        drop(stop);
    });
}
