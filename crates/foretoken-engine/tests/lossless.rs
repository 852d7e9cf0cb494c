//! The law on real models: whatever drafts, however wide, in whatever batch, on however many threads, the same tokens.
//!
//! A seeded sample of the matrix prompts x sampler settings x draft policies x batches x threads x prompt chunks x K/V
//! types x cached rows x little room, against plain decoding of each request alone. `FORETOKEN_LONG=1` runs a larger
//! sample and a larger model too.

use std::collections::HashMap;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{DraftPolicy, Engine, EngineOptions, Event, ModelFile, Outcome, Request};
use foretoken_formats::gguf::Gguf;
use foretoken_formats::tokenizer::Special;
use foretoken_model::{KvType, Weights};
use foretoken_testkit::{Rng, models, tiny};

const MAX_TOKENS: usize = 32;

/// Texts that repeat themselves, so that guesses come true, and some that do not.
const PROMPTS: [&str; 6] = [
    "The cat sat on the mat. The dog sat on the mat. The cat sat on the mat. The dog sat on the",
    "def area(width, height):\n    return width * height\n\ndef volume(width, height, depth):\n    return",
    "{\"name\": \"Ada\", \"age\": 36}\n{\"name\": \"Alan\", \"age\": 41}\n{\"name\": \"Grace\", \"age\":",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,",
    "On a cold evening the old clockmaker",
    "a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a",
];

/// Every processor at least once, alone and together.
fn samplers() -> Vec<SamplerSettings> {
    let greedy = SamplerSettings { temperature: 0.0, ..SamplerSettings::default() };
    let warm = |temperature| SamplerSettings { temperature, ..greedy.clone() };
    vec![
        greedy.clone(),
        warm(0.3),
        warm(0.8),
        warm(1.5),
        SamplerSettings { top_k: 5, ..warm(1.0) },
        SamplerSettings { top_p: 0.8, ..warm(1.0) },
        SamplerSettings { min_p: 0.1, ..warm(1.2) },
        SamplerSettings { top_k: 40, top_p: 0.95, min_p: 0.02, ..warm(0.8) },
        SamplerSettings { repetition_penalty: 1.3, ..greedy.clone() },
        SamplerSettings { presence_penalty: 2.0, frequency_penalty: 1.0, ..warm(0.7) },
        SamplerSettings { presence_penalty: -2.0, frequency_penalty: -0.5, ..warm(0.7) },
        // Forbids the token of " the" or its neighbours, or some letters, which the drafts hold again and again.
        SamplerSettings {
            logit_bias: (100..110).chain(200..400).map(|id| (id, f32::NEG_INFINITY)).collect(),
            ..greedy
        },
    ]
}

/// A request by its place in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cell {
    prompt: usize,
    sampler: usize,
    seed: u64,
}

impl Cell {
    fn draw(rng: &mut Rng) -> Self {
        Self { prompt: rng.below(PROMPTS.len()), sampler: rng.below(samplers().len()), seed: rng.below(2) as u64 }
    }

    fn request(self, engine: &Engine, (draft, drafters): (DraftPolicy, Vec<String>)) -> Request {
        let prompt = engine.file().tokenizer().encode(PROMPTS[self.prompt], Special::AsText).expect("it is text");
        let mut sampler = samplers()[self.sampler].clone();
        sampler.logit_bias.retain(|&(token, _)| (token as usize) < engine.file().tokenizer().vocab_size());
        Request {
            sampler,
            seed: Some(self.seed),
            max_tokens: Some(MAX_TOKENS),
            stop: vec!["\n\n\n".into(), "the mat. The dog".into()],
            logprobs: Some(2),
            draft,
            drafters,
            // Half of them start from what others have cached, in scopes of two.
            reuse: self.seed == 1,
            scope: (self.sampler % 2) as u64,
            priority: (self.prompt % 2) as i32,
            ..Request::new(prompt)
        }
    }
}

/// Runs requests together to their ends.
fn run(engine: &mut Engine, requests: Vec<Request>) -> Vec<Outcome> {
    let ids: Vec<_> =
        requests.into_iter().map(|request| engine.scheduler().submit(request).expect("it is sound")).collect();
    let mut outcomes = HashMap::new();
    let mut go_on = true;
    while go_on {
        go_on = engine
            .scheduler()
            .step(&mut |event| {
                if let Event::Finished { request, outcome } = event {
                    outcomes.insert(request, *outcome);
                }
            })
            .expect("the target keeps its promises");
    }
    ids.iter().map(|id| outcomes.remove(id).expect("every request ends")).collect()
}

fn open(name: &str, threads: usize, prompt_rows: usize, kv_type: KvType) -> Option<Engine> {
    let file = match name.strip_prefix("tiny bytes with heads, ") {
        Some(kind) => ModelFile::from_gguf(Gguf::from_bytes(tiny::byte_model(kind, 8, 1)).expect("it is sound")),
        None => ModelFile::open(&models::find(name)?),
    };
    let context = Some(512);
    // A smaller model of another vocabulary, and on two threads the model itself in a smaller form.
    let draft_model = if name.starts_with("qwen") { Some(models::find("smollm2-135m")?) } else { None };
    let draft_requant = (threads == 2).then_some(Weights::Q4_0);
    let options = EngineOptions {
        threads: Some(threads),
        prompt_rows,
        // Some have to wait for room, or are sent back.
        cache_tokens: (prompt_rows == 64).then_some(256),
        kv_type,
        context,
        draft_model,
        draft_requant,
        ..EngineOptions::default()
    };
    Some(Engine::load(file.expect("the file is sound"), options).expect("the model loads"))
}

/// How much is drafted, and by whom: by those of `auto`, by one, or by two together.
fn drafting(rng: &mut Rng, engine: &Engine) -> (DraftPolicy, Vec<String>) {
    let policy = match rng.below(6) {
        0 => DraftPolicy::Off,
        1 => DraftPolicy::Budget,
        _ => DraftPolicy::Width(1 + rng.below(16)),
    };
    let names = engine.drafters();
    (policy, (0..rng.below(3)).map(|_| rng.pick(&names).to_string()).collect())
}

/// At least `cells` requests for each K/V type, spread over engines; returns how many guesses came true.
fn check(name: &str, cells: usize) -> Option<usize> {
    let mut rng = Rng::new(2026);
    let mut accepted = 0;
    for (kv_type, cells) in [(KvType::F16, cells), (KvType::Q8_0, cells / 4)] {
        let mut plain = open(name, 1, 512, kv_type)?;
        let mut expected: HashMap<Cell, Outcome> = HashMap::new();
        for (threads, prompt_rows) in [(1, 512), (1, 7), (2, 64), (2, 1)] {
            let mut engine = open(name, threads, prompt_rows, kv_type)?;
            let mut done = 0;
            while done < cells.div_ceil(4) {
                let batch: Vec<(Cell, (DraftPolicy, Vec<String>))> =
                    (0..1 + rng.below(4)).map(|_| (Cell::draw(&mut rng), drafting(&mut rng, &engine))).collect();
                done += batch.len();
                let requests = batch.iter().map(|(cell, draft)| cell.request(&engine, draft.clone())).collect();
                for (&(cell, ref draft), actual) in batch.iter().zip(run(&mut engine, requests)) {
                    let expected = expected.entry(cell).or_insert_with(|| {
                        let request = cell.request(&plain, (DraftPolicy::Off, Vec::new()));
                        run(&mut plain, vec![request]).remove(0)
                    });
                    let what = format!(
                        "{name}, {kv_type:?}, {threads} threads, {prompt_rows} prompt rows, {cell:?}, {draft:?}, batch of {}",
                        batch.len()
                    );
                    assert_eq!(actual.token_ids, expected.token_ids, "{what}");
                    assert_eq!(actual.text, expected.text, "{what}");
                    assert_eq!(actual.logprobs, expected.logprobs, "{what}");
                    assert_eq!(actual.finish_reason, expected.finish_reason, "{what}");
                    assert_eq!(actual.token_ids.len(), actual.passes + actual.accepted, "{what}");
                    accepted += actual.accepted;
                }
            }
        }
    }
    Some(accepted)
}

fn long() -> bool {
    std::env::var_os("FORETOKEN_LONG").is_some()
}

#[test]
fn drafts_never_change_the_text_of_models_with_heads() {
    for kind in ["linear", "resblock", "transformer", "sequential", "recursive"] {
        let cells = if long() { 4000 } else { 400 };
        let accepted = check(&format!("tiny bytes with heads, {kind}"), cells).expect("it is made here");
        assert!(accepted > 1000, "{kind}: only {accepted} guesses came true: the matrix would prove little");
    }
}

#[test]
fn drafts_never_change_the_text_of_smollm2() {
    let Some(accepted) = check("smollm2-135m", if long() { 4000 } else { 120 }) else { return };
    assert!(accepted > 300, "only {accepted} guesses came true: the matrix would prove little");
}

#[test]
fn drafts_never_change_the_text_of_qwen_coder() {
    let Some(accepted) = check("qwen-coder-0.5b", if long() { 1000 } else { 16 }) else { return };
    assert!(accepted > 20, "only {accepted} guesses came true: the matrix would prove little");
}
