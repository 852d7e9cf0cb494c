//! Counters for Prometheus: our own names, and those of vLLM that dashboards already know.
//!
//! What a response says about its request and what is counted here come from the same numbers, so they agree.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foretoken_decode::budget::{CostTable, PassShape};
use foretoken_decode::{DrafterStats, Load, PassTrace, SequenceTrace};
use foretoken_engine::{Finish, Outcome, troubles};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Value, json};

use crate::shadow::Finding;

type Labels<const N: usize> = [(&'static str, String); N];
type Seconds = Counter<f64, AtomicU64>;
type Share = Gauge<f64, AtomicU64>;

/// Upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 18] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    drafters: Vec<&'static str>,
    http: Family<Labels<2>, Counter>,
    finished: Family<Labels<1>, Counter>,
    finished_vllm: Family<Labels<1>, Counter>,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    output_tokens: Counter,
    passes: Counter,
    rows: Counter,
    drafts: Counter,
    drafted: Counter,
    accepted: Counter,
    accepted_at: Family<Labels<1>, Counter>,
    guesses: Family<Labels<3>, Counter>,
    no_draft: Family<Labels<1>, Counter>,
    seconds: Family<Labels<1>, Seconds>,
    drafter_seconds: Family<Labels<1>, Seconds>,
    troubles: Family<Labels<2>, Counter>,
    plain_seconds: Seconds,
    speedup: Share,
    running: Gauge,
    waiting: Gauge,
    kept: Gauge,
    cache_free: Gauge,
    cache_size: AtomicU64,
    cache_used: Share,
    queue: Histogram,
    shadow_same: Counter,
    shadow_mismatches: Counter,
    shadow_plain: Seconds,
    shadow_drafted: Seconds,
    first_token: Histogram,
    between_chunks: Histogram,
    whole: Histogram,
}

impl Metrics {
    /// Nothing counted yet. `drafters` are the names of the decoder's, in the order of their sources.
    pub fn new(model: &str, drafters: Vec<&'static str>) -> Self {
        let histogram = || Histogram::new(BOUNDS);
        let mut metrics = Self {
            registry: Registry::default(),
            drafters,
            http: Family::default(),
            finished: Family::default(),
            finished_vllm: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            output_tokens: Counter::default(),
            passes: Counter::default(),
            rows: Counter::default(),
            drafts: Counter::default(),
            drafted: Counter::default(),
            accepted: Counter::default(),
            accepted_at: Family::default(),
            guesses: Family::default(),
            no_draft: Family::default(),
            seconds: Family::default(),
            drafter_seconds: Family::default(),
            troubles: Family::default(),
            plain_seconds: Counter::default(),
            speedup: Gauge::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            kept: Gauge::default(),
            cache_free: Gauge::default(),
            cache_size: AtomicU64::new(0),
            cache_used: Gauge::default(),
            queue: histogram(),
            shadow_same: Counter::default(),
            shadow_mismatches: Counter::default(),
            shadow_plain: Counter::default(),
            shadow_drafted: Counter::default(),
            first_token: histogram(),
            between_chunks: histogram(),
            whole: histogram(),
        };
        metrics.register_own();
        metrics.register_known(model);
        metrics
    }

    fn register_own(&mut self) {
        let r = self.registry.sub_registry_with_prefix("foretoken");
        r.register("http_requests", "Answers by path and status", self.http.clone());
        r.register("requests_finished", "Choices that ended, by reason", self.finished.clone());
        r.register("prompt_tokens", "Tokens of prompts", self.prompt_tokens.clone());
        r.register("prompt_tokens_cached", "Of these, those that were cached", self.cached_tokens.clone());
        r.register("output_tokens", "Tokens written", self.output_tokens.clone());
        r.register("passes", "Forward passes", self.passes.clone());
        r.register("rows", "Rows of all passes", self.rows.clone());
        r.register("drafts", "Parts of passes that checked guesses, one for each request", self.drafts.clone());
        r.register("draft_tokens", "Guesses checked", self.drafted.clone());
        r.register("draft_tokens_accepted", "Guesses that became tokens", self.accepted.clone());
        let about = "Guesses by drafter, tokens ahead and fate (checked, accepted)";
        r.register("drafter_tokens", about, self.guesses.clone());
        r.register(
            "no_draft",
            "Parts of passes that decided a token and checked no guess, by reason",
            self.no_draft.clone(),
        );
        let seconds = Unit::Seconds;
        r.register_with_unit("pass", "Time drafting, verifying, and around it", seconds.clone(), self.seconds.clone());
        let about = "Time of each drafter";
        r.register_with_unit("drafter", about, seconds.clone(), self.drafter_seconds.clone());
        let about = "Guesses and texts that a drafter did not work for, by reason";
        r.register("drafter_troubles", about, self.troubles.clone());
        let about = "What the same tokens would have taken without drafts, by the cost model";
        r.register_with_unit("plain_estimated", about, seconds.clone(), self.plain_seconds.clone());
        r.register("speedup_estimated", "plain_estimated over the time taken, since the start", self.speedup.clone());
        r.register("shadows", "Choices run again without drafts whose text was the same", self.shadow_same.clone());
        let about = "Choices run again without drafts whose text was another: has to stay 0";
        r.register("shadow_mismatches", about, self.shadow_mismatches.clone());
        let about = "Writing time of choices run again, without drafts; only of those that were alone";
        r.register_with_unit("shadow_plain", about, seconds.clone(), self.shadow_plain.clone());
        let about = "Writing time of the same choices with drafts";
        r.register_with_unit("shadow_drafted", about, seconds.clone(), self.shadow_drafted.clone());
        r.register("requests_running", "Choices under way", self.running.clone());
        r.register("requests_waiting", "Choices that wait for room", self.waiting.clone());
        r.register(
            "prefixes_kept",
            "Finished choices whose rows are kept for prompts that begin alike",
            self.kept.clone(),
        );
        r.register("cache_free_tokens", "Tokens that the cache has room for", self.cache_free.clone());
        r.register("cache_used", "Share of the cache in use, kept rows included", self.cache_used.clone());
        let about = "From submission to the first pass";
        r.register_with_unit("queue", about, seconds.clone(), self.queue.clone());
        let about = "From submission to the first tokens";
        r.register_with_unit("first_token", about, seconds.clone(), self.first_token.clone());
        let about = "Between the tokens of one pass and those of the next, for each choice";
        r.register_with_unit("between_chunks", about, seconds.clone(), self.between_chunks.clone());
        r.register_with_unit("request", "From submission to the end", seconds, self.whole.clone());
    }

    /// The same numbers under names that dashboards know, where they mean the same.
    fn register_known(&mut self, model: &str) {
        let label = (Cow::Borrowed("model_name"), Cow::Owned(model.to_owned()));
        let r = self.registry.sub_registry_with_label(label);
        r.register("vllm:num_requests_running", "Requests under way", self.running.clone());
        r.register("vllm:num_requests_waiting", "Requests that wait", self.waiting.clone());
        r.register("vllm:kv_cache_usage_perc", "Share of the cache's pages in use", self.cache_used.clone());
        r.register("vllm:prompt_tokens", "Tokens of prompts", self.prompt_tokens.clone());
        r.register("vllm:generation_tokens", "Tokens written", self.output_tokens.clone());
        r.register("vllm:prefix_cache_queries", "Tokens of prompts", self.prompt_tokens.clone());
        r.register("vllm:prefix_cache_hits", "Of these, those that were cached", self.cached_tokens.clone());
        r.register("vllm:request_success", "Requests that ended, by reason", self.finished_vllm.clone());
        r.register("vllm:spec_decode_num_drafts", "Parts of passes that checked guesses", self.drafts.clone());
        r.register("vllm:spec_decode_num_draft_tokens", "Guesses checked", self.drafted.clone());
        r.register("vllm:spec_decode_num_accepted_tokens", "Guesses accepted", self.accepted.clone());
        let about = "Guesses accepted, by position from 0";
        r.register("vllm:spec_decode_num_accepted_tokens_per_pos", about, self.accepted_at.clone());
        r.register("vllm:time_to_first_token_seconds", "To the first tokens", self.first_token.clone());
        r.register("vllm:inter_token_latency_seconds", "Between chunks", self.between_chunks.clone());
        r.register("vllm:request_queue_time_seconds", "To the first pass", self.queue.clone());
        r.register("vllm:e2e_request_latency_seconds", "To the end", self.whole.clone());
    }

    /// The text for `/metrics`, in OpenMetrics' format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes every write");
        text
    }

    /// An answer was given.
    pub fn answered(&self, path: &str, status: u16) {
        self.http.get_or_create(&[("path", path.to_owned()), ("status", status.to_string())]).inc();
    }

    /// What the engine holds.
    pub fn load(&self, load: Load) {
        self.running.set(load.running as i64);
        self.waiting.set(load.waiting as i64);
        self.kept.set(load.kept as i64);
        self.cache_free.set(load.free_tokens as i64);
        // At first the cache is empty.
        let size = self.cache_size.fetch_max(load.free_tokens as u64, Ordering::Relaxed).max(load.free_tokens as u64);
        self.cache_used.set(1.0 - load.free_tokens as f64 / (size as f64).max(1.0));
    }

    /// What has been wrong with drafters since the start.
    pub fn troubles<'a>(&self, drafters: impl Iterator<Item = &'a DrafterStats>) {
        for stats in drafters {
            for (reason, times) in troubles(stats) {
                let labels = [("drafter", stats.name.to_owned()), ("reason", reason.to_owned())];
                self.troubles.get_or_create(&labels).inner().store(times as u64, Ordering::Relaxed);
            }
        }
    }

    /// The first tokens of a choice came.
    pub fn first_token(&self, after: Duration) {
        self.first_token.observe(after.as_secs_f64());
    }

    /// The next tokens of a choice came.
    pub fn between_chunks(&self, after: Duration) {
        self.between_chunks.observe(after.as_secs_f64());
    }

    /// Tokens were written.
    pub fn output_tokens(&self, n: usize) {
        self.output_tokens.inc_by(n as u64);
    }

    /// A choice ended.
    pub fn finished(&self, outcome: &Outcome, after: Duration) {
        self.prompt_tokens.inc_by(outcome.prompt_tokens as u64);
        self.cached_tokens.inc_by(outcome.cached_tokens as u64);
        self.queue.observe(outcome.queue_seconds);
        self.whole.observe(after.as_secs_f64());
        self.ended(outcome.finish_reason);
    }

    /// A prompt of so many tokens was scored, and no text was to follow.
    pub fn scored(&self, prompt_tokens: usize) {
        self.prompt_tokens.inc_by(prompt_tokens as u64);
        self.ended(Finish::Length);
    }

    fn ended(&self, finish: Finish) {
        let (own, known) = reasons(finish);
        self.finished.get_or_create(&[("reason", own.to_owned())]).inc();
        self.finished_vllm.get_or_create(&[("finished_reason", known.to_owned())]).inc();
    }

    /// A choice was given up because a pass could not be run.
    pub fn failed(&self) {
        self.ended(Finish::Failed);
    }

    /// A choice was run again without drafts.
    pub(crate) fn shadow(&self, finding: Finding) {
        if finding.same {
            self.shadow_same.inc();
        } else {
            self.shadow_mismatches.inc();
            tracing::error!("a text is another without drafts: please report this");
        }
        if let Some((plain, drafted)) = finding.seconds {
            self.shadow_plain.inc_by(plain);
            self.shadow_drafted.inc_by(drafted);
        }
    }

    /// A pass was run. What it brought is counted of those parts that are somebody's texts.
    pub fn pass(&self, trace: &PassTrace, costs: &CostTable, is_counted: impl Fn(&SequenceTrace) -> bool) {
        self.passes.inc();
        self.rows.inc_by(trace.shape.rows as u64);
        for (phase, time) in [("draft", trace.draft), ("verify", trace.verify), ("rest", trace.rest)] {
            self.seconds.get_or_create(&[("phase", phase.to_owned())]).inc_by(time.as_secs_f64());
        }
        for (drafter, spent) in self.drafters.iter().zip(&trace.draft_by).filter(|(_, spent)| !spent.time.is_zero()) {
            let seconds = spent.time.as_secs_f64();
            self.drafter_seconds.get_or_create(&[("drafter", (*drafter).to_owned())]).inc_by(seconds);
        }
        let texts = trace.sequences.iter().filter(|part| !part.tokens.is_empty() && is_counted(part));
        texts.for_each(|part| self.part(part));
        self.plain_seconds.inc_by(plain_seconds(trace, costs, is_counted));
        let taken: f64 = ["draft", "verify", "rest"].iter().map(|p| self.phase_seconds(p)).sum();
        self.speedup.set(self.plain_seconds.get() / taken.max(f64::MIN_POSITIVE));
    }

    fn phase_seconds(&self, phase: &str) -> f64 {
        self.seconds.get_or_create(&[("phase", phase.to_owned())]).get()
    }

    /// One request's part in a pass that decided tokens for it.
    fn part(&self, part: &SequenceTrace) {
        if !part.proposed.iter().any(|guess| guess.run) {
            let reason = match part {
                SequenceTrace { forbidden: 1.., proposed, .. } if proposed.is_empty() => "forbidden",
                SequenceTrace { proposed, .. } if proposed.is_empty() => "no_guess",
                _ => "not_worth_it",
            };
            self.no_draft.get_or_create(&[("reason", reason.to_owned())]).inc();
            return;
        }
        self.drafts.inc();
        self.drafted.inc_by(part.proposed.iter().filter(|guess| guess.run).count() as u64);
        self.accepted.inc_by(part.tokens.len() as u64 - 1);
        let accepted = part.path();
        let mut depths: Vec<usize> = Vec::with_capacity(part.proposed.len());
        for (index, guess) in part.proposed.iter().enumerate() {
            let depth = guess.parent.map_or(1, |parent| depths[parent] + 1);
            depths.push(depth);
            let count = |fate: &str| {
                let drafter = usize::from(guess.source).checked_sub(1).and_then(|i| self.drafters.get(i));
                let drafter = drafter.copied().unwrap_or("none").to_owned();
                let labels = [("drafter", drafter), ("depth", depth.to_string()), ("fate", fate.to_owned())];
                self.guesses.get_or_create(&labels).inc();
            };
            if guess.run {
                count("checked");
            }
            if accepted.contains(&index) {
                count("accepted");
                self.accepted_at.get_or_create(&[("position", (depth - 1).to_string())]).inc();
            }
        }
    }

    /// Totals for the page's charts.
    pub fn totals(&self) -> Value {
        json!({
            "passes": self.passes.get(), "rows": self.rows.get(), "prompt_tokens": self.prompt_tokens.get(),
            "cached_tokens": self.cached_tokens.get(), "output_tokens": self.output_tokens.get(),
            "draft_tokens": self.drafted.get(), "accepted_tokens": self.accepted.get(),
            "requests_running": self.running.get(), "requests_waiting": self.waiting.get(),
            "draft_seconds": self.phase_seconds("draft"), "verify_seconds": self.phase_seconds("verify"),
            "rest_seconds": self.phase_seconds("rest"), "plain_seconds_estimated": self.plain_seconds.get(),
        })
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Our word for how a choice ended, and vLLM's.
fn reasons(finish: Finish) -> (&'static str, &'static str) {
    match finish {
        Finish::EndToken => ("end_token", "stop"),
        Finish::StopString => ("stop_string", "stop"),
        Finish::Length => ("length", "length"),
        Finish::ContextFull => ("context_full", "length"),
        Finish::Deadline => ("deadline", "length"),
        Finish::Cancelled => ("cancelled", "abort"),
        Finish::Failed => ("failed", "error"),
    }
}

/// Seconds in which the model would have written a pass's tokens one at a time: the same pass without guesses, and passes
/// of one row for each sequence for the rest. The tokens of what is no text were known before, and are rows as in a prompt.
fn plain_seconds(trace: &PassTrace, costs: &CostTable, is_text: impl Fn(&SequenceTrace) -> bool) -> f64 {
    let (mut given, mut next) = (PassShape::default(), PassShape::default());
    let mut n_tokens = 0;
    for part in &trace.sequences {
        let more = if is_text(part) { 0 } else { part.tokens.len().saturating_sub(1) };
        let end = part.start + part.given + more;
        given.rows += part.given + more;
        given.context += (part.start + 1..=end).sum::<usize>();
        if !part.tokens.is_empty() {
            n_tokens += part.tokens.len() - more;
            given.logits_rows += 1 + more;
            next.rows += 1;
            next.logits_rows += 1;
            next.context += end + 1;
        }
    }
    if given.rows == 0 {
        return 0.0;
    }
    let more_passes = if next.rows > 0 { n_tokens as f64 / next.rows as f64 - 1.0 } else { 0.0 };
    costs.seconds(given) + if more_passes > 0.0 { more_passes * costs.seconds(next) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use foretoken_decode::drafters::Retired;

    use super::*;

    #[test]
    fn troubles_of_drafters_are_counted_by_reason() {
        let metrics = Metrics::new("toy", vec!["suffix", "draft_model"]);
        let mut stats = DrafterStats { name: "draft_model", ..DrafterStats::default() };
        metrics.troubles([&stats].into_iter());
        assert!(!metrics.text().contains("foretoken_drafter_troubles_total{"));
        stats.retired.push(Retired { reason: "its cache is full", sequences: 2 });
        metrics.troubles([&stats].into_iter());
        stats.retired[0].sequences = 3;
        metrics.troubles([&stats].into_iter());
        let line = "foretoken_drafter_troubles_total{drafter=\"draft_model\",reason=\"its cache is full\"} 3\n";
        assert!(metrics.text().contains(line), "{}", metrics.text());
    }
}
