//! One turn: the application of one input, which collects the outcome.
//!
//! Records are made only here. The world absorbs each at once, so that the next decision of the same turn
//! sees it.

use crate::facts::actor::Actor;
use crate::facts::audit::{Entry, Line};
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
    pub(crate) bodies: &'a dyn Bodies,
    pub(crate) new_bodies: BTreeMap<ContentHash, Arc<str>>,
    pub(crate) out: Outcome,
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

    /// Queues a command to an agent and returns its number. Without a session the command is dropped: the
    /// inventory at the start of the next session shows what must be done.
    pub(crate) fn send(&mut self, cluster: &ClusterName, command: CommandRef) -> Option<u64> {
        let live = self.world.live.clusters.get_mut(cluster)?;
        self.out.wake.insert(cluster.clone());
        Some(live.outbox.push(command))
    }

    /// Queues a command that corrects what an agent reported. An agent may report anything, so the outbox is
    /// bounded for corrections; those dropped are found again in the agent's next inventory.
    pub(crate) fn send_correction(&mut self, cluster: &ClusterName, command: CommandRef) {
        if self.world.live.clusters.get(cluster).is_some_and(|live| live.outbox.waiting() < CORRECTIONS_MAX) {
            self.send(cluster, command);
        }
    }

    /// Has the next pass evaluate parked workloads again, because something changed that may let them start.
    pub(crate) fn capacity_changed(&mut self) {
        self.world.live.capacity_changed = true;
        self.world.live.dirty = true;
    }

    pub(crate) fn reply(&mut self, reply: Reply) {
        self.out.reply = reply;
    }

    pub fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.new_bodies.get(&hash).cloned().or_else(|| self.bodies.body(hash))
    }

    pub fn workload(&self, uid: Uid) -> Option<&Workload> {
        self.world.state.workloads().get(&uid)
    }

    /// Stores why a cluster can't start a class.
    pub(crate) fn note(&mut self, class: crate::facts::submission::ClassId, cluster: &ClusterName, why: Why) {
        self.world.live.pending_reasons.set_at(class, cluster, why);
    }
}

/// Length of an agent's outbox at which corrections are dropped.
const CORRECTIONS_MAX: usize = 8_192;
