//! The figures as one HTML file with charts.

use std::collections::BTreeMap;

use foretoken_report::{Bar, Bars, Page, Series, Xy};

use super::summary::Summary;
use super::table;
use crate::analysis::DepthCount;
use crate::machine::Machine;

/// The whole report.
pub fn page(model: &str, results: &[Summary], machine: &Machine) -> Page {
    let about = format!(
        "{}, {} kernels, {} threads, foretoken {}{}. Every text was compared with plain decoding's.",
        machine.cpu,
        machine.isa,
        machine.threads,
        machine.version,
        machine.commit.as_deref().map_or(String::new(), |commit| format!(" at {commit}")),
    );
    let mut page = Page::new(&format!("What drafting gains: {model}"), &about);
    page.section("Speed-up over plain decoding");
    bars(&mut page, results, "Total time of plain decoding over total time", "times faster, by the clock", |s| {
        s.speedup
    });
    bars(&mut page, results, "The same, every pass at its cost in one table", "times faster, replayed", |s| {
        s.replayed_speedup
    });
    page.section("Tokens of a pass, and what they cost");
    bars(&mut page, results, "Tokens of a pass", "tokens", |s| s.tokens_per_pass);
    bars(&mut page, results, "Rows run for each token", "rows", |s| s.rows_per_token);
    if results.iter().any(|s| s.cpu_seconds_per_token.is_some()) {
        bars(&mut page, results, "Time of all threads together", "CPU ms for each token", |s| {
            s.cpu_seconds_per_token.unwrap_or(0.0) * 1e3
        });
    }
    if results.iter().any(|s| s.agreement.is_some()) {
        page.section("What the acceptor changed");
        page.paragraph(
            "This acceptor keeps guesses that the model would not have written itself. Perplexity is of the answers under \
             the model; agreement is the share of tokens that it would have written after the same text.",
        );
        bars(&mut page, results, "Perplexity of the answers", "perplexity", |s| s.target_perplexity.unwrap_or(0.0));
        bars(&mut page, results, "Agreement with the model", "share", |s| s.agreement.unwrap_or(1.0));
    }
    formula(&mut page, results);
    acceptance(&mut page, results);
    page.section("All figures");
    page.paragraph(
        "Times are of the answers after their first token. Intervals are 95 %, by bootstrap over the prompts (2,000 \
         resamples). CPU time is of all threads together.",
    );
    all(&mut page, results);
    page
}

/// A way's name.
fn way(s: &Summary, results: &[Summary]) -> String {
    let mut name = s.method.clone();
    if let Some(width) = s.width {
        name += &format!(", {width} wide");
    }
    if results.iter().any(|other| other.temperature != s.temperature) {
        name += &format!(", T {}", s.temperature);
    }
    name
}

/// One chart for each category, the one over all categories first.
fn bars(page: &mut Page, results: &[Summary], title: &str, unit: &str, figure: impl Fn(&Summary) -> f64) {
    let mut by_category: BTreeMap<(bool, &str), Vec<Bar>> = BTreeMap::new();
    for s in results {
        let bar = Bar::new(way(s, results), vec![figure(s)]);
        by_category.entry((s.category != "all", &s.category)).or_default().push(bar);
    }
    for ((_, category), bars) in by_category {
        let title = if category == "all" { title.to_owned() } else { format!("{title}: {category}") };
        page.chart(&Bars::new(&title, unit, vec![("value".into(), 1)], bars));
    }
}

fn formula(page: &mut Page, results: &[Summary]) {
    page.section("Predicted by the formula");
    page.paragraph(
        "With a1, a2, … the shares of guesses 1, 2, … ahead that come true when those before did, a pass gives \
         1 + a1 + a1·a2 + … tokens. Where more come than that, drafts are longest where they are right.",
    );
    let point = |s: &Summary| (s.formula_tokens_per_pass, s.tokens_per_pass);
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    results.iter().filter(|s| s.drafted > 0).for_each(|s| series.entry(&s.method).or_default().push(point(s)));
    let series = series.into_iter().enumerate().map(|(i, (name, points))| Series::new(name, points).coloured(i + 1));
    page.chart(&Xy::agreement("Tokens of a pass", "by the formula", "measured", series.collect()));
}

/// Acceptance by drafter and depth, over everything.
fn acceptance(page: &mut Page, results: &[Summary]) {
    page.section("Acceptance");
    let everything = if results.iter().any(|s| s.category == "all") { "all" } else { &results[0].category };
    for s in results.iter().filter(|s| s.category == everything && s.drafted > 0) {
        let series = s.drafters.iter().enumerate().map(|(i, (name, counts))| {
            let tested = counts.by_depth.iter().zip(1..).filter(|(depth, _)| depth.tested > 0);
            let points = tested.map(|(depth, ahead)| (f64::from(ahead), DepthCount::share(depth))).collect();
            Series::new(name, points).coloured(i + 1)
        });
        let title = format!("{}: share of guesses that come true, given those before", way(s, results));
        page.chart(&Xy::lines(&title, "tokens ahead", "share", series.collect()));
    }
}

fn all(page: &mut Page, results: &[Summary]) {
    let header = [
        "category",
        "method",
        "prompts",
        "tokens/s",
        "tokens/pass",
        "formula",
        "rows/token",
        "CPU ms/token",
        "MB",
        "speed-up",
        "95 %",
        "geometric mean",
        "95 %",
        "replayed",
        "same text",
        "acceptor",
        "perplexity",
        "agreement",
    ];
    let rows: Vec<Vec<String>> = (results.iter())
        .map(|s| {
            vec![
                s.category.clone(),
                way(s, results),
                s.prompts.to_string(),
                format!("{:.1}", s.tokens_per_second),
                format!("{:.2}", s.tokens_per_pass),
                format!("{:.2}", s.formula_tokens_per_pass),
                format!("{:.2}", s.rows_per_token),
                s.cpu_seconds_per_token.map_or("-".into(), |cpu| format!("{:.1}", cpu * 1e3)),
                format!("{:.1}", s.memory_bytes as f64 / 1e6),
                format!("{:.2}", s.speedup),
                table::interval(s.speedup_interval),
                format!("{:.2}", s.geometric_mean),
                table::interval(s.geometric_mean_interval),
                format!("{:.2}", s.replayed_speedup),
                table::same_text(s).to_owned(),
                s.acceptor.to_string(),
                s.target_perplexity.map_or("-".into(), |value| format!("{value:.3}")),
                s.agreement.map_or("-".into(), |share| format!("{share:.3}")),
            ]
        })
        .collect();
    page.table(&header, &rows);
}
