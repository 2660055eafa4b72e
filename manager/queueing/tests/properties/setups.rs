//! Fleets for particular properties.

use super::fleet::Fleet;
use super::plan::{Cohort, FLAVORS, Limits, Plan, Queue, keyed};
use super::recount::Key;
use meridian_queueing::model::{ClusterQueuePreemption, FlavorFungibility, PreemptionRule};
use std::collections::BTreeMap;

impl Fleet {
    /// One cohort of queues with these quotas, which reclaim.
    pub(crate) fn flat(nominal: &[i64]) -> Self {
        let none = (0, None, None);
        let queue = |nominal: &i64| Queue {
            cohort: Some(0),
            quotas: keyed(&[(*nominal, None, None), none, (100, None, None), none]),
            strict: false,
            preemption: ClusterQueuePreemption {
                reclaim_within_cohort: PreemptionRule::Any,
                ..ClusterQueuePreemption::default()
            },
            fungibility: FlavorFungibility::default(),
            weight: 1,
        };
        let cohorts = vec![Cohort { parent: None, quotas: BTreeMap::new(), weight: 1 }];
        Self::new(
            &Plan {
                cohorts,
                queues: nominal.iter().map(queue).collect(),
                fair: false,
                brief: true,
                sticky: true,
            },
            false,
        )
    }

    /// Queues of one flavor which reclaim, in one cohort or in two nested ones.
    pub(crate) fn of_one_flavor(queues: &[(i64, PreemptionRule)], nested: bool) -> Self {
        let only = |quotas: BTreeMap<Key, Limits>| {
            quotas.into_iter().filter(|((flavor, _), _)| flavor == FLAVORS[0]).collect::<BTreeMap<_, _>>()
        };
        let none = (0, None, None);
        let queue = |(at, (nominal, within_queue)): (usize, &(i64, PreemptionRule))| Queue {
            cohort: Some(if nested { at % 2 } else { 0 }),
            quotas: only(keyed(&[(*nominal, None, None), none, (100, None, None), none])),
            strict: false,
            preemption: ClusterQueuePreemption {
                within_queue: *within_queue,
                reclaim_within_cohort: PreemptionRule::Any,
                ..ClusterQueuePreemption::default()
            },
            fungibility: FlavorFungibility::default(),
            weight: 1,
        };
        let cohorts = (0..2)
            .map(|at| Cohort { parent: (at > 0).then_some(0), quotas: BTreeMap::new(), weight: 1 })
            .collect();
        Self::new(
            &Plan {
                cohorts,
                queues: queues.iter().enumerate().map(queue).collect(),
                fair: false,
                brief: true,
                sticky: true,
            },
            false,
        )
    }

    /// One cohort (or a nested one) with all quota, and queues with weights only.
    pub(crate) fn saturated(weights: &[i64], nested: bool) -> Self {
        let none = keyed(&[(0, None, None); 4]);
        let all = keyed(&[(60, None, None), (0, None, None), (1_000, None, None), (0, None, None)]);
        let root = Cohort { parent: None, quotas: all, weight: 1 };
        let mut cohorts = vec![root];
        if nested {
            cohorts.push(Cohort { parent: Some(0), quotas: none.clone(), weight: 1 });
        }
        let queue = |weight: &i64| Queue {
            cohort: Some(cohorts.len() - 1),
            quotas: none.clone(),
            strict: false,
            preemption: ClusterQueuePreemption {
                reclaim_within_cohort: PreemptionRule::Any,
                ..ClusterQueuePreemption::default()
            },
            fungibility: FlavorFungibility::default(),
            weight: *weight,
        };
        let queues = weights.iter().map(queue).collect();
        Self::new(&Plan { cohorts, queues, fair: true, brief: true, sticky: true }, false)
    }

    /// One cohort with all quota, cohorts below it with weights only, and queues with weights only.
    pub(crate) fn siblings(cohorts: &[(i64, Vec<i64>)]) -> Self {
        let none = keyed(&[(0, None, None); 4]);
        let all = keyed(&[(120, None, None), (0, None, None), (2_000, None, None), (0, None, None)]);
        let root = Cohort { parent: None, quotas: all, weight: 1 };
        let below = cohorts.iter().map(|(weight, _)| Cohort {
            parent: Some(0),
            quotas: none.clone(),
            weight: *weight,
        });
        let of = |(at, (_, weights)): (usize, &(i64, Vec<i64>))| {
            weights.iter().map(move |weight| (at + 1, *weight)).collect::<Vec<_>>()
        };
        let queue = |(cohort, weight): (usize, i64)| Queue {
            cohort: Some(cohort),
            quotas: none.clone(),
            strict: false,
            preemption: ClusterQueuePreemption {
                reclaim_within_cohort: PreemptionRule::Any,
                ..ClusterQueuePreemption::default()
            },
            fungibility: FlavorFungibility::default(),
            weight,
        };
        let queues = cohorts.iter().enumerate().flat_map(of).map(queue).collect();
        Self::new(
            &Plan {
                cohorts: [root].into_iter().chain(below).collect(),
                queues,
                fair: true,
                brief: true,
                sticky: true,
            },
            false,
        )
    }
}
