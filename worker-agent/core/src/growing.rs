//! Gangs that grow while they run: room for all the pods that are added, or for none of them, under the same fence and lease.
//!
//! ```text
//!   Command::Grow ─► room for all of them? ─yes─► durable ─► Effect::Grow, Event::Grown ─► Moved ─► told where they are
//!                           └─no─► Event::NotGrown: it runs on as it is
//! ```
//!
//! The places that are added stand behind those that were given before, where nothing changes: a growth is the move in which
//! nobody moves. Room for them is found by the function that finds a lost node's pods another place, so a wish to be near each
//! other holds for all of the gang.
//!
//! Invariants: the new places are durable before anything starts in them; a growth is answered once and for all, so that the
//! manager may give back what it charged for one that was refused; a gang that is being moved doesn't grow, and one that is about to
//! grow is neither moved nor made smaller before its new pods were handed over.

use crate::leg::Phase;
use crate::{Agent, Effect, LiveRun, Outcome};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{Fence, RecordNumber, Uid};
use meridian_shared::protocol::{Event, Growth, RefuseReason, clean};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Growths of one attempt at most; each is a word in every list of what happened to it.
pub(crate) const GROWTHS_MAX: u32 = 1_024;

/// How a run may grow, and has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Growths {
    /// What carries the gang understands it: it was begun by an agent that does.
    pub(crate) able: bool,
    /// The latest that has its room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latest: Option<Box<Growth>>,
    /// The runner hasn't said yet that it was handed over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) open: bool,
    /// How many there were.
    #[serde(default)]
    pub(crate) count: u32,
    /// The latest that was refused, and why. It counts in this session only: another one is asked anew.
    #[serde(skip)]
    pub(crate) refused: Option<(RecordNumber, RefuseReason, String)>,
}

impl Growths {
    /// Of a run that was never anything but able to.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

impl Agent {
    pub(crate) fn on_grow(&mut self, (uid, fence): (Uid, Fence), growth: Growth, out: &mut Outcome) {
        let number = growth.number;
        // Of what is over its end is told.
        let Some(run) = self
            .runs
            .get(&uid)
            .filter(|run| run.fence == fence && matches!(run.phase, Phase::Starting | Phase::Running))
        else {
            return;
        };
        if let Some((_, reason, text)) = run.growth.refused.clone().filter(|(refused, ..)| *refused == number)
        {
            return self.say(Event::NotGrown { uid, fence, number, reason, text });
        }
        let latest = run.growth.latest.as_ref().map_or(RecordNumber(0), |latest| latest.number);
        if latest == number {
            return self.say(Event::Grown { uid, fence, number });
        }
        match self.room_to_grow(uid, &growth) {
            Ok(gang) => self.begin_growth(uid, gang, growth, out),
            Err((reason, text)) => {
                let text = clean(&text);
                let run = self.runs.get_mut(&uid).expect("found above");
                if number > latest
                    && run.growth.refused.as_ref().is_none_or(|(refused, ..)| *refused < number)
                {
                    run.growth.refused = Some((number, reason, text.clone()));
                }
                self.say(Event::NotGrown { uid, fence, number, reason, text });
            }
        }
    }

    /// Takes room for all that a run grows by; gives the gang that it is then.
    fn room_to_grow(&mut self, uid: Uid, growth: &Growth) -> Result<Gang, (RefuseReason, String)> {
        let run = &self.runs[&uid];
        let stale = |known: RecordNumber| growth.number < known;
        let later = run.growth.latest.as_ref().is_some_and(|latest| stale(latest.number))
            || run.growth.refused.as_ref().is_some_and(|(n, ..)| stale(*n));
        if later {
            return Err((RefuseReason::StillRuns, "a later growth of it is known here".to_owned()));
        }
        if run.phase != Phase::Running {
            return Err((RefuseReason::StillRuns, "not all that it has has started yet".to_owned()));
        }
        if run.growth.open || !self.ledger.leaving(run.offer).is_empty() {
            return Err((RefuseReason::StillRuns, "pods of it are being moved or added".to_owned()));
        }
        let Some(gang) = run.gang.as_ref().filter(|_| run.growth.able) else {
            return Err((
                RefuseReason::Unsupported,
                "it was started by an agent of an older version, and what carries it can't let it grow"
                    .to_owned(),
            ));
        };
        if run.growth.count >= GROWTHS_MAX {
            return Err((RefuseReason::Unsupported, format!("it has grown {GROWTHS_MAX} times already")));
        }
        let fits = growth.places.len() == gang.pod_sets.len()
            && gang.pod_sets.iter().zip(&growth.places).all(|(set, places)| set.count <= *places);
        if !fits {
            return Err((
                RefuseReason::Unsupported,
                "it has other places here than the manager knows".to_owned(),
            ));
        }
        let (offer, grown) = (run.offer, gang.of_counts(&growth.places));
        let added: Vec<u32> =
            gang.pod_sets.iter().zip(&growth.places).map(|(set, places)| places - set.count).collect();
        let has =
            run.size.map_or_else(|| gang.pod_sets.iter().map(|set| set.count).sum(), |size| size.parallelism);
        if has.saturating_add(added.iter().sum()) != growth.size.parallelism {
            return Err((
                RefuseReason::StillRuns,
                format!("it has {has} pods here, and the manager counts on another number"),
            ));
        }
        match self.ledger.grow(offer, &grown, &added) {
            Ok(()) => Ok(grown),
            Err(why) => {
                Err((RefuseReason::NoRoom, format!("there is no room for the pods that are added: {why}")))
            }
        }
    }

    fn begin_growth(&mut self, uid: Uid, gang: Gang, growth: Growth, out: &mut Outcome) {
        let run = self.runs.get_mut(&uid).expect("the caller found this run");
        let (fence, number) = (run.fence, growth.number);
        (run.gang, run.size) = (Some(Arc::new(gang)), Some(growth.size));
        run.moves += 1;
        run.growth.count += 1;
        (run.growth.open, run.growth.latest) = (true, Some(Box::new(growth)));
        self.store_run(uid, out);
        out.effects.extend(self.growth_again(uid));
        self.say(Event::Grown { uid, fence, number });
    }

    /// What the runner is to do for a growth that it hasn't answered.
    pub(crate) fn growth_again(&self, uid: Uid) -> Option<Effect> {
        let run = &self.runs[&uid];
        let latest = run.growth.latest.as_ref().filter(|_| run.growth.open)?;
        Some(Effect::Grow {
            uid,
            fence: run.fence,
            number: run.moves,
            placement: self.ledger.placement(run.offer),
            size: latest.size,
        })
    }

    /// The pods that were added were handed over; a smaller size that came meanwhile follows.
    pub(crate) fn grown(&mut self, uid: Uid, out: &mut Outcome) {
        let Some(run) = self.runs.get_mut(&uid) else { return };
        if !std::mem::take(&mut run.growth.open) {
            return;
        }
        let then = run.growth.latest.as_ref().map(|latest| latest.size);
        if run.size != then {
            out.effects.extend(run.size.map(|size| Effect::Shrink { uid, fence: run.fence, size }));
        }
    }
}

impl LiveRun {
    /// Moves of its pods for the sake of lost nodes.
    pub(crate) fn losses(&self) -> u32 {
        self.moves.saturating_sub(self.growth.count)
    }
}
