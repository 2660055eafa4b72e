//! Handles of metrics with a fixed number of labels.

use super::exemplars::Buckets;
use crate::locks;
use meridian_telemetry::trace::Trace;
use prometheus::core::{Atomic, AtomicF64, AtomicI64, Collector, Desc, GenericGauge, GenericGaugeVec};
use prometheus::{CounterVec, HistogramVec, IntCounterVec, IntGauge};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The definition of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: &'static str,
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: &'static [&'static str],
}

/// Label values of every series that matches all of `selected`, in the order of the labels.
fn series_of(collector: &impl Collector, selected: &[(&str, &str)]) -> Vec<Vec<String>> {
    let first = collector.desc().into_iter().next();
    let names: Vec<String> = first.map(|desc: &Desc| desc.variable_labels.clone()).unwrap_or_default();
    let families = collector.collect();
    let series = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric).filter_map(|metric| {
        let value = |name: &str| {
            metric.get_label().iter().find(|pair| pair.name() == name).map(|pair| pair.value().to_owned())
        };
        let matches = selected.iter().all(|(name, is)| value(name).as_deref() == Some(is));
        matches.then(|| names.iter().map(|name| value(name).unwrap_or_default()).collect())
    });
    series.collect()
}

/// Counters with `N` labels, in the order of the metric's definition.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize>(pub(super) IntCounterVec);

impl<const N: usize> Counters<N> {
    pub fn inc(&self, labels: [&str; N]) {
        self.add(labels, 1);
    }

    pub fn add(&self, labels: [&str; N], by: u64) {
        self.0.with_label_values(&labels).inc_by(by);
    }

    /// Creates the series with the value 0, so that queries see its first event as an increase.
    pub fn create(&self, labels: [&str; N]) {
        self.add(labels, 0);
    }

    /// Removes the series with these label values, because their object was deleted.
    pub fn forget(&self, selected: &[(&str, &str)]) {
        for series in series_of(&self.0, selected) {
            // fails only if the series was removed concurrently
            let _ = self.0.remove_label_values(&series);
        }
    }
}

/// Counters of amounts, which need not be whole.
#[derive(Clone, Debug)]
pub struct Sums<const N: usize>(pub(super) CounterVec);

impl<const N: usize> Sums<N> {
    /// Adds an amount, which must not be negative.
    pub fn add(&self, labels: [&str; N], by: f64) {
        self.0.with_label_values(&labels).inc_by(by.max(0.0));
    }

    /// Creates the series with the value 0, like [`Counters::create`].
    pub fn create(&self, labels: [&str; N]) {
        self.add(labels, 0.0);
    }

    /// Removes the series with these label values, because their object was deleted.
    pub fn forget(&self, selected: &[(&str, &str)]) {
        for series in series_of(&self.0, selected) {
            // fails only if the series was removed concurrently
            let _ = self.0.remove_label_values(&series);
        }
    }
}

/// Gauges of whole numbers.
pub type Gauges<const N: usize> = Series<AtomicI64, N>;
/// Gauges of amounts, shares and limits, which need not be whole.
pub type Amounts<const N: usize> = Series<AtomicF64, N>;

/// Gauges with `N` labels, in the order of the metric's definition.
#[derive(Debug)]
pub struct Series<P: Atomic, const N: usize> {
    pub(super) vec: GenericGaugeVec<P>,
    /// The series of the last [`Self::replace`], in its order.
    current: Arc<Mutex<Vec<LabelledGauge<P, N>>>>,
}

type LabelledGauge<P, const N: usize> = ([Box<str>; N], GenericGauge<P>);

impl<P: Atomic, const N: usize> Clone for Series<P, N> {
    fn clone(&self) -> Self {
        Self { vec: self.vec.clone(), current: Arc::clone(&self.current) }
    }
}

impl<P: Atomic, const N: usize> Series<P, N> {
    pub(super) fn new(vec: GenericGaugeVec<P>) -> Self {
        Self { vec, current: Arc::default() }
    }

    pub fn set(&self, labels: [&str; N], value: P::T) {
        self.vec.with_label_values(&labels).set(value);
    }

    /// Replaces the series of the last call. Series that are in both never disappear in between. Optimised
    /// for the usual case: the same series in the same order.
    pub fn replace<'a>(&self, values: impl IntoIterator<Item = ([&'a str; N], P::T)>) {
        let mut current = locks::lock(&self.current);
        let mut same = 0;
        let mut others = Vec::new();
        for (labels, value) in values {
            let is_next = |known: &[Box<str>; N]| known.iter().map(|label| &**label).eq(labels);
            match current.get(same).filter(|(known, _)| others.is_empty() && is_next(known)) {
                Some((_, gauge)) => {
                    gauge.set(value);
                    same += 1;
                }
                None => others.push((labels, value)),
            }
        }
        let stay: BTreeSet<[&str; N]> = others.iter().map(|(labels, _)| *labels).collect();
        for (labels, _) in current.drain(same..) {
            if !stay.contains(&labels.each_ref().map(|label| &**label)) {
                // fails only if the series was removed concurrently
                let _ = self.vec.remove_label_values(&labels.each_ref().map(|label| &**label));
            }
        }
        for (labels, value) in others {
            let gauge = self.vec.with_label_values(&labels);
            gauge.set(value);
            current.push((labels.map(Box::from), gauge));
        }
    }
}

impl Gauges<1> {
    /// Increments the gauge with this label until the guard is dropped.
    pub fn enter(&self, labels: [&str; 1]) -> Entered {
        let gauge = self.vec.with_label_values(&labels);
        gauge.inc();
        Entered(gauge)
    }
}

/// A gauge without labels.
#[derive(Clone, Debug)]
pub struct Gauge(pub(super) IntGauge);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }

    /// Increments the gauge until the guard is dropped.
    pub fn enter(&self) -> Entered {
        self.0.inc();
        Entered(self.0.clone())
    }
}

/// Adds one to a gauge until it is dropped.
#[derive(Debug)]
pub struct Entered(pub(super) IntGauge);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Histograms with `N` labels, in the order of the metric's definition.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize> {
    pub(super) vec: HistogramVec,
    buckets: Buckets,
}

impl<const N: usize> Histograms<N> {
    pub(super) fn new(vec: HistogramVec, buckets: Buckets) -> Self {
        Self { vec, buckets }
    }

    pub fn observe(&self, labels: [&str; N], value: f64) {
        self.vec.with_label_values(&labels).observe(value);
    }

    /// Observes a duration in seconds.
    pub fn observe_duration(&self, labels: [&str; N], duration: Duration) {
        self.observe(labels, duration.as_secs_f64());
    }

    /// Observes a duration, with `trace` as its exemplar.
    pub fn observe_traced(&self, labels: [&str; N], duration: Duration, trace: Trace) {
        self.observe_duration(labels, duration);
        self.buckets.note(&self.vec, &labels, duration.as_secs_f64(), trace);
    }

    /// Removes the series with these label values, because their object was deleted.
    pub fn forget(&self, selected: &[(&str, &str)]) {
        self.buckets.forget(&self.vec, selected);
        for series in series_of(&self.vec, selected) {
            // fails only if the series was removed concurrently
            let _ = self.vec.remove_label_values(&series);
        }
    }
}
