//! The scales of plots and their labelled ticks.

use crate::metric::number;

/// A mapping of values to positions from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// From 0 to `max`.
    Linear { max: f64 },
    /// Logarithmic, for values that are greater than 0.
    Log { min: f64, max: f64 },
    /// Percentiles: each nine (90 %, 99 %, 99.9 %) has the same width. A value is the number of
    /// nines, 0 to `max`.
    Nines { max: f64 },
}

/// The percentiles with a tick, with their names.
const PERCENTILES: [(f64, &str); 8] = [
    (std::f64::consts::LOG10_2, "p50"),
    (1.0, "p90"),
    (2.0, "p99"),
    (3.0, "p99.9"),
    (4.0, "p99.99"),
    (5.0, "p99.999"),
    (6.0, "p99.9999"),
    (7.0, "p99.99999"),
];

/// A logarithmic scale of up to so many decades has ticks at 2 and 5 too.
const DECADES_WITH_STEPS: f64 = 2.0;

impl Scale {
    /// Returns a scale from 0 to a round number that is at least `max`.
    pub(super) fn linear(max: f64, steps: u32) -> Self {
        let step = round_up(max / f64::from(steps));
        let max = (max / step).ceil().max(1.0) * step;
        Self::Linear { max }
    }

    /// Returns a logarithmic scale between round numbers that include `values`, of which only those
    /// greater than 0 count. At least one decade, so that small differences look small, and at most
    /// three, so that a few very small values do not compress the rest: these are at its lower end.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (mut min, mut max) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0) {
            min = min.min(value);
            max = max.max(value);
        }
        if max == 0.0 {
            return Self::Log { min: 0.1, max: 1.0 };
        }
        let max = round_up(max);
        let min = round_down(min).clamp(max / 1e3, max / 10.0);
        Self::Log { min, max }
    }

    /// Returns the position of a value; values outside of the scale are at its ends.
    pub(super) fn position(self, value: f64) -> f64 {
        let position = match self {
            Self::Linear { max } | Self::Nines { max } => value / max,
            Self::Log { min, max } => (value.max(min) / min).log10() / (max / min).log10(),
        };
        position.clamp(0.0, 1.0)
    }

    /// Returns the values and labels of the ticks, about `count` of them on a linear scale.
    pub(super) fn ticks(self, count: u32) -> Vec<(f64, String)> {
        let label = |value: f64| (value, number(value));
        match self {
            Self::Nines { max } => PERCENTILES
                .into_iter()
                .filter(|(nines, _)| *nines <= max)
                .map(|(nines, name)| (nines, name.to_owned()))
                .collect(),
            Self::Linear { max } => {
                let step = round_up(max / f64::from(count));
                // A sum of steps would accumulate rounding errors.
                let steps = (max / step + 1e-9) as u32;
                (0..=steps)
                    .map(|n| label(rounded(f64::from(n) * step)))
                    .collect()
            }
            Self::Log { min, max } => {
                let has_steps = (max / min).log10() <= DECADES_WITH_STEPS;
                let factors: &[f64] = if has_steps { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades = min.log10().floor() as i32..=max.log10().ceil() as i32;
                let values = decades.flat_map(|decade| {
                    let power = 10_f64.powi(decade);
                    factors.iter().map(move |factor| rounded(factor * power))
                });
                values
                    .filter(|value| (min * 0.999..=max * 1.001).contains(value))
                    .map(label)
                    .collect()
            }
        }
    }
}

/// Returns the smallest of 1, 2, 5, 10, ... that is at least `value`.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].into_iter();
    let step = steps
        .map(|step| step * power)
        .find(|step| *step >= value * 0.999_999);
    rounded(step.unwrap_or(10.0 * power))
}

/// Returns the greatest of 1, 2, 5, 10, ... that is at most `value`, which is greater than 0.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [5.0, 2.0, 1.0].into_iter();
    let step = steps
        .map(|step| step * power)
        .find(|step| *step <= value * 1.000_001);
    rounded(step.unwrap_or(power))
}

/// Removes the rounding error of a power of ten.
fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, count: u32) -> String {
        let ticks = scale.ticks(count).into_iter().map(|(_, label)| label);
        ticks.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn linear_scales_begin_at_0_and_have_round_ticks() {
        for (max, expected) in [
            (0.0, "0 0.2 0.4 0.6 0.8 1"),
            (0.35, "0 0.1 0.2 0.3 0.4"),
            (4.9, "0 1 2 3 4 5"),
            (1_234.0, "0 500 1,000 1,500"),
        ] {
            assert_eq!(labels(Scale::linear(max, 5), 5), expected, "{max}");
        }
        let scale = Scale::linear(100.0, 5);
        assert_eq!(scale.position(50.0), 0.5);
        assert_eq!(scale.position(200.0), 1.0);
    }

    #[test]
    fn log_scales_have_ticks_per_decade() {
        let scale = |values: &[f64]| Scale::log(values.iter().copied());
        for (values, expected) in [
            (&[3.0, 4.0][..], "0.5 1 2 5"),
            (&[0.7, 33.0], "0.5 1 2 5 10 20 50"),
            (&[0.02, 900.0], "1 10 100 1,000"),
            (&[2.0, 900.0], "10 100 1,000"),
            (&[0.0, 0.0], "0.1 0.2 0.5 1"),
            (&[0.0, 10.0], "1 2 5 10"),
        ] {
            assert_eq!(labels(scale(values), 5), expected, "{values:?}");
        }
        let scale = scale(&[1.0, 100.0]);
        assert_eq!(scale.position(10.0), 0.5);
        assert_eq!(scale.position(0.0), 0.0);
    }

    #[test]
    fn percentiles_are_spaced_by_nines() {
        let scale = Scale::Nines { max: 4.0 };
        assert_eq!(labels(scale, 5), "p50 p90 p99 p99.9 p99.99");
        assert_eq!(scale.position(1.0), 0.25);
    }
}
