//! Explains the state of a workload: the answer to `meridian why`.
//!
//! A quota shortage is taken from the scheduling cycle that found it, so the explanation matches the
//! decision. Everything else is computed on request, by the functions that decide: the queue order, the
//! verdict of each cluster, and the changes that would start the workload.

pub mod blocking_run;
pub mod case;
pub mod cluster_remedy;
pub mod flavor_labels;
pub mod head_order;
pub mod obstacle;
pub mod remedy;
pub mod rivals;
mod run_time;
pub mod scale_up;
pub mod step;
pub mod steps;
pub mod trial;
pub mod words;

use crate::asker::{AskedWorld, Asker};
use crate::explain::words::Wording;
use crate::pod_placement;
use case::{Case, Verdicts};
use meridian_manager_core::capacity::reserved;
use meridian_manager_core::dispatch::residency;
use meridian_manager_core::facts::reason::Why;
use meridian_manager_core::facts::submission::Choice;
use meridian_manager_core::state::legs::Leg;
use meridian_manager_core::state::legs::leg::LegState;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::state::workload::{AttemptRecord, Workload};
use meridian_manager_core::world::World;
use meridian_shared::counted::counted;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::{OnLoss, StopReason};
use meridian_shared::time::{Millis, Now};
use obstacle::Obstacle;
use serde_json::{Value, json};
use steps::Steps;

/// Most victims of a preemption that one message names.
const VICTIMS_NAMED_MAX: usize = 4;

/// The explanation of a workload as JSON; `docs/api.md` describes its fields. `None` if there is no such
/// workload. It names no workload that `asker` may not read.
pub fn explain(world: &World, uid: Uid, now: Now, asker: &Asker) -> Option<Value> {
    let world = &AskedWorld::new(world, asker);
    let workload = world.state().workloads().get(&uid)?;
    let case = (workload.phase() == Phase::Pending).then(|| case::case(world, uid, workload, now.mono));
    let steps = case.as_ref().map(|case| steps::steps(world, case, now)).unwrap_or_default();
    let obstacles: Vec<Value> =
        steps.list.iter().map(|step| json!({"reason": step.reason, "wouldHelp": step.remedy})).collect();
    let alone = steps.alone.clone();
    let (summary, remedy) = summary(world, uid, workload, steps, now);
    let verdicts = if workload.phase() == Phase::Dispatching {
        case::case(world, uid, workload, now.mono).verdicts
    } else {
        Verdicts::new()
    };
    let clusters = world.state().catalog().promised_clusters();
    let clusters: Vec<Value> = clusters
        .iter()
        .map(|cluster| explain_cluster(world, workload, cluster, (case.as_ref(), &verdicts), now))
        .collect();
    Some(json!({
        "namespace": workload.namespace(),
        "name": workload.name(),
        "uid": uid.to_string(),
        "state": workload.state_word(world.live().damaged().contains(uid)),
        "since": workload.since().0,
        "attempts": workload.attempts(),
        "position": case.as_ref().and_then(|case| obstacle::position(world, case)),
        "clusters": clusters,
        "summary": summary,
        "placement": pod_placement::placement_lines(workload),
        "wouldHelp": remedy,
        "obstacles": obstacles,
        "alone": alone,
        "history": workload.history().iter().map(|attempt| json!({
            "cluster": attempt.cluster.as_str(),
            "fence": attempt.fence.to_string(),
            "granted": attempt.granted.0,
            "over": attempt.over.map(|over| over.0),
            "end": words::attempt_end(attempt, &preemptor_of(world, attempt)),
        })).collect::<Vec<_>>(),
    }))
}

fn explain_cluster(
    world: &AskedWorld<'_>,
    workload: &Workload,
    cluster: &ClusterName,
    (case, verdicts): (Option<&Case<'_>>, &Verdicts),
    now: Now,
) -> Value {
    let region = world.state().catalog().cluster(cluster).map(|c| c.region.to_string());
    let leg = workload.legs().values().find(|l| *l.cluster() == *cluster);
    let (verdict, reason, remedy) = match leg {
        Some(leg) => leg_message(world, workload, leg, now),
        None if workload.phase() == Phase::Finished => {
            match workload.history().iter().rev().find(|attempt| attempt.cluster == *cluster) {
                Some(attempt) => {
                    let end = words::attempt_end(attempt, &preemptor_of(world, attempt));
                    let end = end.unwrap_or_else(|| "how it ended is unknown".to_owned());
                    let ran = if attempt.ran() { "ran there" } else { "never ran there" };
                    ("over", format!("{ran}: {end}"), String::new())
                }
                None => ("over", "never ran there".to_owned(), String::new()),
            }
        }
        None if workload.rests_inactive() => {
            ("waiting", "the workload is deactivated".to_owned(), String::new())
        }
        None if workload.phase() == Phase::Dispatching => not_offered_message(world, verdicts.get(cluster)),
        None => match case.and_then(|case| Some((case, case.verdicts.get(cluster)?))) {
            Some((case, Err(why))) => (
                why.verdict(),
                cluster_remedy::message_at(world, case, cluster, why),
                cluster_remedy::remedy_at(world, case, cluster, why).0,
            ),
            Some((case, Ok(()))) => able_message(world, case, now),
            None if workload.phase().granted() => {
                ("not-chosen", "the workload is in another cluster".to_owned(), String::new())
            }
            None => unevaluated_message(world, workload, now),
        },
    };
    json!({
        "cluster": cluster.as_str(), "region": region,
        "verdict": verdict, "reason": reason,
        "wouldHelp": remedy,
        "estimate": leg
            .filter(|leg| leg.state() == LegState::Waiting)
            .and_then(Leg::estimate)
            .map(|estimate| estimate.0),
    })
}

/// Verdict and reason of a cluster for a workload that is offered to others.
fn not_offered_message(
    world: &AskedWorld<'_>,
    verdict: Option<&Result<(), Why>>,
) -> (&'static str, String, String) {
    match verdict {
        Some(Err(why)) => (why.verdict(), why.message(world.asker), String::new()),
        Some(Ok(())) | None => {
            ("not-chosen", "the workload is offered to other clusters".to_owned(), String::new())
        }
    }
}

/// Verdict, reason and remedy for a cluster that could start a pending workload now.
fn able_message(world: &AskedWorld<'_>, case: &Case<'_>, now: Now) -> (&'static str, String, String) {
    let waiting = |why: &str| ("waiting", format!("has room; {why}"), String::new());
    if world.live().damaged().contains(case.uid) {
        return (Why::Damaged.verdict(), Why::Damaged.message(world.asker), Why::Damaged.remedy(world.asker));
    }
    if world.live().backoffs().is_backing_off(case.uid, now.mono) {
        return (
            Why::BackOff.verdict(),
            "has room; the workload is backing off before its next attempt".to_owned(),
            String::new(),
        );
    }
    if case.id.is_none() {
        return waiting("the workload's queue admits nothing yet");
    }
    match obstacle::obstacle(world, case) {
        Obstacle::Before(Why::Quota(_)) => waiting("the workload waits for quota"),
        Obstacle::Before(why) => (why.verdict(), why.message(world.asker), why.remedy(world.asker)),
        Obstacle::Behind(..) => waiting("the head of the workload's queue comes first"),
        Obstacle::AtClusters => waiting("offered in the next scheduling cycle"),
    }
}

/// What keeps every cluster from being evaluated: the queue is built only once the rules are certain.
fn unevaluated_message(
    world: &AskedWorld<'_>,
    workload: &Workload,
    now: Now,
) -> (&'static str, String, String) {
    let recovers = world.held_back(workload, now.mono).then_some(Why::RecoveryOpen);
    match recovers.or_else(|| world.rules_doubt()) {
        Some(why) => (why.verdict(), why.message(world.asker), why.remedy(world.asker)),
        None => ("unknown", "the workload's cluster queue is unknown".to_owned(), String::new()),
    }
}

fn leg_message(
    world: &AskedWorld<'_>,
    workload: &Workload,
    leg: &Leg,
    now: Now,
) -> (&'static str, String, String) {
    let lease = leg.fence().and_then(|f| world.live().leases().get(f));
    let disconnected = world.live().cluster(leg.cluster()).is_none_or(|c| {
        now.mono.since(c.heard()) > meridian_shared::lease::disconnect_after(workload.term())
    });
    let expires = match (lease, workload.on_loss()) {
        (Some(lease), OnLoss::Fence) => Some(lease.deadline().since(now.mono)),
        _ => None,
    };
    if workload.phase() == Phase::Stopping {
        let confirmed = match expires {
            Some(left) => {
                format!("wait until its agent confirms the stop, or until its lease expires in {left}")
            }
            None => "wait until its agent confirms the stop".to_owned(),
        };
        let confirmed = if leg.replaced_ledger().is_some() { lost_remedy(leg, expires) } else { confirmed };
        let why = stop_message(world, workload);
        return (
            "stopping",
            format!("{why}; its capacity and quota stay reserved until its agent confirms the stop"),
            confirmed,
        );
    }
    if leg.replaced_ledger().is_some() {
        return ("lost", words::lost_run(leg), lost_remedy(leg, expires));
    }
    match leg.state() {
        LegState::Granted | LegState::Running if disconnected => {
            let remedy = match (expires, workload.on_loss()) {
                (_, OnLoss::Wait) => "wait until the cluster reconnects, or declare it lost".to_owned(),
                (Some(left), OnLoss::Fence) => format!(
                    "wait until the cluster reconnects, or until the lease expires in {left}: \
                     then another cluster can start it"
                ),
                (None, OnLoss::Fence) => "wait until the cluster reconnects, or until the lease expires: \
                                          then another cluster can start it"
                    .to_owned(),
            };
            ("disconnected", "last known to run there; its agent is disconnected".into(), remedy)
        }
        LegState::Running => {
            let failures = match workload.pod_failures() {
                0 => String::new(),
                failures => format!("; {} so far", counted(failures, "pod failure")),
            };
            let pods = pods_message(world, workload, "all pods");
            let run_time = run_time::run_time_message(world, workload, now.wall);
            let reason = format!("{pods} running{failures}{}{run_time}", choice_message(leg.choice()));
            ("running", reason, String::new())
        }
        LegState::Granted => {
            let pods = pods_message(world, workload, "pods");
            ("starting", format!("{pods} starting{}", choice_message(leg.choice())), String::new())
        }
        LegState::Held => ("held", "its agent holds capacity for the whole gang".into(), String::new()),
        LegState::Waiting => (
            "waiting",
            leg.note().unwrap_or("waits for nodes of its capacity provider").to_owned(),
            "wait until the capacity provider has added the nodes".into(),
        ),
        LegState::Offered => ("offered", "its agent hasn't answered the offer yet".into(), String::new()),
        LegState::Ended | LegState::Refused | LegState::Withdrawn | LegState::Expired => {
            ("over", "the attempt there is over".into(), String::new())
        }
    }
}

/// Remedy for a run that no agent reports any more: the event or command that ends it.
fn lost_remedy(leg: &Leg, expires: Option<Millis>) -> String {
    let (cluster, ledger) = (leg.cluster(), leg.ledger());
    match expires {
        Some(left) => {
            format!("wait until the lease expires in {left}: then another cluster can start it")
        }
        None => format!(
            "make sure that nothing runs there any more, then run `meridian cluster declare-lost {cluster} \
             --ledger {ledger} --confirm {cluster}`"
        ),
    }
}

/// Why a workload is being stopped.
fn stop_message(world: &AskedWorld<'_>, workload: &Workload) -> String {
    if workload.deletion().is_some() {
        return "deleted; the job disappears once its pods have stopped".to_owned();
    }
    if let Some(inactive) = &workload.inactive() {
        return format!("deactivated by `{}`", inactive.by);
    }
    match preemptor_message(world, workload).filter(|_| workload.stopping() == Some(StopReason::Evicted)) {
        Some(preemptor) => format!("preempted by {preemptor}"),
        None => workload.stopping().map_or("being stopped", words::stop_reason).to_owned(),
    }
}

/// The pods of a workload that runs or starts, such as `2 of 4 pods`; `all` if it has every pod of its spec.
fn pods_message(world: &AskedWorld<'_>, workload: &Workload, all: &str) -> String {
    let class = world.queues().class(workload.class());
    let in_spec: u32 = class.gang.pod_sets.iter().map(|set| set.count).sum();
    let succeeded = workload.reclaimable_pods();
    let completed = workload.completed().len();
    let done = class
        .completions
        .filter(|_| completed > 0)
        .map(|completions| format!(" ({completed} of {completions} indexes have completed)"));
    if let Some(resized) = &workload.resized() {
        let (given, requested): (u32, u32) = match &resized.scale_up {
            Some(started) => {
                (started.before.iter().sum(), started.before.iter().sum::<u32>().saturating_sub(succeeded))
            }
            None => (workload.counts().into_iter().flatten().sum(), workload.runs_with(class).iter().sum()),
        };
        let left = given.saturating_sub(succeeded);
        let pods = match left.checked_sub(requested) {
            None => format!("{left} of {}", counted(requested, "pod")),
            Some(0) => counted(requested, "pod"),
            Some(surplus) => format!("{} (and {surplus} being removed)", counted(requested, "pod")),
        };
        return format!("{pods}{}", done.unwrap_or_default());
    }
    if let Some(done) = done {
        let pods: u32 = workload.gang(class).pod_sets.iter().map(|set| set.count).sum();
        return format!("{}{done}", counted(pods, "pod"));
    }
    match &workload.counts() {
        Some(counts) => {
            let given = counts.iter().sum::<u32>();
            let succeeded =
                if succeeded > 0 { format!(", {succeeded} of them succeeded") } else { String::new() };
            format!("{given} of {} (partial admission{succeeded})", counted(in_spec, "pod"))
        }
        None if succeeded > 0 => {
            format!(
                "{} of {} (the others have succeeded)",
                in_spec.saturating_sub(succeeded),
                counted(in_spec, "pod")
            )
        }
        None => all.to_owned(),
    }
}

/// Summary and remedy.
fn summary(
    world: &AskedWorld<'_>,
    uid: Uid,
    workload: &Workload,
    steps: Steps,
    now: Now,
) -> (String, String) {
    match workload.phase() {
        Phase::Running | Phase::Granted | Phase::Stopping => summary_of_run(world, uid, workload, now),
        Phase::Finished => {
            let ran = workload
                .history()
                .iter()
                .rev()
                .find(|attempt| attempt.ran())
                .map(|attempt| format!("; ran in cluster `{}`", attempt.cluster))
                .unwrap_or_else(|| "; it never ran".to_owned());
            let finish = workload.finished();
            let finished =
                finish.map(|finish| format!("finished: {}: {}{ran}", finish.reason, finish.message));
            (finished.unwrap_or_default(), String::new())
        }
        Phase::Dispatching | Phase::Reserved => {
            let offered = workload.legs().values().filter(|leg| leg.state().open());
            let clusters: Vec<String> = offered.map(|leg| format!("`{}`", leg.cluster())).collect();
            let summary = match clusters.as_slice() {
                [] => "quota reserved: clusters get an offer in the next scheduling cycle".to_owned(),
                [one] => format!("offered to cluster {one}; quota is reserved"),
                many => format!("offered to clusters {}; quota is reserved", many.join(", ")),
            };
            (summary, String::new())
        }
        Phase::Pending => {
            let (reason, remedy) = steps.message();
            let state = if workload.inactive().is_some() { "" } else { "pending: " };
            let preempted = preemptor_message(world, workload)
                .map(|preemptor| format!("; it was preempted by {preemptor}"))
                .unwrap_or_default();
            let (victims, reservation) = (victims_message(world, uid), reservation_message(world, uid));
            let run_time = run_time::run_time_message(world, workload, now.wall);
            (format!("{state}{reason}{victims}{reservation}{preempted}{run_time}"), remedy)
        }
    }
}

/// Summary and remedy of a workload that a cluster has the right to run.
fn summary_of_run(world: &AskedWorld<'_>, uid: Uid, workload: &Workload, now: Now) -> (String, String) {
    let state = match workload.phase() {
        _ if workload.lost_run().is_some() => "lost",
        Phase::Granted => "starting",
        Phase::Stopping => "stopping",
        _ => "running",
    };
    let at = workload.right().map(|(_, leg)| leg.cluster().as_str().to_owned()).unwrap_or_default();
    let (_, reason, remedy) = workload
        .right()
        .map_or(("", String::new(), String::new()), |(_, leg)| leg_message(world, workload, leg, now));
    let damaged = world.live().damaged().contains(uid).then(|| {
        format!(
            "; {}, so it can't start again: {}",
            Why::Damaged.message(world.asker),
            Why::Damaged.remedy(world.asker)
        )
    });
    let damaged = damaged.unwrap_or_default();
    let flagged = residency::flagged(world, workload)
        .map(|why| format!("; {why}, but the policy has `onChange: Flag`, so the workload keeps running"))
        .unwrap_or_default();
    match scale_up::scale_up_message(world, uid, workload, now.mono) {
        Some((scale_up, scale_up_remedy)) => (
            format!("{state} in cluster `{at}`: {reason}; {scale_up}{flagged}{damaged}"),
            if remedy.is_empty() { scale_up_remedy } else { remedy },
        ),
        None => (format!("{state} in cluster `{at}`: {reason}{flagged}{damaged}"), remedy),
    }
}

/// Names the workloads that are still stopping because `uid` preempted them. Empty if there are none.
fn victims_message(world: &AskedWorld<'_>, uid: Uid) -> String {
    let stopping = |victim: &Uid| {
        world
            .state()
            .workloads()
            .get(victim)
            .filter(|w| w.phase() == Phase::Stopping && w.preempted().is_some_and(|p| p.by == uid))
    };
    let all: Vec<&Workload> = world.state().preemption_history().keys().filter_map(stopping).collect();
    let mut named = world.asker.workloads(all.iter().copied().take(VICTIMS_NAMED_MAX));
    match (all.as_slice(), all.len().saturating_sub(VICTIMS_NAMED_MAX)) {
        ([], _) => return String::new(),
        ([one], _) => return format!("; waiting for {} to stop", world.asker.workload(one)),
        (_, 0) => {}
        (_, more) => named.push(format!("{more} more")),
    }
    let last = named.pop().unwrap_or_default();
    match named.as_slice() {
        [] => format!("; waiting for {last} to stop"),
        first => format!("; waiting for workloads {} and {last} to stop", first.join(", ")),
    }
}

/// The preemptor of a workload that hasn't started again since.
fn preemptor_message(world: &AskedWorld<'_>, workload: &Workload) -> Option<String> {
    Some(preemptor_name(world, workload.preempted()?.by))
}

/// The workload that preempted this attempt. Empty if the attempt wasn't preempted.
fn preemptor_of(world: &AskedWorld<'_>, attempt: &AttemptRecord) -> String {
    let preempted = attempt.stop.as_ref().and_then(|stop| stop.preempted.as_ref());
    preempted.map(|preempted| preemptor_name(world, preempted.by)).unwrap_or_default()
}

fn preemptor_name(world: &AskedWorld<'_>, by: Uid) -> String {
    let name = |other: &Workload| format!("{} (priority {})", world.asker.workload(other), other.priority());
    world.state().workloads().get(&by).map_or_else(|| "a workload that no longer exists".to_owned(), name)
}

/// The capacity that the starvation guard has reserved for a workload. Empty if there is none.
fn reservation_message(world: &AskedWorld<'_>, uid: Uid) -> String {
    let Some((cluster, expected)) = reserved::expected_for(world, uid) else { return String::new() };
    let ends = match expected.len() {
        0 => String::new(),
        1 => ", where 1 workload has to end first".to_owned(),
        many => format!(", where {many} workloads have to end first"),
    };
    format!("; it has waited too long, so capacity is reserved for it in cluster `{cluster}`{ends}")
}

/// Why the workload is in this cluster and in no other, as the end of a sentence.
fn choice_message(choice: Option<Choice>) -> String {
    match choice {
        None => String::new(),
        Some(Choice { able: 1, .. }) => "; the only permitted cluster with room".into(),
        Some(Choice { able, asked: 1 }) => format!("; first choice of {able} clusters with room"),
        Some(Choice { asked, .. }) => format!("; the first of {asked} clusters to hold capacity for it"),
    }
}
