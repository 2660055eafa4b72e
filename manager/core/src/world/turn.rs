//! One turn: the application of one input, which collects the outcome.
//!
//! Records are made only here. The world absorbs each at once, so that the next decision of the same turn
//! sees it.

use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry, Line};
use crate::facts::input::Write;
use crate::facts::key::Key;
use crate::facts::outcome::{Bodies, Outcome, Reply};
use crate::facts::reason::Why;
use crate::facts::record::{MemberFact, Record, WorkloadFact};
use crate::sessions::outbox::CommandRef;
use crate::state::usage_history;
use crate::state::workload::Workload;
use crate::world::absorb::usage;
use crate::world::{World, lifecycle};
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, ContentHash, Uid};
use meridian_shared::time::Now;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The context of one input that is being applied.
pub struct Turn<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) now: Now,
    bodies: &'a dyn Bodies,
    new_bodies: BTreeMap<ContentHash, Arc<str>>,
    out: Outcome,
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("now", &self.now)
            .field("records", &self.out.records.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Turn<'a> {
    pub fn new(world: &'a mut World, now: Now, bodies: &'a dyn Bodies) -> Self {
        Self { world, now, bodies, new_bodies: BTreeMap::new(), out: Outcome::default() }
    }

    pub fn finish(mut self) -> Outcome {
        self.out.bodies = self.new_bodies.into_iter().collect();
        self.out
    }

    /// Records a fact: the world absorbs it at once, the caller of the core commits it.
    pub(crate) fn record(&mut self, record: Record) {
        let number = self.world.state.last().next();
        let subject = match &record {
            Record::Workload { uid, fact } => Some((*uid, fact)),
            _ => None,
        };
        if let Some((uid, WorkloadFact::Forgotten)) = subject {
            self.out.changed.extend(self.world.keys_of(uid));
        }
        let before = subject.and_then(|(uid, fact)| lifecycle::before(self.world, uid, fact));
        self.out.dropped_bodies.extend(self.world.absorb(number, &record));
        usage::settle_penalty(self.world, &record);
        match &record {
            Record::Object { key, .. } => drop(self.out.changed.insert(key.clone())),
            Record::Member {
                cluster,
                fact: MemberFact::CertificatesVoided { .. } | MemberFact::CertificatesAdopted { .. },
            } => drop(self.out.changed.insert(Key::global(Kind::Cluster, cluster.as_str()))),
            Record::UsageSampled { queues, forgotten, .. } => {
                self.out.changed.extend(usage_history::keys(queues.keys().chain(forgotten)));
            }
            _ => {}
        }
        self.out.workloads.extend(subject.map(|(uid, _)| uid));
        if let Some((before, (_, fact))) = before.zip(subject) {
            self.out.lifecycle_events.extend(lifecycle::events(self.world, before, fact, self.now));
        }
        self.out.urgent |= record.frees();
        self.out.records.push((number, record));
    }

    pub(crate) fn record_workload(&mut self, uid: Uid, fact: WorkloadFact) {
        self.record(Record::Workload { uid, fact });
    }

    /// Writes a line of the audit log, in the same transaction as the change that it is about.
    pub(crate) fn audit(&mut self, by: Actor, entry: Entry) {
        let line = Line::after(self.world.state.audit(), self.now.wall, by, entry);
        self.record(Record::Audited(Box::new(line)));
    }

    /// Writes a line about a workload, with its name and the cluster where it runs or ran last.
    pub(crate) fn audit_workload(&mut self, uid: Uid, by: &Actor, action: Action) {
        let detail = self.workload(uid).map(|w| format!("{}/{}", w.namespace(), w.name()));
        let cluster = self.workload(uid).and_then(Workload::right).map(|(_, leg)| leg.cluster().to_string());
        self.audit(by.clone(), Entry { cluster, detail, ..Entry::new(action, uid.to_string()) });
    }

    /// Queues a command to an agent and returns its number. Without a session the command is dropped: the
    /// inventory at the start of the next session shows what must be done.
    pub(crate) fn send(&mut self, cluster: &ClusterName, command: CommandRef) -> Option<u64> {
        let live = self.world.live.cluster_mut(cluster)?;
        self.out.wake.insert(cluster.clone());
        Some(live.outbox_mut().push(command))
    }

    /// Queues a command that corrects what an agent reported. An agent may report anything, so the outbox is
    /// bounded for corrections; those dropped are found again in the agent's next inventory.
    pub(crate) fn send_correction(&mut self, cluster: &ClusterName, command: CommandRef) {
        if self.world.live.cluster(cluster).is_some_and(|live| live.outbox().waiting() < CORRECTIONS_MAX) {
            self.send(cluster, command);
        }
    }

    /// Makes the next pass evaluate parked workloads again, because something changed that may let them
    /// start.
    pub(crate) fn capacity_changed(&mut self) {
        self.world.live.pass_mut().capacity_changed();
    }

    pub(crate) fn reply(&mut self, reply: Reply) {
        self.out.reply = reply;
    }

    /// Answers a parked request of the cluster's agent after the commit, if there is something to send.
    pub(crate) fn wake(&mut self, cluster: &ClusterName) {
        self.out.wake.insert(cluster.clone());
    }

    /// [`Self::wake`] for every session with something to send.
    pub(crate) fn wake_due(&mut self) {
        let now = self.now.mono;
        let due = self.world.live.clusters().iter().filter(|(_, live)| live.outbox().due(now));
        self.out.wake.extend(due.map(|(cluster, _)| cluster.clone()));
    }

    /// [`Self::wake`] for every session.
    pub(crate) fn wake_all(&mut self) {
        self.out.wake.extend(self.world.live.clusters().keys().cloned());
    }

    /// Renews the views of a workload although no record of this turn is about it.
    pub(crate) fn view_changed(&mut self, uid: Uid) {
        self.out.workloads.insert(uid);
    }

    /// [`Self::view_changed`] for every workload that satisfies `predicate`.
    pub(crate) fn views_changed(&mut self, predicate: impl Fn(&Workload) -> bool) {
        let changed = self.world.state.workloads().iter().filter(|(_, workload)| predicate(workload));
        self.out.workloads.extend(changed.map(|(uid, _)| *uid));
    }

    /// Hands back a request that was applied: the shell drops it when no caller waits for it.
    pub(crate) fn spend(&mut self, write: Write) {
        self.out.spent.push(write);
    }

    /// Stores a job manifest with the records of this turn.
    pub(crate) fn store_body(&mut self, hash: ContentHash, body: Arc<str>) {
        self.new_bodies.insert(hash, body);
    }

    pub fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.new_bodies.get(&hash).cloned().or_else(|| self.bodies.body(hash))
    }

    pub fn workload(&self, uid: Uid) -> Option<&Workload> {
        self.world.state.workloads().get(&uid)
    }

    /// Stores why a cluster can't start a class.
    pub(crate) fn note(&mut self, class: crate::facts::submission::ClassId, cluster: &ClusterName, why: Why) {
        self.world.live.pending_reasons_mut().set_at(class, cluster, why);
    }
}

/// Length of an agent's outbox at which corrections are dropped.
const CORRECTIONS_MAX: usize = 8_192;
