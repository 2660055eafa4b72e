//! Why a running elastic workload isn't scaled up yet.

use crate::asker::{self, AskedWorld, Asker};
use crate::explain::words::{self, Wording};
use crate::explain::{case, cluster_remedy, obstacle};
use meridian_manager_core::capacity::topology::{self, Gone};
use meridian_manager_core::dispatch::{scale_up, why_not};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::reason::{NoQuota, Why};
use meridian_manager_core::facts::submission::Class;
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::state::workload::size::StartedScaleUp;
use meridian_manager_core::world::{World, gangs};
use meridian_queueing::explain;
use meridian_queueing::flavors::Mode;
use meridian_queueing::pending::HeadBlocks;
use meridian_shared::counted::counted;
use meridian_shared::ids::Uid;
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::Mono;
use std::sync::Arc;

/// A pending scale-up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScaleUp {
    /// The pending step as text, with its reason if no [`Why`] describes it.
    pending: String,
    why: Option<Why>,
    /// The head of its cluster queue, if the head blocks the scale-up.
    behind: Option<Behind>,
    /// Obstacle in the gang's cluster once there is quota.
    then: Option<Why>,
}

/// The head of a cluster queue that blocks the entries behind it.
#[derive(Clone, Debug, PartialEq)]
struct Behind {
    queue: Arc<str>,
    head: Key,
    blocks: HeadBlocks,
}

impl ScaleUp {
    fn of(pending: String) -> Self {
        Self { pending, why: None, behind: None, then: None }
    }

    pub(crate) fn message(&self, asker: &Asker) -> String {
        let Self { pending, why, behind, then } = self;
        let blocked = behind
            .as_ref()
            .map(|behind| obstacle::blocked_message(&behind.queue, &asker.job(&behind.head), behind.blocks));
        let first: Vec<String> = why.iter().map(|why| why.message(asker)).chain(blocked).collect();
        let why = if first.is_empty() { String::new() } else { format!(": {}", first.join("; and ")) };
        let then = then.as_ref().map(|then| format!("; and then, in its cluster: {}", then.message(asker)));
        format!("{pending}{why}{}", then.unwrap_or_default())
    }
}

/// The pending scale-up of a workload, including any obstacle in the cluster once there is quota. `None` if
/// none is requested, or if the gang is being stopped.
pub(crate) fn scale_up(world: &World, uid: Uid, workload: &Workload, now: Mono) -> Option<ScaleUp> {
    if workload.phase() == Phase::Stopping {
        return None;
    }
    let class = world.queues().class(workload.class());
    if let Some(StartedScaleUp { runs, .. }) = workload.started_scale_up() {
        return Some(ScaleUp::of(format!("scaling up to {}", counted(runs.iter().sum::<u32>(), "pod"))));
    }
    let requested: u32 = workload.requested_counts(class).iter().sum();
    let resized = workload
        .resized()
        .filter(|resized| resized.wants.is_some() && requested > resized.runs.iter().sum())?;
    let pending = format!(
        "scale-up from {} to {} is pending",
        resized.runs.iter().sum::<u32>(),
        counted(requested, "pod")
    );
    if workload.pods_too_many(class) > 0 {
        return Some(ScaleUp::of(format!("{pending}: its surplus pods have to end first")));
    }
    if workload.phase() != Phase::Running {
        return Some(ScaleUp::of(format!("{pending}: its current pods have to start first")));
    }
    let recovers = world.state().recovery().is_some() || world.held_back(workload, now);
    let before = recovers.then_some(Why::RecoveryOpen).or_else(|| world.rules_doubt());
    let missing_capacity =
        || scale_up::check_scale_up(world, uid, &*gangs::scale_up_gang(world, uid)?, now).err();
    let reason = || {
        world
            .live()
            .scale_up_reasons()
            .get(uid)
            .map(|why| beyond_quota(world, uid, class, why).unwrap_or_else(|| why.clone()))
    };
    if let Some(why) = before {
        return Some(ScaleUp { why: Some(why), ..ScaleUp::of(pending) });
    }
    // A blocked entry isn't evaluated, nor is an entry without quota when its cluster reconnects. So compute
    // their reasons now.
    let behind = behind(world, uid);
    let is_over = |why: &Why| is_awaited(why) && missing_capacity().as_ref() != Some(why);
    let why = match &behind {
        Some(_) => reason_now(world, uid, class),
        None => reason().filter(|why| !is_over(why)).or_else(|| reason_now(world, uid, class)),
    };
    Some(match why {
        // Quota alone may not be enough.
        Some(why @ Why::Quota(_)) => {
            ScaleUp { why: Some(why), behind, then: missing_capacity(), ..ScaleUp::of(pending) }
        }
        why @ Some(_) => ScaleUp { why, behind, ..ScaleUp::of(pending) },
        None if behind.is_some() => ScaleUp { behind, then: missing_capacity(), ..ScaleUp::of(pending) },
        None => ScaleUp::of(format!("{pending}: waiting for its evaluation")),
    })
}

/// Whether the reason ends by itself, without a change of quota or capacity.
fn is_awaited(why: &Why) -> bool {
    matches!(why, Why::NotConnected | Why::NoReport | Why::Recovering | Why::NotAdmitted | Why::RecoveryOpen)
}

/// The head that blocks the entry of a scale-up, if one does.
fn behind(world: &World, uid: Uid) -> Option<Behind> {
    let (queues, id) = (world.mirror().queue_state(), world.mirror().scale_up(uid)?);
    let (head, blocks) = queues.waits_behind(id).filter(|(_, blocks)| *blocks != HeadBlocks::Evaluating)?;
    let queue = queues.queue(queues.workload(id)?.queue).setup.name.clone();
    let workload = world.mirror().uid(head).and_then(|uid| world.state().workloads().get(&uid))?;
    Some(Behind { queue, head: asker::job_key(workload), blocks })
}

/// The reason that an evaluation would find now. `None` if it would find quota, or if there is no entry to
/// evaluate.
fn reason_now(world: &World, uid: Uid, class: &Class) -> Option<Why> {
    let Some(id) = world.mirror().scale_up(uid) else {
        return world.state().catalog().route(&class.namespace, &class.queue).err().map(Why::Route);
    };
    let (copy, entry) = explain::preview(world.mirror().queue_state(), id);
    let why = (entry.assignment.mode() != Mode::Fit).then(|| why_not::why_not(&copy, &entry))?;
    let why = match why {
        Why::Quota(quota) => Why::Quota(words::without_preemption(&quota)),
        other => other,
    };
    Some(beyond_quota(world, uid, class, &why).unwrap_or(why))
}

/// The reason and the remedy of a pending scale-up. `None` if none is requested.
pub(crate) fn scale_up_message(
    world: &AskedWorld<'_>,
    uid: Uid,
    workload: &Workload,
    now: Mono,
) -> Option<(String, String)> {
    let scale_up = scale_up(world, uid, workload, now)?;
    let remedy =
        |why: &Why| too_small_remedy(world, workload, why).unwrap_or_else(|| why.remedy(world.asker));
    let remedy = match (&scale_up.why, &scale_up.then) {
        (None, None) => String::new(),
        (None, Some(then)) => remedy(then),
        (Some(why @ Why::Quota(_)), Some(then)) => {
            format!("first: {}; then: {}", why.remedy(world.asker), remedy(then))
        }
        (Some(why @ Why::Quota(_)), None) => why.remedy(world.asker),
        (Some(why), _) => remedy(why),
    };
    let remedy = match &scale_up.behind {
        None => remedy,
        Some(Behind { head, .. }) => {
            let head = format!("wait until {} starts, or delete it", world.asker.job(head));
            if remedy.is_empty() { head } else { format!("{head}; and {remedy}") }
        }
    };
    Some((scale_up.message(world.asker), remedy))
}

/// The reason if the whole gang, scaled up, needs more than its queue can ever use, so that waiting for other
/// workloads to end wouldn't help.
fn beyond_quota(world: &World, uid: Uid, class: &Class, why: &Why) -> Option<Why> {
    let Why::Quota(quota @ NoQuota::Used(short)) = why else { return None };
    let queues = world.mirror().queue_state();
    let queue = queues.workload(world.mirror().scale_up(uid)?)?.queue;
    let (flavor, resource, more) = case::key_of(queues, quota)?;
    let requested = world.state().workloads().get(&uid)?.requested_counts(class);
    let asks = class.gang.with_counts(&requested).total().get(&short.resource).copied().unwrap_or(0);
    let nominal = queues.potential(queue, (flavor, resource));
    // The nominal quota has to cover the additional pods on top of what is used now.
    let raise_to = queues.nominal_for(queue, (flavor, resource), more);
    let exceeds = NoQuota::ExceedsQuota {
        flavor: short.flavor.clone(),
        resource: short.resource.clone(),
        asks,
        nominal,
        raise_to,
    };
    (asks > nominal).then_some(Why::Quota(exceeds))
}

/// The remedy if the scaled-up gang would not fit even into the empty cluster.
fn too_small_remedy(world: &AskedWorld<'_>, workload: &Workload, why: &Why) -> Option<String> {
    let (Why::NoCapacity(_) | Why::Refused { reason: RefuseReason::NoCapacity, .. }) = why else {
        return None;
    };
    let cluster = workload.right()?.1.cluster();
    let class = world.queues().class(workload.class());
    let gang = Arc::new(class.gang.with_counts(&workload.requested_counts(class)));
    let gang = gangs::with_flavor_constraints(world, &gang, workload.flavors());
    match topology::check_domains(world, &gang, cluster, Gone::All) {
        Err(Misfit::NoDomain { level, .. }) => {
            return Some(cluster_remedy::larger_domains_in(world, cluster, &level, &gang));
        }
        Err(misfit) => return Some(Why::NoCapacity(misfit).remedy(world.asker)),
        Ok(()) => {}
    }
    match world.live().cluster(cluster)?.capacity().fits(&gang) {
        Err(misfit @ Misfit::NotEnoughCapacity { fits_empty: false, .. }) => {
            Some(Why::NoCapacity(misfit).remedy(world.asker))
        }
        _ => None,
    }
}
