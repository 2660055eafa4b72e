//! Turns results of the queue state into pending reasons.

use crate::facts::reason::{NoQuota, Shortage, Why};
use meridian_queueing::cycle::{CycleEntry, EntryOutcome, SkippedHead};
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::{PodSet, QueueId, Reason, amount_of};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::{Amount, QueueState};
use meridian_topology::PODS;
use std::collections::BTreeSet;

/// Describes the shortage of the first flavor and resource in `short`, and names the other resources that are
/// short.
fn shortage(
    state: &QueueState,
    queue: QueueId,
    requested: impl Fn(ResourceId) -> i64,
    short: &[(FlavorId, ResourceId, Amount)],
) -> Option<Shortage> {
    let (flavor, resource, _) = *short.first()?;
    // Pod sets are assigned one after the other, so the last one misses the most.
    let missing = short
        .iter()
        .filter(|(f, r, _)| (*f, *r) == (flavor, resource))
        .map(|(.., missing)| *missing)
        .max()?;
    let setup = &state.queue(queue).setup;
    let asks = requested(resource);
    let nominal = setup.quota((flavor, resource)).nominal.0;
    let used = state.used(queue, (flavor, resource));
    let also: BTreeSet<ResourceId> =
        short.iter().map(|(_, other, _)| *other).filter(|other| *other != resource).collect();
    // The balance is negative if usage exceeds quota: that much more must be released.
    let free = asks.saturating_sub(missing.0).min(state.balance(queue, (flavor, resource)));
    // Other queues of the cohort may have borrowed part of the unused quota.
    let own = nominal.saturating_sub(used).min(free).max(0);
    let mut also: Vec<String> =
        also.into_iter().map(|other| state.resource_name(other).to_string()).collect();
    also.sort_unstable();
    Some(Shortage {
        flavor: state.flavor_name(flavor).to_string(),
        resource: state.resource_name(resource).to_string(),
        asks,
        free,
        nominal,
        own,
        lent: nominal.saturating_sub(used).max(0) - own,
        cohort: setup.cohort.as_ref().map(ToString::to_string),
        no_victims: true,
        raise_to: state.nominal_for(queue, (flavor, resource), asks),
        also,
    })
}

/// The first obstacle of a head that wasn't admitted.
pub fn why_not(state: &QueueState, entry: &CycleEntry) -> Why {
    match entry.outcome {
        EntryOutcome::Preempting | EntryOutcome::Deferred | EntryOutcome::Migrating => {
            return Why::Preempts { victims: entry.targets.len() };
        }
        EntryOutcome::Skipped => return Why::Overtaken,
        EntryOutcome::Yields => return Why::ReservedForStarved,
        _ => {}
    }
    let resource_name = |r| state.resource_name(r).to_string();
    let reasons = || entry.assignment.reasons().map(|(_, reason)| reason);
    // A resource that no resource group covers never becomes available, so it is reported before any
    // shortage.
    let setup = &state.queue(entry.queue).setup;
    let requests = entry.assignment.pod_sets.iter().flat_map(|set| &set.requests);
    let uncovered = requests
        .filter(|(resource, amount)| *amount > 0 && setup.group_of(*resource).is_none())
        .map(|(resource, _)| resource_name(*resource))
        .min();
    if let Some(resource) = uncovered.filter(|_| entry.assignment.mode() == Mode::NoFit) {
        return Why::Quota(NoQuota::NotCovered { resource });
    }
    // If the workload requests more of a flavor than its maximum, other shortages of that flavor don't
    // matter.
    let exceeded: BTreeSet<FlavorId> = reasons()
        .filter_map(
            |reason| {
                if let Reason::ExceedsMax { flavor, .. } = reason { Some(*flavor) } else { None }
            },
        )
        .collect();
    let short = reasons().filter_map(|reason| match reason {
        Reason::Short { flavor, resource, missing } if !exceeded.contains(flavor) => {
            Some((*flavor, *resource, *missing))
        }
        _ => None,
    });
    let requested = |resource| {
        entry
            .assignment
            .pod_sets
            .iter()
            .flat_map(|set| &set.requests)
            .filter(|(r, _)| *r == resource)
            .map(|(_, a)| *a)
            .sum::<i64>()
    };
    if let Some(mut shortage) = shortage(state, entry.queue, requested, &short.collect::<Vec<_>>()) {
        shortage.no_victims = !matches!(entry.outcome, EntryOutcome::Preempting);
        return Why::Quota(NoQuota::Used(Box::new(shortage)));
    }
    let exceeds = reasons().find_map(|reason| match reason {
        Reason::ExceedsMax { flavor, resource, asks, most, .. } => Some(NoQuota::ExceedsQuota {
            flavor: state.flavor_name(*flavor).to_string(),
            resource: resource_name(*resource),
            asks: *asks,
            nominal: most.0,
            raise_to: state.nominal_for(entry.queue, (*flavor, *resource), *asks),
        }),
        _ => None,
    });
    if let Some(why) = exceeds {
        return Why::Quota(why);
    }
    Why::Quota(NoQuota::NoMatchingFlavor {
        why: reasons().map(|reason| reason.text(state.catalog())).collect::<Vec<_>>().join("; "),
    })
}

/// The obstacle of a head that was skipped because its shortage is unchanged.
pub(crate) fn why_skipped(state: &QueueState, skipped: &SkippedHead) -> Option<Why> {
    let shape = state.shape_of(state.workload(skipped.workload)?.shape);
    let pods = state.resource_id(PODS);
    let requested = |resource| {
        let of = |(at, set): (usize, &PodSet)| {
            let count = i64::from(shape.count(at));
            let each = if pods == Some(resource) { 1 } else { amount_of(&set.per_pod, resource) };
            each.saturating_mul(count)
        };
        shape.pod_sets.iter().enumerate().map(of).sum()
    };
    let shortage = shortage(state, skipped.queue, requested, &skipped.short)?;
    Some(Why::Quota(NoQuota::Used(Box::new(shortage))))
}
