//! Scale-ups of running gangs: all added pods get an allocation, or none, under the same fence and lease.
//!
//! ```text
//!   Command::ScaleUp ─► all pods fit? ─yes─► durable ─► Effect::ScaleUp, Event::ScaledUp ─► Moved, reported
//!                        └─no─► Event::ScaleUpRefused: the gang runs on as it is
//! ```
//!
//! Added pods come after the existing ones, and nothing else changes: a scale-up is a move in which no pod
//! moves. The function that replaces a lost node places them, so a topology request holds for the whole gang.
//!
//! Invariants: the new placement is durable before anything starts on it. A scale-up is answered once, so
//! that the manager may release what it charged for a refused one. A gang that is being moved is not scaled
//! up; a gang that is being scaled up is neither moved nor scaled down before its added pods were handed
//! over.

use super::Agent;
use crate::leg::Phase;
use crate::runs::{LiveRun, RefusedScaleUp};
use crate::turn::{Effect, Outcome};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{Fence, RecordNumber, Uid};
use meridian_shared::protocol::{Event, HoldMethod, RefuseReason, ScaleUp, clean};
use std::sync::Arc;

/// Most scale-ups of one attempt, so that its lists of changes stay bounded.
const SCALE_UPS_MAX: u32 = 1_024;

type Refusal = (RefuseReason, String);

impl Agent {
    pub(super) fn on_scale_up(&mut self, uid: Uid, fence: Fence, scale_up: ScaleUp, out: &mut Outcome) {
        let number = scale_up.number;
        // The end of an attempt that is over is reported anyway.
        let Some(run) = self.runs.attempt(uid, fence).filter(|run| run.is_active()) else { return };
        if let Some(refused) = run.record.scale_ups.refused.clone().filter(|known| known.number == number) {
            let RefusedScaleUp { number, reason, text } = refused;
            return self.events.push(Event::ScaleUpRefused { uid, fence, number, reason, text });
        }
        if latest_number(run) == number {
            return self.events.push(Event::ScaledUp { uid, fence, number });
        }
        match self.allocate_scale_up(uid, &scale_up) {
            Ok(gang) => self.begin_scale_up(uid, gang, scale_up, out),
            Err((reason, text)) => {
                let text = clean(&text);
                self.remember_refused(uid, RefusedScaleUp { number, reason, text: text.clone() });
                self.events.push(Event::ScaleUpRefused { uid, fence, number, reason, text });
            }
        }
    }

    fn remember_refused(&mut self, uid: Uid, refused: RefusedScaleUp) {
        let Some(run) = self.runs.get_mut(uid) else { return };
        let latest = latest_number(run);
        let known = &mut run.record.scale_ups.refused;
        if refused.number > latest && known.as_ref().is_none_or(|known| known.number < refused.number) {
            *known = Some(refused);
        }
    }

    /// Allocates all added pods. Returns the resulting gang, or why the scale-up is refused.
    fn allocate_scale_up(&mut self, uid: Uid, scale_up: &ScaleUp) -> Result<Gang, Refusal> {
        let run = self.runs.get(uid).expect("the caller found this run");
        let (record, ups) = (&run.record, &run.record.scale_ups);
        let is_stale = |known: RecordNumber| scale_up.number < known;
        if is_stale(latest_number(run)) || ups.refused.as_ref().is_some_and(|known| is_stale(known.number)) {
            return Err(still_runs("a later scale-up of the gang is known here"));
        }
        if self.config.holds.method == HoldMethod::Kueue {
            return Err(unsupported("the cluster's own Kueue admitted the gang at its present size"));
        }
        if run.phase != Phase::Running {
            return Err(still_runs("not all pods of the gang have started yet"));
        }
        if ups.open || !self.ledger.leaving(record.offer).is_empty() {
            return Err(still_runs("pods of the gang are being moved or added"));
        }
        let gang = &record.gang;
        if ups.count >= SCALE_UPS_MAX {
            return Err(unsupported(&format!("the gang was scaled up {SCALE_UPS_MAX} times already")));
        }
        let is_known_shape = scale_up.places.len() == gang.pod_sets.len()
            && gang.pod_sets.iter().zip(&scale_up.places).all(|(set, places)| set.count <= *places);
        if !is_known_shape {
            return Err(unsupported("the gang has other pods here than the manager knows"));
        }
        let (offer, scaled_up) = (record.offer, gang.with_counts(&scale_up.places));
        let added: Vec<u32> =
            gang.pod_sets.iter().zip(&scale_up.places).map(|(set, places)| places - set.count).collect();
        let granted = || gang.pod_sets.iter().map(|set| set.count).sum();
        let has = record.size.map_or_else(granted, |size| size.parallelism);
        if has.saturating_add(added.iter().sum()) != scale_up.size.parallelism {
            return Err(still_runs(&format!(
                "the gang has {has} pods here, not as many as the manager counts"
            )));
        }
        match self.ledger.scale_up(offer, &scaled_up, &added) {
            Ok(()) => Ok(scaled_up),
            Err(why) => Err((RefuseReason::NoCapacity, format!("the added pods do not fit: {why}"))),
        }
    }

    fn begin_scale_up(&mut self, uid: Uid, gang: Gang, scale_up: ScaleUp, out: &mut Outcome) {
        let run = self.runs.get_mut(uid).expect("the caller found this run");
        let (fence, number) = (run.record.fence, scale_up.number);
        (run.record.gang, run.record.size) = (Arc::new(gang), Some(scale_up.size));
        run.record.moves += 1;
        run.record.scale_ups.count += 1;
        (run.record.scale_ups.open, run.record.scale_ups.latest) = (true, Some(Box::new(scale_up)));
        self.store_run(uid, out);
        out.act_all(self.open_scale_up(uid));
        self.events.push(Event::ScaledUp { uid, fence, number });
    }

    /// The order for a scale-up that the runner has not answered.
    pub(super) fn open_scale_up(&self, uid: Uid) -> Option<Effect> {
        let record = &self.runs.get(uid)?.record;
        let latest = record.scale_ups.latest.as_ref().filter(|_| record.scale_ups.open)?;
        Some(Effect::ScaleUp {
            uid,
            fence: record.fence,
            number: record.moves,
            placement: self.ledger.placement(record.offer),
            size: latest.size,
        })
    }

    /// The added pods were handed over. A smaller size that arrived meanwhile is ordered now.
    pub(super) fn finish_scale_up(&mut self, uid: Uid, out: &mut Outcome) {
        let Some(run) = self.runs.get_mut(uid) else { return };
        if !std::mem::take(&mut run.record.scale_ups.open) {
            return;
        }
        let scaled_up_to = run.record.scale_ups.latest.as_ref().map(|latest| latest.size);
        if run.record.size != scaled_up_to {
            self.order_scale_down(uid, out);
        }
    }
}

fn latest_number(run: &LiveRun) -> RecordNumber {
    run.record.scale_ups.latest.as_ref().map_or(RecordNumber(0), |latest| latest.number)
}

fn still_runs(text: &str) -> Refusal {
    (RefuseReason::StillRuns, text.to_owned())
}

fn unsupported(text: &str) -> Refusal {
    (RefuseReason::Unsupported, text.to_owned())
}
