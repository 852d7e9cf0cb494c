//! Round numbers along an axis.

/// A range of values and where they lie on the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    step: f64,
    /// Where `low` and `high` are drawn.
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis from 0, or below when there are values below, to past the largest of `values`, with about `ticks` marks.
    pub fn new(values: impl IntoIterator<Item = f64>, ticks: usize, from: f64, to: f64) -> Self {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let (low, high) = finite.fold((0.0f64, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let span = if high > low { high - low } else { 1.0 };
        let step = round_up(span / ticks.max(1) as f64);
        let low = (low / step).floor() * step;
        let high = ((low + span) / step).ceil() * step;
        Self { low, high: high.max(low + step), step, from, to }
    }

    /// Where a value is drawn; what is off the axis is drawn at its end.
    pub fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// The marks and their words.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let count = ((self.high - self.low) / self.step).round() as usize;
        (0..=count).map(|i| {
            let value = self.low + i as f64 * self.step;
            (self.at(value), number(value, self.step))
        })
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_up(step: f64) -> f64 {
    let mut power = 1.0;
    while power * 10.0 <= step {
        power *= 10.0;
    }
    while power > step {
        power /= 10.0;
    }
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= step * 0.999_999);
    times.unwrap_or(10.0) * power
}

/// A number with the decimals that `step` needs.
fn number(value: f64, step: f64) -> String {
    let mut decimals = 0;
    let mut scaled = step;
    while decimals < 9 && (scaled - scaled.round()).abs() > 1e-6 * scaled {
        scaled *= 10.0;
        decimals += 1;
    }
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.')) { "0".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_cover_the_values() {
        let words = |values: &[f64], ticks| {
            let axis = Axis::new(values.iter().copied(), ticks, 0.0, 100.0);
            axis.ticks().map(|(_, word)| word).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&[0.3, 4.1], 5), "0 1 2 3 4 5");
        assert_eq!(words(&[0.0, 0.31], 4), "0 0.1 0.2 0.3 0.4");
        assert_eq!(words(&[-1.0, 1.0], 4), "-1.0 -0.5 0 0.5 1.0");
        assert_eq!(words(&[], 2), "0 0.5 1.0");
        assert_eq!(words(&[f64::NAN, f64::INFINITY, 12_345.0], 3), "0 5000 10000 15000");
        let axis = Axis::new([10.0], 5, 50.0, 150.0);
        assert_eq!((axis.at(0.0), axis.at(10.0), axis.at(99.0)), (50.0, 150.0, 150.0));
    }
}
