//! Why a workload preempts nothing although it lacks quota or capacity, and which changes would allow a
//! preemption. Only changes that succeed in a trial are suggested.

use crate::asker::AskedWorld;
use crate::explain::case::{self, Case};
use crate::explain::rivals::Rivals;
use crate::explain::trial::{self, Changes};
use crate::explain::{cluster_remedy, remedy, words};
use meridian_manager_core::facts::reason::{NoQuota, Shortage};
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_objects::quantity;
use meridian_queueing::explain::{self, ForbiddenBorrowing, TrialChanges};
use meridian_queueing::model::{Inactive, PreemptionRule, QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::preemption::may_preempt;
use meridian_shared::ids::Uid;

/// Why nothing is preempted.
#[derive(Default)]
pub(crate) struct BlockingRun {
    /// Names the workload that holds all the missing quota, if it is a single one, and why it isn't
    /// preempted.
    pub(crate) message: String,
    /// Changes that are each enough by themselves.
    pub(crate) alone: Vec<String>,
}

/// Why one workload isn't preempted.
pub(crate) struct NotPreempted {
    pub(crate) message: String,
    /// A change after which it may be preempted.
    yields_to: Option<(String, Changes)>,
}

pub(crate) fn blocking_run(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    short: &Shortage,
    rivals: &Rivals,
) -> BlockingRun {
    if !short.no_victims {
        return BlockingRun::default();
    }
    let mut blocking = single_run(world, case, id, short, rivals).unwrap_or_default();
    // A rival would take the quota that is released.
    let no_rivals = rivals.in_same_queue == 0 && rivals.in_other_queues == 0;
    if let Some((message, raise)) = refused_for_borrowing(world, case, id) {
        if blocking.message.is_empty() {
            blocking.message = format!("; {message}");
        }
        blocking.alone.extend(no_rivals.then_some(raise));
    }
    if no_rivals
        && follows_priority(world, id)
        && let Some((above, victims)) = trial::sufficient_priority(world, case, id)
    {
        let preempts = trial::preempts_message(world, &victims);
        blocking.alone.push(format!(
            "submit the job again with a priority above {above} (enough by itself: {preempts})"
        ));
    }
    blocking
}

/// Whether a policy of the workload's queue depends on priorities.
fn follows_priority(world: &AskedWorld<'_>, id: WorkloadId) -> bool {
    let queues = world.mirror().queue_state();
    let Some(of) = queues.workload(id) else { return false };
    let policies = &queues.queue(of.queue).setup.preemption;
    let by_priority =
        |rule| matches!(rule, PreemptionRule::LowerPriority | PreemptionRule::LowerOrNewerEqualPriority);
    by_priority(policies.within_queue)
        || by_priority(policies.reclaim_within_cohort)
        || policies.borrow_within_cohort.is_some()
}

/// The single workload that holds all the missing quota, if there is one.
fn single_run(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    short: &Shortage,
    rivals: &Rivals,
) -> Option<BlockingRun> {
    let queues = world.mirror().queue_state();
    let mine = queues.workload(id)?;
    let (flavor, resource, asks) = case::key_of(queues, &NoQuota::Used(Box::new(short.clone())))?;
    if explain::needed(queues, id, (flavor, resource), |_| 0).len() > 1 {
        return None;
    }
    let other = explain::blocking_holder(queues, mine.queue, (flavor, resource), asks)?;
    let other = world.mirror().uid(other)?;
    let holder = world.state().workloads().get(&other)?;
    let NotPreempted { message, yields_to } = not_preempted(world, case, id, other, &[(flavor, resource)])?;
    let name = world.asker.workload(holder);
    let no_rivals = rivals.in_same_queue == 0 && rivals.in_other_queues == 0;
    let mut alone = Vec::new();
    if no_rivals && trial::starts(world, case, id, &Changes::end_of(other)) {
        alone.push(format!("wait until {name} ends (enough by itself)"));
    }
    if let Some((change, changes)) = yields_to.filter(|_| no_rivals)
        && let Some(victims) = trial::victims(world, case, id, &changes)
    {
        let preempts = trial::preempts_message(world, &victims);
        alone.push(format!("{change} (enough by itself: {preempts})"));
    }
    Some(BlockingRun { message: not_preempted_message(world, holder, &message), alone })
}

pub(crate) fn not_preempted_message(world: &AskedWorld<'_>, holder: &Workload, why: &str) -> String {
    let (name, priority) = (world.asker.workload(holder), holder.priority());
    format!("; preempting {name} (priority {priority}) would be enough, but {why}")
}

/// Why a holder of these flavors and resources isn't preempted. `None` if the queues share no cohort.
pub(crate) fn not_preempted(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    other: Uid,
    contested: &[(FlavorId, ResourceId)],
) -> Option<NotPreempted> {
    let queues = world.mirror().queue_state();
    let (mine, theirs) = (queues.workload(id)?, queues.workload(world.mirror().id(other)?)?);
    let holder = world.state().workloads().get(&other)?;
    let preemption = &queues.queue(mine.queue).setup.preemption;
    let same = theirs.queue == mine.queue;
    let (name, policy) = match same {
        true => ("withinClusterQueue", preemption.within_queue),
        false => ("reclaimWithinCohort", preemption.reclaim_within_cohort),
    };
    if queues.queue(mine.queue).tree != queues.queue(theirs.queue).tree {
        return None;
    }
    let setup = &queues.queue(theirs.queue).setup;
    let borrows = same || contested.iter().any(|key| queues.borrows(theirs.queue, *key));
    let allowed =
        may_preempt(policy, (case.workload.priority(), mine.since), (holder.priority(), theirs.since));
    let mut yields_to = None;
    let message = if holder.phase() == Phase::Stopping {
        "it is already stopping".to_owned()
    } else if !borrows {
        format!("no policy allows it: cluster queue `{}` uses only its own quota", setup.name)
    } else if !allowed {
        format!("`{name}: {}` forbids it", policy.word())
    } else if let Some(why) = &setup.inactive {
        yields_to = starting(world, theirs.queue);
        format!("cluster queue `{}` is inactive: {}", setup.name, words::inactive_message(why))
    } else if let Some((message, _)) = refused_for_borrowing(world, case, id).filter(|_| !same) {
        message
    } else if !world.live().reservations().may_preempt(case.uid, other) {
        "for 10 minutes a preempted workload can't preempt back, and no workload is preempted more than \
         twice by the same workload"
            .to_owned()
    } else if !case.fits_somewhere() && !cluster_remedy::leaves_capacity(world, case, other, holder) {
        yields_to = cluster_remedy::uncordoned(world, case)
            .map(|cluster| (format!("uncordon cluster `{cluster}`"), Changes::uncordon(cluster)));
        "no cluster would have room even then".to_owned()
    } else {
        "the usage or fair share of its queue doesn't allow it".to_owned()
    };
    Some(NotPreempted { message, yields_to })
}

/// The start of a stopped queue. `None` if that would release its other pending workloads too.
fn starting(world: &AskedWorld<'_>, queue: QueueId) -> Option<(String, Changes)> {
    let setup = &world.mirror().queue_state().queue(queue).setup;
    let mut classes = world.queues().waiting_classes();
    let releases_others =
        classes.any(|id| remedy::is_in_cluster_queue(world, world.queues().class(id), &setup.name));
    let quota = TrialChanges { started: Some(queue), ..TrialChanges::default() };
    (setup.inactive == Some(Inactive::Stopped) && !releases_others).then(|| {
        (
            format!("set the stopPolicy of cluster queue `{}` to `None`", setup.name),
            Changes { quota, ..Changes::default() },
        )
    })
}

/// If the queue may not reclaim from its cohort only because it would borrow: the quota that it would borrow,
/// and the nominal quotas with which it could reclaim.
pub(crate) fn refused_for_borrowing(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
) -> Option<(String, String)> {
    let queues = world.mirror().queue_state();
    let borrowed = explain::forbidden_borrowing(queues, id, &case.usage);
    let nominal: Vec<_> = borrowed.iter().map(|one| (one.key, one.asks)).collect();
    let quota = TrialChanges { nominal, ..TrialChanges::default() };
    let victims = (!borrowed.is_empty())
        .then(|| trial::victims(world, case, id, &Changes { quota, ..Changes::default() }))??;
    let shown = |one: &ForbiddenBorrowing| {
        let (flavor, resource) = (queues.flavor_name(one.key.0), queues.resource_name(one.key.1));
        let [more, asks, nominal] =
            [one.asks - one.nominal, one.asks, one.nominal].map(|n| quantity::format(resource, n));
        let borrows = format!(
            "{more} {resource} in flavor `{flavor}` (it would use {asks}, its nominal quota is {nominal})"
        );
        (borrows, format!("of `{resource}` in flavor `{flavor}` to {asks}"))
    };
    let (borrows, raises): (Vec<String>, Vec<String>) = borrowed.iter().map(shown).unzip();
    let message = format!(
        "{} would have to borrow {}, and with `borrowWithinCohort: Never` a borrowing queue can't preempt in \
         its cohort",
        remedy::queue_message(world, case),
        borrows.join(" and "),
    );
    let raise = format!(
        "raise the queue's nominal quota {} (enough by itself: {})",
        raises.join(", and "),
        trial::preempts_message(world, &victims)
    );
    Some((message, raise))
}
