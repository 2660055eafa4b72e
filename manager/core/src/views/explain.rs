//! Why a workload waits, per cluster and in words, and what would help.
//!
//! What quota lacks is stored per class as the scheduling pass finds it, so what people read is what was decided. The rest is
//! found when somebody asks, by the functions that decide: who comes first and why, what each cluster says, what would do.

pub mod case;
pub mod growth;
pub mod head_order;
pub mod obstacle;
pub mod remedy;
pub mod rivals;
pub mod step;
pub mod steps;
pub mod words;

use crate::capacity::reserved;
use crate::dispatch::residency;
use crate::facts::reason::Why;
use crate::facts::submission::Choice;
use crate::state::legs::leg::State as LegState;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::views::pod_placement;
use crate::world::World;
use case::Case;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::{OnLoss, StopReason};
use meridian_shared::time::Now;
use obstacle::Obstacle;
use serde_json::{Value, json};
use steps::Steps;

/// So many of those who stop for another are named.
const VICTIMS_NAMED_MAX: usize = 4;

impl World {
    /// Everything a person may want to know about where a workload is and why, as JSON of a documented shape.
    pub fn explain(&self, uid: Uid, now: Now) -> Option<Value> {
        let workload = self.state.workloads().get(&uid)?;
        let case = (workload.phase() == Phase::Pending).then(|| case::case(self, uid, workload, now.mono));
        let steps = case.as_ref().map(|case| steps::steps(self, case, now)).unwrap_or_default();
        let obstacles: Vec<Value> =
            steps.list.iter().map(|step| json!({"reason": step.words, "wouldHelp": step.help})).collect();
        let alone = steps.alone.clone();
        let (summary, helps) = summary(self, uid, workload, steps, now);
        let clusters = self.state.catalog().promised_clusters();
        let clusters: Vec<Value> = clusters
            .iter()
            .map(|cluster| explain_cluster(self, workload, cluster, case.as_ref(), now))
            .collect();
        Some(json!({
            "namespace": &*workload.namespace(),
            "name": &*workload.name(),
            "uid": uid.to_string(),
            "state": workload.state_word(),
            "since": workload.since().0,
            "attempts": workload.attempts(),
            "position": case.as_ref().and_then(|case| obstacle::position(self, case)),
            "clusters": clusters,
            "summary": summary,
            "placement": pod_placement::placement_lines(workload),
            "wouldHelp": helps,
            "obstacles": obstacles,
            "alone": alone,
            "history": workload.history().iter().map(|s| json!({
                "cluster": s.cluster.as_str(), "fence": s.fence.to_string(), "granted": s.granted.0, "over": s.over.map(|w| w.0), "end": s.end.as_ref().map(words::attempt_end),
            })).collect::<Vec<_>>(),
        }))
    }
}

fn explain_cluster(
    world: &World,
    workload: &Workload,
    cluster: &ClusterName,
    case: Option<&Case<'_>>,
    now: Now,
) -> Value {
    let region = world.state.catalog().cluster(cluster).map(|c| c.region.to_string());
    let leg = workload.legs().values().find(|l| l.cluster == *cluster);
    let (verdict, reason, helps) = match leg {
        Some(leg) => leg_message(world, workload, leg, now),
        None if workload.phase() == Phase::Finished => {
            match workload.history().iter().rev().find(|stay| stay.cluster == *cluster) {
                Some(stay) => (
                    "over",
                    format!(
                        "ran there: {}",
                        stay.end
                            .as_ref()
                            .map_or_else(|| "its end isn't known".to_owned(), words::attempt_end)
                    ),
                    String::new(),
                ),
                None => ("over", "never ran there".to_owned(), String::new()),
            }
        }
        None if workload.rests_inactive() => {
            ("waiting", "it is deactivated: nobody is asked".to_owned(), String::new())
        }
        None => match case.and_then(|case| Some((case, case.verdicts.get(cluster)?))) {
            Some((case, Err(why))) => {
                (why.verdict(), why.words(), remedy::help_at(world, case, cluster, why).0)
            }
            Some((case, Ok(()))) => able_message(world, case, now),
            None if workload.phase().granted() => {
                ("not-chosen", "another cluster has it".to_owned(), String::new())
            }
            None => ("unknown", "it isn't known which cluster queue would ask it".to_owned(), String::new()),
        },
    };
    json!({
        "cluster": cluster.as_str(), "region": region, "verdict": verdict, "reason": reason, "wouldHelp": helps,
        "estimate": leg.and_then(|l| l.estimate).map(|e| e.0),
    })
}

/// What is to say where a cluster has nothing against a workload that waits.
fn able_message(world: &World, case: &Case<'_>, now: Now) -> (&'static str, String, String) {
    if world.live.backoff_until.get(&case.uid).is_some_and(|until| *until > now.mono) {
        return (
            Why::BackOff.verdict(),
            "has room; the workload rests before its next attempt".to_owned(),
            String::new(),
        );
    }
    if case.id.is_none() {
        return (
            "waiting",
            "has room; nothing is asked of it before the queue admits".to_owned(),
            String::new(),
        );
    }
    match obstacle::obstacle(world, case) {
        Obstacle::Before(Why::Quota(_)) => {
            ("waiting", "has room; the queue has no quota for it".to_owned(), String::new())
        }
        Obstacle::Before(why) => (why.verdict(), why.words(), why.would_help()),
        Obstacle::Behind(..) => {
            ("waiting", "has room; the queue's head comes first".to_owned(), String::new())
        }
        Obstacle::AtClusters => {
            ("waiting", "has room; it is asked in the next round".to_owned(), String::new())
        }
    }
}

fn leg_message(
    world: &World,
    workload: &Workload,
    leg: &crate::state::legs::Leg,
    now: Now,
) -> (&'static str, String, String) {
    let lease = leg.fence.and_then(|f| world.live.leases.get(&f));
    let silent = world
        .live
        .clusters
        .get(&leg.cluster)
        .is_none_or(|c| now.mono.since(c.heard) > meridian_shared::lease::silence(workload.term()));
    let waits = match (lease, workload.on_loss()) {
        (_, OnLoss::Wait) => "it stays until the cluster returns or is declared lost".to_owned(),
        (Some(lease), OnLoss::Fence) => format!(
            "it can be started elsewhere when its lease has lapsed, in {}",
            lease.lease.deadline.since(now.mono)
        ),
        (None, OnLoss::Fence) => "it can be started elsewhere when its lease has lapsed".to_owned(),
    };
    let confirmed = match (lease, workload.on_loss()) {
        (Some(lease), OnLoss::Fence) => {
            format!(
                "the agent's word that it has stopped; without it the lapse of its lease, in {}",
                lease.lease.deadline.since(now.mono)
            )
        }
        _ => "the agent's word that it has stopped".to_owned(),
    };
    if workload.phase() == Phase::Stopping {
        let why = match &workload.inactive() {
            _ if workload.deletion().is_some() => {
                "it was deleted, and goes when its gang has stopped".to_owned()
            }
            Some(inactive) => format!("it was deactivated by `{}`", inactive.by),
            None => match preemption_message(world, workload)
                .filter(|_| workload.stopping() == Some(StopReason::Evicted))
            {
                Some(for_whom) => format!("it gives way to {for_whom}"),
                None => workload.stopping().map_or("it is being stopped", words::stop_reason).to_owned(),
            },
        };
        return (
            "stopping",
            format!("{why}; its room and quota are kept until the stop is confirmed"),
            confirmed,
        );
    }
    match leg.state {
        LegState::Granted | LegState::Running if silent => {
            ("silent", "runs there as far as known; its agent isn't heard".into(), waits)
        }
        LegState::Running => {
            let failed = match workload.pod_failures() {
                0 => String::new(),
                1 => "; one of its pods has failed so far".to_owned(),
                many => format!("; pods of it have failed {many} times so far"),
            };
            (
                "running",
                format!(
                    "{} run there{failed}{}",
                    pods_message(world, workload, "all its pods"),
                    choice_message(leg.choice)
                ),
                String::new(),
            )
        }
        LegState::Granted => (
            "starting",
            format!(
                "{} are starting there{}",
                pods_message(world, workload, "its pods"),
                choice_message(leg.choice)
            ),
            String::new(),
        ),
        LegState::Held => ("held", "holds room for the whole gang".into(), String::new()),
        LegState::Waiting => ("waiting", leg.note.clone().unwrap_or_default(), "the provider".into()),
        LegState::Offered => ("offered", "was asked just now".into(), String::new()),
        LegState::Ended | LegState::Refused | LegState::Withdrawn | LegState::Expired => {
            ("over", "is over there".into(), String::new())
        }
    }
}

/// How many of its pods a workload was given, where it makes do with fewer.
fn pods_message(world: &World, workload: &Workload, all: &str) -> String {
    let class = world.queues.class(workload.class());
    let wished: u32 = class.gang.pod_sets.iter().map(|set| set.count).sum();
    let spare = workload.reclaimable_pods();
    if let Some(resized) = &workload.resized() {
        let (given, wished): (u32, u32) = match &resized.growing {
            Some(growing) => {
                (growing.before.iter().sum(), growing.before.iter().sum::<u32>().saturating_sub(spare))
            }
            None => (workload.counts().into_iter().flatten().sum(), workload.runs_with(class).iter().sum()),
        };
        let left = given.saturating_sub(spare);
        return match left.checked_sub(wished) {
            None => format!("{left} of its {wished} pods"),
            Some(0) => format!("its {wished} pods"),
            Some(more) => format!("its {wished} pods, and {more} that it is told to end,"),
        };
    }
    match &workload.counts() {
        Some(counts) if spare > 0 => {
            format!(
                "{} of its {wished} pods, with which it makes do, less {spare} that have succeeded,",
                counts.iter().sum::<u32>()
            )
        }
        Some(counts) => {
            format!("{} of its {wished} pods, with which it makes do,", counts.iter().sum::<u32>())
        }
        None if spare > 0 => {
            format!("{} of its {wished} pods (the others have succeeded)", wished.saturating_sub(spare))
        }
        None => all.to_owned(),
    }
}

fn summary(world: &World, uid: Uid, workload: &Workload, steps: Steps, now: Now) -> (String, String) {
    let at = workload.right().map(|(_, l)| l.cluster.as_str().to_owned()).unwrap_or_default();
    match workload.phase() {
        Phase::Running | Phase::Granted | Phase::Stopping => {
            let (verdict, reason, helps) = workload
                .right()
                .map_or(("", String::new(), String::new()), |(_, l)| leg_message(world, workload, l, now));
            let flag = residency::flagged(world, workload)
                .map(|why| format!("; {why}, and it runs on, because that policy only flags"))
                .unwrap_or_default();
            match growth::scale_up_message(world, uid, workload, Some(now.mono))
                .filter(|_| workload.phase() != Phase::Stopping)
            {
                Some((grows, help)) => (
                    format!("{verdict} in cluster `{at}`: {reason}; {grows}{flag}"),
                    if helps.is_empty() { help } else { helps },
                ),
                None => (format!("{verdict} in cluster `{at}`: {reason}{flag}"), helps),
            }
        }
        Phase::Finished => {
            let finish = workload.finished();
            let ran = workload
                .history()
                .last()
                .map(|stay| format!("; it ran in cluster `{}`", stay.cluster))
                .unwrap_or_default();
            (
                finish.map_or_else(String::new, |f| format!("over: {}: {}{ran}", f.reason, f.message)),
                String::new(),
            )
        }
        Phase::Dispatching | Phase::Reserved => ("has quota; clusters are being asked".into(), String::new()),
        Phase::Pending => {
            let (words, helps) = steps.in_words();
            let waits =
                if workload.inactive().is_some() || words.starts_with("waits") { "" } else { "waits: " };
            let gave_way = preemption_message(world, workload)
                .map(|for_whom| format!("; it gave way to {for_whom}"))
                .unwrap_or_default();
            (
                format!(
                    "{waits}{words}{}{}{gave_way}",
                    victims_message(world, uid),
                    reservation_message(world, uid)
                ),
                helps,
            )
        }
    }
}

/// Who stops for it now.
fn victims_message(world: &World, uid: Uid) -> String {
    let stops = |victim: &Uid| {
        world
            .state
            .workloads()
            .get(victim)
            .filter(|w| w.phase() == Phase::Stopping && w.preempted().is_some_and(|p| p.by == uid))
    };
    let all: Vec<&Workload> = world.state.displaced().keys().filter_map(stops).collect();
    let mut named: Vec<String> =
        all.iter().take(VICTIMS_NAMED_MAX).map(|w| format!("`{}/{}`", w.namespace(), w.name())).collect();
    named.sort_unstable();
    let last = match all.len().saturating_sub(named.len()) {
        0 => named.pop(),
        more => Some(format!("{more} more")),
    };
    match last {
        None => String::new(),
        Some(one) if named.is_empty() => format!("; {one} stops for it"),
        Some(last) => format!("; {} and {last} stop for it", named.join(", ")),
    }
}

/// For whom it stops or was stopped, where it hasn't started again.
fn preemption_message(world: &World, workload: &Workload) -> Option<String> {
    let by = workload.preempted()?.by;
    let name = |other: &Workload| {
        format!("`{}/{}` (priority {})", other.namespace(), other.name(), other.priority())
    };
    Some(world.state.workloads().get(&by).map_or_else(|| "a workload that is gone".to_owned(), name))
}

/// What is kept for a workload that waits too long.
fn reservation_message(world: &World, uid: Uid) -> String {
    let Some((cluster, expected)) = reserved::expected_for(world, uid) else { return String::new() };
    let ends = match expected.len() {
        0 => String::new(),
        1 => ", and one workload has to end there first".to_owned(),
        many => format!(", and {many} workloads have to end there first"),
    };
    format!("; it has waited so long that nobody passes it by: room is kept for it in `{cluster}`{ends}")
}

/// Why a gang is where it is, as the end of a sentence.
fn choice_message(choice: Option<Choice>) -> String {
    match choice {
        None => String::new(),
        Some(Choice { able: 1, .. }) => "; the only cluster that may and could start them together".into(),
        Some(Choice { able, asked: 1 }) => {
            format!("; the first choice of {able} clusters that could start them together")
        }
        Some(Choice { asked, .. }) => {
            format!("; the first of {asked} clusters that were asked to hold room for all of it")
        }
    }
}
