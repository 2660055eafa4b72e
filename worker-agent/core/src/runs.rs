//! Live attempts, at most one per workload.

use crate::leg::{LegEvent, Phase, Step, step};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ContentHash, Fence, OfferId, RecordNumber, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::lease::AgentLease;
use meridian_shared::mac::Mac;
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{OnLoss, RefuseReason, ScaleUp, Size, StopReason};
use meridian_shared::time::{Millis, Mono, Wall};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Why an attempt stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum StopCause {
    Requested(StopReason),
    Lapse,
    Stranded,
}

/// Facts about one attempt, in their stored form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) fence: Fence,
    pub(crate) offer: OfferId,
    pub(crate) attempt: u32,
    /// `namespace/name` of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<Arc<str>>,
    pub(crate) term: Millis,
    pub(crate) on_loss: OnLoss,
    pub(crate) spec: ContentHash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<Mac>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_by: Option<StopCause>,
    pub(crate) pod_failures: u32,
    /// Completion indexes that succeeded so far, over all attempts.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub(crate) completed: Indexes,
    /// The placement as reported.
    pub(crate) placed: Arc<Placement>,
    pub(crate) gang: Arc<Gang>,
    /// Number of moves and scale-ups so far.
    pub(crate) moves: u32,
    /// Why the attempt ends, if a node was lost and the pods fit nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stranded: Option<Arc<str>>,
    /// The size, if it differs from the granted one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Size>,
    /// Since when pods of a lost node wait for a new node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_since: Option<Wall>,
    pub(crate) scale_ups: ScaleUps,
    pub(crate) priority: i64,
}

/// Scale-ups of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ScaleUps {
    /// The latest that has its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latest: Option<Box<ScaleUp>>,
    /// Whether the runner has yet to report that the latest was handed over.
    pub(crate) open: bool,
    pub(crate) count: u32,
    /// The latest refusal. Not stored: after a restart the manager's question is answered anew.
    #[serde(skip)]
    pub(crate) refused: Option<RefusedScaleUp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusedScaleUp {
    pub(crate) number: RecordNumber,
    pub(crate) reason: RefuseReason,
    pub(crate) text: String,
}

/// One live attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LiveRun {
    pub(crate) record: RunRecord,
    pub(crate) phase: Phase,
    /// `None` for `onClusterLoss: Wait`, and for a lease of another boot.
    pub(crate) lease: Option<AgentLease>,
}

/// Order in which gangs get a new node: higher priority first, then the earlier grant.
pub(crate) type ReplacementOrder = (Reverse<i64>, Fence);

impl LiveRun {
    pub(crate) fn replacement_order(&self) -> ReplacementOrder {
        (Reverse(self.record.priority), self.record.fence)
    }

    /// Whether the run is not being stopped.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }

    /// Whether the loss of a node can stop the run.
    pub(crate) fn can_be_stranded(&self) -> bool {
        step(self.phase, LegEvent::Stranded) == Step::Stop
    }

    pub(crate) fn stop_at(&self) -> Option<Mono> {
        self.lease.map(|lease| lease.stop_at())
    }

    /// Number of moves because of lost nodes.
    pub(crate) fn replacements(&self) -> u32 {
        self.record.moves.saturating_sub(self.record.scale_ups.count)
    }

    fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { record, phase, lease } = self;
        phase.hash(into);
        lease.map(|l| l.lapses.since(now)).hash(into);
        record.hash_fingerprint(into);
    }
}

impl RunRecord {
    /// Feeds everything that later behaviour depends on, without calendar moments.
    pub(crate) fn hash_fingerprint(&self, into: &mut impl Hasher) {
        let Self {
            fence,
            offer,
            attempt,
            job: _,
            term: _,
            on_loss,
            spec: _,
            mac: _,
            stopped_by,
            pod_failures,
            completed,
            placed,
            gang: _,
            moves,
            stranded,
            size,
            waiting_since: _,
            scale_ups,
            priority,
        } = self;
        (fence, offer, attempt, on_loss, stopped_by, pod_failures, completed, placed).hash(into);
        (moves, stranded, size, scale_ups, priority).hash(into);
    }
}

/// All live attempts, by workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Runs(BTreeMap<Uid, LiveRun>);

impl Runs {
    pub(crate) fn get(&self, uid: Uid) -> Option<&LiveRun> {
        self.0.get(&uid)
    }

    pub(crate) fn get_mut(&mut self, uid: Uid) -> Option<&mut LiveRun> {
        self.0.get_mut(&uid)
    }

    /// The run of this attempt; `None` if the workload's run is of another attempt.
    pub(crate) fn attempt(&self, uid: Uid, fence: Fence) -> Option<&LiveRun> {
        self.get(uid).filter(|run| run.record.fence == fence)
    }

    pub(crate) fn attempt_mut(&mut self, uid: Uid, fence: Fence) -> Option<&mut LiveRun> {
        self.get_mut(uid).filter(|run| run.record.fence == fence)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Uid, &LiveRun)> {
        self.0.iter().map(|(uid, run)| (*uid, run))
    }

    pub(crate) fn uids(&self) -> Vec<Uid> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, uid: Uid, run: LiveRun) {
        self.0.insert(uid, run);
    }

    pub(crate) fn remove(&mut self, uid: Uid) -> Option<LiveRun> {
        self.0.remove(&uid)
    }

    /// Runs that must begin to stop because of their lease.
    pub(crate) fn lapsing(&self, at: Mono) -> Vec<(Uid, Phase)> {
        self.iter()
            .filter(|(_, run)| run.stop_at().is_some_and(|stop| at >= stop))
            .map(|(uid, run)| (uid, run.phase))
            .collect()
    }

    /// When the next stop must begin because of a lease.
    pub(crate) fn next_stop(&self) -> Option<Mono> {
        self.0.values().filter(|run| run.phase != Phase::Stopping).filter_map(LiveRun::stop_at).min()
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        for (uid, run) in self.iter() {
            uid.hash(into);
            run.hash_fingerprint(now, into);
        }
    }
}
