//! The state of recovery: what it waits for, and which workloads it holds back until when.

use crate::asker::{self, Asker, OTHER_TENANT};
use crate::explain::words::Wording as _;
use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::reason::Why;
use meridian_manager_core::world::recovery_hold::{HoldEnd, RecoveryHold};
use meridian_objects::Kind;
use meridian_shared::ids::ClusterName;
use meridian_shared::time::{Mono, Now, Wall};
use meridian_shared::timestamp::timestamp;
use serde_json::{Value, json};

/// Most held workloads that are listed by name; the others are only counted.
const LISTED_MAX: usize = 100;

/// Whether recovery is open, what it waits for, orphans, and whether rules are in doubt.
pub fn recovery(world: &World, now: Now, asker: &Asker) -> Value {
    let state = world.state();
    let orphans: Vec<_> = state
        .orphans()
        .values()
        .map(|orphan| {
            json!({
                "uid": orphan.run().uid.to_string(),
                "fence": orphan.run().fence.to_string(),
                "cluster": orphan.cluster().as_str(),
                "job": orphan.run().job.as_deref().and_then(|job| job_name(job, asker)),
                "ledger": orphan.ledger().to_string(),
                "stopping": orphan.stopping(),
            })
        })
        .collect();
    json!({
        "open": state.recovery().is_some(),
        "restored": state.recovery().is_some_and(|r| r.restored),
        "membersUnknown": state.recovery().is_some_and(|r| r.members_unknown),
        "awaited": world.live().recovery().awaited().iter().map(ClusterName::as_str).collect::<Vec<_>>(),
        "lostLedgers": lost_ledgers(world),
        "held": held(world, now, asker),
        "orphans": orphans,
        "message": message(world),
        "rulesDoubted": state.rules_doubted().map(|n| n.to_string()),
        "rulesAwaited": rules_awaited(world),
        "leadership": state.leadership().to_string(),
        "record": state.last().to_string(),
    })
}

/// Which jobs don't start now, why, and what ends the wait. `None` if no job waits for an operator or for
/// recovery.
fn message(world: &World) -> Option<String> {
    let why = if let Some(doubt) = world.rules_doubt() {
        doubt
    } else if world.state().recovery().is_some() {
        Why::RecoveryOpen
    } else {
        return None;
    };
    let held = match why {
        Why::RulesDoubted | Why::RulesUnheard => "no job starts",
        _ => "jobs submitted before recovery began may have to wait",
    };
    let asker = Asker::unlimited();
    Some(format!("{held}: {}; next: {}", why.message(&asker), why.remedy(&asker)))
}

/// Clusters whose reports end the doubt about the rules. Empty if only an operator can end it.
fn rules_awaited(world: &World) -> Vec<&str> {
    let is_open = matches!(world.rules_doubt(), Some(Why::RulesUnheard));
    world.live().recovery().rules_awaited().iter().filter(|_| is_open).map(ClusterName::as_str).collect()
}

/// The job of an orphan, `namespace/name` as its agent reported it. `None` if it isn't a name.
fn job_name<'j>(job: &'j str, asker: &Asker) -> Option<&'j str> {
    let (namespace, name) = job.split_once('/')?;
    // The agent doesn't report the kind of the job.
    let mut keys =
        Kind::ALL.into_iter().filter(|kind| kind.is_job()).map(|kind| Key::namespaced(kind, namespace, name));
    Some(if keys.all(|key| asker.may_name(&key)) { job } else { OTHER_TENANT })
}

/// By awaited cluster, the ledger that it lost since recovery began. The ledger's runs are unknown.
fn lost_ledgers(world: &World) -> Value {
    let lost = |cluster: &ClusterName| {
        let ledger = world.state().members().get(cluster)?.unheard()?;
        Some((cluster.to_string(), json!(ledger.to_string())))
    };
    Value::Object(world.live().recovery().awaited().iter().filter_map(lost).collect())
}

/// Workloads that can't start elsewhere yet: their number by `onClusterLoss`, the latest end of a hold, and
/// the first of them by name.
fn held(world: &World, now: Now, asker: &Asker) -> Value {
    let (mut fence, mut wait, mut latest) = (0_u64, 0_u64, None::<Mono>);
    let mut workloads = Vec::new();
    for hold in world.recovery_holds(now.mono) {
        match hold.end {
            HoldEnd::At(at) => (fence, latest) = (fence + 1, latest.max(Some(at))),
            HoldEnd::DeclareLost => wait += 1,
        }
        if workloads.len() < LISTED_MAX {
            workloads.push(held_workload(&hold, now, asker));
        }
    }
    json!({
        "fence": fence,
        "fenceUntil": latest.map(|at| timestamp(wall(at, now))),
        "wait": wait,
        "workloads": workloads,
    })
}

fn held_workload(hold: &RecoveryHold<'_>, now: Now, asker: &Asker) -> Value {
    let (mode, until) = match hold.end {
        HoldEnd::At(at) => ("Fence", Some(timestamp(wall(at, now)))),
        HoldEnd::DeclareLost => ("Wait", None),
    };
    let named = asker.may_name(&asker::job_key(hold.workload));
    json!({
        "namespace": named.then_some(&**hold.workload.namespace()),
        "name": if named { &**hold.workload.name() } else { OTHER_TENANT },
        "cluster": hold.cluster.map(ClusterName::as_str),
        "onClusterLoss": mode,
        "until": until,
    })
}

/// The calendar time of a future deadline.
fn wall(at: Mono, now: Now) -> Wall {
    now.wall + at.since(now.mono)
}
