//! The report on a terminal, or as plain text.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use foretoken_formats::printable;

use super::tokens::{Piece, pieces};
use super::{fate_rows, percent};
use crate::analysis::{Analysis, DepthCount, is_decoding};
use crate::colour;
use crate::trace::Trace;

/// Columns of the line of bars.
const BARS: usize = 60;
/// Reasons shown of those that the budget gave.
const REASONS: usize = 8;

/// Everything, one section after the other.
pub fn report(trace: &Trace, all: &Analysis, coloured: bool) -> String {
    let mut out = String::new();
    text(&mut out, trace, coloured);
    if all.passes == 0 {
        out.push_str("\nthe trace has no pass that drew tokens after the prompt's\n");
        return out;
    }
    passes(&mut out, trace, all);
    sources(&mut out, trace, all);
    times(&mut out, trace, all);
    fates(&mut out, all);
    widths(&mut out, trace);
    reasons(&mut out, trace);
    out
}

fn text(out: &mut String, trace: &Trace, coloured: bool) {
    let requests = pieces(trace);
    for (request, pieces) in &requests {
        if requests.len() > 1 {
            let _ = writeln!(out, "--- request {request}");
        }
        for Piece { text, by, .. } in pieces {
            let text = text.split('\n').map(printable).collect::<Vec<_>>().join("\n");
            out.push_str(&if coloured { colour::paint(*by, &text) } else { text });
        }
        out.push('\n');
    }
    if coloured {
        let seen = |source: &u8| requests.values().flatten().any(|piece| piece.by == *source);
        let names = trace.header.drafters.iter().zip(1..).filter(|(_, source)| seen(source));
        let names = names.map(|(name, source)| colour::paint(source, &format!("■ {}", printable(name))));
        let _ = writeln!(out, "\n■ the model itself {}", names.collect::<Vec<_>>().join(" "));
    }
}

fn passes(out: &mut String, trace: &Trace, all: &Analysis) {
    let header = &trace.header;
    let _ = writeln!(out, "\n{}, drafting by {}", printable(&header.model), printable(&header.draft));
    let seconds = all.seconds.total();
    let _ = write!(out, "{} tokens in {} passes after the prompt's", all.tokens, all.passes);
    if seconds > 0.0 {
        let _ = write!(out, ", {:.1} tokens/s", all.tokens as f64 / seconds);
    }
    let _ = writeln!(
        out,
        "\ntokens per pass: {:.2}, and {:.2} by the formula 1 + a1 + a1 a2 + ... over the trees that were run",
        all.tokens_per_pass(),
        all.expected_per_pass()
    );
}

/// One line for each drafter that proposed something.
fn sources(out: &mut String, trace: &Trace, all: &Analysis) {
    let rows: Vec<Vec<String>> = trace
        .header
        .drafters
        .iter()
        .zip(&all.by_source)
        .filter(|(_, source)| source.proposed > 0)
        .map(|(name, source)| {
            let shares: Vec<String> = source.by_depth.iter().take(8).map(share).collect();
            vec![
                printable(name),
                source.proposed.to_string(),
                source.run.to_string(),
                source.accepted.to_string(),
                format!("{:.1}", source.expected),
                percent(source.accepted as f64, all.tokens as f64),
                shares.join(" "),
            ]
        })
        .collect();
    let drafted: usize = all.by_source.iter().map(|source| source.accepted).sum();
    let _ = writeln!(
        out,
        "\nof the tokens, the model itself gave {}",
        percent((all.tokens - drafted) as f64, all.tokens as f64)
    );
    let header = ["drafter", "proposed", "run", "accepted", "by formula", "of the tokens", "accepted by depth"];
    if !rows.is_empty() {
        out.push_str(&table(&header, rows));
    }
}

fn share(depth: &DepthCount) -> String {
    if depth.tested > 0 { format!("{:.2}", depth.share()) } else { "-".into() }
}

fn times(out: &mut String, trace: &Trace, all: &Analysis) {
    let (seconds, total) = (&all.seconds, all.seconds.total());
    let row = |what: String, time: f64| {
        vec![what, format!("{:.3}", time), format!("{:.3}", time * 1e3 / all.tokens as f64), percent(time, total)]
    };
    let mut rows = vec![row("verify".into(), seconds.verify), row("draft".into(), seconds.draft)];
    for (name, &time) in trace.header.drafters.iter().zip(&seconds.draft_by).filter(|(_, time)| **time > 0.0) {
        rows.push(row(format!("  {}", printable(name)), time));
    }
    rows.push(row("rest".into(), seconds.rest));
    rows.push(row("all".into(), total));
    out.push('\n');
    out.push_str(&table(&["role", "s", "ms per token", "share"], rows));
    if let Some(forecast) = all.forecast {
        let _ = writeln!(
            out,
            "times of passes were foreseen with a median error of {:.1} %; nine in ten were within {:.1} %",
            forecast.median_error * 100.0,
            forecast.error_90 * 100.0
        );
    }
}

fn fates(out: &mut String, all: &Analysis) {
    let rows = fate_rows(all);
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&["guesses", "", "share"], rows.into_iter().map(Vec::from).collect()));
    }
}

/// Mean rows of a pass over time, as bars.
fn widths(out: &mut String, trace: &Trace) {
    let rows: Vec<usize> = trace.passes.iter().filter(|pass| is_decoding(pass)).map(|pass| pass.shape.rows).collect();
    let most = rows.iter().copied().max().unwrap_or(0);
    let columns = rows.len().min(BARS);
    let bar = |column: usize| {
        let part = &rows[column * rows.len() / columns..(column + 1) * rows.len() / columns];
        let mean = part.iter().sum::<usize>() as f64 / part.len() as f64;
        ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][((mean / most as f64 * 8.0) as usize).min(7)]
    };
    let _ = writeln!(out, "\nrows of a pass over time, up to {most}:\n{}", (0..columns).map(bar).collect::<String>());
}

/// The latest changes of mind.
fn reasons(out: &mut String, trace: &Trace) {
    let all: Vec<(usize, &str)> =
        trace.passes.iter().enumerate().filter_map(|(i, pass)| Some((i + 1, pass.why.as_deref()?))).collect();
    if all.is_empty() {
        return;
    }
    let _ =
        writeln!(out, "\nwhy the budget changed its mind{}:", if all.len() > REASONS { ", the latest" } else { "" });
    for (pass, why) in &all[all.len().saturating_sub(REASONS)..] {
        let _ = writeln!(out, "  pass {pass}: {}", printable(why));
    }
}

/// Rows under a header; all columns but the first hold numbers.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().copied());
    table.add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::trace;

    #[test]
    fn a_trace_is_explained() {
        let trace = trace();
        let all = Analysis::of(&trace.passes, 2);
        let said = report(&trace, &all, false);
        assert!(!said.contains('\x1b'));
        let expected = "\
the cat sat on the mat; the cat sat on the hat

toy, drafting by auto
46 tokens in 18 passes after the prompt's, 108.6 tokens/s
tokens per pass: 2.56, and 2.56 by the formula 1 + a1 + a1 a2 + ... over the trees that were run

of the tokens, the model itself gave 39.1 %
 drafter  proposed  run  accepted  by formula  of the tokens  accepted by depth
 suffix         31   22        22        22.0         47.8 %          1.00 1.00
 recycle        28   19         6         6.0         13.0 %   0.00 - 1.00 1.00

 role           s  ms per token    share
 verify     0.419         9.109   98.9 %
 draft      0.001         0.020    0.2 %
   suffix   0.001         0.012    0.1 %
   recycle  0.000         0.004    0.0 %
 rest       0.004         0.078    0.9 %
 all        0.424         9.207  100.0 %
times of passes were foreseen with a median error of 1.9 %; nine in ten were within 3.1 %

 guesses                                 share
 accepted                           28  44.4 %
 another token was drawn            13  20.6 %
 not run, but would have come true  18  28.6 %
 cut: a grammar forbids them         4   6.3 %

rows of a pass over time, up to 6:
▂▂▅▆▂▇▅▅█▂▆▇▇▂▆▇▆▅

why the budget changed its mind:
  pass 9: five rows are expected to pay
";
        assert_eq!(said, expected);
    }

    #[test]
    fn tokens_have_their_drafter_s_colour() {
        let trace = trace();
        let said = report(&trace, &Analysis::of(&trace.passes, 2), true);
        assert!(said.starts_with(&format!("th{}", colour::paint(1, "e"))), "{said}");
        assert!(said.contains(&colour::paint(2, "■ recycle")));
    }
}
