//! Content of a transmission.

use super::Agent;
use crate::leg::Phase;
use crate::link::ReportedCapacity;
use crate::runs::LiveRun;
use meridian_shared::ids::{Leadership, RecordNumber, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{
    Capacity, Digest, ENDS_MAX, End, Inventory, JOB_NAMES_BYTES_MAX, Lane, PLACEMENTS_BYTES_MAX, PodReport,
    RECEIPTS_BYTES_MAX, Run, SyncRequest, VERSION,
};
use meridian_shared::time::Mono;
use std::sync::Arc;

/// Bytes around the name of a job in an inventory: `,"job":""`.
const JOB_FIELD_BYTES: usize = 9;

impl Agent {
    pub(super) fn compose_at(&mut self, at: Mono, lane: Lane) -> SyncRequest {
        let transmission = self.transmissions.next(at, self.config.planted.has(Bug::TransmissionReused));
        let reported: Vec<Uid> = self.usage.carry(transmission).collect();
        let inventory = (self.inventory_due && self.durable.follows().is_some()).then(|| self.inventory());
        SyncRequest {
            version: VERSION,
            ledger: self.durable.ledger(),
            session: self.session,
            transmission,
            lane,
            follows: self.durable.follows(),
            answered: self.transmissions.answered(),
            commands_through: self.commands.done(),
            events: self.events.batch(),
            events_from: self.events.first(),
            events_last: self.events.last(),
            digest: self.digest(),
            inventory,
            capacity: self.capacity_report(),
            spare: reported.into_iter().filter_map(|uid| self.usage_of(uid)).collect(),
            supports_scale_down: true,
            supports_scale_up: true,
            supports_priority: true,
        }
    }

    /// Reclaimable pods, pod failures and completed indexes of a run.
    fn usage_of(&self, uid: Uid) -> Option<PodReport> {
        let record = &self.runs.get(uid)?.record;
        let pods = self.ledger.reclaimed_pods(record.offer);
        let (failures, completed) = (record.pod_failures, record.completed.clone());
        Some(PodReport { uid, fence: record.fence, pods, failures, completed })
    }

    /// Digest of open offers and live attempts.
    fn digest(&self) -> Digest {
        let offers =
            self.offers.iter().fold(Digest::default(), |digest, (offer, _)| digest.with_offer(offer));
        self.runs.iter().fold(offers, |digest, (uid, run)| digest.with_grant(uid, run.record.fence))
    }

    fn inventory(&self) -> Inventory {
        let mut bytes_left = PLACEMENTS_BYTES_MAX;
        let mut fits = |placed: &Arc<Placement>| {
            let fits = placed.weight() <= bytes_left;
            bytes_left -= if fits { placed.weight() } else { 0 };
            fits
        };
        let mut name_bytes_left = JOB_NAMES_BYTES_MAX;
        let mut name_fits = |job: &Arc<str>| {
            let bytes = job.len() + JOB_FIELD_BYTES;
            let fits = bytes <= name_bytes_left;
            name_bytes_left -= if fits { bytes } else { 0 };
            fits
        };
        let runs = self
            .runs
            .iter()
            .map(|(uid, run)| {
                let placement = Some(run.record.placed.clone()).filter(&mut fits);
                let job = run.record.job.clone().filter(&mut name_fits);
                Run { job, placement, ..self.run_report(uid, run) }
            })
            .collect();
        let mut ends: Vec<End> = self.unacknowledged_ends().take(ENDS_MAX + 1).collect();
        let more = ends.len() > ENDS_MAX;
        ends.truncate(ENDS_MAX);
        Inventory {
            for_leadership: self.durable.follows(),
            runs,
            offers: self.offers.iter().map(|(id, open)| (id, open.uid)).collect(),
            ends,
            more,
            receipts: self.durable.newest_receipts(RECEIPTS_BYTES_MAX),
        }
    }

    /// The report of a run without its placement and the name of its job.
    fn run_report(&self, uid: Uid, run: &LiveRun) -> Run {
        let record = &run.record;
        Run {
            uid,
            fence: record.fence,
            offer: record.offer,
            attempt: record.attempt,
            job: None,
            running: run.phase == Phase::Running,
            stopping: run.phase == Phase::Stopping,
            term: record.term,
            on_loss: record.on_loss,
            spec: record.spec,
            mac: record.mac.clone(),
            placement: None,
            spare: self.ledger.reclaimed_pods(record.offer),
            scale_up: record.scale_ups.latest.clone(),
            priority: Some(record.priority),
        }
    }

    /// Ends that this leadership does not know: unacknowledged, or acknowledged with a record number outside
    /// the ranges that it reported.
    fn unacknowledged_ends(&self) -> impl Iterator<Item = End> + '_ {
        let is_known = |leadership: Leadership, record: RecordNumber| {
            self.ranges.iter().any(|(l, first, last)| *l == leadership && (*first..=*last).contains(&record))
        };
        self.durable
            .tombstones()
            .iter()
            .filter(|(key, _)| !self.strays.contains_key(key))
            .map(|(_, tombstone)| tombstone)
            .filter(move |t| {
                t.acknowledged.is_none_or(|(leadership, record, _)| !is_known(leadership, record))
            })
            .map(|tombstone| tombstone.end.clone())
    }

    fn capacity_report(&mut self) -> Option<Capacity> {
        let ReportedCapacity { version, base, blocks, pools } = self.capacity.next(&self.ledger)?;
        Some(Capacity {
            version,
            after_command: self.commands.done(),
            base,
            blocks,
            provisionable: pools,
            managed: self.config.managed.clone(),
            runner: self.config.runner,
            guarded: self.config.guarded,
            located: self.config.located.clone(),
            holds: self.config.holds.method,
        })
    }
}
