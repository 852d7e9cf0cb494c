//! `foretoken serve`: OpenAI's interface over HTTP.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use foretoken_engine::{EngineOptions, Scheduler, TokenText};
use foretoken_model::Model;
use foretoken_server::{App, FileText, Keys, Limits, Metrics, PassLog, worker};
use tokio::net::TcpListener;

use crate::error::CliError;
use crate::interrupt::Watch;
use crate::options::{DraftOptions, ModelOptions};
use crate::output;
use crate::prompt::read_text;

/// Serve a model to OpenAI's clients
///
/// Point a client's base URL at http://HOST:PORT/v1. The page at / shows who guessed each token. Requests may choose their
/// own drafting with the field "draft"; the options here are for those that do not. Ctrl-C or SIGTERM lets requests under
/// way end first; a second Ctrl-C does not.
#[derive(clap::Args, Debug)]
#[command(args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    serving: ServingOptions,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    engine: EngineArgs,
}

/// The engine behind a server or a batch.
#[derive(clap::Args, Clone, Debug)]
pub struct EngineArgs {
    #[command(flatten)]
    pub model: ModelOptions,
    #[command(flatten)]
    pub draft: DraftOptions,
    #[command(flatten)]
    room: RoomOptions,
}

/// Tokens that a cache is given for requests whose contexts are so small that one context would serve one or two of them.
const SMALL_CACHE: usize = 4096;

/// Tokens of a cache that is better larger than the one context which is the default.
fn roomier(context: usize, max_running: usize) -> Option<usize> {
    (context < SMALL_CACHE).then(|| context.saturating_mul(max_running).min(SMALL_CACHE))
}

/// How much runs at the same time.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Room")]
struct RoomOptions {
    /// Tokens that the cache holds for all requests together [default: --ctx-size, and more where that is below 4096]
    #[arg(long, value_name = "TOKENS", value_parser = crate::options::at_least_one)]
    cache_tokens: Option<usize>,

    /// Most answers written at the same time; others wait
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = crate::options::at_least_one)]
    max_running: usize,
}

/// Where and whom to serve, and how much.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Serving")]
struct ServingOptions {
    /// The address to listen at. Anything but this machine's own should have API keys
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = address)]
    host: IpAddr,

    /// The port to listen at; 0 takes a free one and prints it
    #[arg(long, default_value_t = 8080)]
    port: u16,

    /// What clients call the model [default: its file's name]
    #[arg(long, value_name = "ID")]
    name: Option<String>,

    /// A file of API keys, one a line; $FORETOKEN_API_KEY is one more. Without any key everybody is let in
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,

    /// Most requests under way, those that wait included; more are told to come back
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = crate::options::at_least_one)]
    max_requests: usize,

    /// The same for each API key [default: as many]
    #[arg(long, value_name = "N", value_parser = crate::options::at_least_one)]
    max_requests_per_key: Option<usize>,

    /// Largest body of a request
    #[arg(long, value_name = "MB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_body: u32,

    /// Run this share of the requests again without drafts, when there is nothing else to do: /metrics tells what drafting
    /// was worth, and whether a text was another, which is never
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    shadow: f64,

    /// How long requests under way may take to end after Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
}

/// What is told while serving.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Log (on standard error; $FORETOKEN_LOG sets the level)")]
pub struct LogOptions {
    /// One JSON object a line
    #[arg(long)]
    pub log_json: bool,
}

impl Args {
    /// Whether the log is JSON.
    pub fn log_json(&self) -> bool {
        self.log.log_json
    }
}

/// Reads an address, of which `localhost` is a name.
fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        text => {
            text.parse().map_err(|_| "give an address such as 127.0.0.1, or 0.0.0.0 for all of this machine".to_owned())
        }
    }
}

/// Reads a share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "give a number from 0 to 1".to_owned())
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let ServingOptions { host, port, .. } = args.serving;
    let keys = args.serving.keys()?;
    if !host.is_loopback() && keys.is_empty() {
        tracing::warn!(%host, "everybody who can reach this address may use the model: --api-keys lets only some in");
    }
    // Before the model is loaded: a port that is taken is told at once.
    let address = SocketAddr::new(host, port);
    let taken = |error| CliError::Listen { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(taken)?;
    listener.set_nonblocking(true).map_err(taken)?;
    let (app, engine) =
        args.engine.start(args.serving.name.clone(), keys, args.serving.limits(), args.serving.shadow)?;
    let runtime = runtime()?;
    let watch = Watch::start();
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        tracing::info!(model = app.text.id(), fingerprint = app.fingerprint, "ready");
        output::line(format_args!(
            "{} is served at http://{address} (OpenAI's interface: http://{address}/v1)",
            app.text.id()
        ))?;
        foretoken_server::serve(listener, app.clone(), async {
            while !watch.pressed() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            tracing::info!("no new requests are taken in; those under way may end");
        })
        .await;
        Ok::<_, CliError>(())
    })?;
    app.engine.stop();
    if engine.join().is_err() {
        return Err(CliError::Failed { error: "the engine has stopped".into() });
    }
    Ok(ExitCode::SUCCESS)
}

/// One thread for connections; requests are read on others.
pub fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(foretoken_server::READERS).build().map_err(CliError::Thread)
}

impl ServingOptions {
    fn limits(&self) -> Limits {
        Limits {
            requests: self.max_requests,
            requests_of_key: self.max_requests_per_key.unwrap_or(self.max_requests),
            body_bytes: (self.max_body as usize) << 20,
            drain: Duration::from_secs(self.drain),
            ..Limits::default()
        }
    }

    fn keys(&self) -> Result<Keys, CliError> {
        let file = self.api_keys.as_deref().map(read_text).transpose()?.unwrap_or_default();
        let own = env::var("FORETOKEN_API_KEY").unwrap_or_default();
        let keys = Keys::from_lines(&file).and(Keys::from_lines(&own));
        match (&self.api_keys, keys.is_empty()) {
            (Some(path), true) => Err(CliError::BadFile {
                path: path.clone(),
                found: "there is no key in it".into(),
                wanted: "write one key a line; lines that begin with # are left out".into(),
            }),
            _ => Ok(keys),
        }
    }
}

/// The engine's thread, which gives the scheduler back.
pub type EngineThread = JoinHandle<Scheduler<Model, TokenText>>;

impl EngineArgs {
    /// Loads the model and starts the engine's thread.
    pub fn start(
        &self,
        name: Option<String>,
        keys: Keys,
        limits: Limits,
        shadows: f64,
    ) -> Result<(Arc<App>, EngineThread), CliError> {
        let passes = PassLog::default();
        let file = self.model.open()?;
        let RoomOptions { cache_tokens, max_running } = self.room;
        let own_context = file.hyper().context;
        let recorder = Some(passes.recorder());
        let engine = self.model.load_as(file, &self.draft, |options| EngineOptions {
            cache_tokens: cache_tokens.or_else(|| roomier(options.context.unwrap_or(own_context), max_running)),
            max_running,
            recorder,
            ..options
        })?;
        let (context, isa, drafters) = (engine.context_size(), engine.isa(), engine.drafters());
        let (file, scheduler) = engine.into_parts();
        let kept = format!("{:?} {:?}", self.model.kv_type, self.model.weights);
        let fingerprint = FileText::fingerprint(&file, &format!("{} {kept}", isa.name()))?;
        let text = FileText::new(Arc::new(file), name, context);
        let metrics = Arc::new(Metrics::new(foretoken_server::TextModel::id(&text), drafters.clone()));
        let (handle, thread) = worker::spawn(scheduler, passes, metrics.clone(), shadows).map_err(CliError::Thread)?;
        let mut app = App::new(Box::new(text), handle, metrics, keys, limits, drafters, fingerprint);
        app.draft = self.draft.draft.clone();
        app.draft_width = self.draft.draft_width;
        Ok((Arc::new(app), thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses() {
        assert_eq!(address("localhost").map(|host| host.is_loopback()), Ok(true));
        assert_eq!(address("::").map(|host| host.is_loopback()), Ok(false));
        assert!(address("example.com").is_err_and(|why| why.contains("0.0.0.0")));
    }

    #[test]
    fn small_contexts_get_a_cache_for_several() {
        assert_eq!(roomier(512, 16), Some(4096));
        assert_eq!(roomier(512, 2), Some(1024));
        assert_eq!(roomier(2048, 1), Some(2048));
        assert_eq!(roomier(32_768, 16), None);
    }
}
