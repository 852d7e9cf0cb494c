//! Horizontal bars, each of one or more parts.

use std::fmt::Write;

use crate::COLOURS;
use crate::axis::Axis;
use crate::html::{Html, escape};
use crate::xy::{figure, frame};

const WIDTH: f64 = 480.0;
/// Height of a bar with its gap.
const PITCH: f64 = 24.0;
const RIGHT: f64 = 56.0;
const TOP: f64 = 4.0;
const BOTTOM: f64 = 36.0;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    label: String,
    parts: Vec<f64>,
}

impl Bar {
    /// Its label, and the length of each part, drawn one behind the other.
    pub fn new(label: impl Into<String>, parts: Vec<f64>) -> Self {
        Self { label: label.into(), parts }
    }
}

/// Bars over one axis from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    title: String,
    unit: String,
    parts: Vec<(String, usize)>,
    bars: Vec<Bar>,
}

impl Bars {
    /// `parts` names the parts of every bar, with their colours.
    pub fn new(title: &str, unit: &str, parts: Vec<(String, usize)>, bars: Vec<Bar>) -> Self {
        Self { title: title.into(), unit: unit.into(), parts, bars }
    }
}

impl From<&Bars> for Html {
    fn from(chart: &Bars) -> Self {
        let longest = chart.bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * 6.5 + 10.0).clamp(40.0, WIDTH / 2.0);
        let height = TOP + chart.bars.len() as f64 * PITCH + BOTTOM;
        let base = height - BOTTOM;
        let sum = |bar: &Bar| bar.parts.iter().filter(|part| part.is_finite()).sum::<f64>();
        let axis = Axis::new(chart.bars.iter().map(sum), 4, left, WIDTH - RIGHT);
        let mut svg = frame(&chart.title, height);
        for (at, word) in axis.ticks() {
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{base:.1}\"/><text class=\"m\" x=\"{at:.1}\" y=\"{:.1}\">{word}</text>",
                base + 14.0
            );
        }
        let middle = (left + WIDTH - RIGHT) / 2.0;
        let _ =
            write!(svg, "<text class=\"m\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>", height - 6.0, escape(&chart.unit));
        for (index, bar) in chart.bars.iter().enumerate() {
            let top = TOP + index as f64 * PITCH;
            let label = escape(&bar.label);
            let _ = write!(svg, "<text class=\"e\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>", left - 6.0, top + 16.0);
            let mut at = 0.0;
            for (&part, (name, colour)) in bar.parts.iter().zip(&chart.parts) {
                if !part.is_finite() || part <= 0.0 {
                    continue;
                }
                let (x, end) = (axis.at(at), axis.at(at + part));
                let _ = write!(
                    svg,
                    "<rect class=\"k{}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{label}, {}: {}</title></rect>",
                    colour % COLOURS,
                    top + 4.0,
                    (end - x).max(0.5),
                    PITCH - 8.0,
                    escape(name),
                    short(part)
                );
                at += part;
            }
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", axis.at(at) + 5.0, top + 16.0, short(at));
        }
        svg.push_str("</svg>");
        let names: Vec<(&str, usize)> = chart.parts.iter().map(|(name, colour)| (name.as_str(), *colour)).collect();
        figure(&chart.title, svg, &names)
    }
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
