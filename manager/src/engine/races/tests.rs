//! Counting of races.

use super::*;
use crate::metrics::Metrics;
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
    let text = "busy".to_owned();
    let reason = meridian_shared::protocol::RefuseReason::NoCapacity;
    races.observe(uid, &WorkloadFact::Refused { offer: offers[2], reason, text }, at(2));
    let fence = Fence { epoch: 1, leadership: 1, counter: 1 };
    races.observe(uid, &WorkloadFact::Granted { offer: offers[0], fence, at: Wall(0) }, at(3));
    races.observe(uid, &WorkloadFact::Withdrawn { offer: offers[1] }, at(4));
    let text = metrics.render(&[]);
    for line in [
        r#"meridian_offers_total{cluster="eu",outcome="won"} 1"#,
        r#"meridian_offers_total{cluster="us",outcome="withdrawn"} 1"#,
        r#"meridian_offers_total{cluster="asia",outcome="refused"} 1"#,
        r#"meridian_held_twice_accelerator_seconds_total{cluster="us"} 12"#,
        r#"meridian_race_seconds_sum{cluster="eu"} 3"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(races.open.is_empty());
}
