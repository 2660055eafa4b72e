//! The alerts. Each has a page in `docs/runbooks/`, a case in which it fires and one in which it doesn't.

mod accelerators;
mod clusters;
mod journal;
mod queues;
mod slo;

use meridian_manager::metrics::Metrics;

/// One alert rule.
#[derive(Clone, Debug)]
pub struct Alert {
    pub name: String,
    pub expression: String,
    /// How long the expression must hold.
    pub hold: &'static str,
    /// `critical` wakes somebody; `warning` can wait until morning.
    pub severity: &'static str,
    /// One sentence, which may name labels of the alert.
    pub summary: String,
    pub description: String,
    /// Page in `docs/runbooks/`, without its extension.
    pub runbook: &'static str,
    /// Whether its metrics come from agents, which run in other clusters than the manager.
    pub of_agents: bool,
    pub fires: Case,
    pub quiet: Case,
}

/// Series of a test, and the labels of the alerts that fire then.
#[derive(Clone, Debug)]
pub struct Case {
    /// Series with its values, one per minute.
    pub series: Vec<(String, String)>,
    /// When the alert is evaluated.
    pub at: &'static str,
    /// The series as Managed Prometheus collects them, if more than the names of labels differs.
    pub managed: Option<Vec<(String, String)>>,
    /// Labels of the alert without its name and severity. `None` if it doesn't fire.
    pub labels: Option<Vec<(&'static str, &'static str)>>,
}

/// Every alert, in the order of the rule file.
pub fn all(metrics: &Metrics) -> Vec<Alert> {
    [
        clusters::alerts(metrics),
        accelerators::alerts(metrics),
        queues::alerts(metrics),
        journal::alerts(metrics),
        slo::alerts(metrics),
    ]
    .concat()
}

/// The series of a case: `name{labels}` and its values.
fn case<const N: usize>(at: &'static str, series: [(String, &str); N]) -> Case {
    Case { series: owned(series), at, managed: None, labels: None }
}

fn owned<const N: usize>(series: [(String, &str); N]) -> Vec<(String, String)> {
    series.map(|(series, values)| (series, values.to_owned())).into()
}

impl Case {
    /// Managed Prometheus collects these series instead.
    fn in_managed<const N: usize>(mut self, series: [(String, &str); N]) -> Self {
        self.managed = Some(owned(series));
        self
    }

    /// The alert fires with these labels.
    fn fires(mut self, labels: &[(&'static str, &'static str)]) -> Self {
        self.labels = Some(labels.to_vec());
        self
    }
}
