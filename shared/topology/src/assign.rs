//! Assignment of pod sets, group by group: from scratch, after a change of the pod count, or after the loss
//! of a node.

mod elastic;
mod group;
mod replacement;

use crate::assignment::PodSetResult;
use crate::placement;
use crate::request::{Options, PodSetRequest};
use crate::topology::Topology;
use crate::usage::{Assumed, Taken};
use group::{Roles, groups, roles};

impl Topology {
    /// Places the pod sets of `requests` together. The results are in the order of the requests.
    pub fn assign(&self, requests: &[PodSetRequest], options: Options<'_>) -> Vec<PodSetResult> {
        self.assign_with_assumed(requests, options, &mut Assumed::default())
    }

    /// Like [`Self::assign`], beside `assumed`: capacity that earlier calls for other flavors of the same
    /// workload took. Adds the new assignments to `assumed`.
    pub fn assign_with_assumed(
        &self,
        requests: &[PodSetRequest],
        options: Options<'_>,
        assumed: &mut Assumed,
    ) -> Vec<PodSetResult> {
        let shared = (self.is_by_host() && self.flavor().profile.overlapping_flavors).then_some(assumed);
        let mut taken = Taken::new(self.tree(), self.resources(), shared);
        let mut results: Vec<PodSetResult> = vec![None; requests.len()];
        for group in groups(requests) {
            let whole = match options.lost {
                Some(lost) if !lost.nodes.is_empty() => {
                    replacement::assign_group(self, requests, &group, &lost, &mut taken, &mut results)
                }
                _ => self.assign_group(requests, &group, options, &mut taken, &mut results),
            };
            if !whole {
                break;
            }
        }
        results
    }

    /// Places one group. Returns whether it fits.
    fn assign_group(
        &self,
        requests: &[PodSetRequest],
        group: &[usize],
        options: Options<'_>,
        taken: &mut Taken<'_>,
        results: &mut [PodSetResult],
    ) -> bool {
        let Some(roles) = roles(requests, group) else { return true };
        let Roles { workers, leader } = roles;
        if self.flavor().profile.elastic
            && let Some(whole) = elastic::assign_group(self, requests, roles, options, taken, results)
        {
            return whole;
        }
        let search = placement::Query {
            workers: &requests[workers],
            leader: leader.map(|leader| &requests[leader]),
            simulate_empty: options.simulate_empty,
            within: None,
        };
        match placement::find(self, &search, taken) {
            Err(error) => {
                for member in group {
                    results[*member] = Some(Err(error.clone()));
                }
                false
            }
            Ok(found) => {
                taken.add(&found.workers, &requests[workers].per_pod);
                results[workers] = Some(Ok(found.workers));
                if let (Some(leader), Some(assignment)) = (leader, found.leader) {
                    taken.add(&assignment, &requests[leader].per_pod);
                    results[leader] = Some(Ok(assignment));
                }
                true
            }
        }
    }
}
