//! The report as one HTML file.

use foretoken_decode::{Fate, PassTrace};
use foretoken_report::{Bar, Bars, Html, Page, Series, Xy};
use serde_json::{Value, json};

use super::tokens::{Piece, pieces};
use super::{fate_rows, fate_words, percent};
use crate::analysis::{Analysis, is_decoding, whole};
use crate::trace::Trace;

/// Points of a chart over time: more would not be told apart.
const POINTS: usize = 200;

/// The whole report.
pub fn page(trace: &Trace, all: &Analysis) -> Page {
    let header = &trace.header;
    let about = format!(
        "{} tokens in {} passes after the prompt's, drafting by {}, on {}, threads: {}",
        all.tokens, all.passes, header.draft, header.machine.cpu, header.machine.threads
    );
    let mut page = Page::new(&format!("How {} wrote this", header.model), &about);
    page.style(include_str!("explain.css"));
    text(&mut page, trace);
    passes(&mut page);
    acceptance(&mut page, trace, all);
    over_time(&mut page, trace);
    times(&mut page, trace, all);
    page.script(include_str!("explain.js"), &data(trace));
    page
}

/// Names of the drafters with their colours; 0 is the model itself.
fn names(trace: &Trace) -> Vec<(String, usize)> {
    let drafters = trace.header.drafters.iter().enumerate().map(|(i, name)| (name.clone(), colour(i + 1)));
    std::iter::once(("the model itself".to_owned(), 0)).chain(drafters).collect()
}

/// The page's colour of a source.
fn colour(source: usize) -> usize {
    if source == 0 { 0 } else { 1 + (source - 1) % (foretoken_report::COLOURS - 1) }
}

fn text(page: &mut Page, trace: &Trace) {
    page.section("The text, by who guessed each token");
    let requests = pieces(trace);
    let seen: Vec<bool> = (0..=trace.header.drafters.len())
        .map(|source| requests.values().flatten().any(|piece| usize::from(piece.by) == source))
        .collect();
    let entry = |(name, colour): (String, usize)| {
        let mut entry = Html::text(&format!("i class=\"k{colour}\""), "");
        entry.push(name.as_str());
        Html::element("li", entry)
    };
    let legend = names(trace).into_iter().zip(seen).filter(|(_, seen)| *seen).map(|(name, _)| entry(name));
    page.html(Html::element("ul class=\"legend\"", legend.collect::<Html>()));
    for pieces in requests.values() {
        let span = |piece: &Piece| {
            let colour = colour(usize::from(piece.by));
            let attributes = format!(
                "span class=\"t k{colour}\" data-pass=\"{}\" data-depth=\"{}\" data-p=\"{:.2}\" data-by=\"{}\"",
                piece.pass, piece.depth, piece.p, piece.by
            );
            Html::text(&attributes, &piece.text)
        };
        let tokens: Html = pieces.iter().map(span).collect();
        page.html(Html::element("div class=\"tokens\" tabindex=\"0\" role=\"group\" aria-label=\"The text; arrow keys go from token to token\"", tokens));
    }
    page.html(Html::text(
        "p id=\"token\" class=\"dim\" aria-live=\"polite\"",
        "Point at a token, or move with the arrow keys.",
    ));
}

fn passes(page: &mut Page) {
    page.section("Pass by pass");
    page.html(Html::element(
        "div id=\"passes\" hidden",
        [
            Html::element(
                "label",
                [
                    Html::from("Pass "),
                    Html::text("output id=\"number\"", ""),
                    Html::void("input type=\"range\" id=\"pass\" min=\"0\" value=\"0\""),
                ]
                .into_iter()
                .collect::<Html>(),
            ),
            Html::text("p id=\"facts\" class=\"dim\"", ""),
            Html::text("p id=\"why\"", ""),
            Html::text(
                "p class=\"dim\"",
                "✓ accepted, ✗ another token was drawn, · a guess before it was wrong, ‖ past the end of the text, ○ not run, ◎ not \
                 run but right",
            ),
            Html::text("div id=\"tree\" class=\"wide\" tabindex=\"0\"", ""),
        ]
        .into_iter()
        .collect::<Html>(),
    ));
    page.html(Html::text(
        "noscript",
        "Scripts are off, so passes cannot be shown one by one. The charts below need none.",
    ));
}

fn acceptance(page: &mut Page, trace: &Trace, all: &Analysis) {
    page.section("Acceptance");
    page.paragraph(&format!(
        "{:.2} tokens per pass. By the formula 1 + a1 + a1·a2 + …, over the trees that were run, it would be {:.2}: the \
         difference is what the budget gains by drafting longer where guesses come true.",
        all.tokens_per_pass(),
        all.expected_per_pass()
    ));
    let active =
        || trace.header.drafters.iter().zip(&all.by_source).enumerate().filter(|(_, (_, source))| source.run > 0);
    let shares = active().map(|(index, (name, source))| {
        let tested = source.by_depth.iter().enumerate().filter(|(_, depth)| depth.tested > 0);
        let points = tested.map(|(depth, count)| ((depth + 1) as f64, count.share())).collect();
        Series::new(name, points).coloured(colour(index + 1))
    });
    page.chart(&Xy::lines(
        "Share of guesses that come true, given those before",
        "tokens ahead",
        "share",
        shares.collect(),
    ));
    let header =
        ["drafter", "proposed", "run", "accepted", "by the formula", "of the tokens", "a chain of 2", "of 4", "of 8"];
    let rows = active().map(|(_, (name, source))| {
        let chain = source.chain();
        let of = |n: usize| chain.get(n - 1).map_or("-".into(), |tokens| format!("{tokens:.2}"));
        vec![
            name.clone(),
            source.proposed.to_string(),
            source.run.to_string(),
            source.accepted.to_string(),
            format!("{:.1}", source.expected),
            percent(source.accepted as f64, all.tokens as f64),
            of(2),
            of(4),
            of(8),
        ]
    });
    page.table(&header, &rows.collect::<Vec<_>>());
    let rows: Vec<Vec<String>> = fate_rows(all).into_iter().map(Vec::from).collect();
    page.paragraph("What became of the guesses:");
    page.table(&["guesses", "count", "share"], &rows);
}

/// Means over equal stretches of the passes.
fn over_time(page: &mut Page, trace: &Trace) {
    let decoding: Vec<&PassTrace> = trace.passes.iter().filter(|pass| is_decoding(pass)).collect();
    let columns = decoding.len().min(POINTS);
    let mean = |of: &dyn Fn(&PassTrace) -> f64| -> Vec<(f64, f64)> {
        let column = |i: usize| {
            let (from, to) = (i * decoding.len() / columns, (i + 1) * decoding.len() / columns);
            let sum: f64 = decoding[from..to].iter().map(|pass| of(pass)).sum();
            ((from + to) as f64 / 2.0, sum / (to - from) as f64)
        };
        (0..columns).map(column).collect()
    };
    page.section("Over time");
    let per = |pass: &PassTrace, n: usize| n as f64 / pass.sequences.len().max(1) as f64;
    let tokens = mean(&|pass| per(pass, pass.sequences.iter().map(|s| s.tokens.len()).sum()));
    let rows = mean(&|pass| per(pass, pass.shape.rows));
    page.chart(&Xy::lines(
        "Rows and tokens of a pass",
        "pass",
        "for each sequence",
        vec![Series::new("rows run", rows).coloured(0), Series::new("tokens drawn", tokens).coloured(1)],
    ));
}

fn times(page: &mut Page, trace: &Trace, all: &Analysis) {
    page.section("Time");
    let ms = |seconds: f64| seconds * 1e3 / all.tokens.max(1) as f64;
    let mut bars = vec![Bar::new("verify", vec![ms(all.seconds.verify)])];
    for (name, &seconds) in trace.header.drafters.iter().zip(&all.seconds.draft_by).filter(|(_, s)| **s > 0.0) {
        bars.push(Bar::new(format!("draft: {name}"), vec![ms(seconds)]));
    }
    let trimming = all.seconds.draft - all.seconds.draft_by.iter().sum::<f64>();
    bars.push(Bar::new("draft: choosing", vec![ms(trimming.max(0.0))]));
    bars.push(Bar::new("rest", vec![ms(all.seconds.rest)]));
    page.chart(&Bars::new("Time by role", "ms per token", vec![("time".into(), 1)], bars));
    let Some(forecast) = all.forecast else { return };
    page.paragraph(&format!(
        "The cost model foresaw the time of a pass with a median error of {:.1} %; nine in ten were within {:.1} %.",
        forecast.median_error * 100.0,
        forecast.error_90 * 100.0
    ));
    let decoding: Vec<&PassTrace> = trace.passes.iter().filter(|pass| is_decoding(pass)).collect();
    let every = decoding.len().div_ceil(5 * POINTS).max(1);
    let points = decoding.iter().step_by(every).filter(|pass| !pass.predicted.is_zero());
    let points = points.map(|pass| (pass.predicted.as_secs_f64() * 1e3, whole(pass).as_secs_f64() * 1e3)).collect();
    page.chart(&Xy::agreement(
        "Each pass",
        "predicted ms",
        "measured ms",
        vec![Series::new("passes", points).coloured(1)],
    ));
}

/// What the page's script shows: every pass with its tree.
fn data(trace: &Trace) -> Value {
    let word = |token: &u32| String::from_utf8_lossy(&trace.texts[token]).into_owned();
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let passes = trace.passes.iter().map(|pass| {
        let sequences = pass.sequences.iter().map(|sequence| {
            let guesses = sequence.proposed.iter().zip(sequence.fates()).map(|(guess, fate)| {
                json!([word(&guess.token), guess.parent, guess.source, (guess.p * 100.0).round(), fate])
            });
            json!({
                "request": sequence.request,
                "given": sequence.given,
                "tokens": sequence.tokens.iter().map(&word).collect::<Vec<_>>(),
                "guesses": guesses.collect::<Vec<_>>(),
            })
        });
        json!({
            "rows": pass.shape.rows,
            "draft": ms(pass.draft),
            "verify": ms(pass.verify),
            "rest": ms(pass.rest),
            "predicted": ms(pass.predicted),
            "why": pass.why,
            "sequences": sequences.collect::<Vec<_>>(),
        })
    });
    let fates: serde_json::Map<String, Value> = (Fate::ALL.iter())
        .map(|fate| {
            (serde_json::to_value(fate).expect("a word").as_str().expect("a word").to_owned(), fate_words(*fate).into())
        })
        .collect();
    let (names, colours): (Vec<String>, Vec<usize>) = names(trace).into_iter().unzip();
    json!({ "names": names, "colours": colours, "fates": fates, "passes": passes.collect::<Vec<_>>() })
}
