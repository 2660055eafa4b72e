//! What an agent must not forget: leadership, largest fences, live grants, tombstones, receipts.
//!
//! Kept as keyed values, so that the shell needs one table and knows nothing of their meaning. Holds and offers are not
//! here: they die with the session, and a grant that names one is then refused.

use crate::elapsed::Stamp;
use crate::growing::Growths;
use crate::ledger::{NodeSpec, PodPlacement, Stay};
use crate::{StopCause, leg::Phase};
use meridian_shared::gang::{Amounts, Gang};
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, JournalId, Leadership, LedgerId, OfferId, RecordNumber, Uid,
};
use meridian_shared::lease::AgentLease;
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{End, GrantRefusal, OnLoss, Receipt, Size};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One write: a value to keep under a key, or a key to drop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreOp {
    /// The key; its prefix names what it is.
    pub key: String,
    /// JSON, or `None` to drop the key.
    pub value: Option<String>,
}

/// A live grant as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StoredRun {
    pub(crate) fence: Fence,
    pub(crate) offer: OfferId,
    pub(crate) attempt: u32,
    pub(crate) phase: Phase,
    pub(crate) term: Millis,
    pub(crate) on_loss: OnLoss,
    pub(crate) spec: ContentHash,
    #[serde(default)]
    pub(crate) mac: Option<meridian_shared::mac::Mac>,
    /// The boot-time deadline, good on this boot only.
    pub(crate) lease: Option<AgentLease>,
    /// How far wall time was ahead of boot time then.
    pub(crate) lead: i64,
    /// How far the calendar by which it waits was, where the wall clock had been set back: then that is further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calendar: Option<i64>,
    pub(crate) boot: u128,
    pub(crate) stopped_by: Option<StopCause>,
    pub(crate) placement: Vec<PodPlacement>,
    pub(crate) per_pod: BTreeMap<String, Amounts>,
    pub(crate) pod_failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) placed: Option<Arc<Placement>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gang: Option<Arc<Gang>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) moves: u32,
    /// Where pods were that have to move, while they aren't seen ended there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leaving: Vec<PodPlacement>,
    /// Nodes that were provided for it alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) provided: Vec<NodeSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stranded: Option<Arc<str>>,
    /// Which of its placement have succeeded and gave back their room.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) spare: BTreeSet<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Size>,
    /// Since when it waits for another place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<Wall>,
    /// For how long it may stay where it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stays: Vec<Stay>,
    #[serde(default, skip_serializing_if = "Growths::is_plain")]
    pub(crate) growth: Growths,
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(crate) priority: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_nothing(number: &i64) -> bool {
    *number == 0
}

impl StoredRun {
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { lead: self.lead, calendar: self.calendar.unwrap_or(self.lead) }
    }
}

/// An end, or a refusal, that stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tombstone {
    /// How it ended.
    pub end: End,
    /// A grant that was refused, and why.
    pub refused: Option<GrantRefusal>,
    /// The manager's record of it: (leadership, record), and when it was acknowledged.
    pub acknowledged: Option<(Leadership, RecordNumber, Wall)>,
}

/// Everything durable, in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable {
    /// Identity of this store.
    pub ledger: LedgerId,
    /// Sessions so far.
    pub sessions: u64,
    /// The leadership that is followed.
    pub follows: Option<Leadership>,
    pub(crate) fences: BTreeMap<Uid, Fence>,
    pub(crate) runs: BTreeMap<Uid, StoredRun>,
    /// Ends and refusals.
    pub tombstones: BTreeMap<(Uid, Fence), Tombstone>,
    /// What managers said of their journals, and whom they named: the newest of each leadership.
    pub receipts: BTreeMap<JournalId, BTreeMap<Leadership, (Receipt, Vec<ClusterName>)>>,
}

/// Whether a live grant is kept under this key.
pub fn is_run(key: &str) -> bool {
    key.starts_with("run/")
}

/// Leaderships whose receipts are kept per journal; the oldest go first.
const RECEIPTS_MAX: usize = 16;

/// A stored value that can't be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "stored value `{key}` can't be read: {message}; the store is damaged, move it away and join again with `--replace`"
)]
pub struct Error {
    /// The key.
    pub key: String,
    /// Why.
    pub message: String,
}

impl Durable {
    /// A new store: what an agent that has just joined has.
    pub fn new(ledger: LedgerId) -> Self {
        Self {
            ledger,
            sessions: 0,
            follows: None,
            fences: BTreeMap::new(),
            runs: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            receipts: BTreeMap::new(),
        }
    }

    /// The write that makes a new store one.
    pub fn birth(&self) -> StoreOp {
        put("ledger", &self.ledger)
    }

    /// Reads back what was stored; `None` when there is no ledger yet.
    pub fn load<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Option<Self>, Error> {
        let mut this = Self::new(LedgerId(0));
        let mut born = false;
        for (key, value) in pairs {
            let bad = |message: String| Error { key: key.to_owned(), message };
            fn read<'v, T: Deserialize<'v>>(value: &'v str) -> Result<T, String> {
                serde_json::from_str(value).map_err(|e| e.to_string())
            }
            match key.split_once('/') {
                None if key == "ledger" => {
                    this.ledger = read(value).map_err(bad)?;
                    born = true;
                }
                None if key == "sessions" => this.sessions = read(value).map_err(bad)?,
                None if key == "follows" => this.follows = read(value).map_err(bad)?,
                Some(("fence", uid)) => {
                    this.fences
                        .insert(uid.parse().map_err(|_| bad("bad uid".into()))?, read(value).map_err(bad)?);
                }
                Some(("run", uid)) => {
                    this.runs
                        .insert(uid.parse().map_err(|_| bad("bad uid".into()))?, read(value).map_err(bad)?);
                }
                Some(("tombstone", _)) => {
                    let tombstone: Tombstone = read(value).map_err(bad)?;
                    this.tombstones.insert((tombstone.end.uid, tombstone.end.fence), tombstone);
                }
                Some(("receipts", _)) => {
                    let (receipt, members): (Receipt, Vec<ClusterName>) = read(value).map_err(bad)?;
                    this.receipts
                        .entry(receipt.journal)
                        .or_default()
                        .insert(receipt.leadership, (receipt, members));
                }
                _ => return Err(bad("unknown key; the store was written by a newer version".into())),
            }
        }
        Ok(born.then_some(this))
    }

    /// The newest receipt of each journal, then the next of each, and so on while they fit; always the first, of whom is followed.
    pub(crate) fn newest_receipts(&self, bytes_max: usize) -> Vec<(Receipt, Vec<ClusterName>)> {
        let ranked = self.receipts.values().flat_map(|by| by.iter().rev().enumerate());
        let mut ranked: Vec<_> = ranked
            .map(|(age, (leadership, shown))| (self.follows != Some(*leadership), age, shown))
            .collect();
        ranked.sort_by_key(|(other, age, _)| (*other, *age));
        let mut bytes = 0;
        let fits = |(at, shown): &(usize, &(Receipt, Vec<ClusterName>))| {
            bytes += serde_json::to_vec(shown).expect("our own types serialise").len() + 1;
            *at == 0 || bytes <= bytes_max
        };
        ranked
            .into_iter()
            .map(|(_, _, shown)| shown)
            .enumerate()
            .take_while(fits)
            .map(|(_, shown)| shown.clone())
            .collect()
    }

    /// The largest fence known of `uid`.
    pub fn fence_of(&self, uid: Uid) -> Option<Fence> {
        self.fences.get(&uid).copied()
    }

    pub(crate) fn new_session(&mut self, out: &mut Vec<StoreOp>) -> u64 {
        self.sessions += 1;
        out.push(put("sessions", &self.sessions));
        self.sessions
    }

    pub(crate) fn follow(&mut self, leadership: Leadership, out: &mut Vec<StoreOp>) {
        self.follows = Some(leadership);
        out.push(put("follows", &self.follows));
    }

    pub(crate) fn raise_fence(&mut self, uid: Uid, fence: Fence, out: &mut Vec<StoreOp>) {
        if self.fences.get(&uid).is_none_or(|known| *known < fence) {
            self.fences.insert(uid, fence);
            out.push(put(&format!("fence/{uid}"), &fence));
        }
    }

    pub(crate) fn put_run(&mut self, uid: Uid, run: StoredRun, out: &mut Vec<StoreOp>) {
        out.push(put(&format!("run/{uid}"), &run));
        self.runs.insert(uid, run);
    }

    pub(crate) fn drop_run(&mut self, uid: Uid, out: &mut Vec<StoreOp>) {
        if self.runs.remove(&uid).is_some() {
            out.push(StoreOp { key: format!("run/{uid}"), value: None });
        }
    }

    pub(crate) fn bury(&mut self, tombstone: Tombstone, out: &mut Vec<StoreOp>) {
        let (uid, fence) = (tombstone.end.uid, tombstone.end.fence);
        out.push(put(&format!("tombstone/{uid}/{fence}"), &tombstone));
        self.tombstones.insert((uid, fence), tombstone);
    }

    pub(crate) fn unbury(&mut self, uid: Uid, fence: Fence, out: &mut Vec<StoreOp>) {
        if self.tombstones.remove(&(uid, fence)).is_some() {
            out.push(StoreOp { key: format!("tombstone/{uid}/{fence}"), value: None });
            if !self
                .tombstones
                .range((uid, Fence { epoch: 0, leadership: 0, counter: 0 })..)
                .take_while(|((u, _), _)| *u == uid)
                .any(|_| true)
                && !self.runs.contains_key(&uid)
            {
                self.fences.remove(&uid);
                out.push(StoreOp { key: format!("fence/{uid}"), value: None });
            }
        }
    }

    pub(crate) fn note_receipt(
        &mut self,
        receipt: &Receipt,
        members: &[ClusterName],
        out: &mut Vec<StoreOp>,
    ) {
        let kept = self.receipts.entry(receipt.journal).or_default();
        // The newest record of each leadership is enough. An answer that was overtaken is from before members joined: it would have
        // us forget them after we acknowledged their names.
        if kept.get(&receipt.leadership).is_some_and(|(known, _)| known.record >= receipt.record) {
            return;
        }
        out.push(put(&format!("receipts/{}/{}", receipt.journal, receipt.leadership), &(receipt, members)));
        kept.insert(receipt.leadership, (receipt.clone(), members.to_vec()));
        while kept.len() > RECEIPTS_MAX {
            let (oldest, _) = kept.pop_first().expect("more than RECEIPTS_MAX entries");
            out.push(StoreOp { key: format!("receipts/{}/{oldest}", receipt.journal), value: None });
        }
    }
}

pub(crate) fn put<T: Serialize>(key: &str, value: &T) -> StoreOp {
    StoreOp {
        key: key.to_owned(),
        value: Some(serde_json::to_string(value).expect("our own types serialise")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::protocol::RECEIPTS_BYTES_MAX;

    #[test]
    fn of_more_receipts_than_a_report_takes_the_newest_of_each_journal_come_first() {
        let mut durable = Durable::new(LedgerId(1));
        let members: Vec<ClusterName> = (0..500).map(|i| format!("{i:063}").as_str().into()).collect();
        for (journal, epoch) in
            (1..=3_u128).flat_map(|journal| (1..=16_u64).map(move |epoch| (journal, epoch)))
        {
            let leadership = Leadership { epoch, id: 7 };
            let receipt = Receipt {
                journal: JournalId(journal),
                leadership,
                record: RecordNumber(epoch),
                rules: RecordNumber(1),
                audit_head: None,
                mac: None,
            };
            durable.note_receipt(&receipt, &members, &mut Vec::new());
        }
        durable.follows = Some(Leadership { epoch: 3, id: 7 });
        let told = durable.newest_receipts(RECEIPTS_BYTES_MAX);
        let bytes: usize = told.iter().map(|shown| serde_json::to_vec(shown).unwrap().len() + 1).sum();
        assert!(bytes <= RECEIPTS_BYTES_MAX, "{bytes}");
        let epochs: Vec<u64> = told.iter().map(|(receipt, _)| receipt.leadership.epoch).collect();
        assert_eq!(epochs[..6], [3, 3, 3, 16, 16, 16]);
        assert_eq!(durable.newest_receipts(1).len(), 1, "who is followed is always shown");
        assert_eq!(durable.newest_receipts(usize::MAX).len(), 48);
    }
}
