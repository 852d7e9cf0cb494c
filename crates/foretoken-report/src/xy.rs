//! Lines and points over two axes.

use std::fmt::Write;

use crate::COLOURS;
use crate::axis::Axis;
use crate::html::{Html, escape};

/// Size of the drawing in its own units; it is shown as wide as the page allows.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
/// Room for the words at the axes.
const LEFT: f64 = 46.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 22.0;
const RIGHT: f64 = 12.0;

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    colour: Option<usize>,
}

impl Series {
    /// Its name in the legend, and `(x, y)`. Points that are no numbers are left out.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, colour: None }
    }

    /// In this colour instead of the next one.
    pub fn coloured(mut self, colour: usize) -> Self {
        self.colour = Some(colour);
        self
    }
}

/// How points are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Lines,
    Points,
    /// Points, and the line where y = x.
    Agreement,
}

/// A chart over two axes, each beginning at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Xy {
    title: String,
    x: String,
    y: String,
    series: Vec<Series>,
    style: Style,
}

impl Xy {
    /// Series as lines.
    pub fn lines(title: &str, x: &str, y: &str, series: Vec<Series>) -> Self {
        Self { title: title.into(), x: x.into(), y: y.into(), series, style: Style::Lines }
    }

    /// Series as points.
    pub fn points(title: &str, x: &str, y: &str, series: Vec<Series>) -> Self {
        Self { style: Style::Points, ..Self::lines(title, x, y, series) }
    }

    /// Series as points, with the line on which both are equal; both axes have one scale.
    pub fn agreement(title: &str, x: &str, y: &str, series: Vec<Series>) -> Self {
        Self { style: Style::Agreement, ..Self::lines(title, x, y, series) }
    }

    fn axes(&self) -> (Axis, Axis) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (xs, ys) = (points().map(|p| p.0), points().map(|p| p.1));
        let across = |values: Vec<f64>| Axis::new(values, 5, LEFT, WIDTH - RIGHT);
        let up = |values: Vec<f64>| Axis::new(values, 4, HEIGHT - BOTTOM, TOP);
        match self.style {
            Style::Agreement => {
                let all: Vec<f64> = xs.chain(ys).collect();
                (Axis::new(all.clone(), 4, LEFT, WIDTH - RIGHT), up(all))
            }
            _ => (across(xs.collect()), up(ys.collect())),
        }
    }
}

impl From<&Xy> for Html {
    fn from(chart: &Xy) -> Self {
        let (x, y) = chart.axes();
        let mut svg = frame(&chart.title, HEIGHT);
        grid(&mut svg, &y);
        for (at, word) in x.ticks() {
            let _ = write!(svg, "<text class=\"m\" x=\"{at:.1}\" y=\"{:.1}\">{word}</text>", HEIGHT - BOTTOM + 15.0);
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ =
            write!(svg, "<text class=\"m\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>", HEIGHT - 6.0, escape(&chart.x));
        let _ = write!(svg, "<text x=\"2\" y=\"12\">{}</text>", escape(&chart.y));
        if chart.style == Style::Agreement {
            let end = x.ticks().zip(y.ticks()).last();
            if let Some(((right, _), (top, _))) = end {
                let _ = write!(svg, "<path class=\"eq\" d=\"M{LEFT} {:.1}L{right:.1} {top:.1}\"/>", HEIGHT - BOTTOM);
            }
        }
        for (index, series) in chart.series.iter().enumerate() {
            let colour = series.colour.unwrap_or(index) % COLOURS;
            let finite = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            let drawn: Vec<(f64, f64)> = finite.map(|&(px, py)| (x.at(px), y.at(py))).collect();
            let name = escape(&series.name);
            if chart.style == Style::Lines && drawn.len() > 1 {
                let path: String = drawn.iter().map(|(x, y)| format!("{x:.1} {y:.1} ")).collect();
                let _ = write!(
                    svg,
                    "<path class=\"line k{colour}\" d=\"M{}\"><title>{name}</title></path>",
                    path.trim_end()
                );
            } else {
                let _ = write!(svg, "<g class=\"dots k{colour}\"><title>{name}</title>");
                for (x, y) in drawn {
                    let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
                }
                svg.push_str("</g>");
            }
        }
        svg.push_str("</svg>");
        let names = chart.series.iter().enumerate();
        let names = names.map(|(index, s)| (s.name.as_str(), s.colour.unwrap_or(index)));
        figure(&chart.title, svg, &names.collect::<Vec<_>>())
    }
}

/// The beginning of a drawing.
pub(crate) fn frame(title: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escape(title))
}

/// Lines across at the marks of the vertical axis.
fn grid(svg: &mut String, y: &Axis) {
    for (at, word) in y.ticks() {
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"e\" x=\"{:.1}\" y=\"{:.1}\">{word}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
}

/// A drawing under its title, with a legend when there is more than one name.
pub(crate) fn figure(title: &str, svg: String, names: &[(&str, usize)]) -> Html {
    let mut inner = Html::text("figcaption", title);
    inner.push(Html(svg));
    if names.len() > 1 {
        let entry = |&(name, colour): &(&str, usize)| {
            let mut entry = Html::text(&format!("i class=\"k{}\"", colour % COLOURS), "");
            entry.push(name);
            Html::element("li", entry)
        };
        inner.push(Html::element("ul class=\"legend\"", names.iter().map(entry).collect::<Html>()));
    }
    Html::element("figure", inner)
}
