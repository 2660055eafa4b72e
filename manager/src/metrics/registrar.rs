//! Creates, registers and gathers metrics.

use super::exemplars::{Buckets, Exemplars};
use super::handles::{Amounts, Counters, Definition, Gauge, Gauges, Histograms, Series, Sums};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Prefix of the names of Meridian's own metrics.
pub(super) const PREFIX: &str = "meridian_";
/// Prefix of the names of Kueue's metrics.
pub(super) const KUEUE_PREFIX: &str = "kueue_";

/// Defines a struct of metric handles, and a `new` that registers them. Each line has the field and its type,
/// then the method of [`Registrar`] that creates the metric, with its arguments.
macro_rules! metric_group {
    ($(#[$meta:meta])* pub struct $group:ident {
        $($field:ident: $handle:ty = $make:ident($($argument:expr),+ $(,)?);)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $group {
            $(pub $field: $handle,)+
        }

        impl $group {
            pub(crate) fn new(registrar: &mut Registrar) -> Self {
                Self { $($field: registrar.$make($($argument),+),)+ }
            }
        }
    };
}
pub(super) use metric_group;

/// Creates and registers metrics. All names are constants, so a failure is a bug that every start would show.
pub(crate) struct Registrar {
    pub(super) registry: Registry,
    pub(super) families: Families,
    pub(super) catalog: Vec<Definition>,
    pub(super) exemplars: Exemplars,
}

/// Metrics by name, so that one metric can be gathered without the others.
#[derive(Default)]
pub(crate) struct Families(BTreeMap<&'static str, Box<dyn Collector>>);

impl Families {
    pub(super) fn collect(&self, only: &[String]) -> Vec<MetricFamily> {
        let named: BTreeSet<&str> = only.iter().map(String::as_str).collect();
        named
            .into_iter()
            .filter_map(|name| self.0.get(name))
            .flat_map(|collector| collector.collect())
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

pub(super) type Labels<const N: usize> = &'static [&'static str; N];

impl Registrar {
    pub(super) fn counters<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<N>,
    ) -> Counters<N> {
        let vec = IntCounterVec::new(opts(name, help), labels).expect("valid name and labels");
        if N == 0 {
            vec.with_label_values::<&str>(&[]); // rendered as 0 before the first event
        }
        Counters(self.registered(Definition { name, help, kind: "counter", labels }, vec))
    }

    pub(super) fn sums<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<N>,
    ) -> Sums<N> {
        let vec = CounterVec::new(opts(name, help), labels).expect("valid name and labels");
        Sums(self.registered(Definition { name, help, kind: "counter", labels }, vec))
    }

    pub(super) fn gauges<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<N>,
    ) -> Gauges<N> {
        let vec = IntGaugeVec::new(opts(name, help), labels).expect("valid name and labels");
        Series::new(self.registered(Definition { name, help, kind: "gauge", labels }, vec))
    }

    pub(super) fn amounts<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<N>,
    ) -> Amounts<N> {
        let vec = GaugeVec::new(opts(name, help), labels).expect("valid name and labels");
        Series::new(self.registered(Definition { name, help, kind: "gauge", labels }, vec))
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> Gauge {
        let gauge = IntGauge::new(name, help).expect("valid name");
        Gauge(self.registered(Definition { name, help, kind: "gauge", labels: &[] }, gauge))
    }

    pub(super) fn histograms<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<N>,
        buckets: Vec<f64>,
    ) -> Histograms<N> {
        let exemplars = Buckets::new(self.exemplars.clone(), buckets.clone());
        let opts = HistogramOpts { common_opts: opts(name, help), buckets };
        let vec = HistogramVec::new(opts, labels).expect("valid name and labels");
        if N == 0 {
            vec.with_label_values::<&str>(&[]);
        }
        let definition = Definition { name, help, kind: "histogram", labels };
        Histograms::new(self.registered(definition, vec), exemplars)
    }

    fn registered<C: Collector + Clone + 'static>(&mut self, definition: Definition, collector: C) -> C {
        let name = definition.name;
        assert!(name.starts_with(PREFIX) || name.starts_with(KUEUE_PREFIX), "`{name}` lacks the prefix");
        self.registry.register(Box::new(collector.clone())).expect("names are unique");
        self.families.0.insert(name, Box::new(collector.clone()));
        self.catalog.push(definition);
        collector
    }
}

/// Options of a metric. Kueue's metrics have a label for the role of the replica, which is always the leader:
/// only a leading manager counts.
fn opts(name: &str, help: &str) -> Opts {
    let opts = Opts::new(name, help);
    if name.starts_with(KUEUE_PREFIX) { opts.const_label("replica_role", "leader") } else { opts }
}
