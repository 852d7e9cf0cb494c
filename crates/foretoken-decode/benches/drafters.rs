//! What drafting costs beside a pass: time to propose and to learn, per pass, at 8k tokens of context.
//!
//! `cargo bench -p foretoken-decode --bench drafters`. The text is synthetic: phrases that come back, with changes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::{Draft, Drafter, NAMES, Observation, by_name};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::target::SequenceId;
use foretoken_decode::{Decoder, DraftPolicy, Request, TokenId};
use foretoken_testkit::{Rng, ToyCache, ToyModel, ToyTarget};

const CONTEXT: usize = 8192;
const OUTPUT: usize = 512;
const VOCAB: usize = 2048;

/// Time of each pass, to propose and to observe.
type Times = Arc<Mutex<Vec<[Duration; 2]>>>;

/// Keeps the times of another drafter.
struct Timed(Box<dyn Drafter<ToyTarget>>, Times);

impl Drafter<ToyTarget> for Timed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], target: &mut ToyTarget, cache: &mut ToyCache) {
        let begun = Instant::now();
        self.0.propose(drafts, target, cache);
        self.1.lock().expect("one thread").push([begun.elapsed(), Duration::ZERO]);
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        let begun = Instant::now();
        self.0.observe(seen);
        if let Some(last) = self.1.lock().expect("one thread").last_mut() {
            last[1] = begun.elapsed();
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.0.forget(sequence);
    }
}

/// Phrases of a small book in any order, some tokens changed.
fn text() -> Vec<TokenId> {
    let mut rng = Rng::new(3);
    let phrases: Vec<Vec<TokenId>> = (0..300).map(|_| rng.tokens(12, VOCAB)).collect();
    let mut text = Vec::new();
    while text.len() < CONTEXT {
        let phrase = rng.pick(&phrases).clone();
        text.extend(phrase.into_iter().map(|token| if rng.chance(0.05) { rng.below(VOCAB) as TokenId } else { token }));
    }
    text.truncate(CONTEXT);
    text
}

fn main() {
    println!(
        "median microseconds a pass at {CONTEXT} tokens of context, {OUTPUT} tokens at width 8, vocabulary of {VOCAB}"
    );
    println!("{:14} {:>12} {:>12} {:>12} {:>12}", "drafter", "first", "propose", "observe", "both, 95 %");
    for name in NAMES {
        let times = Times::default();
        let model = ToyModel { vocab_size: VOCAB, context_size: 1 << 20, order: 1, scale: 20.0, ..ToyModel::default() };
        let cost = CostModel::fixed(CostTable::linear(1.0, 0.01));
        let drafter = Timed(by_name(name).expect("a name of the list"), times.clone());
        let mut decoder = Decoder::new(ToyTarget::new(model), ToyCache::new(64, 1 << 10, 1), (), (), cost)
            .with_drafter(Box::new(drafter));
        let mut request = Request::new(text());
        request.sampler = SamplerSettings::greedy();
        (request.max_tokens, request.draft) = (Some(OUTPUT), DraftPolicy::Width(8));
        decoder.admit(request).expect("a valid request");
        while decoder.step(&mut |_| {}).expect("a sound target") {}

        let times = std::mem::take(&mut *times.lock().expect("one thread"));
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        // The first pass takes the whole prompt in.
        let (first, rest) = times.split_first().expect("a pass");
        let quantile = |of: &dyn Fn(&[Duration; 2]) -> Duration, q: f64| {
            let mut sorted: Vec<Duration> = rest.iter().map(of).collect();
            sorted.sort_unstable();
            micros(sorted[((sorted.len() - 1) as f64 * q) as usize])
        };
        let (propose, observe) = (quantile(&|pass| pass[0], 0.5), quantile(&|pass| pass[1], 0.5));
        let both = quantile(&|pass| pass[0] + pass[1], 0.95);
        println!("{name:14} {:12.1} {propose:12.2} {observe:12.2} {both:12.1}", micros(first[0]));
    }
}
