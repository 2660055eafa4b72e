//! What is seen from outside: metrics and spans, from facts that are committed.

pub(super) use super::dashboards::Reached;
use meridian_manager_core::facts::record::{LeadershipFact, ObjectFact, WorkloadFact};
use super::dashboards::{Dashboards, Rows, Tallies};
use crate::metrics::Metrics;
use meridian_manager_core::World;
use meridian_manager_core::facts::outcome::{Reply, WriteResult};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::world::Counts as CoreCounts;
use meridian_objects::Kind;
use meridian_objects::spec::ClusterSpec;
use meridian_shared::ids::{ClusterName, Fence, OfferId, RecordNumber, Region, Uid};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Now, Wall};
use meridian_telemetry::trace::{self, Interval, Leg, Outcome};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Legs whose spans are awaited, at most; beyond it the oldest are left out of their traces.
const LEGS_MAX: usize = 65_536;

/// Counts of what is asked, and what was told of those that the core keeps.
#[derive(Debug)]
pub(super) struct Seen {
    metrics: Metrics,
    renewals: u64,
    put_off: u64,
    link: [(&'static str, u64); 5],
    /// Rounds of decisions told so far: those in which somebody was admitted, and the others.
    attempts: (u64, u64),
}

/// Counts and traces of what is committed.
#[derive(Debug)]
pub(super) struct Counts {
    metrics: Metrics,
    /// Granted legs by fence, kept only where spans are exported.
    legs: Option<BTreeMap<Fence, OpenLeg>>,
    tallies: Tallies,
    dashboards: Dashboards,
}

/// What gauges show behind a batch, and counters that the core keeps.
#[derive(Debug)]
pub(super) struct Gauges {
    rows: Rows,
    orphans: i64,
    /// Legs by state and cluster.
    legs: Vec<(String, ClusterName, i64)>,
    agents: Vec<Agent>,
    /// Leases that were renewed since last told.
    renewals: u64,
    /// Times that an event had to wait since last told.
    put_off: u64,
    /// What was found on the link since last told, by kind.
    link: [(&'static str, u64); 5],
    /// Rounds of decisions since last told: those in which somebody was admitted, and the others.
    attempts: (u64, u64),
}

/// What is known of an agent.
#[derive(Debug)]
struct Agent {
    cluster: ClusterName,
    region: Region,
    talks: bool,
    /// How long ago it was heard last, if ever.
    silent: Option<Millis>,
}

#[derive(Debug)]
struct OpenLeg {
    uid: Uid,
    offer: OfferId,
    cluster: ClusterName,
    granted: Wall,
}

/// What counting a record takes besides it, as the world is behind its batch.
#[derive(Debug)]
pub(super) enum Beside {
    /// The cluster queue of an offer.
    Queue(Arc<str>),
    /// The cluster queue and the cluster of a grant.
    Stay(Arc<str>, ClusterName),
    /// When a finished workload was submitted.
    Since(Wall),
}

impl Beside {
    /// What counting these records takes, by their place.
    pub(super) fn of(world: &World, records: &[(RecordNumber, Record)]) -> Vec<(usize, Self)> {
        let beside = |record: &Record| match record {
            Record::Workload { uid, fact: WorkloadFact::Offered { .. } } => Some(Self::Queue(queue_of(world, *uid))),
            Record::Workload { uid, fact: WorkloadFact::Granted { fence, .. } } => {
                let stay =
                    world.state.workloads.get(uid)?.history.iter().rev().find(|s| s.fence == *fence)?;
                Some(Self::Stay(queue_of(world, *uid), stay.cluster.clone()))
            }
            Record::Workload { uid, fact: WorkloadFact::Finished { .. } } => Some(Self::Since(world.state.workloads.get(uid)?.created)),
            _ => None,
        };
        records.iter().enumerate().filter_map(|(at, (_, record))| Some((at, beside(record)?))).collect()
    }
}

/// How many workloads stand where.
#[derive(Debug)]
pub(super) struct Standings(Vec<(String, i64)>);

impl Standings {
    /// Those of a world.
    pub(super) fn of(world: &World) -> Self {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let inactive = world.tally.inactive();
        let pending = |phase| if phase == Phase::Pending { inactive } else { 0 };
        let phases = Phase::ALL.map(|phase| {
            (format!("{phase:?}"), whole(world.tally.phase(phase).saturating_sub(pending(phase))))
        });
        Self(phases.into_iter().chain([("Deactivated".to_owned(), whole(inactive))]).collect())
    }

    fn show(&self, metrics: &Metrics) {
        metrics.workloads.replace(self.0.iter().map(|(phase, n)| ([phase.as_str()], *n)));
    }
}

impl Seen {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, renewals: 0, put_off: 0, link: on_the_link(&CoreCounts::default()), attempts: (0, 0) }
    }

    /// After the world was read anew.
    pub(super) fn reset(&mut self, world: &World) {
        let counts = &world.live.counts;
        (self.renewals, self.put_off, self.attempts) =
            (counts.renewals, counts.put_off, Self::attempts(world));
        self.link = on_the_link(counts);
    }

    /// Rounds of decisions so far: those that admitted somebody, and the others.
    pub(super) fn attempts(world: &World) -> (u64, u64) {
        (world.live.counts.attempts_fruitful, world.live.counts.attempts_fruitless)
    }

    /// What a reply to a write says about submissions.
    pub(super) fn replied(&self, reply: &Reply, submits: bool) {
        match reply {
            Reply::Written(all) => {
                for written in all.iter().filter(|w| w.key.kind == Kind::Job) {
                    match written.result {
                        WriteResult::Created => self.metrics.submissions.inc(["accepted"]),
                        WriteResult::Unchanged => self.metrics.submissions.inc(["duplicate"]),
                        WriteResult::Configured | WriteResult::Deleted | WriteResult::Deleting => {}
                    }
                }
            }
            Reply::Rejected(_) if submits => self.metrics.submissions.inc(["refused"]),
            _ => {}
        }
    }

    pub(super) fn submission_failed(&self) {
        self.metrics.submissions.inc(["failed"]);
    }

    /// What gauges show of a world, and counters that the core keeps.
    pub(super) fn gauges(&mut self, world: &World, now: Now) -> Gauges {
        let counts = &world.live.counts;
        let attempts = Self::attempts(world);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let heard = |name: &ClusterName| world.live.clusters.get(name).map(|live| live.heard);
        let silence = meridian_shared::lease::silence(world.config.term_min);
        let agent = |(cluster, spec): (ClusterName, &ClusterSpec)| {
            let silent = heard(&cluster).map(|at| now.mono.since(at));
            Agent {
                cluster,
                region: spec.region.clone(),
                talks: silent.is_some_and(|span| span <= silence),
                silent,
            }
        };
        let gauges = Gauges {
            rows: Rows::of(world),
            orphans: i64::try_from(world.state.orphans.len()).unwrap_or(i64::MAX),
            legs: world
                .tally
                .legs()
                .map(|(cluster, state, n)| (format!("{state:?}"), cluster.clone(), whole(n)))
                .collect(),
            agents: world.state.catalog.clusters().map(agent).collect(),
            renewals: since(counts.renewals, self.renewals),
            put_off: since(counts.put_off, self.put_off),
            link: std::array::from_fn(|at| {
                (on_the_link(counts)[at].0, since(on_the_link(counts)[at].1, self.link[at].1))
            }),
            attempts: (since(attempts.0, self.attempts.0), since(attempts.1, self.attempts.1)),
        };
        (self.renewals, self.put_off, self.attempts) = (counts.renewals, counts.put_off, attempts);
        self.link = on_the_link(counts);
        gauges
    }
}

/// The rounds of one pass: those that admitted somebody, the others, and how long all of them took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    fruitful: u64,
    fruitless: u64,
    took: Duration,
}

impl Rounds {
    /// Of a pass that took so long.
    pub(super) fn since(before: (u64, u64), world: &World, took: Duration) -> Self {
        let after = Seen::attempts(world);
        Self { fruitful: after.0.saturating_sub(before.0), fruitless: after.1.saturating_sub(before.1), took }
    }
}

impl Counts {
    /// The rounds behind a batch that is committed: each is taken for as long as the others.
    pub(super) fn decided(&self, rounds: Rounds) {
        let Rounds { fruitful, fruitless, took } = rounds;
        let each = took.div_f64((fruitful + fruitless).max(1) as f64);
        for (result, rounds) in [("success", fruitful), ("inadmissible", fruitless)] {
            (0..rounds).for_each(|_| self.metrics.kueue.attempt_seconds.took([result], each));
        }
    }

    pub(super) fn new(metrics: Metrics, traces: bool) -> Self {
        let tallies = Tallies::new(metrics.kueue.clone());
        let dashboards = Dashboards::new(metrics.kueue.clone());
        Self { metrics, legs: traces.then(BTreeMap::new), tallies, dashboards }
    }

    /// Shows what gauges show behind a batch that is committed.
    pub(super) fn show(&self, gauges: &Gauges) {
        let m = &self.metrics;
        let _whole = m.together();
        m.lease_renewals.add([], gauges.renewals);
        m.events_put_off.add([], gauges.put_off);
        gauges.link.iter().for_each(|(kind, n)| m.link_events.add([kind], *n));
        self.dashboards.attempted(gauges.attempts.0, gauges.attempts.1);
        m.orphans.set(gauges.orphans);
        m.legs
            .replace(gauges.legs.iter().map(|(state, cluster, n)| ([state.as_str(), cluster.as_str()], *n)));
        self.dashboards.show(&gauges.rows);
        m.agents_connected.replace(
            gauges
                .agents
                .iter()
                .map(|agent| ([agent.cluster.as_str(), agent.region.as_str()], i64::from(agent.talks))),
        );
        let seconds = |span: Millis| i64::try_from(span.0 / 1_000).unwrap_or(i64::MAX);
        let ages =
            gauges.agents.iter().filter_map(|agent| Some(([agent.cluster.as_str()], seconds(agent.silent?))));
        m.agent_last_sync_age_seconds.replace(ages);
    }

    /// After the world was read anew.
    pub(super) fn reset(&mut self, world: &World) {
        let Some(legs) = &mut self.legs else { return };
        legs.clear();
        for (uid, workload) in world.state.workloads.iter() {
            for (offer, leg) in workload.legs.iter() {
                if let Some(fence) = leg.fence {
                    let granted = granted_at(workload, fence);
                    legs.insert(
                        fence,
                        OpenLeg { uid: *uid, offer: *offer, cluster: leg.cluster.clone(), granted },
                    );
                }
            }
        }
    }

    /// Shows how many stand where behind a batch that is committed: what else is told of a large queue follows more slowly. While
    /// somebody reads it isn't waited for: the next batch shows it.
    pub(super) fn stand(&self, standings: &Standings) {
        if let Some(_whole) = self.metrics.together_now() {
            standings.show(&self.metrics);
        }
    }

    /// Takes the records of a batch that is committed, with what goes with some of them, by their place.
    pub(super) fn note(&mut self, records: &[(RecordNumber, Record)], beside: Vec<(usize, Beside)>) {
        let mut beside = beside.into_iter().peekable();
        for (at, (_, record)) in records.iter().enumerate() {
            let with = beside.next_if(|(of, _)| *of == at).map(|(_, beside)| beside);
            self.note_one(record, with);
        }
    }

    fn note_one(&mut self, record: &Record, beside: Option<Beside>) {
        let m = &self.metrics;
        match record {
            Record::Leadership(LeadershipFact::Started { recovery: Some(_), .. }) => m.recoveries.inc([]),
            Record::Audited(line) => {
                m.audit_lines.inc([]);
                if line.entry.verdict.as_deref() == Some("denied") {
                    // The rule names the policy first, then its version.
                    let policy = line
                        .entry
                        .rule
                        .as_deref()
                        .and_then(|rule| rule.split([' ', '@']).next())
                        .unwrap_or("none");
                    m.residency_denials.inc([policy]);
                }
            }
            Record::Object { key, fact: ObjectFact::Removed { .. } } => {
                if key.scope.is_none() && key.kind == Kind::ClusterQueue {
                    m.workloads_dispatched.forget(&[("cluster_queue", &key.name)]);
                }
                self.tallies.removed(key);
            }
            Record::Workload { fact: WorkloadFact::Offered { cluster, .. }, .. } => {
                if let Some(Beside::Queue(queue)) = beside {
                    self.tallies.dispatched(&queue, cluster.as_str());
                }
            }
            Record::Workload { fact: WorkloadFact::Refused { reason, .. }, .. } => m.refusals.inc([&format!("{reason:?}")]),
            Record::Workload { fact: WorkloadFact::GrantRefused { fence, .. }, .. } => {
                m.refusals.inc(["Grant"]);
                self.leg_over(*fence, None, Outcome::Bad("refused"));
            }
            Record::Workload { uid, fact: WorkloadFact::Granted { offer, fence, at } } => self.granted(
                *fence,
                |cluster| OpenLeg { uid: *uid, offer: *offer, cluster, granted: *at },
                beside,
            ),
            Record::Workload { fact: WorkloadFact::LeaseLapsed { fence, at, .. }, .. } => {
                m.lapses.inc([]);
                self.leg_over(*fence, Some(*at), Outcome::Bad("lapsed"));
            }
            Record::Workload { fact: WorkloadFact::Ended { fence, result, at, .. }, .. } => {
                let outcome = match result {
                    EndResult::Succeeded => Outcome::Good,
                    EndResult::Failed { .. } => Outcome::Bad("failed"),
                    EndResult::Stopped => Outcome::Bad("stopped"),
                    EndResult::LeaseLapsed => Outcome::Bad("lease-lapsed"),
                    EndResult::NodeLost { .. } => Outcome::Bad("node-lost"),
                };
                self.leg_over(*fence, Some(*at), outcome);
            }
            Record::Workload { uid, fact: WorkloadFact::Finished { succeeded, at, .. } } if self.legs.is_some() => {
                if let Some(Beside::Since(from)) = beside {
                    let outcome = if *succeeded { Outcome::Good } else { Outcome::Bad("failed") };
                    trace::record_submission(*uid, Interval { from, to: *at }, outcome);
                }
            }
            _ => {}
        }
    }

    /// Takes one milestone of what was committed.
    pub(super) fn reached(&mut self, reached: &Reached) {
        self.tallies.reached(reached);
    }

    fn granted(&mut self, fence: Fence, leg: impl FnOnce(ClusterName) -> OpenLeg, beside: Option<Beside>) {
        self.metrics.grants.inc([]);
        let Some(Beside::Stay(queue, cluster)) = beside else { return };
        self.metrics.workloads_dispatched.inc([&queue, cluster.as_str()]);
        if let Some(legs) = &mut self.legs {
            legs.insert(fence, leg(cluster));
            if legs.len() > LEGS_MAX {
                legs.pop_first();
            }
        }
    }

    fn leg_over(&mut self, fence: Fence, at: Option<Wall>, outcome: Outcome) {
        let Some(leg) = self.legs.as_mut().and_then(|legs| legs.remove(&fence)) else { return };
        let interval = Interval { from: leg.granted, to: at.unwrap_or(leg.granted) };
        trace::record_leg(
            &Leg { uid: leg.uid, offer: leg.offer, cluster: &leg.cluster, fence: Some(fence) },
            interval,
            outcome,
        );
    }
}

/// What the core counts of what agents say and are told, by kind.
const fn on_the_link(counts: &CoreCounts) -> [(&'static str, u64); 5] {
    [
        ("LateHold", counts.late_holds),
        ("DigestMismatch", counts.digest_mismatches),
        ("Adoption", counts.adoptions),
        ("ResidencyStop", counts.residency_stops),
        ("Illegal", counts.illegal),
    ]
}

fn granted_at(workload: &Workload, fence: Fence) -> Wall {
    workload.history.iter().rev().find(|s| s.fence == fence).map_or(workload.since, |s| s.granted)
}

fn queue_of(world: &World, uid: Uid) -> Arc<str> {
    if let Some(queue) = world.queues.charged_to(uid) {
        return queue.clone();
    }
    let class = world.state.workloads.get(&uid).map(|w| world.queues.class(w.class));
    let queue = class.and_then(|class| world.state.catalog.local_queue(&class.namespace, &class.queue));
    Arc::from(queue.map_or("", |queue| queue.cluster_queue.as_str()))
}
