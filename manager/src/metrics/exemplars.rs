//! Exemplars: the trace of a recent observation in each bucket, and their exposition as OpenMetrics.
//!
//! <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md#exemplars>. The client
//! library writes Prometheus' text format, which has no exemplars. OpenMetrics differs in the names of
//! counters' families, the exemplars after bucket samples, and the last line.

use crate::locks;
use meridian_telemetry::trace::Trace;
use prometheus::core::Collector;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Media type of the exposition with exemplars.
pub const OPEN_METRICS: &str = "application/openmetrics-text";

/// A bucket of a histogram, over all its series, gets a new exemplar at most this often, so that the cost
/// doesn't grow with the load.
const RENEWED_EVERY_MS: u64 = 100;

/// The newest exemplars of all histograms, by the text of their sample. There is at most one per series of a
/// bucket, so the bounds of labels limit their number too.
#[derive(Clone, Debug, Default)]
pub(super) struct Exemplars(Arc<Mutex<HashMap<String, Exemplar>>>);

#[derive(Clone, Copy, Debug)]
struct Exemplar {
    trace: Trace,
    value: f64,
    at_ms: u64,
}

/// The buckets of one histogram.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    exemplars: Exemplars,
    bounds: Arc<[f64]>,
    /// When each bucket got its last exemplar, in milliseconds. Has one more entry than there are bounds, for
    /// infinity.
    renewed: Arc<[AtomicU64]>,
}

impl Buckets {
    pub(super) fn new(exemplars: Exemplars, bounds: Vec<f64>) -> Self {
        let renewed = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { exemplars, bounds: bounds.into(), renewed }
    }

    /// Notes the trace of an observation in the series with these label values.
    pub(super) fn note(&self, of: &impl Collector, labels: &[&str], value: f64, trace: Trace) {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        let renewed = &self.renewed[bucket];
        if at_ms.saturating_sub(renewed.load(Ordering::Relaxed)) < RENEWED_EVERY_MS {
            return;
        }
        renewed.store(at_ms, Ordering::Relaxed);
        let bound = self.bounds.get(bucket).map_or_else(|| "+Inf".to_owned(), f64::to_string);
        if let Some(sample) = sample_of(of, labels, &bound) {
            locks::lock(&self.exemplars.0).insert(sample, Exemplar { trace, value, at_ms });
        }
    }

    /// Drops the exemplars of deleted series.
    pub(super) fn forget(&self, of: &impl Collector, selected: &[(&str, &str)]) {
        let Some(desc) = of.desc().into_iter().next() else { return };
        let head = format!("{}_bucket{{", desc.fq_name);
        let pairs: Vec<String> =
            selected.iter().map(|(name, value)| format!("{name}=\"{value}\",")).collect();
        locks::lock(&self.exemplars.0).retain(|sample, _| {
            let labels = sample.strip_prefix(&head);
            labels.is_none_or(|labels| pairs.iter().any(|pair| !labels.contains(pair.as_str())))
        });
    }
}

/// The sample of a bucket up to its value, as the library writes it: labels by name, and `le` at the end.
fn sample_of(of: &impl Collector, values: &[&str], bound: &str) -> Option<String> {
    let desc = of.desc().into_iter().next()?;
    let variable = desc.variable_labels.iter().map(String::as_str).zip(values.iter().copied());
    let constant = desc.const_label_pairs.iter().map(|pair| (pair.name(), pair.value()));
    let mut pairs: Vec<(&str, &str)> = variable.chain(constant).collect();
    pairs.sort_unstable();
    let mut sample = format!("{}_bucket{{", desc.fq_name);
    for (name, value) in pairs {
        let _ = write!(sample, "{name}=\"{value}\",");
    }
    let _ = write!(sample, "le=\"{bound}\"}}");
    Some(sample)
}

impl Exemplars {
    /// Prometheus' text format as OpenMetrics.
    pub(super) fn open_metrics(&self, text: &str) -> String {
        let exemplars = locks::lock(&self.0);
        let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let taken: HashSet<&str> =
            families.filter(|(_, kind)| *kind != "counter").map(|(name, _)| name).collect();
        let mut open = String::with_capacity(text.len() + exemplars.len() * 96 + 8);
        for (line, next) in text.lines().zip(text.lines().skip(1).chain([""])) {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap_or((help, ""));
                let (family, _) = family(name, next.ends_with(" counter"), &taken);
                let _ = write!(open, "# HELP {family} {help}");
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|of| of.split_once(' '))
            {
                let (family, is_unknown) = family(name, kind == "counter", &taken);
                let _ = write!(open, "# TYPE {family} {}", if is_unknown { "unknown" } else { kind });
            } else {
                open.push_str(line);
                let exemplar = line.rsplit_once(' ').and_then(|(sample, _)| exemplars.get(sample));
                if let Some(Exemplar { trace, value, at_ms }) = exemplar {
                    let (seconds, millis) = (at_ms / 1_000, at_ms % 1_000);
                    let _ = write!(open, " # {{trace_id=\"{trace}\"}} {value} {seconds}.{millis:03}");
                }
            }
            open.push('\n');
        }
        open.push_str("# EOF\n");
        open
    }
}

/// Name and type of a family. A family of counters is named like its samples without `_total`. If another
/// family has that name, as for Kueue's finished workloads, it keeps the suffix, and its type is `unknown`.
fn family<'n>(name: &'n str, is_counter: bool, taken: &HashSet<&str>) -> (&'n str, bool) {
    let short = name.trim_end_matches("_total");
    let is_unknown = is_counter && taken.contains(short);
    (if is_counter && !is_unknown { short } else { name }, is_unknown)
}
