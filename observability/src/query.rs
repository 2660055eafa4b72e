//! Pieces of PromQL. Metrics come as handles or definitions, never as text.

use crate::dialect::of_gpus;
use meridian_agent::metrics::names::{self, Definition};
use meridian_manager::metrics::{Metrics, Named};

/// Window of rates in dashboards: Grafana chooses at least four scrapes.
const WINDOW: &str = "$__rate_interval";

/// A metric of agents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfAgent(pub(crate) Definition);

impl Named for OfAgent {
    fn name(&self) -> String {
        self.0.name.to_owned()
    }
}

/// Utilisation in percent of the GPUs that workloads have, by cluster; free ones don't count.
pub(crate) fn utilisation_of_granted(m: &Metrics) -> String {
    // The exporter and an agent may both report the same GPU, which counts once.
    let by_gpu = format!("max by (cluster, UUID) ({})", of_gpus(names::GPU_UTILISATION));
    let busy = sum("cluster", &by_gpu);
    let granted = series(&m.fleet.capacity, r#"resource="nvidia.com/gpu",state="granted""#);
    format!("{busy} / ({} > 0)", sum("cluster", &granted))
}

/// The series that match `labels`, such as `cluster="eu"`; all if it is empty.
pub(crate) fn series(metric: &impl Named, labels: &str) -> String {
    braced(&metric.name(), labels)
}

fn braced(name: &str, labels: &str) -> String {
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{labels}}}") }
}

/// Events per second in dashboards.
pub(crate) fn rate(metric: &impl Named, labels: &str) -> String {
    rate_over(metric, labels, WINDOW)
}

pub(crate) fn rate_over(metric: &impl Named, labels: &str, window: &str) -> String {
    format!("rate({}[{window}])", series(metric, labels))
}

pub(crate) fn increase(metric: &impl Named, labels: &str, window: &str) -> String {
    format!("increase({}[{window}])", series(metric, labels))
}

/// A sum that keeps the labels `by`; over everything if it is empty.
pub(crate) fn sum(by: &str, of: &str) -> String {
    if by.is_empty() { format!("sum({of})") } else { format!("sum by ({by}) ({of})") }
}

/// A quantile of a histogram in dashboards, by labels.
pub(crate) fn quantile(q: &str, by: &str, metric: &impl Named, labels: &str) -> String {
    quantile_over(q, by, metric, labels, WINDOW)
}

pub(crate) fn quantile_over(q: &str, by: &str, metric: &impl Named, labels: &str, window: &str) -> String {
    let buckets = braced(&format!("{}_bucket", metric.name()), labels);
    let by = if by.is_empty() { "le".to_owned() } else { format!("le, {by}") };
    format!("histogram_quantile({q}, sum by ({by}) (rate({buckets}[{window}])))")
}

/// Rate of a histogram's observations up to `bound`, a whole number; Prometheus 3 stores such a bound with a
/// fraction.
pub(crate) fn within(metric: &impl Named, bound: &str, window: &str) -> String {
    format!("sum(rate({}_bucket{{le=~\"{bound}|{bound}[.]0\"}}[{window}]))", metric.name())
}

/// Rate of all observations of a histogram.
pub(crate) fn observed(metric: &impl Named, window: &str) -> String {
    format!("sum(rate({}_count[{window}]))", metric.name())
}
