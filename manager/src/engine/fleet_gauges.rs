//! Gauges of clusters, waits and limits after a batch.

use super::dashboards::units;
use crate::metrics::Metrics;
use meridian_manager_core::World;
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::provider_reason::ProviderReason;
use meridian_shared::time::{Millis, Wall};
use meridian_views::fleet::{self, CapacityRow, RunningRows};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values after a batch.
#[derive(Debug)]
pub(super) struct FleetGauges {
    places: Vec<(ClusterName, Region, Jurisdiction)>,
    capacity: Vec<CapacityRow>,
    waiting: BTreeMap<(ClusterName, ProviderReason), u64>,
    oldest: BTreeMap<(Arc<str>, Arc<str>), Millis>,
    starved: Vec<(Arc<str>, bool)>,
    running: RunningRows,
    recovery_open: bool,
}

impl FleetGauges {
    pub(super) fn of(world: &World, now: Wall) -> Self {
        let clusters = world.state().catalog().clusters();
        Self {
            places: clusters
                .map(|(name, spec)| (name, spec.region.clone(), spec.jurisdiction.clone()))
                .collect(),
            capacity: fleet::capacity_rows(world),
            waiting: fleet::waiting_offers(world),
            oldest: fleet::oldest_pending(world, now),
            starved: fleet::starved_queues(world),
            running: fleet::running_rows(world, now),
            recovery_open: world.state().recovery().is_some(),
        }
    }

    pub(super) fn show(&self, metrics: &Metrics) {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (fleet, workloads) = (&metrics.fleet, &metrics.workloads);
        for (cluster, ..) in &self.places {
            fleet.create_cluster(cluster.as_str());
            workloads.lapses.create([cluster.as_str()]);
            metrics.agents.requests_refused.create([cluster.as_str()]);
        }
        fleet.cluster_info.replace(
            self.places
                .iter()
                .map(|(name, region, area)| ([name.as_str(), region.as_str(), area.as_str()], 1)),
        );
        let states = |row: &CapacityRow| {
            [("total", row.total), ("free", row.free), ("held", row.held), ("granted", row.granted)]
        };
        fleet.capacity.replace(self.capacity.iter().flat_map(|row| {
            let labels = |state| [row.cluster.as_str(), &*row.flavor, &*row.resource, state];
            states(row).map(|(state, amount)| (labels(state), units(&row.resource, amount)))
        }));
        for (cluster, reason) in self.waiting.keys() {
            // The offer may be refused later for the reason that it waits for now, so that counter must
            // exist.
            fleet.provider_refusals.create([cluster.as_str(), reason.word()]);
        }
        let waiting = self.waiting.iter();
        fleet.offers_waiting.replace(
            waiting.map(|((cluster, reason), offers)| ([cluster.as_str(), reason.word()], whole(*offers))),
        );
        let violations = &self.running.violations;
        fleet.residency_violations.replace(violations.iter().map(|(name, n)| ([name.as_str()], whole(*n))));
        workloads
            .near_run_limit
            .replace(self.running.near_run_limit.iter().map(|(queue, n)| ([&**queue], whole(*n))));
        workloads.oldest_pending.replace(
            self.oldest.iter().map(|((queue, class), age)| ([&**queue, &**class], whole(age.0 / 1_000))),
        );
        workloads
            .starved_heads
            .replace(self.starved.iter().map(|(queue, starves)| ([&**queue], i64::from(*starves))));
        metrics.engine.recovery_open.set(i64::from(self.recovery_open));
    }
}
