//! What an answer took: tokens for the bill, times and drafts for the curious.

use foretoken_engine::Outcome;
use serde_json::{Value, json};

use super::Shape;

/// OpenAI's `usage`. The tokens of a prompt count once, however many answers it gets.
pub fn usage(outcomes: &[Outcome], shape: &Shape) -> Value {
    let prompt_tokens: usize = shape.prompt_lens.iter().sum();
    let completion_tokens: usize = outcomes.iter().map(|outcome| outcome.token_ids.len()).sum();
    let cached_tokens: usize = outcomes.iter().step_by(shape.n).map(|outcome| outcome.cached_tokens).sum();
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": { "cached_tokens": cached_tokens },
    })
}

/// llama.cpp's `timings` with more about drafts. Of several answers: sums; their times overlap.
pub fn timings(outcomes: &[Outcome], shape: &Shape) -> Value {
    let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    let seconds = |time: fn(&Outcome) -> f64| outcomes.iter().map(time).sum::<f64>();
    let rate = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let (prompt, decode) = (seconds(|o| o.prompt_seconds), seconds(|o| o.decode_seconds));
    let prompt_n = sum(|o| o.prompt_tokens - o.cached_tokens);
    let predicted_n = sum(|o| o.token_ids.len());
    let passes = sum(|o| o.passes);
    let mut timings = json!({
        "queue_ms": seconds(|o| o.queue_seconds) * 1e3,
        "cache_n": sum(|o| o.cached_tokens),
        "prompt_n": prompt_n,
        "prompt_ms": prompt * 1e3,
        "prompt_per_second": rate(prompt_n, prompt),
        "predicted_n": predicted_n,
        "predicted_ms": decode * 1e3,
        "predicted_per_second": match outcomes {
            [only] => only.tokens_per_second,
            _ => rate(predicted_n, decode),
        },
        "draft": shape.draft,
        "draft_n": sum(|o| o.drafted),
        "draft_n_accepted": sum(|o| o.accepted),
        "passes": passes,
        "prompt_passes": sum(|o| o.prompt_passes),
        "tokens_per_pass": rate(predicted_n, passes as f64),
    });
    if let [only] = outcomes {
        timings["acceptance_by_depth"] = json!(only.acceptance_by_depth);
        timings["acceptor"] = json!(only.acceptor.to_string());
        timings["reproducible"] = json!(only.reproducible);
        if let Some(perplexity) = only.target_perplexity {
            timings["target_perplexity"] = json!(perplexity);
            timings["agreement"] = json!(only.agreement);
        }
    }
    timings
}
