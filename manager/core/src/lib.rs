//! The brain of the manager: one queue, quota, residency, placement, dispatch, leases, recovery and the reasons for all of it.
//!
//! Pure and deterministic: no clock, no file, no thread, no hash order. One door, [`World::apply`], turns an input into
//! *records* (facts, absorbed at once and committed by the shell), a reply (given after the commit) and wake-ups (done after
//! the commit). [`World::absorb`] is the only writer of durable state, so a replay of records gives the same world whatever
//! today's algorithms would decide.
//!
//! | room | owns |
//! |---|---|
//! | [`workload`], [`leg`] | the two machines, one exhaustive match each |
//! | [`record`], [`absorb`](self) | facts, and what they change |
//! | `activity` | who is taken out of the queue, and put back |
//! | [`catalog`] | objects as people wrote them, and the questions asked of them |
//! | `reading` | what is read of a job before the world is asked |
//! | `writes` | people's changes: all or nothing |
//! | [`queues`] | classes, who waits in them, what is charged |
//! | [`tally`] | how many stand where, per queue |
//! | [`milestone`], [`dashboard`] | what happened to workloads, and what a scrape shows |
//! | `deciding` | the brain beside the world: quota, order, preemption and shares, by the crate `meridian-queueing` |
//! | [`residency`] | where a workload may be known at all |
//! | `dispatch` | one scheduling pass: who gets quota, which clusters are asked, who is granted |
//! | `rooms`, `places` | what clusters have free, and rooms as the brain asks for them |
//! | `domains` | whether pods that must be together could be in any domain there |
//! | `past_use` | what local queues used before, taken down and forgotten |
//! | `giving_way` | what follows when workloads stop for another: the room that is kept, and who is safe from whom |
//! | `sync`, `inventory`, [`outbox`], `carried` | the manager's half of the protocol with one agent |
//! | `budget` | how much a cluster may have written of what is known of it |
//! | `orphans` | runs that the journal doesn't know: how they are stopped, and go |
//! | `elastic`, `growing` | jobs whose number of pods changes, and gangs that grow while they run |
//! | `reclaim` | pods of running gangs that aren't needed any more, and the quota that they give back |
//! | `timers`, `recovery` | leases, start deadlines, leaderships |
//! | [`explain`], [`view`] | the reasons in words, and objects as readers see them |
//! | `statuses`, `admission` | statuses of queues and cohorts, and Kueue's view of a job |
//! | [`audit`] | the hash chain |
//! | `essence` | what later behaviour depends on, for a model checker |
//! | `check` | recounts and cross-references, after every step of a simulation |

#![warn(missing_docs)]

mod absorb;
mod activity;
mod actors;
pub mod admission;
pub mod audit;
mod bounds;
mod budget;
pub mod by_uid;
mod caps;
mod carried;
pub mod catalog;
mod check;
pub mod dashboard;
mod deciding;
mod dispatch;
mod domains;
pub mod elastic;
mod essence;
pub mod evicted;
pub mod explain;
pub mod flavors;
mod giving_way;
mod growing;
pub mod hindrances;
pub mod input;
mod inventory;
pub mod leg;
pub mod legs;
pub mod milestone;
mod operator;
mod orphans;
pub mod outbox;
mod past_use;
mod placement;
mod places;
pub mod queues;
mod ranking;
mod reading;
mod reclaim;
pub mod record;
mod recovery;
pub mod residency;
mod rooms;
mod starts;
mod starving;
mod statuses;
mod sync;
pub mod tally;
mod timers;
mod turn;
mod vacating;
pub mod view;
mod ways;
pub mod workload;
mod writes;

pub use past_use::PastUse;
pub use turn::Turn;

use crate::flavors::Flavors;
use audit::Head;
use budget::Budget;
use carried::Carried;
use catalog::Catalog;
use explain::Why;
use giving_way::GivingWay;
use input::{Actor, Bodies, Input, Key, Outcome};
use meridian_objects::Kind;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, JournalId, Jurisdiction, Leadership, LedgerId, OfferId, RecordNumber,
    Region, Session, Uid,
};
use meridian_shared::lease::ManagerLease;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::placement::Placement;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{EndResult, OnLoss, RefuseReason, Run, StopReason};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use outbox::Outbox;
use queues::{ClassId, Queues};
use record::{Consumed, RecoveryStart};
use rooms::Rooms;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Version of the snapshot's form.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Heads of queues wait this long before room is kept for them, unless the manager is set otherwise.
pub const STARVATION_GUARD_DEFAULT: Millis = Millis::mins(60);
/// Heads that are admitted in one turn, about: some tens of milliseconds.
pub const HEADS_MAX_DEFAULT: usize = 256;

/// What a manager is started with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The shortest lease term that any workload may have.
    pub term_min: Millis,
    /// The term of workloads whose policy names none.
    pub term: Millis,
    /// How long an offer asks to be held.
    pub hold: Millis,
    /// How long a grant may take to reach running.
    pub start_timeout: Millis,
    /// Without any matching policy a workload is refused (`--residency=required`).
    pub residency_required: bool,
    /// The manager's own jurisdiction: what may not be stored there is refused unstored.
    pub jurisdiction: Option<Jurisdiction>,
    /// Codes what is said to agents.
    pub receipt_key: ReceiptKey,
    /// Finished workloads kept at most.
    pub finished_kept_max: usize,
    /// Finished workloads without a `ttlSecondsAfterFinished` are kept this long.
    pub finished_kept: Millis,
    /// Fair sharing between cluster queues and cohorts, where it is on.
    pub fair_sharing: Option<meridian_queueing::settings::FairSharing>,
    /// What quota sees of what pods ask for.
    pub resources: Arc<meridian_objects::ResourceRules>,
    /// After this long the head of a queue is passed by nobody any more, and room is kept for it; `None` never does.
    pub starvation_guard: Option<Millis>,
    /// Fair sharing of admissions between the local queues of one cluster queue, where it is on.
    pub admission_fair_sharing: Option<meridian_queueing::settings::AdmissionFairSharing>,
    /// Heads that are admitted in one turn, about, and that are looked at in vain in one that follows no other.
    pub heads_max: usize,
    /// A bug planted by a test.
    pub planted: Planted,
}

impl Config {
    /// The defaults of the documentation, with this key.
    pub fn new(receipt_key: ReceiptKey) -> Self {
        Self {
            term_min: meridian_shared::lease::TERM_MIN_DEFAULT,
            term: meridian_shared::lease::TERM_DEFAULT,
            hold: Millis::secs(60),
            start_timeout: Millis::mins(10),
            residency_required: false,
            jurisdiction: None,
            receipt_key,
            finished_kept_max: 100_000,
            finished_kept: Millis::mins(24 * 60),
            fair_sharing: None,
            resources: Arc::default(),
            starvation_guard: Some(STARVATION_GUARD_DEFAULT),
            admission_fair_sharing: None,
            heads_max: HEADS_MAX_DEFAULT,
            planted: Planted::NONE,
        }
    }
}

/// How a leadership starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Random.
    pub id: u64,
    /// `None` takes the short cut: the shell has shown that this journal is the one that was left.
    pub recovery: Option<RecoveryStart>,
    /// The new journal was made by `init`, which asserts that nothing ran before.
    pub fresh: bool,
    /// The shell has waited out claim plus drift before this moment.
    pub now: Now,
}

/// Durable state: everything that records say. Serialised as the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// The journal.
    pub journal: JournalId,
    /// The newest record absorbed.
    pub last: RecordNumber,
    /// Who leads, or led.
    pub leadership: Leadership,
    /// The first record of this leadership.
    pub led_since: RecordNumber,
    /// Which leadership wrote which range; foreign ones are closed at what was shown.
    pub ranges: Vec<(Leadership, RecordNumber, RecordNumber)>,
    /// Recovery, while it is open.
    pub recovery: Option<RecoveryStart>,
    /// The record with which it opened.
    #[serde(default)]
    pub recovery_since: RecordNumber,
    /// Something was done under this journal's name that it doesn't know: it is a copy, new in place of another, or a fork.
    #[serde(default)]
    pub behind: bool,
    /// The newest change of a policy or a quota.
    pub rules: RecordNumber,
    /// Rules newer than ours were shown: nothing is offered until a person confirms.
    pub rules_doubted: Option<RecordNumber>,
    /// Objects.
    pub catalog: Catalog,
    /// Clusters that ever had a session.
    pub members: BTreeMap<ClusterName, Member>,
    /// Join tokens by hash.
    pub tokens: BTreeMap<String, Token>,
    /// Workloads.
    pub workloads: by_uid::Workloads,
    /// Runs of unknown uids.
    #[serde(with = "catalog::pairs")]
    pub orphans: BTreeMap<(Uid, Fence), Orphan>,
    /// Head of the audit log.
    pub audit: Head,
    /// Offers of this leadership so far.
    pub offers: u64,
    /// Grants of this leadership so far.
    pub grants: u64,
    /// What local queues used before, by namespace and name, where anything is left of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub past_use: BTreeMap<Arc<str>, PastUse>,
    /// Who was displaced by whom a while ago.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub displaced: BTreeMap<Uid, Vec<giving_way::Displaced>>,
}

/// A cluster that ever had a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its newest ledger.
    pub ledger: LedgerId,
    /// Its highest session.
    pub session: Session,
    /// Ledgers that were replaced; a session that brings one again is refused.
    pub lost: BTreeSet<LedgerId>,
    /// The record of its first session.
    pub since: RecordNumber,
    /// The record of its newest session.
    #[serde(default)]
    pub session_since: RecordNumber,
    /// Another member has acknowledged a list with its name, or an operator said so, or there was no other.
    pub admitted: bool,
}

/// A join token: only its hash is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    /// What it is bound to.
    pub cluster: ClusterName,
    /// Region.
    pub region: Region,
    /// Jurisdiction.
    pub jurisdiction: Jurisdiction,
    /// Not good after.
    pub expires: Wall,
    /// Whether the name may exist.
    pub replace: bool,
}

/// A run of a uid that this journal doesn't know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Orphan {
    /// Where.
    pub cluster: ClusterName,
    /// By which ledger.
    pub ledger: LedgerId,
    /// As reported.
    pub run: Run,
    /// A person wants it stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Workload {
    /// As submitted; the class is interned.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// What decisions depend on.
    pub class: ClassId,
    /// Higher goes first.
    pub priority: i64,
    /// The whole job, by content.
    pub body: ContentHash,
    /// Its lease term.
    pub term: Millis,
    /// What the loss of its cluster means.
    pub on_loss: OnLoss,
    /// Kept this long after its end.
    pub ttl: Option<Millis>,
    /// When it was submitted.
    pub created: Wall,
    /// Its record: age in the queue, and which leadership minted it.
    pub submitted: RecordNumber,
    /// Where it stands.
    pub phase: workload::Phase,
    /// Since when, for people.
    pub since: Wall,
    /// The newest record about it.
    pub changed: RecordNumber,
    /// Flavor per resource, while quota is charged.
    pub flavors: Flavors,
    /// Pods of each pod set that it was given, while quota is charged, where they are fewer than it would like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<u32>>,
    /// Pods of each pod set that have succeeded and give back what they had, while quota is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<Vec<u32>>,
    /// That its job was made larger or smaller since quota was charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<Box<elastic::Resized>>,
    /// When quota was charged, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Wall>,
    /// The cluster queue in which quota is charged, while it is: not always the one that its local queue leads to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_to: Option<Arc<str>>,
    /// Legs that are not over.
    pub legs: legs::Legs,
    /// Its largest fence.
    pub fence: Option<Fence>,
    /// Grants so far.
    pub attempts: u32,
    /// Pods of the job that failed so far.
    pub pod_failures: u32,
    /// How often its number of pods was changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resizes: u32,
    /// Run time used so far.
    pub ran: Millis,
    /// When its pods first ran.
    pub started: Option<Wall>,
    /// Why it is being stopped.
    pub stopping: Option<StopReason>,
    /// For whose sake it was last displaced, until it is granted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<record::Preempted>,
    /// Why it last lost its right to run or its quota, until it is granted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Box<evicted::Evicted>>,
    /// How often it did so far, by why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<evicted::Evictions>,
    /// Who took it out of the queue, until somebody puts it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<Box<Deactivation>>,
    /// When it was last put back into the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reactivated: Option<Box<Reactivation>>,
    /// Deletion was asked for.
    pub deletion: Option<Wall>,
    /// How the job ended by its own doing in an attempt that had no leg here; it finishes so once nothing of an older attempt
    /// is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<EndResult>,
    /// How it ended.
    pub finished: Option<Finish>,
    /// The last thing that each cluster said no with.
    pub refusals: BTreeMap<ClusterName, (RefuseReason, String)>,
    /// Where it ran or runs, newest last.
    pub history: Vec<Stay>,
}

/// Who took a workload out of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deactivation {
    /// Who.
    pub by: Actor,
    /// When.
    pub at: Wall,
    /// It had run for as long as it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub time_is_up: bool,
}

/// How a workload came back to the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reactivation {
    /// When.
    pub at: Wall,
    /// Grants until then: back-off begins anew after them.
    pub attempts: u32,
}

/// How a workload ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finish {
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Kubernetes' condition reason.
    pub reason: String,
    /// In words.
    pub message: String,
    /// When.
    pub at: Wall,
}

/// One attempt, for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stay {
    /// Where.
    pub cluster: ClusterName,
    /// Its fence.
    pub fence: Fence,
    /// When it was granted.
    pub granted: Wall,
    /// When it was over.
    pub over: Option<Wall>,
    /// How it ended, in words.
    pub end: Option<String>,
}

/// One workload on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leg {
    /// The cluster.
    pub cluster: ClusterName,
    /// The ledger that was asked: only it can free.
    pub ledger: LedgerId,
    /// Where the leg stands.
    pub state: leg::State,
    /// Its fence, once granted.
    pub fence: Option<Fence>,
    /// Whether the agent is known to have the grant durably.
    pub accepted: bool,
    /// The provider's words.
    pub note: Option<String>,
    /// The provider's estimate.
    pub estimate: Option<Millis>,
    /// Why this cluster was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<record::Choice>,
    /// Where its pods are, as the agent said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Arc<Placement>>,
}

impl Leg {
    fn new(cluster: ClusterName, ledger: LedgerId, state: leg::State) -> Self {
        Self {
            cluster,
            ledger,
            state,
            fence: None,
            accepted: false,
            note: None,
            estimate: None,
            choice: None,
            placement: None,
        }
    }
}

/// What a restart forgets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Live {
    /// The leadership's own start, for every timer.
    pub led_at: Mono,
    /// Syncs are answered before this moment.
    pub claim_until: Mono,
    /// Sessions that talk.
    pub clusters: BTreeMap<ClusterName, LiveCluster>,
    /// Leases of every right to run that may be held.
    pub leases: BTreeMap<Fence, Lease>,
    /// Deadlines of leases that were let go, until the record that says so is durable.
    let_go: BTreeMap<Fence, (Mono, RecordNumber)>,
    /// What an earlier leadership of this very process counted, for the next one.
    deadlines: BTreeMap<Fence, Mono>,
    /// No lease, start deadline or retention is due before this moment.
    due: Mono,
    /// Members whose complete inventory recovery waits for.
    pub awaited: BTreeSet<ClusterName>,
    /// What keeps each class.
    hindrances: hindrances::Hindrances,
    /// Clusters that said no to a workload, until when it isn't asked again.
    refused: BTreeMap<(Uid, ClusterName), (Mono, RefuseReason, String)>,
    /// Who didn't reach running where.
    failed_starts: starts::FailedStarts,
    /// Verdicts that are in the audit log, with the rules they were judged by.
    audited: BTreeMap<ClassId, BTreeMap<ClusterName, RecordNumber>>,
    /// Not dispatched again before then.
    not_before: BTreeMap<Uid, Mono>,
    /// Why gangs that are to grow haven't yet.
    growths: BTreeMap<Uid, Why>,
    /// Who gave way for whom.
    giving_way: GivingWay,
    /// It isn't looked for who waits too long before this moment.
    starving_due: Mono,
    /// It is time to look for them.
    look_for_starving: bool,
    /// Runs whose agents may not be told another priority now, as a policy forbids their place and only flags that.
    unranked: BTreeSet<Uid>,
    /// Something changed that could let start who waits for room in a cluster.
    stirred: bool,
    /// A scheduling pass is due.
    dirty: bool,
    /// Turns in a row that left something to be decided.
    cuts: u32,
    finished: BTreeSet<(Wall, Uid)>,
    lapsing: orphans::Lapsing,
    retained: Mono,
    released_at: Mono,
    /// Past use is taken down again at this moment.
    sample_at: Mono,
    /// What admissions cost that came about since the last end of a batch, by local queue.
    entered: BTreeMap<Arc<str>, Consumed>,
    /// Counters for metrics.
    pub counts: Counts,
}

/// What happened so far in this leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Grants made.
    pub grants: u64,
    /// Leases that lapsed.
    pub lapses: u64,
    /// Holds that arrived for a leg that was over.
    pub late_holds: u64,
    /// Grants that a residency rule stopped at a later send.
    pub residency_stops: u64,
    /// Heads of queues for which room was kept, as they had waited too long.
    pub starved: u64,
    /// How often pods gave back what they had while the rest of their gang ran on.
    pub reclaimed: u64,
    /// Adoptions.
    pub adoptions: u64,
    /// Orphans seen.
    pub orphans: u64,
    /// Digests that differed.
    pub digest_mismatches: u64,
    /// Renewals composed.
    pub renewals: u64,
    /// Verdicts that denied.
    pub denials: u64,
    /// Messages that no honest agent sends.
    pub illegal: u64,
    /// How often an event had to wait, as its cluster had had too much written of what was known.
    pub put_off: u64,
    /// Rounds of decisions in which a workload was admitted.
    pub attempts_fruitful: u64,
    /// Rounds in which none was.
    pub attempts_fruitless: u64,
    /// Turns that left something to be decided.
    pub cut_short: u64,
}

/// One lease at the manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The workload.
    pub uid: Uid,
    /// Deadline and term.
    pub lease: ManagerLease,
    /// When this leadership last composed an answer with it.
    pub composed: Option<Mono>,
    /// When it was first composed: a grant isn't sent again after its term.
    pub first: Option<Mono>,
    /// When the gang must be running.
    pub start_by: Mono,
}

/// One agent session that talks to this leadership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveCluster {
    /// The session.
    pub session: Session,
    /// The version of the protocol that its agent speaks.
    pub version: u32,
    /// When anything was last heard.
    pub heard: Mono,
    /// When it last acknowledged an answer that it hadn't before.
    pub acknowledged: Mono,
    /// The highest transmission whose answer it took.
    pub answered: u64,
    /// What each unacknowledged answer said.
    pub carried: BTreeMap<u64, Carried>,
    /// The newest record of an answer that it took: it knows every member named until then.
    pub acknowledged_record: RecordNumber,
    /// Events taken.
    pub events_through: u64,
    /// A complete inventory for this leadership was taken.
    pub inventoried: bool,
    /// Ask for an inventory.
    pub want_inventory: bool,
    /// Leases are looked at for renewal again at this moment.
    pub renew_at: Mono,
    /// Digests are compared again at this moment.
    pub digest_at: Mono,
    /// Numbered commands.
    pub outbox: Outbox,
    /// Ends to acknowledge, with their record.
    pub acknowledge: BTreeMap<(Uid, Fence), RecordNumber>,
    /// What it has had written of what was known.
    pub budget: Budget,
    /// Room as reported and as estimated.
    pub rooms: Rooms,
    /// Workloads that did not reach running there, in a row.
    pub failed_starts: u32,
    /// The last of them.
    pub failed_last: Option<Uid>,
    /// Left out until then.
    pub backed_off: Mono,
    /// The region in which the agent finds itself, if it can tell.
    pub located: Option<Arc<str>>,
    /// Its agent can let a gang go on with fewer pods.
    pub shrinks: bool,
    /// And with more.
    pub grows: bool,
    /// And can be told another priority.
    pub ranks: bool,
}

/// The world of one manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Durable.
    pub state: State,
    /// Volatile.
    pub live: Live,
    /// Fixed.
    pub config: Config,
    /// Caches over `state`.
    pub queues: Queues,
    /// Jobs by namespace and name.
    pub(crate) names: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Uid>>,
    /// Amounts that open and granted legs may use, per cluster.
    pub(crate) loads: BTreeMap<ClusterName, BTreeMap<Uid, ClassId>>,
    /// Who stands where, per queue.
    pub tally: tally::Tally,
    /// The brain: who waits and who holds quota, as decisions see them.
    pub(crate) deciding: deciding::Deciding,
}

/// Everything durable of one moment.
#[derive(Debug)]
pub struct Still {
    state: State,
    classes: Vec<(ClassId, Arc<record::Class>)>,
    next: ClassId,
}

impl Still {
    /// As a journal keeps it; it will take so many bytes, about.
    pub fn into_bytes(self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size);
        serde_json::to_writer(&mut bytes, &(SNAPSHOT_VERSION, self.state, self.classes, self.next))
            .expect("our own types serialise");
        bytes
    }
}

impl World {
    /// Everything durable as bytes: what a journal keeps instead of the records before it.
    pub fn snapshot(&self) -> Vec<u8> {
        self.still().into_bytes(0)
    }

    /// Everything durable as it is now, to be put into bytes later. Most of it is shared with the world until that changes.
    pub fn still(&self) -> Still {
        let classes = self.queues.classes().map(|(id, class)| (id, class.clone())).collect();
        Still { state: self.state.clone(), classes, next: self.queues.next_class() }
    }

    /// The world of a snapshot.
    pub fn restore(bytes: &[u8], config: Config) -> Result<Self, String> {
        let (version, state, classes, next): (u32, State, Vec<(ClassId, record::Class)>, ClassId) =
            serde_json::from_slice(bytes).map_err(|e| format!("the snapshot can't be read: {e}"))?;
        if version != SNAPSHOT_VERSION {
            return Err(format!(
                "the snapshot has version {version}, this manager reads version {SNAPSHOT_VERSION}"
            ));
        }
        let mut world = Self::empty(state.journal, config);
        world.state = state;
        world.recount(classes, next);
        Ok(world)
    }

    /// The one door.
    pub fn apply(&mut self, now: Now, input: Input, bodies: &dyn Bodies) -> Outcome {
        let mut turn = Turn::new(self, now, bodies);
        match input {
            Input::Write(write) => turn.write(*write),
            Input::Sync { cluster, request, may_park } => turn.sync(cluster, *request, may_park),
            Input::Unpark { cluster, session, transmission } => turn.unpark(cluster, session, transmission),
            Input::Operator { actor, action } => turn.operate(actor, action),
            Input::Turn => turn.end_of_batch(),
            Input::Lapse => turn.end_what_is_over(),
        }
        turn.finish()
    }

    /// A successful durable write that was begun at `begun`: the claim is good for a while from then.
    pub fn committed(&mut self, begun: Mono) {
        self.live.claim_until =
            self.live.claim_until.max(begun + meridian_shared::lease::claim(self.config.term_min));
    }

    /// Whether a workload may be dispatched now although recovery is open.
    pub(crate) fn held_back(&self, workload: &Workload, now: Mono) -> bool {
        let Some(recovery) = &self.state.recovery else { return false };
        if workload.submitted >= self.state.led_since
            || self.config.planted.has(meridian_shared::planted::Bug::RecoveryDispatches)
        {
            return false;
        }
        let released = !recovery.restored
            && workload.on_loss == OnLoss::Fence
            && ManagerLease::from_composed(self.live.led_at, workload.term).lapsed(now);
        !released
    }

    /// Whether this journal is a copy, and its original may still speak for this workload: it is then neither renewed nor
    /// called lapsed. Nobody else knows what this leadership minted.
    pub(crate) fn disputed(&self, workload: &Workload) -> bool {
        self.state.recovery.as_ref().is_some_and(|r| r.restored) && workload.submitted < self.state.led_since
    }

    /// The workload behind a job's name.
    pub fn uid_of(&self, namespace: &str, name: &str) -> Option<Uid> {
        self.names.get(namespace)?.get(name).copied()
    }

    /// Names of every cluster that ever had a session.
    pub fn members(&self) -> Vec<ClusterName> {
        self.state.members.keys().cloned().collect()
    }

    /// When `Turn` is next needed; `None` while nothing is timed.
    pub fn next_deadline(&self, now: Now) -> Option<Mono> {
        let soonest = self
            .live
            .not_before
            .values()
            .copied()
            .chain(self.live.refused.values().map(|(t, _, _)| *t))
            .chain(self.live.giving_way.next_deadline())
            .chain(self.next_sample())
            .chain(self.next_wait_after_failed_starts())
            .min();
        let silent = self
            .live
            .clusters
            .iter()
            .filter(|(name, _)| self.has_open_legs(name))
            .map(|(_, c)| c.heard + meridian_shared::lease::silence(self.config.term_min))
            .min();
        let again = self.live.clusters.values().filter_map(|c| c.outbox.resend_at(now.mono)).min();
        let starving = self
            .config
            .starvation_guard
            .filter(|_| self.queues.waiting_classes().next().is_some())
            .map(|_| self.live.starving_due);
        let undecided = self.undecided().then_some(now.mono);
        let released =
            self.state.recovery.as_ref().filter(|recovery| !recovery.restored).map(|_| self.live.released_at);
        [Some(self.live.due), soonest, silent, again, starving, released, undecided]
            .into_iter()
            .flatten()
            .filter(|d| *d < Mono(u64::MAX))
            .min()
    }

    /// The most recent reason why the class of this workload waits at each cluster, and before any cluster is looked at.
    pub fn reasons(&self, workload: &Workload) -> (Option<&Why>, Option<&BTreeMap<ClusterName, Why>>) {
        (self.live.hindrances.before(workload.class), self.live.hindrances.at_clusters(workload.class))
    }

    pub(crate) fn has_open_legs(&self, cluster: &ClusterName) -> bool {
        let uids = self.loads.get(cluster).into_iter().flatten();
        uids.filter_map(|(uid, _)| self.state.workloads.get(uid))
            .any(|w| w.legs.values().any(|l| l.cluster == *cluster && l.state.open()))
    }

    pub(crate) fn key_of(workload: &Workload) -> Key {
        Key {
            scope: None,
            kind: Kind::Job,
            namespace: Some(workload.namespace.clone()),
            name: workload.name.clone(),
        }
    }

    /// The leg that has, or may have, the right to run.
    pub(crate) fn right(workload: &Workload) -> Option<(OfferId, &Leg)> {
        workload.legs.iter().find(|(_, l)| l.state.granted()).map(|(id, l)| (*id, l))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Actor of timers and decisions that nobody asked for.
pub(crate) fn system() -> Actor {
    Actor::system()
}
