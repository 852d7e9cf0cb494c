//! The n-gram on what a run has seen, at the positions where its model is measured.

use super::{Figures, Ngram, Question};
use crate::TrainError;
use crate::batch::{Batch, IGNORE};
use crate::data::{Prepared, TokenFile, Windows};
use crate::trainer::Settings;

/// Trains on the bytes of a run's first `seen` windows; measures, at the distance of each head, on `windows` held-out ones.
/// Returns the bytes trained on and the figures. It sees the context that the model sees, back to order 16.
pub fn baseline(
    settings: &Settings,
    files: &Prepared,
    seen: u64,
    windows: usize,
) -> Result<(usize, Vec<Figures>), TrainError> {
    let (context, n_heads) = (settings.model.context, settings.model.heads.n);
    let open = |path, seed| Windows::new(TokenFile::open(path)?, context, n_heads, seed);
    let text = open(&files.train, settings.run.seed)?.seen(seen)?;
    let n_bytes = text.len();
    let held_out = open(&files.held_out, 0)?.spread(windows)?;
    Ok((n_bytes, Ngram::new(text).ask(questions(&held_out, n_heads), n_heads)))
}

/// A question for each position of some windows.
fn questions(batch: &Batch, n_heads: usize) -> Vec<Question> {
    let tokens: Vec<u8> = batch.tokens(0).iter().map(|&token| token as u8).collect();
    let labels: Vec<_> = (1..=n_heads).map(|k| batch.labels(k)).collect();
    let position = |(i, &first): (usize, &u32)| {
        let window = i / batch.n_tokens() * batch.n_tokens();
        let answers =
            labels.iter().map(|labels| Some(labels[i]).filter(|label| *label != IGNORE).map(|label| label as u8));
        Question::new(&tokens[window + first as usize..=i], answers.collect())
    };
    batch.first_keys().iter().enumerate().map(position).collect()
}
