//! Accepts connections within limits: how many, how long a head may take, how long a client may leave what it is sent
//! unread.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::app::{App, Limits};
use crate::route::router;

/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// For errors to reach the clients of requests that are given up.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until `shutdown`, then lets requests under way come to their end, for as long as the limits say.
pub async fn serve(listener: TcpListener, app: Arc<App>, shutdown: impl Future<Output = ()>) {
    let Limits { connections, read, write, drain, .. } = app.limits.clone();
    let router = router(app.clone());
    let places = Arc::new(Semaphore::new(connections));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = async {
            // Who is beyond the limit waits in the system's queue.
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut shutdown => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Such as no file descriptors left: others may be given back soon.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Chunks are small, and each shall be seen at once.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(read)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS);
        let connection = builder.serve_connection(TokioIo::new(Patient::new(stream, write)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    app.drain();
    drop(listener);
    let mut ending = std::pin::pin!(graceful.shutdown());
    if timeout(drain, &mut ending).await.is_err() {
        tracing::warn!(seconds = drain.as_secs(), "requests under way are given up");
        app.engine.stop();
        // Their clients are told.
        let _ = timeout(LAST_WORDS, ending).await;
    }
}

/// Bytes a second that a client has to take, or our patience with it grows short.
const LEAST_RATE: f64 = 1024.0;

/// A stream that fails when it cannot be written for too long. Who takes a byte now and then does not make up for it.
struct Patient<S> {
    stream: S,
    limit: Duration,
    /// What is left of the limit: waiting uses it up, and what is taken gives it back.
    left: Duration,
    /// Runs while the client does not take what is sent.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S> Patient<S> {
    fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, left: limit, waiting: None }
    }

    fn judge(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let Poll::Ready(taken) = polled else {
            let left = self.left;
            let (_, over) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
            return over.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()));
        };
        if let Some((since, _)) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        let n_bytes = *taken.as_ref().unwrap_or(&0);
        self.left = self.limit.min(self.left + Duration::from_secs_f64(n_bytes as f64 / LEAST_RATE));
        Poll::Ready(taken)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, polled.map_ok(|()| 0)).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// Writes much to a client that reads so many bytes every few milliseconds.
    async fn write_to_reader_of(n_bytes: usize, limit: Duration) -> io::Result<()> {
        let (mut client, server) = duplex(64);
        let mut patient = Patient::new(server, limit);
        let reading = async {
            let mut bytes = vec![0; n_bytes];
            while client.read(&mut bytes).await.is_ok_and(|n| n > 0) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let writing = async move {
            let written = patient.write_all(&[7; 4096]).await;
            drop(patient);
            written
        };
        tokio::join!(reading, writing).1
    }

    #[test]
    fn who_reads_byte_by_byte_is_cut_off() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let written = runtime.block_on(write_to_reader_of(1, Duration::from_millis(50)));
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        runtime.block_on(write_to_reader_of(64, Duration::from_secs(20))).expect("slow, but not too slow");
    }
}
