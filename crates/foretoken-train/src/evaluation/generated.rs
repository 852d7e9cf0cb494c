//! Free-running acceptance: how far the heads' drafts agree with what the model goes on to write itself.
//!
//! The model continues held-out texts at a temperature, with noise that depends on text and place alone; the heads draft with
//! the same noise, as decoding does, and a draft is accepted until one differs from what was written. The gap to acceptance on
//! given text shows how much easier or harder a model finds its own words. Texts that run in circles are easy to foresee and
//! worth nothing: they are counted and left out.

use std::collections::HashMap;

use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::scores_by_head;
use crate::batch::Batch;
use crate::data::{END_OF_TEXT, Vocabulary};
use crate::model::Model;
use crate::ops::Ops;
use crate::params::Params;
use crate::rng::Rng;

/// Bytes of a part that makes a text a loop when it occurs three times.
const LOOP: usize = 32;

/// What [`free_running`] finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// The temperature.
    pub temperature: f64,
    /// Texts written, and those of them that run in circles and count for nothing else here.
    pub n_texts: u64,
    /// Texts in which 32 bytes occur three times or more.
    pub n_loops: u64,
    /// Tokens written, loops left out.
    pub n_tokens: u64,
    /// Passes that decoding them with all heads would have taken.
    pub n_passes: u64,
    /// By head, from head 2 on, over every place: drafts compared, and drafts that were written.
    pub by_head: Vec<[u64; 2]>,
}

impl Generated {
    /// By head, from head 2 on: the share of the drafts compared that were written.
    pub fn shares(&self) -> Vec<f32> {
        self.by_head.iter().map(|[n, agreed]| *agreed as f32 / (*n).max(1) as f32).collect()
    }

    /// Tokens that a pass gives when it drafts with all heads.
    pub fn tokens_per_pass(&self) -> f64 {
        self.n_tokens as f64 / self.n_passes.max(1) as f64
    }

    /// The share of texts that run in circles.
    pub fn loops(&self) -> f64 {
        self.n_loops as f64 / self.n_texts.max(1) as f64
    }

    /// Adds a text of which `prompt` tokens were given; `drafts[k - 2][i]` is head `k`'s word at row `i`.
    fn add(&mut self, text: &[u32], prompt: usize, drafts: &[Vec<u32>]) {
        let accepted = |row: usize| {
            let agrees = |(far, drafts): (usize, &Vec<u32>)| text.get(row + 2 + far).map(|token| drafts[row] == *token);
            let compared: Vec<bool> = drafts.iter().enumerate().map_while(agrees).collect();
            let run = compared.iter().take_while(|agrees| **agrees).count();
            (run, compared.len().min(run + 1))
        };
        for row in prompt - 1..text.len() - 1 {
            let (run, compared) = accepted(row);
            for (far, [n, agreed]) in self.by_head[..compared].iter_mut().enumerate() {
                *n += 1;
                *agreed += u64::from(far < run);
            }
        }
        let mut row = prompt - 1;
        while row + 1 < text.len() {
            row += 1 + accepted(row).0;
            self.n_passes += 1;
        }
        self.n_tokens += (text.len() - prompt) as u64;
    }
}

/// How texts are written.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// Tokens of each window that are given.
    pub prompt: usize,
    /// Tokens written at most; fewer where a text ends.
    pub n_new: usize,
    /// 0 takes the likeliest.
    pub temperature: f64,
    /// Of the noise.
    pub seed: u64,
}

/// Has a model of [frozen](Params::frozen) weights continue windows, and its heads draft what it writes.
pub fn free_running(
    model: &Model,
    params: &Params,
    ops: Ops,
    vocabulary: &Vocabulary,
    windows: &Batch,
    writing: Writing,
) -> Generated {
    let Writing { prompt, n_new, temperature, .. } = writing;
    assert!(prompt > 0 && prompt <= windows.n_tokens(), "a window holds the prompt");
    let n_heads = model.config.heads.n;
    let mut found =
        Generated { temperature, n_texts: 0, n_loops: 0, n_tokens: 0, n_passes: 0, by_head: vec![[0; 2]; n_heads - 1] };
    let texts = write(model, params, ops, windows, writing);
    let padded = |text: &Text| {
        let mut padded = (text.tokens.clone(), text.begins.clone());
        padded.0.resize(prompt + n_new + n_heads, 0);
        padded.1.resize(prompt + n_new + n_heads, false);
        padded
    };
    let batch = Batch::new(prompt + n_new, n_heads, texts.iter().map(padded).collect());
    let mut drafts = vec![Vec::new(); texts.len()];
    scores_by_head(model, params, ops, &batch, |k, logits| {
        if k == 1 {
            return;
        }
        let rows = logits.chunks_exact(model.config.vocabulary);
        for (i, row) in rows.enumerate() {
            let (text, row_of) = (i / (prompt + n_new), i % (prompt + n_new));
            let drafts: &mut Vec<Vec<u32>> = &mut drafts[text];
            drafts.resize_with(k - 1, Vec::new);
            // Rows of the prompt draft nothing that counts.
            let is_used = row_of + 1 >= prompt && row_of < texts[text].tokens.len();
            drafts[k - 2].push(if is_used { writing.draw(row, text, row_of + k) } else { 0 });
        }
    });
    for (text, drafts) in texts.iter().zip(&drafts) {
        found.n_texts += 1;
        match is_loop(&vocabulary.decode(&text.tokens[prompt..])) {
            true => found.n_loops += 1,
            false => found.add(&text.tokens, prompt, drafts),
        }
    }
    found
}

/// A text under way, and where documents begin in it.
struct Text {
    tokens: Vec<u32>,
    begins: Vec<bool>,
}

/// Continues the beginning of every window, all of them together, without a cache: every token is a pass over its text.
fn write(model: &Model, params: &Params, ops: Ops, windows: &Batch, writing: Writing) -> Vec<Text> {
    let (n, prompt) = (windows.n_tokens(), writing.prompt);
    let (tokens, first_keys) = (windows.tokens(0), windows.first_keys());
    let mut texts: Vec<Text> = (0..windows.n_windows())
        .map(|window| {
            let rows = window * n..window * n + prompt;
            Text {
                tokens: tokens[rows.clone()].iter().map(|token| *token as u32).collect(),
                begins: first_keys[rows].iter().enumerate().map(|(i, first)| *first as usize == i).collect(),
            }
        })
        .collect();
    for len in prompt..prompt + writing.n_new {
        let open: Vec<usize> = (0..texts.len()).filter(|i| texts[*i].tokens.len() == len).collect();
        if open.is_empty() {
            break;
        }
        let window = |i: &usize| (texts[*i].tokens.clone(), texts[*i].begins.clone());
        let batch = Batch::new(len, 0, open.iter().map(window).collect());
        let pass = model.pass(params, ops, &batch);
        let features = model.features(&pass, 1, model.trunk(&pass, &batch));
        let last: Vec<i32> = (1..=open.len()).map(|i| (i * len - 1) as i32).collect();
        let last = Tensor::<1, Int>::from_data(TensorData::new(last, [open.len()]), params.device());
        let logits = model.logits(&pass, 1, features.select(0, last));
        let logits: Vec<f32> = logits.into_data().try_into_vec().expect("logits are f32");
        for (row, i) in logits.chunks_exact(model.config.vocabulary).zip(open) {
            let token = writing.draw(row, i, len);
            // What would follow the end is another text: nothing is written there.
            if token != u32::from(END_OF_TEXT) {
                texts[i].tokens.push(token);
                texts[i].begins.push(false);
            }
        }
    }
    texts
}

impl Writing {
    /// The token at a place of a text: the greatest of logits and, above temperature 0, noise that knows the place alone.
    fn draw(&self, logits: &[f32], text: usize, place: usize) -> u32 {
        let mut rng = Rng::new(self.seed, &format!("text {text}, token {place}"));
        let score = |logit: f32| match self.temperature > 0.0 {
            false => f64::from(logit),
            true => f64::from(logit) / self.temperature - libm::log(-libm::log(rng.uniform())),
        };
        let scores: Vec<f64> = logits.iter().copied().map(score).collect();
        let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]).then(b.cmp(a)));
        best.expect("a vocabulary has tokens") as u32
    }
}

/// Whether some 32 bytes occur three times or more.
fn is_loop(text: &[u8]) -> bool {
    let mut seen: HashMap<&[u8], u32> = HashMap::new();
    text.windows(LOOP).any(|part| {
        let times = seen.entry(part).or_default();
        *times += 1;
        *times == 3
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_are_accepted_until_one_differs_from_what_was_written() {
        let mut found =
            Generated { temperature: 0.0, n_texts: 1, n_loops: 0, n_tokens: 0, n_passes: 0, by_head: vec![[0; 2]; 2] };
        // Two tokens given, five written; rows 1 to 5 draft the tokens two and three places on.
        let text = [1, 2, 3, 4, 5, 6, 7];
        let drafts = [vec![0, 4, 5, 0, 7, 0, 0], vec![0, 5, 0, 7, 0, 0, 0]];
        found.add(&text, 2, &drafts);
        // Row 1: both; row 2: head 2 alone; row 3: none; row 4: head 2, then the text ends; row 5: nothing to compare.
        assert_eq!(found.by_head, [[4, 3], [2, 1]]);
        // The pass at row 1 writes 3, 4, 5; the next, at row 4, writes 6 and 7.
        assert_eq!((found.n_tokens, found.n_passes), (5, 2));
        assert_eq!(found.tokens_per_pass(), 2.5);
    }

    #[test]
    fn texts_are_what_the_model_says_of_them() {
        let config: crate::config::ModelConfig = toml::from_str(
            "vocabulary = 256\nwidth = 32\nlayers = 2\nattention_heads = 2\nkv_heads = 1\nfeed_forward = 40\n\
             context = 24\nheads = { n = 3, kind = \"sequential\" }",
        )
        .unwrap();
        let (model, params) = Model::new(&config, &burn::tensor::Device::flex(), 1).unwrap();
        let (params, ops) = (params.frozen(), Ops::Fused(crate::ops::Precision::F32));
        let mut rng = Rng::new(1, "tokens");
        let mut window = || ((0..27).map(|_| 1 + rng.below(255) as u32).collect(), (0..27).map(|i| i == 5).collect());
        let windows = Batch::new(24, 3, (0..4).map(|_| window()).collect());
        for temperature in [0.0, 0.8] {
            let writing = Writing { prompt: 8, n_new: 12, temperature, seed: 3 };
            let texts = write(&model, &params, ops, &windows, writing);
            for (i, text) in texts.iter().enumerate().filter(|(_, text)| text.tokens.len() == 20) {
                let batch = Batch::new(
                    20,
                    3,
                    vec![([&text.tokens[..], &[0; 3]].concat(), [&text.begins[..], &[false; 3]].concat())],
                );
                scores_by_head(&model, &params, ops, &batch, |k, logits| {
                    let said = logits.chunks(256).enumerate().map(|(row, logits)| writing.draw(logits, i, row + 1));
                    assert!(k > 1 || said.collect::<Vec<_>>()[7..19] == text.tokens[8..]);
                });
            }
            let found = free_running(&model, &params, ops, &Vocabulary::bytes(), &windows, writing);
            assert!(
                found.n_texts == 4 && found.n_tokens + 12 * found.n_loops <= 48 && found.n_passes <= found.n_tokens
            );
            assert!((1.0..=3.0).contains(&found.tokens_per_pass()) || found.n_tokens == 0);
        }
    }

    #[test]
    fn thirty_two_bytes_three_times_are_a_loop() {
        let part: Vec<u8> = (0..40).collect();
        assert!(is_loop(&part.repeat(3)) && !is_loop(&part.repeat(2)));
        assert!(is_loop(&[7; 34]) && !is_loop(&[7; 33]));
    }
}
