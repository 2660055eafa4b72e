use crate::capacity::reserved;
use crate::dispatch::capacity_model::Clusters;
use crate::dispatch::{align, scale_up, starvation_guard, stops, why_not};
use crate::facts::end::Preempted;
use crate::facts::submission::ClassId;
use crate::world::World;
use crate::world::turn::Turn;
use meridian_queueing::cycle::{Entry as CycleEntry, Outcome, Passed, Report};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::preempt::Right;
use meridian_shared::ids::Uid;
use meridian_shared::planted::Bug;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Decisions on what victims and refusals changed within one batch, at most.
const ROUNDS_MAX: usize = 16;

/// How often the heads that a turn looks at in vain become twice as many at most: as many then as anybody has.
const CUTS_MAX: u32 = 20;

pub(crate) fn refresh_rooms(turn: &mut Turn<'_>) {
    turn.world.live.clusters.values_mut().for_each(|live| live.capacity.refresh());
}

/// Whether any cluster was asked and hasn't said anything yet.
fn awaits_an_answer(turn: &Turn<'_>) -> bool {
    turn.world
        .state
        .workloads()
        .values()
        .any(|w| w.legs().values().any(|leg| leg.state == crate::state::legs::leg::State::Offered))
}

pub(crate) fn schedule(turn: &mut Turn<'_>) {
    // Under doubted rules nothing is offered.
    if turn.world.state.rules_doubted().is_some()
        || (turn.world.config.planted.has(Bug::SlowClusterAwaited) && awaits_an_answer(turn))
    {
        return;
    }
    reserved::end_preemption_backoffs(turn.world);
    align::align(turn.world, turn.now.mono);
    // Owner victims have ended may still starve: what is kept for it then is kept at once (simulation seed 4009341).
    let gone = reserved::release_reservations(turn.world, turn.now.mono);
    starvation_guard::apply_starvation_guard(turn);
    if reserved::release_reservations(turn.world, turn.now.mono)
        | gone
        | std::mem::take(&mut turn.world.live.capacity_changed)
    {
        turn.world.mirror.brain_mut().wake_placeless();
    }
    let mut budget = TurnBudget::of(turn.world.config.heads_max, turn.world.live.cuts);
    for _ in 0..ROUNDS_MAX {
        if turn.world.mirror.brain().changed_trees().next().is_none() {
            turn.world.live.cuts = 0;
            return;
        }
        if budget.is_used_up() {
            break;
        }
        let awaited_preemptors = reserved::awaited_preemptors(turn.world);
        let mut brain = turn.world.mirror.take();
        let mut seen = PassOutcome::default();
        let mut clusters = Clusters::new(turn);
        let decides = Arc::make_mut(&mut brain);
        decides.now = clusters.turn.now.wall.0;
        decides.run(&mut clusters, |_, report| {
            // Who rests for one that has got its own comes before others of its queue: those would displace somebody for what is
            // then its own (simulation seed 1795454987391465).
            let rested = report.entries.iter().any(|entry| {
                entry.outcome == Outcome::Admitted && awaited_preemptors.contains(&entry.workload)
            });
            budget.take(&report);
            seen.note(report);
            !rested && !budget.is_used_up()
        });
        turn.world.mirror.put(brain);
        turn.world.live.counts.attempts_fruitful += seen.fruitful;
        turn.world.live.counts.attempts_fruitless += seen.fruitless;
        act_on(turn, seen);
        // What questions that were taken back had room for is free.
        refresh_rooms(turn);
        reserved::end_preemption_backoffs(turn.world);
        align::align(turn.world, turn.now.mono);
        // Who waits for room looks at what came free meanwhile.
        if std::mem::take(&mut turn.world.live.capacity_changed) {
            turn.world.mirror.brain_mut().wake_placeless();
        }
    }
    // What is left is decided with the next batch. Where rounds lead to rounds, that one has something else to begin with.
    let cut = budget.is_used_up();
    turn.world.live.cuts = if cut { turn.world.live.cuts.saturating_add(1) } else { 0 };
    turn.world.live.counts.cut_short += u64::from(cut);
    turn.world.live.dirty = true;
}

/// Tells victims to stop, and stores why who waits does.
fn act_on(turn: &mut Turn<'_>, seen: PassOutcome) {
    let roomless = seen.roomless();
    // Of each class what came last.
    let (mut told, mut grown): (BTreeSet<ClassId>, BTreeSet<Uid>) = Default::default();
    for looked in seen.heads.iter().rev() {
        let entry = match looked {
            Head::Evaluated(entry) => entry,
            Head::Passed(passed) => {
                let class = turn
                    .world
                    .mirror
                    .uid(passed.workload)
                    .and_then(|uid| turn.workload(uid))
                    .map(|w| w.class());
                if let Some((class, why)) = class
                    .filter(|class| told.insert(*class))
                    .zip(why_not::why_passed(turn.world.mirror.brain(), passed))
                {
                    turn.world.live.pending_reasons.set(class, Some(why));
                }
                continue;
            }
        };
        let Some(uid) = turn.world.mirror.uid(entry.workload) else { continue };
        if turn.world.mirror.is_scale_up(entry.workload) {
            // Whether its cluster has the room was said when it was asked.
            if grown.insert(uid) && PassOutcome::waits(entry) {
                let why = scale_up::scale_up_cluster(turn.world, uid, turn.now.mono).err();
                let why = why.unwrap_or_else(|| why_not::why_not(turn.world.mirror.brain(), entry));
                turn.world.live.scale_up_reasons.insert(uid, why);
            }
            continue;
        }
        let Some(class) = turn.workload(uid).map(|w| w.class()) else { continue };
        if !told.insert(class) {
            continue;
        }
        // What is short of a flavor keeps nobody who has the quota of another, and lacks a place there: clusters tell why.
        let short = matches!(entry.outcome, Outcome::NoFit | Outcome::NoCandidates);
        let waits = PassOutcome::waits(entry) && !(short && roomless.contains(&entry.workload));
        let why = waits.then(|| why_not::why_not(turn.world.mirror.brain(), entry));
        let why = why.filter(|_| !turn.world.config.planted.has(Bug::ReasonForgotten));
        turn.world.live.pending_reasons.set(class, why);
    }
    let mut victims = seen.victims;
    if victims.len() > 1 && turn.world.config.planted.has(Bug::VictimSpared) {
        victims.pop();
    }
    for (victim, preemptor, right) in victims {
        if let (Some(victim), Some(preemptor)) =
            (turn.world.mirror.uid(victim), turn.world.mirror.uid(preemptor))
        {
            stops::preempt(turn, victim, Preempted { by: preemptor, reason: right.into() });
        }
    }
}

impl World {
    /// Whether the last turn left something that the next is to decide at once.
    pub fn undecided(&self) -> bool {
        self.live.dirty && self.live.cuts > 0
    }
}

/// A head as a cycle left it.
enum Head {
    /// It was looked at.
    Evaluated(Box<CycleEntry>),
    /// It is known to wait on.
    Passed(Passed),
}

/// How much one turn decides: what it decided is unacknowledged out while the rest is decided.
///
/// Of heads that are looked at in vain it is twice as many in every turn that follows one which left something to be decided:
/// whatever wakes them all again in between, who comes last is looked at too.
struct TurnBudget {
    admitted: usize,
    in_vain: usize,
}

impl TurnBudget {
    fn of(heads_max: usize, cuts: u32) -> Self {
        Self { admitted: heads_max, in_vain: heads_max.saturating_mul(1 << cuts.min(CUTS_MAX)) }
    }

    fn take(&mut self, report: &Report) {
        let admitted = report.entries.iter().filter(|entry| entry.outcome == Outcome::Admitted).count();
        self.admitted = self.admitted.saturating_sub(admitted);
        self.in_vain = self.in_vain.saturating_sub(report.entries.len() - admitted);
    }

    fn is_used_up(&self) -> bool {
        self.admitted == 0 || self.in_vain == 0
    }
}

/// What cycles came to, kept until their brain is back in the world.
#[derive(Default)]
struct PassOutcome {
    /// Cycles in which somebody was admitted.
    fruitful: u64,
    /// Cycles in which somebody was looked at in vain.
    fruitless: u64,
    /// In the order in which they were looked at.
    heads: Vec<Head>,
    victims: Vec<(WorkloadId, WorkloadId, Right)>,
}

impl PassOutcome {
    /// Whether an entry waits for what the brain decides on.
    fn waits(entry: &CycleEntry) -> bool {
        !matches!(entry.outcome, Outcome::Admitted | Outcome::NoPlace)
    }

    /// Who had the quota of some flavor, and no place.
    fn roomless(&self) -> BTreeSet<WorkloadId> {
        let looked = self
            .heads
            .iter()
            .filter_map(|head| if let Head::Evaluated(entry) = head { Some(entry) } else { None });
        looked.filter(|entry| entry.outcome == Outcome::NoPlace).map(|entry| entry.workload).collect()
    }

    fn note(&mut self, report: Report) {
        let admitted = report.entries.iter().any(|entry| entry.outcome == Outcome::Admitted);
        self.fruitful += u64::from(admitted);
        self.fruitless += u64::from(!admitted && !report.entries.is_empty());
        self.victims.extend(&report.preempted);
        self.heads.extend(report.passed.into_iter().map(Head::Passed));
        self.heads.extend(report.entries.into_iter().map(|entry| Head::Evaluated(Box::new(entry))));
    }
}
