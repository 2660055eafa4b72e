//! Metrics and spans, from committed facts.

pub(super) use super::dashboards::CountedEvent;
use super::dashboards::{Dashboards, QueueCounters, Rows};
use super::fleet_gauges::FleetGauges;
use super::races::{Races, accelerators};
use crate::metrics::Metrics;
use meridian_manager_core::World;
use meridian_manager_core::facts::audit::{Line, Verdict};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{Reply, WriteResult};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{LeadershipFact, MemberFact, ObjectFact, WorkloadFact};
use meridian_manager_core::live::counts::{Count, Counts as CoreCounts};
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_objects::Kind;
use meridian_objects::spec::ClusterSpec;
use meridian_shared::ids::{ClusterName, Fence, OfferId, RecordNumber, Region, Uid};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Now, Wall};
use meridian_telemetry::trace::{self, Interval, Leg, SpanOutcome};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most open legs that are kept until their spans are exported. Beyond it, the oldest legs are missing from
/// their traces.
const LEGS_MAX: usize = 65_536;

/// Counters of requests, and the core's counters at the last report.
#[derive(Debug)]
pub(super) struct RequestCounters {
    metrics: Metrics,
    renewals: u64,
    put_off: u64,
    link: [(&'static str, u64); 5],
    attempts: Attempts,
}

/// Counters and traces of what is committed.
#[derive(Debug)]
pub(super) struct CommitCounters {
    metrics: Metrics,
    /// Granted legs by fence, kept only if spans are exported.
    legs: Option<BTreeMap<Fence, OpenLeg>>,
    queue_counters: QueueCounters,
    dashboards: Dashboards,
    races: Races,
}

/// Values of gauges after a batch, and the increase of the core's counters since the last report.
#[derive(Debug)]
pub(super) struct GaugeValues {
    rows: Rows,
    fleet: FleetGauges,
    orphans: i64,
    /// Legs by state and cluster.
    legs: Vec<(&'static str, ClusterName, i64)>,
    agents: Vec<AgentContact>,
    renewals: u64,
    /// Events that had to wait because their agent had used up its budget.
    put_off: u64,
    /// Anomalies of the sync protocol, by kind.
    link: [(&'static str, u64); 5],
    attempts: Attempts,
}

/// When an agent was last in contact.
#[derive(Debug)]
struct AgentContact {
    cluster: ClusterName,
    region: Region,
    connected: bool,
    /// Time since the last contact, if there was any.
    since_contact: Option<Millis>,
}

#[derive(Debug)]
struct OpenLeg {
    uid: Uid,
    offer: OfferId,
    cluster: ClusterName,
    granted: Wall,
}

/// Facts besides a record that counting the record needs, as of the end of its batch.
#[derive(Debug)]
pub(super) enum RecordContext {
    /// The cluster queue of an offer, and the accelerators of its gang.
    Offer(Arc<str>, f64),
    /// The cluster queue and the cluster of a grant.
    Grant(Arc<str>, ClusterName),
    /// The cluster of a lapsed lease.
    Lapse(ClusterName),
    /// When a finished workload was submitted.
    Submission(Wall),
}

impl RecordContext {
    /// The contexts of those `records` that need one, by index.
    pub(super) fn of(world: &World, records: &[(RecordNumber, Record)]) -> Vec<(usize, Self)> {
        let context = |record: &Record| match record {
            Record::Workload { uid, fact: WorkloadFact::Offered { .. } } => {
                let gang = world.state().workloads().get(uid).map(|w| &world.queues().class(w.class()).gang);
                Some(Self::Offer(queue_of(world, *uid), gang.map_or(0.0, |gang| accelerators(gang))))
            }
            Record::Workload { uid, fact: WorkloadFact::Granted { fence, .. } } => {
                Some(Self::Grant(queue_of(world, *uid), cluster_of(world, *uid, *fence)?))
            }
            Record::Workload { uid, fact: WorkloadFact::LeaseLapsed { fence, .. } } => {
                Some(Self::Lapse(cluster_of(world, *uid, *fence)?))
            }
            Record::Workload { uid, fact: WorkloadFact::Finished { .. } } => {
                Some(Self::Submission(world.state().workloads().get(uid)?.created()))
            }
            _ => None,
        };
        records.iter().enumerate().filter_map(|(at, (_, record))| Some((at, context(record)?))).collect()
    }
}

/// Number of workloads in each phase.
#[derive(Debug)]
pub(super) struct PhaseCounts(Vec<(&'static str, i64)>);

impl PhaseCounts {
    pub(super) fn of(world: &World) -> Self {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let inactive = world.counts_by_queue().inactive();
        let pending = |phase| if phase == Phase::Pending { inactive } else { 0 };
        let phases = Phase::ALL.map(|phase| {
            (phase.name(), whole(world.counts_by_queue().phase(phase).saturating_sub(pending(phase))))
        });
        Self(phases.into_iter().chain([("Deactivated", whole(inactive))]).collect())
    }

    fn show(&self, metrics: &Metrics) {
        metrics.workloads.by_state.replace(self.0.iter().map(|(phase, n)| ([*phase], *n)));
    }
}

/// Scheduling rounds: those that admitted a workload, and the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    pub(super) fruitful: u64,
    pub(super) fruitless: u64,
}

impl Attempts {
    fn since(self, before: Self) -> Self {
        Self {
            fruitful: self.fruitful.saturating_sub(before.fruitful),
            fruitless: self.fruitless.saturating_sub(before.fruitless),
        }
    }
}
impl RequestCounters {
    pub(super) fn new(metrics: Metrics) -> Self {
        let link = link_anomalies(&CoreCounts::default());
        Self { metrics, renewals: 0, put_off: 0, link, attempts: Attempts::default() }
    }

    /// After the world was read again, treats the core's counters as already reported.
    pub(super) fn reset(&mut self, world: &World) {
        let counts = world.live().counts();
        (self.renewals, self.put_off, self.attempts) =
            (counts.of(Count::Renewals), counts.of(Count::PutOff), Self::attempts(world));
        self.link = link_anomalies(counts);
    }

    /// Scheduling rounds since the start.
    pub(super) fn attempts(world: &World) -> Attempts {
        let counts = world.live().counts();
        Attempts {
            fruitful: counts.of(Count::AttemptsFruitful),
            fruitless: counts.of(Count::AttemptsFruitless),
        }
    }

    /// Counts the submissions in a write by its reply.
    pub(super) fn replied(&self, reply: &Reply, submits: bool) {
        match reply {
            Reply::Written(all) => {
                for written in all.iter().filter(|w| w.key.kind.is_job()) {
                    match written.result {
                        WriteResult::Created => self.metrics.workloads.submissions.inc(["accepted"]),
                        WriteResult::Unchanged => self.metrics.workloads.submissions.inc(["duplicate"]),
                        WriteResult::Configured | WriteResult::Deleted | WriteResult::Deleting => {}
                    }
                }
            }
            Reply::Rejected(_) if submits => self.metrics.workloads.submissions.inc(["refused"]),
            _ => {}
        }
    }

    pub(super) fn submission_failed(&self) {
        self.metrics.workloads.submissions.inc(["failed"]);
    }

    /// Current values of the gauges, and the increase of the core's counters since the last call.
    pub(super) fn gauges(&mut self, world: &World, now: Now) -> GaugeValues {
        let counts = world.live().counts();
        let attempts = Self::attempts(world);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let last_contact = |name: &ClusterName| world.live().cluster(name).map(|live| live.heard());
        let silence = meridian_shared::lease::disconnect_after(world.config().term_min);
        let agent = |(cluster, spec): (ClusterName, &ClusterSpec)| {
            let since_contact = last_contact(&cluster).map(|at| now.mono.since(at));
            AgentContact {
                cluster,
                region: spec.region.clone(),
                connected: since_contact.is_some_and(|span| span <= silence),
                since_contact,
            }
        };
        let gauges = GaugeValues {
            rows: Rows::of(world),
            fleet: FleetGauges::of(world, now.wall),
            orphans: i64::try_from(world.state().orphans().len()).unwrap_or(i64::MAX),
            legs: world
                .counts_by_queue()
                .legs()
                .map(|(cluster, state, n)| (state.name(), cluster.clone(), whole(n)))
                .collect(),
            agents: world.state().catalog().clusters().map(agent).collect(),
            renewals: since(counts.of(Count::Renewals), self.renewals),
            put_off: since(counts.of(Count::PutOff), self.put_off),
            link: std::array::from_fn(|at| {
                let (kind, count) = link_anomalies(counts)[at];
                (kind, since(count, self.link[at].1))
            }),
            attempts: attempts.since(self.attempts),
        };
        (self.renewals, self.put_off, self.attempts) =
            (counts.of(Count::Renewals), counts.of(Count::PutOff), attempts);
        self.link = link_anomalies(counts);
        gauges
    }
}

/// The scheduling rounds of one pass, and how long all of them took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AdmissionRounds {
    attempts: Attempts,
    took: Duration,
}

impl AdmissionRounds {
    /// The rounds since `before`, which took `took` together.
    pub(super) fn since(before: Attempts, world: &World, took: Duration) -> Self {
        Self { attempts: RequestCounters::attempts(world).since(before), took }
    }
}

impl CommitCounters {
    /// Counts the rounds of a committed batch. Assumes that all took equally long.
    pub(super) fn count_rounds(&self, rounds: AdmissionRounds) {
        let AdmissionRounds { attempts: Attempts { fruitful, fruitless }, took } = rounds;
        let each = took.div_f64((fruitful + fruitless).max(1) as f64);
        for (result, rounds) in [("success", fruitful), ("inadmissible", fruitless)] {
            (0..rounds)
                .for_each(|_| self.metrics.kueue.events.attempt_seconds.observe_duration([result], each));
        }
    }

    pub(super) fn new(metrics: Metrics, traces: bool) -> Self {
        let queue_counters = QueueCounters::new(metrics.kueue.clone());
        let dashboards = Dashboards::new(metrics.kueue.clone());
        let races = Races::new(metrics.fleet.clone());
        Self { metrics, legs: traces.then(BTreeMap::new), queue_counters, dashboards, races }
    }

    /// Sets the gauges after a committed batch.
    pub(super) fn show_gauges(&self, gauges: &GaugeValues) {
        let m = &self.metrics;
        let _update = m.begin_update();
        m.workloads.lease_renewals.add([], gauges.renewals);
        m.agents.events_put_off.add([], gauges.put_off);
        gauges.link.iter().for_each(|(kind, n)| m.agents.link_events.add([kind], *n));
        self.dashboards.count_attempts(gauges.attempts.fruitful, gauges.attempts.fruitless);
        m.workloads.orphans.set(gauges.orphans);
        m.workloads
            .legs
            .replace(gauges.legs.iter().map(|(state, cluster, n)| ([*state, cluster.as_str()], *n)));
        self.dashboards.show(&gauges.rows);
        gauges.fleet.show(m);
        let agents = || gauges.agents.iter();
        m.agents.connected.replace(
            agents()
                .map(|agent| ([agent.cluster.as_str(), agent.region.as_str()], i64::from(agent.connected))),
        );
        let seconds = |span: Millis| i64::try_from(span.0 / 1_000).unwrap_or(i64::MAX);
        let ages =
            agents().filter_map(|agent| Some(([agent.cluster.as_str()], seconds(agent.since_contact?))));
        m.agents.last_sync_age_seconds.replace(ages);
    }

    /// Takes the open legs from the world, after it was read again.
    pub(super) fn reset(&mut self, world: &World) {
        self.races.reset(world);
        let Some(legs) = &mut self.legs else { return };
        legs.clear();
        for (uid, workload) in world.state().workloads().iter() {
            for (offer, leg) in workload.legs().iter() {
                if let Some(fence) = leg.fence() {
                    let granted = granted_at(workload, fence);
                    legs.insert(
                        fence,
                        OpenLeg { uid: *uid, offer: *offer, cluster: leg.cluster().clone(), granted },
                    );
                }
            }
        }
    }

    /// Sets the number of workloads per phase after every committed batch, unlike other gauges. Doesn't wait
    /// for a scrape in progress, because the next batch sets the numbers again.
    pub(super) fn show_phase_counts(&self, phase_counts: &PhaseCounts) {
        if let Some(_update) = self.metrics.try_begin_update() {
            phase_counts.show(&self.metrics);
        }
    }

    /// Counts the records of a committed batch. `contexts` is ordered by index of the record.
    pub(super) fn count_records(
        &mut self,
        records: &[(RecordNumber, Record)],
        contexts: Vec<(usize, RecordContext)>,
    ) {
        let mut contexts = contexts.into_iter().peekable();
        let now = Instant::now();
        for (at, (_, record)) in records.iter().enumerate() {
            let context = contexts.next_if(|(of, _)| *of == at).map(|(_, context)| context);
            if let Record::Workload { uid, fact } = record {
                self.races.observe(*uid, fact, now);
            }
            self.count_record(record, context, now);
        }
    }

    fn count_record(&mut self, record: &Record, context: Option<RecordContext>, now: Instant) {
        let m = &self.metrics;
        match record {
            Record::Leadership(LeadershipFact::Started { recovery: Some(_), .. }) => {
                m.engine.recoveries.inc([])
            }
            Record::Audited(line) => self.count_audit_line(line),
            Record::Object { key, fact: ObjectFact::Removed { .. } } => self.forget_object(key),
            Record::Member { cluster, fact: MemberFact::SessionOpened { .. } } => {
                m.fleet.sessions.inc([cluster.as_str()])
            }
            Record::Workload { uid, fact: WorkloadFact::Offered { offer, cluster, .. } } => {
                if let Some(RecordContext::Offer(queue, accelerators)) = context {
                    self.queue_counters.dispatched(&queue, cluster.as_str());
                    self.races.offered((*uid, *offer), cluster, accelerators, now);
                }
            }
            Record::Workload { fact: WorkloadFact::Refused { reason, .. }, .. } => {
                m.workloads.refusals.inc([reason.word()])
            }
            Record::Workload { fact: WorkloadFact::GrantRefused { fence, .. }, .. } => {
                m.workloads.refusals.inc(["Grant"]);
                self.leg_over(*fence, None, SpanOutcome::Bad("refused"));
            }
            Record::Workload { uid, fact: WorkloadFact::Granted { offer, fence, at } } => {
                let leg = |cluster| OpenLeg { uid: *uid, offer: *offer, cluster, granted: *at };
                self.count_grant(*fence, leg, context);
            }
            Record::Workload { fact: WorkloadFact::LeaseLapsed { fence, at, .. }, .. } => {
                if let Some(RecordContext::Lapse(cluster)) = context {
                    m.workloads.lapses.inc([cluster.as_str()]);
                }
                self.leg_over(*fence, Some(*at), SpanOutcome::Bad("lapsed"));
            }
            Record::Workload { fact: WorkloadFact::Ended { fence, result, at, .. }, .. } => {
                self.leg_over(*fence, Some(*at), outcome_of(result));
            }
            Record::Workload { uid, fact: WorkloadFact::Finished { succeeded, at, .. } }
                if self.legs.is_some() =>
            {
                if let Some(RecordContext::Submission(from)) = context {
                    let outcome = if *succeeded { SpanOutcome::Good } else { SpanOutcome::Bad("failed") };
                    trace::record_submission(*uid, Interval { from, to: *at }, outcome);
                }
            }
            _ => {}
        }
    }

    fn count_audit_line(&self, line: &Line) {
        let m = &self.metrics;
        m.journal.audit_lines.inc([]);
        if line.entry.verdict == Some(Verdict::Denied) {
            // the rule starts with the policy's name, then its version
            let policy = line.entry.rule.as_deref().and_then(|rule| rule.split([' ', '@']).next());
            m.workloads.residency_denials.inc([policy.unwrap_or("none")]);
        }
    }

    /// Removes the series of a deleted object.
    fn forget_object(&mut self, key: &Key) {
        let workloads = &self.metrics.workloads;
        if key.scope.is_none() && key.kind == Kind::ClusterQueue {
            workloads.dispatched.forget(&[("cluster_queue", &key.name)]);
        }
        if key.kind == Kind::Cluster {
            self.metrics.fleet.forget_cluster(&key.name);
            workloads.lapses.forget(&[("cluster", &key.name)]);
            self.metrics.agents.requests_refused.forget(&[("cluster", &key.name)]);
        }
        self.queue_counters.removed(key);
    }

    pub(super) fn count_event(&mut self, event: &CountedEvent) {
        self.queue_counters.count(event);
    }

    fn count_grant(
        &mut self,
        fence: Fence,
        leg: impl FnOnce(ClusterName) -> OpenLeg,
        context: Option<RecordContext>,
    ) {
        self.metrics.workloads.grants.inc([]);
        let Some(RecordContext::Grant(queue, cluster)) = context else { return };
        self.metrics.workloads.dispatched.inc([&queue, cluster.as_str()]);
        if let Some(legs) = &mut self.legs {
            legs.insert(fence, leg(cluster));
            if legs.len() > LEGS_MAX {
                legs.pop_first();
            }
        }
    }

    fn leg_over(&mut self, fence: Fence, at: Option<Wall>, outcome: SpanOutcome) {
        let Some(leg) = self.legs.as_mut().and_then(|legs| legs.remove(&fence)) else { return };
        let interval = Interval { from: leg.granted, to: at.unwrap_or(leg.granted) };
        trace::record_leg(
            &Leg { uid: leg.uid, offer: leg.offer, cluster: &leg.cluster, fence: Some(fence) },
            interval,
            outcome,
        );
    }
}

/// Anomalies of the sync protocol as the core counts them, by kind.
const fn link_anomalies(counts: &CoreCounts) -> [(&'static str, u64); 5] {
    [
        ("LateHold", counts.of(Count::LateHolds)),
        ("DigestMismatch", counts.of(Count::DigestMismatches)),
        ("Adoption", counts.of(Count::Adoptions)),
        ("ResidencyStop", counts.of(Count::ResidencyStops)),
        ("Illegal", counts.of(Count::Illegal)),
    ]
}

const fn outcome_of(result: &EndResult) -> SpanOutcome {
    match result {
        EndResult::Succeeded => SpanOutcome::Good,
        EndResult::Failed { .. } => SpanOutcome::Bad("failed"),
        EndResult::Stopped => SpanOutcome::Bad("stopped"),
        EndResult::LeaseLapsed => SpanOutcome::Bad("lease-lapsed"),
        EndResult::NodeLost { .. } => SpanOutcome::Bad("node-lost"),
    }
}

/// The cluster of an attempt.
fn cluster_of(world: &World, uid: Uid, fence: Fence) -> Option<ClusterName> {
    let history = world.state().workloads().get(&uid)?.history();
    history.iter().rev().find(|attempt| attempt.fence == fence).map(|attempt| attempt.cluster.clone())
}

fn granted_at(workload: &Workload, fence: Fence) -> Wall {
    workload.history().iter().rev().find(|s| s.fence == fence).map_or(workload.since(), |s| s.granted)
}

fn queue_of(world: &World, uid: Uid) -> Arc<str> {
    if let Some(queue) = world.queues().charged_to(uid) {
        return queue.clone();
    }
    let class = world.state().workloads().get(&uid).map(|w| world.queues().class(w.class()));
    let queue = class.and_then(|class| world.state().catalog().local_queue(&class.namespace, &class.queue));
    Arc::from(queue.map_or("", |queue| queue.cluster_queue.as_str()))
}
