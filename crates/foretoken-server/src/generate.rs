//! Hands a request to the engine and its answer back, whole or as it comes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use foretoken_decode::sampler::TokenLogprobs;
use futures_util::stream;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::app::{App, now, stopped};
use crate::ask::Ask;
use crate::error::{ApiError, json_response};
use crate::gate::Permit;
use crate::reply::{Chunks, Ended, Head, whole};
use crate::score;
use crate::worker::{Piece, Purpose, Ticket, Update};

/// How often a waiting client is told that it is not forgotten.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Answers a request of this scope.
pub async fn answer(app: Arc<App>, ask: Ask, scope: u64, id: String) -> Result<Response<Body>, ApiError> {
    let Ask { requests, scoring, shape, stream, .. } = ask;
    let permit = app.gate.enter(scope, requests.len().max(scoring.len()))?;
    let started = Instant::now();
    let scores = match scoring.is_empty() {
        true => Vec::new(),
        false => {
            let ended = finish(app.engine.submit(scoring, Purpose::Scores).await?, false).await?;
            let scores =
                ended.into_iter().zip(&shape.prompt_lens).map(|(ended, &len)| score::scores(ended.outcome, len));
            scores.collect()
        }
    };
    let head = Head { id, created: now() };
    let n = requests.len();
    let ticket = match n {
        0 => {
            shape.prompt_lens.iter().for_each(|&len| app.metrics.scored(len));
            None
        }
        _ => {
            let purpose = if shape.trace { Purpose::TracedTexts } else { Purpose::Texts };
            Some(app.engine.submit(requests, purpose).await?)
        }
    };
    if stream {
        let chunks = Chunks::new(head, shape, n);
        return Ok(events(Streaming { app, chunks, ticket, scores, started, stage: Stage::First, _permit: permit }));
    }
    let ended = match ticket {
        Some(ticket) => finish(ticket, shape.trace).await?,
        None => Vec::new(),
    };
    app.gate.took(started.elapsed().as_secs_f64());
    let value = whole(&head, &shape, ended, &scores, &app)?;
    drop(permit);
    Ok(json_response(StatusCode::OK, &value))
}

/// Waits for every choice's end.
async fn finish(mut ticket: Ticket, traced: bool) -> Result<Vec<Ended>, ApiError> {
    let mut ends = Vec::new();
    let mut pieces: Vec<Vec<Piece>> = Vec::new();
    ends.resize_with(ticket.n_choices(), || None);
    pieces.resize_with(ticket.n_choices(), Vec::new);
    while !ticket.is_over() {
        match ticket.next().await.ok_or_else(stopped)? {
            (choice, Update::Piece(piece)) if traced => pieces[choice].push(piece),
            (_, Update::Piece(_)) => {}
            (choice, Update::End(outcome)) => ends[choice] = Some(*outcome),
            (_, Update::Failed(why)) => return Err(ApiError::server(why)),
        }
    }
    let ended = ends.into_iter().flatten().zip(pieces).map(|(outcome, pieces)| Ended { outcome, pieces });
    Ok(ended.collect())
}

/// An answer that is being sent.
struct Streaming {
    app: Arc<App>,
    chunks: Chunks,
    ticket: Option<Ticket>,
    scores: Vec<Vec<TokenLogprobs>>,
    started: Instant,
    stage: Stage,
    _permit: Permit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Tokens,
    Over,
}

/// Server-sent events. The engine never waits for them: a slow reader finds them in its channel, and one that does not
/// read at all is cut off by the connection's own limit.
fn events(streaming: Streaming) -> Response<Body> {
    let body = stream::unfold(streaming, |mut streaming| async move {
        let text = streaming.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), streaming))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Streaming {
    /// The next events; `None` after the last.
    async fn next(&mut self) -> Option<String> {
        match self.stage {
            Stage::First => {
                self.stage = Stage::Tokens;
                let first = self.chunks.first(&std::mem::take(&mut self.scores), &self.app);
                // A client sees at once that it was heard.
                Some(format!(": accepted\n\n{}", lines(&first)))
            }
            Stage::Over => None,
            Stage::Tokens => match self.tokens().await {
                Ok(Some(text)) => Some(text),
                Ok(None) => {
                    self.stage = Stage::Over;
                    self.app.gate.took(self.started.elapsed().as_secs_f64());
                    let usage: Vec<Value> = self.chunks.last(&self.app).into_iter().collect();
                    Some(format!("{}data: [DONE]\n\n", lines(&usage)))
                }
                Err(error) => {
                    self.stage = Stage::Over;
                    Some(lines(&[error.body()]))
                }
            },
        }
    }

    /// What the next passes bring: all that is there already goes out together. `None` when every choice has ended.
    async fn tokens(&mut self) -> Result<Option<String>, ApiError> {
        let Some(ticket) = self.ticket.as_mut().filter(|ticket| !ticket.is_over()) else { return Ok(None) };
        let Ok(update) = timeout(KEEP_ALIVE, ticket.next()).await else {
            return Ok(Some(": still here\n\n".to_owned()));
        };
        let mut chunks = Vec::new();
        let mut update = Some(update.ok_or_else(stopped)?);
        while let Some((choice, what)) = update {
            match what {
                Update::Piece(piece) => chunks.extend(self.chunks.piece(choice, &piece, &self.app)),
                Update::End(outcome) => chunks.extend(self.chunks.end(choice, *outcome, &self.app)?),
                Update::Failed(why) => return Err(ApiError::server(why)),
            }
            update = ticket.ready();
        }
        Ok(Some(lines(&chunks)))
    }
}

fn lines(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}
