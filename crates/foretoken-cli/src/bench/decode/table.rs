//! The figures as a table on the terminal.

use comfy_table::{CellAlignment, Table, presets};

use super::summary::Summary;

/// One line for each category and way. Columns that would say the same everywhere are left out.
pub fn table(results: &[Summary]) -> Table {
    let columns: Vec<Column> = columns().into_iter().filter(|column| (column.wanted)(results)).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|column| column.name));
    for result in results {
        table.add_row(columns.iter().map(|column| (column.cell)(result)));
    }
    let words = columns.iter().map(|column| column.words);
    for (column, words) in table.column_iter_mut().zip(words) {
        column.set_cell_alignment(if words { CellAlignment::Left } else { CellAlignment::Right });
    }
    table
}

struct Column {
    name: &'static str,
    words: bool,
    wanted: fn(&[Summary]) -> bool,
    cell: fn(&Summary) -> String,
}

fn columns() -> Vec<Column> {
    let words = |name, cell| Column { name, words: true, wanted: |_| true, cell };
    let number = |name, cell| Column { name, words: false, wanted: |_| true, cell };
    vec![
        words("category", |s| s.category.clone()),
        words("method", |s| s.method.clone()),
        Column {
            wanted: |all| all.iter().any(|s| s.width.is_some()),
            ..number("width", |s| s.width.map_or("-".into(), |width| width.to_string()))
        },
        Column {
            wanted: |all| all.iter().any(|s| s.temperature != all[0].temperature),
            ..number("T", |s| s.temperature.to_string())
        },
        number("tokens/s", |s| format!("{:.1}", s.tokens_per_second)),
        number("tokens/pass", |s| format!("{:.2}", s.tokens_per_pass)),
        number("formula", |s| format!("{:.2}", s.formula_tokens_per_pass)),
        number("rows/token", |s| format!("{:.2}", s.rows_per_token)),
        Column {
            wanted: |all| all.iter().any(|s| s.cpu_seconds_per_token.is_some()),
            ..number("CPU ms/token", |s| s.cpu_seconds_per_token.map_or("-".into(), |cpu| format!("{:.1}", cpu * 1e3)))
        },
        Column {
            wanted: |all| all.iter().any(|s| s.memory_bytes > 0),
            ..number("MB", |s| format!("{:.1}", s.memory_bytes as f64 / 1e6))
        },
        number("speed-up", |s| format!("{:.2}", s.speedup)),
        number("95 %", |s| interval(s.speedup_interval)),
        number("geo. mean", |s| format!("{:.2}", s.geometric_mean)),
        number("95 %", |s| interval(s.geometric_mean_interval)),
        number("replayed", |s| format!("{:.2}", s.replayed_speedup)),
        words("accepted by depth", |s| depths(&s.acceptance_by_depth)),
        words("same text", |s| same_text(s).to_owned()),
        Column {
            wanted: |all| all.iter().any(|s| !s.acceptor.reproducible()),
            ..words("acceptor", |s| s.acceptor.to_string())
        },
        Column {
            wanted: |all| all.iter().any(|s| s.target_perplexity.is_some()),
            ..number("perplexity", |s| s.target_perplexity.map_or("-".into(), |value| format!("{value:.3}")))
        },
        Column {
            wanted: |all| all.iter().any(|s| s.agreement.is_some()),
            ..number("agreement", |s| s.agreement.map_or("-".into(), |share| format!("{share:.3}")))
        },
    ]
}

/// Whether the texts are those of plain decoding; where they need not be, a difference is no fault.
pub fn same_text(s: &Summary) -> &'static str {
    match (s.identical, s.acceptor.reproducible()) {
        (true, _) => "yes",
        (false, true) => "NO",
        (false, false) => "no",
    }
}

/// The first few.
fn depths(shares: &[f64]) -> String {
    shares.iter().take(6).map(|share| format!("{share:.2}")).collect::<Vec<_>>().join(" ")
}

/// From - to.
pub fn interval(interval: Option<[f64; 2]>) -> String {
    interval.map_or("-".into(), |[low, high]| format!("{low:.2}-{high:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_news_are_left_out() {
        let plain = Summary { category: "qa".into(), method: "none".into(), ..Summary::default() };
        let other = Summary {
            method: "auto".into(),
            speedup: 1.5,
            speedup_interval: Some([1.25, 1.75]),
            acceptance_by_depth: vec![0.5, 0.25],
            identical: true,
            ..plain.clone()
        };
        let text = |results: &[Summary]| table(results).lines().collect::<Vec<_>>().join("\n");
        let shown = text(&[plain.clone(), other.clone()]);
        assert!(shown.contains("1.50  1.25-1.75") && shown.contains("0.50 0.25") && shown.contains("NO"), "{shown}");
        assert!(!shown.contains(" T ") && !shown.contains("width") && !shown.contains("MB"), "{shown}");
        let warm = Summary { temperature: 0.8, width: Some(4), memory_bytes: 2_500_000, ..other };
        let shown = text(&[plain, warm]);
        assert!(shown.contains(" T ") && shown.contains("width") && shown.contains(" 2.5 "), "{shown}");
    }
}
