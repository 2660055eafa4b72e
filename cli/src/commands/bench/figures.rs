//! Measured numbers with their spread, and quantiles.

use crate::output::wrap::{PAGE_COLUMNS, hang};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The measure of the figure, such as `submissions`.
    pub(super) measure: &'static str,
    pub(super) title: String,
    /// The median of the runs.
    pub(super) value: f64,
    /// The lowest and the highest run.
    pub(super) spread: (f64, f64),
    /// Such as `1/s`, `ms`, `B`.
    pub(super) unit: &'static str,
    /// The conditions of the measurement.
    pub(super) note: String,
}

impl Figure {
    /// The median and spread of at least one run.
    pub(super) fn of(
        measure: &'static str,
        title: impl Into<String>,
        unit: &'static str,
        runs: &[f64],
        note: impl Into<String>,
    ) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let spread =
            (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN));
        Self { measure, title: title.into(), value: quantile(&sorted, 0.5), spread, unit, note: note.into() }
    }

    pub(super) fn json(&self) -> Value {
        let (low, high) = self.spread;
        json!({
            "measure": self.measure, "what": self.title, "value": self.value, "low": low, "high": high,
            "unit": self.unit, "note": self.note,
        })
    }

    /// Two lines: title, value and spread; then the note.
    pub(super) fn lines(&self) -> String {
        let (low, high) = self.spread;
        let spread =
            if low == high { String::new() } else { format!(" ({} to {})", short(low), short(high)) };
        let first = format!("{:<42} {:>9} {:<4}{spread}", self.title, short(self.value), self.unit);
        if self.note.is_empty() {
            return first.trim_end().to_owned();
        }
        format!("{}\n{}", first.trim_end(), hang("  ", &self.note, PAGE_COLUMNS))
    }
}

/// Only significant digits.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The quantile `q` of sorted values by nearest rank; NaN if there are none.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (quantile(&hundred, 0.5), quantile(&hundred, 0.99), quantile(&hundred, 1.0)),
            (50.0, 99.0, 100.0)
        );
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_figure_shows_median_spread_and_note() {
        let figure =
            Figure::of("submissions", "durable submissions", "1/s", &[900.0, 1_100.4, 1_000.0], "8 clients");
        assert_eq!(
            figure.lines(),
            "durable submissions                             1000 1/s  (900 to 1100)\n  8 clients"
        );
        assert_eq!(figure.json()["low"], 900.0);
        assert!(!Figure::of("memory", "title", "B", &[5.0], "").lines().contains("to"));
    }
}
