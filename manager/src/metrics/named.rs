//! Names of metrics for queries. Dashboards and alerts take names from the handles, so they can't become
//! outdated.

use super::handles::{Counters, Gauge, Histograms, Series, Sums};
use super::kueue::{QueueCounter, QueueTimer};
use prometheus::core::{Atomic, Collector};

/// A metric that queries can name.
pub trait Named {
    /// The name of the metric, without the suffixes of histogram series.
    fn name(&self) -> String;
}

fn name_of(collector: &impl Collector) -> String {
    collector.desc().first().map(|desc| desc.fq_name.clone()).unwrap_or_default()
}

impl<const N: usize> Named for Counters<N> {
    fn name(&self) -> String {
        name_of(&self.0)
    }
}

impl<const N: usize> Named for Sums<N> {
    fn name(&self) -> String {
        name_of(&self.0)
    }
}

impl<P: Atomic, const N: usize> Named for Series<P, N> {
    fn name(&self) -> String {
        name_of(&self.vec)
    }
}

impl Named for Gauge {
    fn name(&self) -> String {
        name_of(&self.0)
    }
}

impl<const N: usize> Named for Histograms<N> {
    fn name(&self) -> String {
        name_of(&self.vec)
    }
}

/// Has the name of the metric of cluster queues.
impl Named for QueueCounter {
    fn name(&self) -> String {
        self.queue().name()
    }
}

/// Has the name of the metric of cluster queues.
impl Named for QueueTimer {
    fn name(&self) -> String {
        self.queue().name()
    }
}
