//! The run as one HTML file: losses, guesses and acceptance by head, made from the log.

use foretoken_report::{Page, Series, Xy};

use super::Entry;
use super::log::{HELD_OUT, TRAIN};

/// Points of a line; more are averaged.
const POINTS: usize = 300;

/// The page of a run's log. Losses are in bits, the horizontal axis is millions of tokens.
pub(super) fn page(name: &str, entries: &[Entry]) -> String {
    let of = |kind: &str| entries.iter().filter(|entry| entry.kind == kind).collect::<Vec<_>>();
    let (train, held_out) = (of(TRAIN), of(HELD_OUT));
    let tokens = entries.last().map_or(0.0, |entry| entry.tokens as f64 / 1e6);
    let n_heads = entries.first().map_or(0, |entry| entry.loss.len());
    let mut page = Page::new(&format!("Training: {name}"), &format!("{tokens:.1} million tokens, {n_heads} heads"));

    page.section("What it learns");
    if let (Some(train), Some(held_out)) = (train.last(), held_out.last()) {
        let share =
            |values: &[f32], k: usize| values.get(k).map_or(String::new(), |share| format!("{:.1} %", 100.0 * share));
        let rows: Vec<_> = (0..n_heads)
            .map(|k| {
                let accepted = k.checked_sub(1).map_or(String::new(), |k| share(&held_out.accepted, k));
                let bits = |entry: &Entry| format!("{:.3}", bits(entry.loss[k]));
                vec![format!("head {}", k + 1), bits(train), bits(held_out), share(&held_out.top_1, k), accepted]
            })
            .collect();
        page.table(&["", "bits, training", "bits, held out", "likeliest right, held out", "drafts accepted"], &rows);
        page.paragraph(
            "Accepted is the share of a head's drafts, of those that come to be asked, that head 1 agrees with on held-out text.",
        );
    }
    let by_head = |entries: &[&Entry], first: usize, value: &dyn Fn(&Entry, usize) -> Option<f64>| -> Vec<Series> {
        let head = |k| Series::new(format!("head {}", k + 1), line(entries, |entry| value(entry, k)));
        (first..n_heads).map(head).collect()
    };
    let loss = |entry: &Entry, k: usize| entry.loss.get(k).map(|loss| bits(*loss));
    let share = |values: &[f32], k: usize| values.get(k).map(|share| 100.0 * f64::from(*share));
    let x = "million tokens";
    page.chart(&Xy::lines("Loss in training", x, "bits a token", by_head(&train, 0, &loss)));
    page.chart(&Xy::lines("Loss on held-out texts", x, "bits a token", by_head(&held_out, 0, &loss)));
    let right = by_head(&held_out, 0, &|entry, k| share(&entry.top_1, k));
    page.chart(&Xy::lines("Likeliest guess right, held out", x, "%", right));
    let accepted = by_head(&held_out, 1, &|entry, k| share(&entry.accepted, k - 1));
    page.chart(&Xy::lines("Drafts accepted, held out", x, "%", accepted));

    page.section("How it runs");
    let one =
        |name: &str, value: &dyn Fn(&Entry) -> f64| vec![Series::new(name, line(&train, |entry| Some(value(entry))))];
    page.chart(&Xy::lines("Learning rate", x, "rate", one("rate", &|entry| f64::from(entry.rate))));
    let norm = |i: usize| line(&train, move |entry| Some(f64::from(entry.norms[i])));
    let norms = vec![Series::new("trunk", norm(0)), Series::new("heads", norm(1))];
    page.chart(&Xy::lines("Norm of the gradient before clipping", x, "norm", norms));
    let speed = one("speed", &|entry| f64::from(entry.tokens_per_second));
    page.chart(&Xy::lines("Speed", x, "tokens a second", speed));
    page.render()
}

fn bits(nats: f32) -> f64 {
    f64::from(nats) * std::f64::consts::LOG2_E
}

/// A line of at most [`POINTS`] points, neighbours averaged.
fn line(entries: &[&Entry], value: impl Fn(&Entry) -> Option<f64>) -> Vec<(f64, f64)> {
    let points: Vec<_> = entries.iter().filter_map(|entry| Some((entry.tokens as f64 / 1e6, value(entry)?))).collect();
    let mean = |points: &[(f64, f64)]| {
        let n = points.len() as f64;
        (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n)
    };
    points.chunks(points.len().div_ceil(POINTS).max(1)).map(mean).collect()
}
