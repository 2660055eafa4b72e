//! Durable state of an agent: leadership, largest fences, live grants, tombstones, receipts.
//!
//! Kept as keyed values, so that the shell needs one table and knows nothing of their meaning. Holds and
//! offers are not stored: they end with the session, and a grant that names one is refused afterwards.

use meridian_shared::ids::{ClusterName, Fence, JournalId, Leadership, LedgerId, RecordNumber, Uid};
use meridian_shared::protocol::{End, GrantRefusal, Receipt};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod fingerprint;
mod receipts;
mod stored_run;
mod values;

pub(crate) use receipts::Receipts;
pub(crate) use stored_run::StoredRun;
use values::put;
pub use values::{Error, StoreOp, Writes, is_run};

/// Most tombstones. When full, acknowledged ones are dropped first, then offers are refused.
pub const TOMBSTONES_MAX: usize = 100_000;
/// How long an acknowledged tombstone is kept.
pub const TOMBSTONE_KEPT: Millis = Millis::mins(7 * 24 * 60);

/// An end, or a refusal, that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tombstone {
    pub end: End,
    /// Why the grant was refused, if it was.
    pub refused: Option<GrantRefusal>,
    /// The manager's record of this end, and the time of the acknowledgement.
    pub acknowledged: Option<(Leadership, RecordNumber, Wall)>,
}

impl Tombstone {
    pub(crate) fn of_end(end: End) -> Self {
        Self { end, refused: None, acknowledged: None }
    }

    pub(crate) fn of_refusal(end: End, why: GrantRefusal) -> Self {
        Self { end, refused: Some(why), acknowledged: None }
    }
}

/// Everything durable, in memory. Every change adds its writes to the list that it is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable {
    ledger: LedgerId,
    sessions: u64,
    follows: Option<Leadership>,
    fences: BTreeMap<Uid, Fence>,
    runs: BTreeMap<Uid, StoredRun>,
    tombstones: BTreeMap<(Uid, Fence), Tombstone>,
    receipts: Receipts,
}

impl Durable {
    /// The empty store of an agent that has just joined.
    pub fn new(ledger: LedgerId) -> Self {
        Self {
            ledger,
            sessions: 0,
            follows: None,
            fences: BTreeMap::new(),
            runs: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            receipts: Receipts::default(),
        }
    }

    /// The first write into an empty table: the identity of the store.
    pub fn birth(&self) -> StoreOp {
        put("ledger", &self.ledger)
    }

    /// Identity of this store.
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// Number of sessions so far.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// The leadership that the agent follows.
    pub fn follows(&self) -> Option<Leadership> {
        self.follows
    }

    /// Ends and refusals, by workload and fence.
    pub fn tombstones(&self) -> &BTreeMap<(Uid, Fence), Tombstone> {
        &self.tombstones
    }

    /// Journals and members as managers reported them: the newest report of each leadership.
    pub fn receipts(&self) -> &BTreeMap<JournalId, BTreeMap<Leadership, (Receipt, Vec<ClusterName>)>> {
        self.receipts.by_journal()
    }

    /// The largest fence known of `uid`.
    pub fn fence_of(&self, uid: Uid) -> Option<Fence> {
        self.fences.get(&uid).copied()
    }

    pub(crate) fn runs(&self) -> &BTreeMap<Uid, StoredRun> {
        &self.runs
    }

    /// The newest receipts that fit `bytes_max`, always with the one of the followed leadership.
    pub(crate) fn newest_receipts(&self, bytes_max: usize) -> Vec<(Receipt, Vec<ClusterName>)> {
        self.receipts.newest(self.follows, bytes_max)
    }

    pub(crate) fn new_session(&mut self, out: &mut Writes) -> u64 {
        self.sessions += 1;
        out.push(put("sessions", &self.sessions));
        self.sessions
    }

    pub(crate) fn follow(&mut self, leadership: Leadership, out: &mut Writes) {
        self.follows = Some(leadership);
        out.push(put("follows", &self.follows));
    }

    pub(crate) fn raise_fence(&mut self, uid: Uid, fence: Fence, out: &mut Writes) {
        if self.fences.get(&uid).is_none_or(|known| *known < fence) {
            self.fences.insert(uid, fence);
            out.push(put(&format!("fence/{uid}"), &fence));
        }
    }

    pub(crate) fn put_run(&mut self, uid: Uid, run: StoredRun, out: &mut Writes) {
        out.push(put(&format!("run/{uid}"), &run));
        self.runs.insert(uid, run);
    }

    pub(crate) fn drop_run(&mut self, uid: Uid, out: &mut Writes) {
        if self.runs.remove(&uid).is_some() {
            out.push(StoreOp { key: format!("run/{uid}"), value: None });
        }
    }

    pub(crate) fn put_tombstone(&mut self, tombstone: Tombstone, out: &mut Writes) {
        let (uid, fence) = (tombstone.end.uid, tombstone.end.fence);
        out.push(put(&format!("tombstone/{uid}/{fence}"), &tombstone));
        self.tombstones.insert((uid, fence), tombstone);
    }

    /// Notes the manager's record of an end. A repeated acknowledgement writes nothing. Returns whether this
    /// was the first acknowledgement of an attempt's end.
    pub(crate) fn acknowledge(
        &mut self,
        uid: Uid,
        fence: Fence,
        by: (Leadership, RecordNumber, Wall),
        out: &mut Writes,
    ) -> bool {
        let known = self.tombstones.get(&(uid, fence));
        let is_new = |t: &&Tombstone| t.acknowledged.is_none_or(|(l, r, _)| (l, r) != (by.0, by.1));
        let Some(known) = known.filter(is_new) else { return false };
        let is_first = known.acknowledged.is_none() && known.refused.is_none();
        let tombstone = Tombstone { acknowledged: Some(by), ..known.clone() };
        self.put_tombstone(tombstone, out);
        is_first
    }

    /// Drops a tombstone. The last tombstone of a workload that does not run takes its fence with it.
    pub(crate) fn drop_tombstone(&mut self, uid: Uid, fence: Fence, out: &mut Writes) {
        if self.tombstones.remove(&(uid, fence)).is_none() {
            return;
        }
        out.push(StoreOp { key: format!("tombstone/{uid}/{fence}"), value: None });
        let first = (uid, Fence { epoch: 0, leadership: 0, counter: 0 });
        let has_others = self.tombstones.range(first..).next().is_some_and(|((other, _), _)| *other == uid);
        if !has_others && !self.runs.contains_key(&uid) {
            self.fences.remove(&uid);
            out.push(StoreOp { key: format!("fence/{uid}"), value: None });
        }
    }

    /// Whether the maximum of tombstones is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.tombstones.len() >= TOMBSTONES_MAX
    }

    pub(crate) fn note_receipt(&mut self, receipt: &Receipt, members: &[ClusterName], out: &mut Writes) {
        self.receipts.note(receipt, members, out);
    }
}
