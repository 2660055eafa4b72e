//! Numbers with their spread, and quantiles.

use serde_json::{Value, json};

/// One measured figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// `submissions`, `dispatches`, `latency`, `memory` or `restart`.
    pub(super) measure: &'static str,
    /// What exactly.
    pub(super) what: String,
    /// The median of the runs.
    pub(super) value: f64,
    /// The lowest and the highest run.
    pub(super) spread: (f64, f64),
    /// Such as `1/s`, `ms`, `B`.
    pub(super) unit: &'static str,
    /// What a reader needs to know beside it.
    pub(super) note: String,
}

impl Figure {
    /// The median of `runs`, which are at least one.
    pub(super) fn of(
        measure: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        runs: &[f64],
        note: impl Into<String>,
    ) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let spread =
            (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN));
        Self { measure, what: what.into(), value: quantile(&sorted, 0.5), spread, unit, note: note.into() }
    }

    pub(super) fn json(&self) -> Value {
        let (low, high) = self.spread;
        json!({"measure": self.measure, "what": self.what, "value": self.value, "low": low, "high": high, "unit": self.unit, "note": self.note})
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let (low, high) = self.spread;
        let spread =
            if low == high { String::new() } else { format!(" ({} to {})", short(low), short(high)) };
        let note = if self.note.is_empty() { String::new() } else { format!("; {}", self.note) };
        format!("{:<44} {:>9} {:<5}{spread}{note}", self.what, short(self.value), self.unit)
    }
}

/// Digits that mean something, and no more.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The value below which the share `q` of the sorted values lies, by nearest rank; NaN of none.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (quantile(&hundred, 0.5), quantile(&hundred, 0.99), quantile(&hundred, 1.0)),
            (50.0, 99.0, 100.0)
        );
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_figure_says_its_median_and_its_spread() {
        let figure =
            Figure::of("submissions", "durable submissions", "1/s", &[900.0, 1_100.4, 1_000.0], "8 clients");
        assert_eq!(
            figure.line(),
            "durable submissions                               1000 1/s   (900 to 1100); 8 clients"
        );
        assert_eq!(figure.json()["low"], 900.0);
        assert!(!Figure::of("memory", "x", "B", &[5.0], "").line().contains("to"));
    }
}
