//! `foretoken batch`: many requests from a file, their answers into another.

mod endpoint;
mod files;
mod trust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use foretoken_server::{App, Keys, Limits};
use futures_util::StreamExt;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::error::{CliError, INTERRUPTED};
use crate::interrupt::Watch;
use crate::options::at_least_one;
use crate::output;
use crate::progress;
use crate::serve::{EngineArgs, runtime};
use endpoint::{Caller, Endpoint};
use files::{Answers, Line};

/// How often a look is taken whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);

/// Answer the requests in a file
///
/// IN has one request a line in the format of OpenAI's batches: {"custom_id": ..., "method": "POST", "url":
/// "/v1/chat/completions", "body": {...}}. OUT gets one line for each, in the order in which they end, and is safe on the
/// disk line by line: after an interruption of any kind, the same command goes on where it stopped.
#[derive(clap::Args, Debug)]
#[command(args_override_self = true)]
pub struct Args {
    /// The requests, as JSON lines
    #[arg(value_name = "IN.jsonl")]
    input: PathBuf,

    /// The answers; what is in it already is not asked again
    #[arg(value_name = "OUT.jsonl")]
    output: PathBuf,

    /// Requests at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    concurrency: usize,

    /// Ask a server instead of a model of our own: such as http://127.0.0.1:8080. $FORETOKEN_API_KEY is sent to it
    #[arg(long, value_name = "URL")]
    endpoint: Option<Endpoint>,

    /// Certificates in PEM to trust at an https endpoint, instead of the system's
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    ca_file: Option<PathBuf>,

    /// What the requests call the model [default: its file's name]
    #[arg(long, value_name = "ID", conflicts_with = "endpoint")]
    name: Option<String>,

    #[command(flatten)]
    engine: EngineArgs,
}

/// Who answers.
enum Server {
    Here(Router),
    There(Box<Caller>),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let lines = files::read(&args.input)?;
    let mut answers = Answers::open(&args.output, &lines)?;
    let left: Vec<&Line> = lines.iter().filter(|line| !answers.has(&line.custom_id)).collect();
    if left.len() < lines.len() {
        output::note(format_args!("{} of {} lines are answered already", lines.len() - left.len(), lines.len()));
    }
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let (server, engine) = match &args.endpoint {
        Some(endpoint) => {
            let caller = Caller::new(endpoint, args.ca_file.as_deref())?;
            (Server::There(Box::new(caller)), None)
        }
        None => {
            let most = args.concurrency.saturating_mul(foretoken_server::ask::settings::MAX_CHOICES);
            let limits = Limits { requests: most, requests_of_key: most, body_bytes: usize::MAX, ..Limits::default() };
            let (app, thread) = args.engine.start(args.name.clone(), Keys::default(), limits, 0.0)?;
            check_models(&args.input, &left, &app)?;
            (Server::Here(foretoken_server::router(app.clone())), Some((app, thread)))
        }
    };
    let bar = progress::items(lines.len(), "answering").with_position((lines.len() - left.len()) as u64);
    let started = (Instant::now(), cpu_seconds());
    let watch = Watch::start();
    let asked = runtime()?.block_on(ask_all(&server, &left, args.concurrency, &mut answers, &bar, &watch));
    bar.finish_and_clear();
    if let Some((app, thread)) = engine {
        app.engine.stop();
        // Its panic was told on standard error, and its requests have failed.
        let _ = thread.join();
    }
    let totals = asked?;
    // A server elsewhere takes its time on processors of its own.
    let cpu = cpu_seconds().zip(started.1).map(|(now, before)| now - before).filter(|_| args.endpoint.is_none());
    output::note(totals.summary(started.0.elapsed().as_secs_f64(), cpu));
    if watch.pressed() {
        output::note("interrupted: the same command goes on from here");
        return Ok(INTERRUPTED.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a batch for another model as a whole: each of its lines would be refused, and count as answered.
fn check_models(input: &Path, lines: &[&Line], app: &App) -> Result<(), CliError> {
    for line in lines {
        let Some(name) = line.body["model"].as_str() else { continue };
        app.check_model(name).map_err(|error| CliError::BadFile {
            path: input.into(),
            found: format!("the request {:?} cannot be answered: {error}", line.custom_id),
            wanted: "--name ID says what the requests call the model".into(),
        })?;
    }
    Ok(())
}

async fn ask_all(
    server: &Server,
    lines: &[&Line],
    concurrency: usize,
    answers: &mut Answers,
    bar: &ProgressBar,
    watch: &Watch,
) -> Result<Totals, CliError> {
    let mut totals = Totals::default();
    let asked = lines.iter().take_while(|_| !watch.pressed()).map(|line| async move { (line, server.ask(line).await) });
    let mut ended = futures_util::stream::iter(asked).buffer_unordered(concurrency);
    let mut interrupted = std::pin::pin!(async {
        while !watch.pressed() {
            tokio::time::sleep(LOOK).await;
        }
    });
    loop {
        let (line, answer) = tokio::select! {
            biased;
            // What did not end is asked again by the next run.
            () = &mut interrupted => break,
            next = ended.next() => match next {
                Some(next) => next,
                None => break,
            },
        };
        // Without its answer the line stays open, and so do all that would come after it.
        let answer = answer.map_err(|error| CliError::Endpoint { error })?;
        totals.count(&answer);
        answers.write(&line.custom_id, answer)?;
        bar.inc(1);
    }
    Ok(totals)
}

/// A status and a body, or why there is none.
type Answer = Result<(StatusCode, Value), String>;

impl Server {
    /// The outer error says why a server elsewhere cannot be reached.
    async fn ask(&self, line: &Line) -> Result<Answer, String> {
        match self {
            Self::There(caller) => caller.ask(line).await.map(Ok),
            Self::Here(router) => Ok(ask_here(router, line).await),
        }
    }
}

async fn ask_here(router: &Router, line: &Line) -> Answer {
    let request = Request::post(&line.url).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(line.body.to_string())).map_err(|error| error.to_string())?;
    let Ok(response) = router.clone().oneshot(request).await;
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.map_err(|error| error.to_string())?;
    Ok((status, serde_json::from_slice(&body).map_err(|error| error.to_string())?))
}

/// What all answers took together.
#[derive(Debug, Default)]
struct Totals {
    answered: usize,
    failed: usize,
    tokens: u64,
    drafted: u64,
    accepted: u64,
    passes: u64,
}

impl Totals {
    fn count(&mut self, answer: &Answer) {
        match answer {
            Ok((StatusCode::OK, body)) => {
                let n = |value: &Value| value.as_u64().unwrap_or(0);
                self.answered += 1;
                self.tokens += n(&body["usage"]["completion_tokens"]);
                self.drafted += n(&body["timings"]["draft_n"]);
                self.accepted += n(&body["timings"]["draft_n_accepted"]);
                self.passes += n(&body["timings"]["passes"]);
            }
            _ => self.failed += 1,
        }
    }

    fn summary(&self, seconds: f64, cpu: Option<f64>) -> String {
        let Self { answered, failed, tokens, drafted, accepted, passes } = self;
        let mut text = format!("{answered} answered, {failed} refused or failed; {tokens} tokens in {seconds:.1} s");
        text.push_str(&format!(" ({:.1} tokens/s", *tokens as f64 / seconds.max(1e-9)));
        if let Some(cpu) = cpu.filter(|cpu| *cpu > 0.0) {
            text.push_str(&format!(", {:.1} a CPU-second", *tokens as f64 / cpu));
        }
        text.push(')');
        if *passes > 0 {
            let per_pass = *tokens as f64 / *passes as f64;
            text.push_str(&format!("; {per_pass:.2} tokens a pass, {accepted} of {drafted} guesses accepted"));
        }
        text
    }
}

/// The line for an answer, in OpenAI's format.
fn answer_line(custom_id: &str, answer: Answer) -> Value {
    let id = format!("batch_req_{:014x}", foretoken_engine::draw_seed());
    match answer {
        Ok((status, body)) => json!({
            "id": id, "custom_id": custom_id,
            "response": { "status_code": status.as_u16(), "request_id": body["id"], "body": body },
            "error": null,
        }),
        Err(message) => json!({
            "id": id, "custom_id": custom_id, "response": null,
            "error": { "code": "request_failed", "message": message },
        }),
    }
}

/// Processor time of this process and all its threads, where the system tells it in the way of Linux.
fn cpu_seconds() -> Option<f64> {
    /// Linux has counted in hundredths of seconds on every architecture since it tells this.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}
