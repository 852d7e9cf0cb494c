//! The engine's thread: it owns the scheduler, takes requests in and back between steps, and hands out what every pass
//! brought. It never waits for a client: what a client has not read yet is bounded by the context's length.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use foretoken_decode::sampler::TokenLogprobs;
use foretoken_decode::target::{Target, TargetError};
use foretoken_decode::{Clock, Detokenize, PassTrace, SequenceTrace};
use foretoken_engine::{Event, Finish, Outcome, Request, RequestError, RequestId, Scheduler, TokenId, WallClock};
use tokio::sync::{mpsc as updates, oneshot};

use crate::metrics::Metrics;
use crate::passes::PassLog;
use crate::shadow::{Shadow, Shadows};

/// What a pass brought for one choice.
#[derive(Clone, Debug)]
pub struct Piece {
    /// New tokens, at least one.
    pub tokens: Vec<TokenId>,
    /// Who guessed each: its place in the list of drafters from 1, and 0 for nobody.
    pub sources: Vec<u8>,
    /// New text, which may lag behind the tokens.
    pub text: String,
    /// One per token when asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// All guesses and what became of them, when asked for.
    pub trace: Option<Box<SequenceTrace>>,
    /// The last token ended the text and is no part of it.
    pub ends: bool,
}

/// What happened to one choice.
#[derive(Clone, Debug)]
pub enum Update {
    /// A pass drew tokens for it.
    Piece(Piece),
    /// It is over.
    End(Box<Outcome>),
    /// A pass could not be run, and the request was given up.
    Failed(String),
}

enum Command {
    Submit(Submission),
    Cancel(RequestId),
    /// Nothing: whether it can be sent tells whether the thread lives.
    Wake,
    Stop,
}

/// What requests are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Texts.
    Texts,
    /// Texts, of which every pass's guesses are told too.
    TracedTexts,
    /// Log-probabilities of prompts. Nothing of them is counted but the passes: no token is written, and to guess a prompt's
    /// tokens is no feat.
    Scores,
}

struct Submission {
    requests: Vec<Request>,
    purpose: Purpose,
    updates: updates::UnboundedSender<(usize, Update)>,
    reply: oneshot::Sender<Result<Vec<RequestId>, RequestError>>,
}

/// Where requests are handed in. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Handle(Sender<Command>);

/// Requests that were taken in together. Whoever drops it before their end takes them back.
#[derive(Debug)]
pub struct Ticket {
    ids: Vec<RequestId>,
    /// `[choice]`
    ended: Vec<bool>,
    updates: updates::UnboundedReceiver<(usize, Update)>,
    commands: Sender<Command>,
}

/// Why requests were not taken in.
#[derive(Debug)]
pub enum SubmitError {
    /// One of them cannot be served.
    Refused(RequestError),
    /// The engine's thread has ended.
    Stopped,
}

impl Handle {
    /// Hands requests in, all or none.
    pub async fn submit(&self, requests: Vec<Request>, purpose: Purpose) -> Result<Ticket, SubmitError> {
        let n = requests.len();
        let (sender, updates) = updates::unbounded_channel();
        let (reply, answer) = oneshot::channel();
        let submission = Submission { requests, purpose, updates: sender, reply };
        self.0.send(Command::Submit(submission)).map_err(|_| SubmitError::Stopped)?;
        let ids = answer.await.map_err(|_| SubmitError::Stopped)?.map_err(SubmitError::Refused)?;
        Ok(Ticket { ids, ended: vec![false; n], updates, commands: self.0.clone() })
    }

    /// Whether the thread still runs.
    pub fn is_alive(&self) -> bool {
        self.0.send(Command::Wake).is_ok()
    }

    /// Ends the thread; requests under way end as cancelled.
    pub fn stop(&self) {
        // It may have ended by itself.
        let _ = self.0.send(Command::Stop);
    }
}

impl Ticket {
    /// What happens next, and to which choice; `None` after the end of all, and when the engine's thread has ended.
    pub async fn next(&mut self) -> Option<(usize, Update)> {
        let (choice, update) = self.updates.recv().await?;
        self.ended[choice] |= !matches!(update, Update::Piece(_));
        Some((choice, update))
    }

    /// What has happened already.
    pub fn ready(&mut self) -> Option<(usize, Update)> {
        let (choice, update) = self.updates.try_recv().ok()?;
        self.ended[choice] |= !matches!(update, Update::Piece(_));
        Some((choice, update))
    }

    /// Number of choices, at least one.
    pub fn n_choices(&self) -> usize {
        self.ended.len()
    }

    /// Whether every choice has ended.
    pub fn is_over(&self) -> bool {
        self.ended.iter().all(|&ended| ended)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        for (&id, _) in self.ids.iter().zip(&self.ended).filter(|&(_, &ended)| !ended) {
            let _ = self.commands.send(Command::Cancel(id));
        }
    }
}

/// A choice under way.
struct Open {
    id: RequestId,
    choice: usize,
    purpose: Purpose,
    updates: updates::UnboundedSender<(usize, Update)>,
    submitted: Duration,
    /// The request without drafts, when it is to be run again.
    shadow: Option<Request>,
    /// No other choice was under way meanwhile.
    alone: bool,
    /// When the latest tokens came.
    latest: Option<Duration>,
    /// What the pass under way has brought.
    piece: Option<Piece>,
}

impl Open {
    /// Whether it is a text that somebody asked for.
    fn is_counted(&self) -> bool {
        self.purpose != Purpose::Scores
    }

    /// Hands on what the pass has brought.
    fn deliver(&mut self, ends: bool) {
        if let Some(piece) = self.piece.take() {
            // When nobody listens any more, the cancelling command is on its way.
            let _ = self.updates.send((self.choice, Update::Piece(Piece { ends, ..piece })));
        }
    }
}

struct Worker<T: Target, D> {
    scheduler: Scheduler<T, D>,
    commands: Receiver<Command>,
    open: HashMap<RequestId, Open>,
    shadows: Shadows,
    /// The request that is run again now.
    shadow: Option<(RequestId, Shadow)>,
    passes: PassLog,
    metrics: Arc<Metrics>,
    clock: WallClock,
}

/// Starts the thread. `passes` is the recorder of the scheduler's decoder. Of the requests with drafts, `shadows` (0 to 1)
/// are run again without, when there is nothing else to do. The thread gives the scheduler back when it is stopped.
pub fn spawn<T, D>(
    scheduler: Scheduler<T, D>,
    passes: PassLog,
    metrics: Arc<Metrics>,
    shadows: f64,
) -> std::io::Result<(Handle, JoinHandle<Scheduler<T, D>>)>
where
    T: Target + Send + 'static,
    T::Cache: Send + 'static,
    D: Detokenize + Send + 'static,
{
    let (sender, commands) = mpsc::channel();
    let clock = WallClock::start();
    let worker = Worker {
        scheduler,
        commands,
        open: HashMap::new(),
        shadows: Shadows::new(shadows),
        shadow: None,
        passes,
        metrics,
        clock,
    };
    let thread = thread::Builder::new().name("engine".into()).spawn(|| worker.run())?;
    Ok((Handle(sender), thread))
}

impl<T: Target, D: Detokenize> Worker<T, D> {
    fn run(mut self) -> Scheduler<T, D> {
        while self.take_commands() {
            if let Err(error) = self.step() {
                self.fail_all(&error);
            }
        }
        for id in self.open.keys().chain(self.shadow.iter().map(|(id, _)| id)) {
            self.scheduler.cancel(*id);
        }
        // Nothing is computed any more: the step only tells of the ends.
        if let Err(error) = self.step() {
            self.fail_all(&error);
        }
        self.scheduler
    }

    /// Waits for a command when there is nothing else to do; false when it is time to stop.
    fn take_commands(&mut self) -> bool {
        if self.scheduler.is_idle() && self.shadows.is_empty() {
            match self.commands.recv() {
                Ok(Command::Stop) | Err(_) => return false,
                Ok(command) => self.obey(command),
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(mpsc::TryRecvError::Disconnected) => return false,
                Ok(command) => self.obey(command),
                Err(mpsc::TryRecvError::Empty) => break,
            }
        }
        self.cast_shadow();
        self.tell_load();
        true
    }

    /// Counts what the engine holds; what is run again is nobody's.
    fn tell_load(&self) {
        let mut load = self.scheduler.load();
        if self.shadow.is_some() {
            let place = if load.running > 0 { &mut load.running } else { &mut load.waiting };
            *place = place.saturating_sub(1);
        }
        self.metrics.load(load);
    }

    /// Runs a request again while there is nothing else to do, and gives it up when there is.
    fn cast_shadow(&mut self) {
        match &self.shadow {
            Some((id, _)) if !self.open.is_empty() => {
                self.scheduler.cancel(*id);
            }
            None if self.scheduler.is_idle() => {
                self.shadow = self.shadows.next().and_then(|shadow| {
                    let id = self.scheduler.submit(shadow.request.clone()).ok()?;
                    Some((id, shadow))
                });
            }
            _ => {}
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => self.submit(submission),
            Command::Cancel(id) => {
                self.scheduler.cancel(id);
            }
            Command::Wake => {}
            Command::Stop => unreachable!("handled where commands are received"),
        }
    }

    fn submit(&mut self, submission: Submission) {
        let Submission { requests, purpose, updates, reply } = submission;
        let submitted = self.clock.now();
        let mut ids = Vec::with_capacity(requests.len());
        for (choice, request) in requests.into_iter().enumerate() {
            let shadow = if purpose == Purpose::Scores { None } else { self.shadows.choose(&request) };
            match self.scheduler.submit(request) {
                Ok(id) => {
                    let updates = updates.clone();
                    self.open.insert(
                        id,
                        Open {
                            id,
                            choice,
                            purpose,
                            updates,
                            submitted,
                            shadow,
                            alone: true,
                            latest: None,
                            piece: None,
                        },
                    );
                    ids.push(id);
                }
                Err(error) => {
                    self.take_back(&ids);
                    let _ = reply.send(Err(error));
                    return;
                }
            }
        }
        // Whoever asked may have left in the meantime.
        if let Err(Ok(ids)) = reply.send(Ok(ids)) {
            self.take_back(&ids);
        }
    }

    fn take_back(&mut self, ids: &[RequestId]) {
        for id in ids {
            self.scheduler.cancel(*id);
        }
    }

    fn step(&mut self) -> Result<(), TargetError> {
        let Self { scheduler, open, shadows, shadow, passes, metrics, clock, .. } = self;
        if open.len() > 1 {
            open.values_mut().for_each(|state| state.alone = false);
        }
        let shadow_id = shadow.as_ref().map(|(id, _)| id.0);
        let now = || clock.now();
        let mut ended = Vec::new();
        scheduler.step(&mut |event| match event {
            Event::Progress { request, tokens, sources, text, logprobs, .. } => {
                let Some(state) = open.get_mut(&request) else { return };
                if tokens.is_empty() && text.is_empty() {
                    return;
                }
                if !tokens.is_empty() && state.is_counted() {
                    let now = now();
                    match state.latest {
                        None => metrics.first_token(now - state.submitted),
                        Some(latest) => metrics.between_chunks(now - latest),
                    }
                    state.latest = Some(now);
                    metrics.output_tokens(tokens.len());
                }
                let trace = (state.purpose == Purpose::TracedTexts).then(|| passes.of(request)).flatten();
                state.piece = Some(Piece {
                    tokens: tokens.to_vec(),
                    sources: sources.iter().map(|source| source.0).collect(),
                    text: text.to_owned(),
                    logprobs: logprobs.to_vec(),
                    trace: trace.map(Box::new),
                    ends: false,
                });
            }
            Event::Finished { request, outcome } => {
                if let Some((_, done)) = shadow.take_if(|(id, _)| *id == request) {
                    match done.compare(&outcome) {
                        Some(finding) => metrics.shadow(finding),
                        None => shadows.again(done),
                    }
                    return;
                }
                let Some(mut state) = open.remove(&request) else { return };
                if let Some(plain) = state.shadow.take() {
                    shadows.ended(plain, &outcome, state.alone);
                }
                if state.is_counted() {
                    metrics.finished(&outcome, now() - state.submitted);
                }
                ended.push((state, outcome));
            }
        })?;
        // What is run again is no work that anybody asked for.
        let asked_for = |trace: &PassTrace| trace.sequences.iter().all(|part| Some(part.request) != shadow_id);
        if let Some(trace) = self.passes.take().filter(asked_for) {
            let ended = ended.iter().filter(|(state, _)| !state.is_counted()).map(|(state, _)| state.id);
            let open = self.open.values().filter(|state| !state.is_counted()).map(|state| state.id);
            let uncounted: Vec<RequestId> = open.chain(ended).collect();
            let is_counted = |part: &SequenceTrace| !uncounted.iter().any(|id| id.0 == part.request);
            self.metrics.pass(&trace, self.scheduler.cost_table(), is_counted);
            self.metrics.troubles(self.scheduler.drafter_stats());
        }
        self.tell_load();
        // Only now: who has an answer finds it counted.
        self.open.values_mut().for_each(|state| state.deliver(false));
        for (mut state, outcome) in ended {
            state.deliver(outcome.finish_reason == Finish::EndToken);
            let _ = state.updates.send((state.choice, Update::End(outcome)));
        }
        Ok(())
    }

    /// A pass that cannot be run would fail again: the requests are given up, the thread goes on.
    fn fail_all(&mut self, error: &TargetError) {
        if let Some((id, _)) = self.shadow.take() {
            self.scheduler.cancel(id);
        }
        tracing::error!(%error, requests = self.open.len(), "a pass could not be run");
        for (id, state) in self.open.drain() {
            self.scheduler.cancel(id);
            self.metrics.failed();
            let _ = state.updates.send((state.choice, Update::Failed(error.to_string())));
        }
    }
}
