//! Metrics of races: a workload is offered to several clusters, one wins, and the others held capacity in
//! vain.

use crate::metrics::fleet::FleetMetrics;
use meridian_manager_core::World;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, OfferId, Uid};
use meridian_shared::protocol::RefuseReason;
use meridian_shared::provider_reason::ProviderReason;
use meridian_telemetry::trace::Trace;
use std::collections::BTreeMap;
use std::time::Instant;

/// Most workloads whose open offers are followed. Offers of further workloads aren't counted.
const RACES_MAX: usize = 65_536;

/// Open offers of all workloads, as committed.
#[derive(Debug)]
pub(super) struct Races {
    metrics: FleetMetrics,
    open: BTreeMap<Uid, Race>,
}

#[derive(Debug)]
struct Race {
    /// `None` if the race began before this process followed it.
    began: Option<Instant>,
    offers: BTreeMap<OfferId, OpenOffer>,
}

#[derive(Debug)]
struct OpenOffer {
    cluster: ClusterName,
    accelerators: f64,
    /// When the cluster began to hold capacity.
    held: Option<Instant>,
}

/// Number of accelerators that a gang requests: devices have a resource name with a domain.
pub(super) fn accelerators(gang: &Gang) -> f64 {
    let amounts = gang.total().into_iter().filter(|(resource, _)| resource.contains('/'));
    amounts.map(|(_, amount)| u32::try_from(amount).map_or(0.0, f64::from)).sum()
}

impl Races {
    pub(super) fn new(metrics: FleetMetrics) -> Self {
        Self { metrics, open: BTreeMap::new() }
    }

    /// Takes the open offers from the world, after it was read again. Their times are unknown.
    pub(super) fn reset(&mut self, world: &World) {
        self.open.clear();
        for (uid, workload) in world.state().workloads().iter() {
            for (offer, leg) in workload.legs().iter().filter(|(_, leg)| leg.state().open()) {
                let offer_of = OpenOffer { cluster: leg.cluster().clone(), accelerators: 0.0, held: None };
                self.add(*uid, *offer, offer_of, None);
            }
        }
    }

    fn add(&mut self, uid: Uid, offer: OfferId, open: OpenOffer, now: Option<Instant>) {
        if self.open.len() < RACES_MAX || self.open.contains_key(&uid) {
            let race = self.open.entry(uid).or_insert(Race { began: now, offers: BTreeMap::new() });
            race.offers.insert(offer, open);
        }
    }

    pub(super) fn offered(
        &mut self,
        (uid, offer): (Uid, OfferId),
        cluster: &ClusterName,
        accelerators: f64,
        now: Instant,
    ) {
        let open = OpenOffer { cluster: cluster.clone(), accelerators, held: None };
        self.add(uid, offer, open, Some(now));
    }

    /// Follows an offer after it was made.
    pub(super) fn observe(&mut self, uid: Uid, fact: &WorkloadFact, now: Instant) {
        match fact {
            WorkloadFact::Held { offer } => {
                if let Some(open) = self.open.get_mut(&uid).and_then(|race| race.offers.get_mut(offer)) {
                    open.held = Some(now);
                }
            }
            WorkloadFact::Granted { offer, .. } => self.won(uid, *offer, now),
            WorkloadFact::Refused { offer, reason, text } => {
                if *reason == RefuseReason::ProviderFailed {
                    self.count_provider_refusal(uid, *offer, text);
                }
                self.lost(uid, *offer, "refused", now);
            }
            WorkloadFact::HoldExpired { offer } => self.lost(uid, *offer, "expired", now),
            WorkloadFact::Withdrawn { offer } => self.lost(uid, *offer, "withdrawn", now),
            WorkloadFact::Forgotten => drop(self.open.remove(&uid)),
            _ => {}
        }
    }

    fn count_provider_refusal(&self, uid: Uid, offer: OfferId, text: &str) {
        if let Some(open) = self.open.get(&uid).and_then(|race| race.offers.get(&offer)) {
            let reason = ProviderReason::in_text(text);
            self.metrics.provider_refusals.inc([open.cluster.as_str(), reason.word()]);
        }
    }

    fn take(&mut self, uid: Uid, offer: OfferId) -> Option<(OpenOffer, Option<Instant>)> {
        let race = self.open.get_mut(&uid)?;
        let (open, began) = (race.offers.remove(&offer)?, race.began);
        if race.offers.is_empty() {
            self.open.remove(&uid);
        }
        Some((open, began))
    }

    fn won(&mut self, uid: Uid, offer: OfferId, now: Instant) {
        let Some((open, began)) = self.take(uid, offer) else { return };
        let cluster = open.cluster.as_str();
        self.metrics.offers.inc([cluster, "won"]);
        if let Some(began) = began {
            let trace = Trace::of_workload(uid);
            self.metrics.race_seconds.observe_traced([cluster], now.duration_since(began), trace);
        }
    }

    fn lost(&mut self, uid: Uid, offer: OfferId, outcome: &str, now: Instant) {
        let Some((open, _)) = self.take(uid, offer) else { return };
        let cluster = open.cluster.as_str();
        self.metrics.offers.inc([cluster, outcome]);
        if let Some(held) = open.held {
            let seconds = now.duration_since(held).as_secs_f64();
            self.metrics.held_twice.add([cluster], open.accelerators * seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Metrics, Named as _};
    use meridian_shared::ids::Fence;
    use meridian_shared::time::Wall;
    use std::time::Duration;

    #[test]
    fn a_race_counts_its_winner_its_wait_and_what_was_held_in_vain() {
        let metrics = Metrics::new("1");
        let mut races = Races::new(metrics.fleet.clone());
        let (begin, uid) = (Instant::now(), Uid(1));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let clusters = ["eu", "us", "asia"].map(ClusterName::new);
        let offers = [1, 2, 3].map(|counter| OfferId { epoch: 1, leadership: 1, counter });
        for (cluster, offer) in clusters.iter().zip(offers) {
            races.offered((uid, offer), cluster, 4.0, at(0));
        }
        races.observe(uid, &WorkloadFact::Held { offer: offers[1] }, at(1));
        races.observe(uid, &WorkloadFact::Held { offer: offers[0] }, at(2));
        let (reason, text) = (RefuseReason::NoCapacity, "busy".to_owned());
        races.observe(uid, &WorkloadFact::Refused { offer: offers[2], reason, text }, at(2));
        let fence = Fence { epoch: 1, leadership: 1, counter: 1 };
        races.observe(uid, &WorkloadFact::Granted { offer: offers[0], fence, at: Wall(0) }, at(3));
        races.observe(uid, &WorkloadFact::Withdrawn { offer: offers[1] }, at(4));
        let text = metrics.render(&[]);
        let fleet = &metrics.fleet;
        for (name, labels) in [
            (fleet.offers.name(), r#"{cluster="eu",outcome="won"} 1"#),
            (fleet.offers.name(), r#"{cluster="us",outcome="withdrawn"} 1"#),
            (fleet.offers.name(), r#"{cluster="asia",outcome="refused"} 1"#),
            (fleet.held_twice.name(), r#"{cluster="us"} 12"#),
        ] {
            let line = format!("{name}{labels}");
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(races.open.is_empty());
    }

    #[test]
    fn a_providers_refusal_counts_by_its_documented_reason() {
        let metrics = Metrics::new("1");
        let mut races = Races::new(metrics.fleet.clone());
        let (now, eu) = (Instant::now(), ClusterName::new("eu"));
        let refusals = [
            (RefuseReason::ProviderFailed, "ResourcePoolExhausted: no T4 in europe-west4"),
            (RefuseReason::ProviderFailed, "ResourcePoolExhausted: no H100 in europe-west4 (attempt 4)"),
            (RefuseReason::ProviderFailed, "a\"b{c}: words of the provider's own"),
            (RefuseReason::NoCapacity, "QuotaExceeded isn't the provider's word here"),
        ];
        for (counter, (reason, text)) in (1..).zip(refusals) {
            let (uid, offer) = (Uid(counter.into()), OfferId { epoch: 1, leadership: 1, counter });
            races.offered((uid, offer), &eu, 4.0, now);
            races.observe(uid, &WorkloadFact::Refused { offer, reason, text: text.to_owned() }, now);
        }
        let name = metrics.fleet.provider_refusals.name();
        let text = metrics.render(std::slice::from_ref(&name));
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        let expected =
            [r#"{cluster="eu",reason="Other"} 1"#, r#"{cluster="eu",reason="ResourcePoolExhausted"} 2"#];
        assert_eq!(lines, expected.map(|labels| format!("{name}{labels}")));
    }
}
