//! Metrics of clusters: their places, their capacity, and the results of races between them.

use super::buckets::race_buckets;
use super::handles::{Amounts, Counters, Gauges, Histograms, Sums};
use super::registrar::{Registrar, metric_group};

metric_group! {
    /// Clusters, their capacity, and the races between them.
    pub struct FleetMetrics {
        cluster_info: Gauges<3> = gauges(
            "meridian_cluster_info", "constant 1, labelled with the place of the cluster",
            &["cluster", "region", "jurisdiction"],
        );
        capacity: Amounts<4> = amounts(
            "meridian_cluster_capacity",
            "amounts of a cluster by flavor: total and free as its agent reports, held for offers, granted",
            &["cluster", "flavor", "resource", "state"],
        );
        offers: Counters<2> = counters(
            "meridian_offers_total",
            "ended offers by outcome: won, withdrawn, refused or expired", &["cluster", "outcome"],
        );
        offers_waiting: Gauges<2> = gauges(
            "meridian_offers_waiting",
            "offers that wait for nodes now, by the reason that the cluster's provider gives",
            &["cluster", "reason"],
        );
        provider_refusals: Counters<2> = counters(
            "meridian_provider_refusals_total",
            "offers for which the cluster's provider made no nodes, by its reason", &["cluster", "reason"],
        );
        race_seconds: Histograms<1> = histograms(
            "meridian_race_seconds",
            "time from the first offer of a workload until the cluster won it", &["cluster"],
            race_buckets(),
        );
        held_twice: Sums<1> = sums(
            "meridian_held_twice_accelerator_seconds_total",
            "accelerator-seconds that the cluster held for offers that it didn't win", &["cluster"],
        );
        sessions: Counters<1> = counters(
            "meridian_agent_sessions_total",
            "sessions that the cluster's agent opened: starts and reconnects",
            &["cluster"],
        );
        residency_violations: Gauges<1> = gauges(
            "meridian_residency_violations",
            "workloads that run in the cluster although a residency policy forbids it now", &["cluster"],
        );
    }
}

impl FleetMetrics {
    /// Creates the counters of a cluster with the value 0, so that queries see the first event as an
    /// increase.
    pub fn create_cluster(&self, cluster: &str) {
        self.sessions.create([cluster]);
        self.held_twice.create([cluster]);
        for outcome in ["won", "withdrawn", "refused", "expired"] {
            self.offers.create([cluster, outcome]);
        }
    }

    /// Removes the counters of a deleted cluster.
    pub fn forget_cluster(&self, cluster: &str) {
        let selected = [("cluster", cluster)];
        self.sessions.forget(&selected);
        self.held_twice.forget(&selected);
        self.offers.forget(&selected);
        self.provider_refusals.forget(&selected);
        self.race_seconds.forget(&selected);
    }
}
