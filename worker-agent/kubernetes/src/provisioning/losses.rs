//! Provisioned nodes that are lost while their gang runs. Pure.
//!
//! Such nodes are made together, and a provider doesn't replace a single one. So the attempt ends, and the
//! manager starts the gang again in the cluster that makes nodes next.

use crate::facts::RequestFacts;
use meridian_agent_core::runtime::ProviderEvent;
use meridian_shared::ids::OfferId;
use std::collections::{BTreeMap, BTreeSet};

/// Reports each offer whose nodes are lost, once. `loss` says what happened to a node.
pub(super) fn report<'r>(
    claims: &BTreeMap<String, OfferId>,
    reported: &mut BTreeSet<OfferId>,
    requests: impl Iterator<Item = &'r RequestFacts>,
    loss: impl Fn(&str) -> Option<String>,
) -> Vec<ProviderEvent> {
    let claimed: BTreeSet<OfferId> = claims.values().copied().collect();
    reported.retain(|offer| claimed.contains(offer));
    let mut lost: BTreeMap<OfferId, String> = BTreeMap::new();
    for request in requests {
        let Some(offer) = request.offer.filter(|offer| claimed.contains(offer)) else { continue };
        if let Some(revoked) = request.holds("CapacityRevoked") {
            lost.insert(offer, format!("the nodes were taken back: {}", revoked.words()));
        }
    }
    for (node, offer) in claims {
        if !lost.contains_key(offer)
            && let Some(what) = loss(node)
        {
            lost.insert(*offer, format!("provisioned node `{node}` {what}"));
        }
    }
    lost.retain(|offer, _| reported.insert(*offer));
    lost.into_iter().map(|(offer, reason)| ProviderEvent::Revoked { offer, reason }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Condition;

    fn offer(counter: u64) -> OfferId {
        OfferId { epoch: 1, leadership: 2, counter }
    }

    #[test]
    fn the_loss_of_a_node_and_of_the_capacity_is_reported_once() {
        let claims = BTreeMap::from(
            [("n1", 1), ("n2", 1), ("n3", 2), ("n4", 3)].map(|(n, o)| (n.to_owned(), offer(o))),
        );
        let holds = |kind: &str, holds: bool| {
            let condition = Condition { holds, message: "maxRunDuration".to_owned(), ..Condition::default() };
            BTreeMap::from([(kind.to_owned(), condition)])
        };
        let request = |number, conditions| RequestFacts {
            offer: Some(offer(number)),
            conditions,
            ..RequestFacts::default()
        };
        let requests = [
            request(1, holds("CapacityRevoked", false)),
            request(2, holds("CapacityRevoked", true)),
            // the time to start on the nodes is over, but a gang runs there, so they stay
            request(3, holds("BookingExpired", true)),
            request(9, holds("CapacityRevoked", true)),
        ];
        let mut reported = BTreeSet::new();
        let mut look = |lost: &[&str]| {
            let loss = |node: &str| lost.contains(&node).then(|| "is gone".to_owned());
            let events = report(&claims, &mut reported, requests.iter(), loss);
            let report_of = |event| match event {
                ProviderEvent::Revoked { offer, reason } => (offer.counter, reason),
                other => panic!("{other:?}"),
            };
            events.into_iter().map(report_of).collect::<Vec<_>>()
        };
        assert_eq!(look(&[]), [(2, "the nodes were taken back: maxRunDuration".to_owned())]);
        assert_eq!(look(&["n2"]), [(1, "provisioned node `n2` is gone".to_owned())]);
        assert_eq!(look(&["n1", "n2", "n3"]), []);
    }
}
