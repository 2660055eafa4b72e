use crate::facts::reason::{NoQuota, Shortage, Why};
use meridian_queueing::cycle::{Entry as Looked, Outcome, Passed};
use meridian_queueing::model::{PodSet, QueueId, amount_of};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::reason::Reason;
use meridian_queueing::{Amount, Brain};
use meridian_topology::PODS;
use std::collections::BTreeSet;

/// What is short of the first flavor and resource that is, and which others are too.
fn shortage(
    brain: &Brain,
    queue: QueueId,
    asks: impl Fn(ResourceId) -> i64,
    short: &[(FlavorId, ResourceId, Amount)],
) -> Option<Shortage> {
    let (flavor, resource, _) = *short.first()?;
    // Of several pod sets the last one asks for what is left by those before it.
    let missing = short
        .iter()
        .filter(|(f, r, _)| (*f, *r) == (flavor, resource))
        .map(|(.., missing)| *missing)
        .max()?;
    let setup = &brain.queue(queue).setup;
    let asks = asks(resource);
    let nominal = setup.quota((flavor, resource)).nominal.0;
    let used = brain.used(queue, (flavor, resource));
    let also: BTreeSet<ResourceId> =
        short.iter().map(|(_, other, _)| *other).filter(|other| *other != resource).collect();
    // Where more is used than there is quota for, so much more has to come free.
    let free = asks.saturating_sub(missing.0).min(brain.balance(queue, (flavor, resource)));
    // Of what it doesn't use itself others may have borrowed some.
    let own = nominal.saturating_sub(used).min(free).max(0);
    let mut also: Vec<String> =
        also.into_iter().map(|other| brain.resource_name(other).to_string()).collect();
    also.sort_unstable();
    Some(Shortage {
        flavor: brain.flavor_name(flavor).to_string(),
        resource: brain.resource_name(resource).to_string(),
        asks,
        free,
        nominal,
        own,
        lent: nominal.saturating_sub(used).max(0) - own,
        cohort: setup.cohort.as_ref().map(ToString::to_string),
        no_victims: true,
        raise_to: brain.nominal_for(queue, (flavor, resource), asks),
        also,
    })
}

/// The first obstacle of a head that wasn't admitted.
pub(crate) fn why_not(brain: &Brain, entry: &Looked) -> Why {
    match entry.outcome {
        Outcome::Preempting | Outcome::Deferred | Outcome::Migrating => {
            return Why::Preempts { victims: entry.targets.len() };
        }
        Outcome::Skipped => return Why::Overtaken,
        Outcome::GivesWay => return Why::GivesWay,
        _ => {}
    }
    let resource_name = |r| brain.resource_name(r).to_string();
    let reasons = || entry.assignment.reasons().map(|(_, reason)| reason);
    // What no group gives isn't waited for, whatever else there is too little of, and was looked at before.
    let setup = &brain.queue(entry.queue).setup;
    let asked = entry.assignment.pod_sets.iter().flat_map(|set| &set.requests);
    let uncovered = asked
        .filter(|(resource, amount)| *amount > 0 && setup.group_of(*resource).is_none())
        .map(|(resource, _)| resource_name(*resource))
        .min();
    if let Some(resource) =
        uncovered.filter(|_| entry.assignment.mode() == meridian_queueing::flavors::Mode::NoFit)
    {
        return Why::Quota(NoQuota::NotCovered { resource });
    }
    // A flavor of which it asks for more than there ever is isn't waited for, whatever else of it is short.
    let hopeless: BTreeSet<FlavorId> = reasons()
        .filter_map(
            |reason| {
                if let Reason::ExceedsMax { flavor, .. } = reason { Some(*flavor) } else { None }
            },
        )
        .collect();
    let short = reasons().filter_map(|reason| match reason {
        Reason::Short { flavor, resource, missing } if !hopeless.contains(flavor) => {
            Some((*flavor, *resource, *missing))
        }
        _ => None,
    });
    let asks = |resource| {
        entry
            .assignment
            .pod_sets
            .iter()
            .flat_map(|set| &set.requests)
            .filter(|(r, _)| *r == resource)
            .map(|(_, a)| *a)
            .sum::<i64>()
    };
    if let Some(mut shortage) = shortage(brain, entry.queue, asks, &short.collect::<Vec<_>>()) {
        shortage.no_victims = !matches!(entry.outcome, Outcome::Preempting);
        return Why::Quota(NoQuota::Used(Box::new(shortage)));
    }
    let exceeds = reasons().find_map(|reason| match reason {
        Reason::ExceedsMax { flavor, resource, asks, most, .. } => Some(NoQuota::ExceedsQuota {
            flavor: brain.flavor_name(*flavor).to_string(),
            resource: resource_name(*resource),
            asks: *asks,
            nominal: most.0,
            raise_to: brain.nominal_for(entry.queue, (*flavor, *resource), *asks),
        }),
        _ => None,
    });
    if let Some(why) = exceeds {
        return Why::Quota(why);
    }
    Why::Quota(NoQuota::NoMatchingFlavor {
        why: reasons().map(|reason| reason.text(brain)).collect::<Vec<_>>().join("; "),
    })
}

/// The first obstacle of a head that was passed by.
pub(crate) fn why_passed(brain: &Brain, passed: &Passed) -> Option<Why> {
    let shape = brain.shape_of(brain.workload(passed.workload)?.shape);
    let pods = brain.resource_id(PODS);
    let asks = |resource| {
        let of = |(at, set): (usize, &PodSet)| {
            let count = i64::from(shape.count(at));
            let each = if pods == Some(resource) { 1 } else { amount_of(&set.per_pod, resource) };
            each.saturating_mul(count)
        };
        shape.pod_sets.iter().enumerate().map(of).sum()
    };
    let shortage = shortage(brain, passed.queue, asks, &passed.short)?;
    Some(Why::Quota(NoQuota::Used(Box::new(shortage))))
}
