//! The scheduling pass: brings the queue state in line with the world, runs cycles, and acts on their
//! results.

use crate::capacity::reserved;
use crate::dispatch::capacity_model::Clusters;
use crate::dispatch::{align, scale_up, starvation_guard, stops, why_not};
use crate::facts::end::Preempted;
use crate::facts::submission::ClassId;
use crate::live::counts::Count;
use crate::state::legs::leg;
use crate::world::World;
use crate::world::turn::Turn;
use meridian_queueing::cycle::{self, CycleEntry, CycleReport, EntryOutcome, SkippedHead};
use meridian_queueing::model::WorkloadId;
use meridian_queueing::preemption::PreemptionReason;
use meridian_shared::ids::Uid;
use meridian_shared::planted::Bug;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rounds of cycles in one turn. A further round is needed when preemptions or withdrawn offers changed the
/// queue state.
const ROUNDS_MAX: usize = 16;

/// Limits how often the number of evaluations per turn is doubled. After 20 doublings it exceeds any real
/// queue.
const BUDGET_DOUBLINGS_MAX: u32 = 20;

/// Brings the estimated free capacity of every cluster up to date.
pub(crate) fn refresh_capacity(turn: &mut Turn<'_>) {
    turn.world.live_mut().clusters_mut().for_each(|live| live.capacity_mut().refresh());
}

fn has_unanswered_offer(turn: &Turn<'_>) -> bool {
    turn.world
        .state()
        .workloads()
        .values()
        .any(|w| w.legs().values().any(|leg| leg.state() == leg::LegState::Offered))
}

/// Admits, preempts and records pending reasons until nothing changes or the turn's budget is used up.
pub(crate) fn schedule(turn: &mut Turn<'_>) {
    // Rules in doubt may allow clusters that the newest rules forbid.
    if turn.world.state().rules_doubted().is_some()
        || (turn.world.config().planted.has(Bug::SlowClusterAwaited) && has_unanswered_offer(turn))
    {
        return;
    }
    reserved::end_preemption_backoffs(turn.world);
    align::align(turn.world, turn.now.mono);
    // Released before the starvation guard runs: a preemptor that is starved too can then get a new
    // reservation at once.
    let released = reserved::release_reservations(turn.world, turn.now.mono);
    starvation_guard::apply_starvation_guard(turn);
    if reserved::release_reservations(turn.world, turn.now.mono)
        | released
        | turn.world.live_mut().pass_mut().take_capacity_changed()
    {
        turn.world.mirror_mut().queue_state_mut().requeue_for_capacity();
    }
    let mut budget = TurnBudget::of(turn.world.config().heads_max, turn.world.live().pass().cuts());
    for _ in 0..ROUNDS_MAX {
        if turn.world.mirror().queue_state().changed_trees().next().is_none() {
            turn.world.live_mut().pass_mut().completed();
            return;
        }
        if budget.is_used_up() {
            break;
        }
        let results = run_cycles(turn, &mut budget);
        turn.world.live_mut().counts_mut().add(Count::AttemptsFruitful, results.fruitful);
        turn.world.live_mut().counts_mut().add(Count::AttemptsFruitless, results.fruitless);
        store_pending_reasons(turn, &results);
        preempt_victims(turn, results.victims);
        // Withdrawn offers no longer use capacity.
        refresh_capacity(turn);
        reserved::end_preemption_backoffs(turn.world);
        align::align(turn.world, turn.now.mono);
        if turn.world.live_mut().pass_mut().take_capacity_changed() {
            turn.world.mirror_mut().queue_state_mut().requeue_for_capacity();
        }
    }
    // If the budget ran out, the next turn decides the rest at once. If the rounds ran out, it waits for new
    // input.
    let is_cut_short = budget.is_used_up();
    turn.world.live_mut().counts_mut().add(Count::CutShort, u64::from(is_cut_short));
    turn.world.live_mut().pass_mut().left_decisions(is_cut_short);
}

/// Runs cycles until no head is left to evaluate or the budget is used up.
fn run_cycles(turn: &mut Turn<'_>, budget: &mut TurnBudget) -> CycleResults {
    let awaited_preemptors = reserved::awaited_preemptors(turn.world);
    let mut taken = turn.world.mirror_mut().take();
    let mut results = CycleResults::default();
    let mut clusters = Clusters::new(turn);
    let queue_state = Arc::make_mut(&mut taken);
    queue_state.set_now(clusters.turn.now.wall.0);
    cycle::run(queue_state, &mut clusters, |_, report| {
        // Once a preemptor is admitted, the victims that backed off for it return to their queues before the
        // next cycle. Otherwise later workloads would preempt others for capacity that these victims get
        // back.
        let ends_backoff = report.entries.iter().any(|entry| {
            entry.outcome == EntryOutcome::Admitted && awaited_preemptors.contains(&entry.workload)
        });
        budget.charge(&report);
        results.add(report);
        !ends_backoff && !budget.is_used_up()
    });
    turn.world.mirror_mut().put(taken);
    results
}

/// Stores why each evaluated class is pending. The last result of a class counts.
fn store_pending_reasons(turn: &mut Turn<'_>, results: &CycleResults) {
    let without_capacity = results.heads_without_capacity();
    let (mut classes, mut scale_ups): (BTreeSet<ClassId>, BTreeSet<Uid>) = Default::default();
    for head in results.heads.iter().rev() {
        match head {
            Head::Skipped(skipped) => store_reason_of_skipped(turn, skipped, &mut classes),
            Head::Evaluated(entry) if turn.world.mirror().is_scale_up(entry.workload) => {
                store_reason_of_scale_up(turn, entry, &mut scale_ups);
            }
            Head::Evaluated(entry) => {
                let has_quota = without_capacity.contains(&entry.workload);
                store_reason_of_entry(turn, entry, has_quota, &mut classes);
            }
        }
    }
}

fn store_reason_of_skipped(turn: &mut Turn<'_>, skipped: &SkippedHead, classes: &mut BTreeSet<ClassId>) {
    let class =
        turn.world.mirror().uid(skipped.workload).and_then(|uid| turn.workload(uid)).map(|w| w.class());
    if let Some((class, why)) = class
        .filter(|class| classes.insert(*class))
        .zip(why_not::why_skipped(turn.world.mirror().queue_state(), skipped))
    {
        turn.world.live_mut().pending_reasons_mut().set(class, Some(why));
    }
}

fn store_reason_of_scale_up(turn: &mut Turn<'_>, entry: &CycleEntry, scale_ups: &mut BTreeSet<Uid>) {
    let Some(uid) = turn.world.mirror().uid(entry.workload) else { return };
    // If the cluster of the scale-up lacks capacity, that reason was stored when the cluster was evaluated.
    if scale_ups.insert(uid) && CycleResults::waits_for_quota(entry) {
        let why = scale_up::scale_up_cluster(turn.world, uid, turn.now.mono).err();
        let why = why.unwrap_or_else(|| why_not::why_not(turn.world.mirror().queue_state(), entry));
        turn.world.live_mut().scale_up_reasons_mut().set(uid, why);
    }
}

/// `has_quota`: another evaluation of the same workload found quota, but no cluster with capacity.
fn store_reason_of_entry(
    turn: &mut Turn<'_>,
    entry: &CycleEntry,
    has_quota: bool,
    classes: &mut BTreeSet<ClassId>,
) {
    let uid = turn.world.mirror().uid(entry.workload);
    let Some(class) = uid.and_then(|uid| turn.workload(uid)).map(|w| w.class()) else { return };
    if !classes.insert(class) {
        return;
    }
    // Don't report the quota shortage of one flavor if another flavor has quota but no capacity. The reasons
    // stored per cluster say why then.
    let is_short = matches!(entry.outcome, EntryOutcome::NoFit | EntryOutcome::NoCandidates);
    let waits = CycleResults::waits_for_quota(entry) && !(is_short && has_quota);
    let why = waits.then(|| why_not::why_not(turn.world.mirror().queue_state(), entry));
    let why = why.filter(|_| !turn.world.config().planted.has(Bug::ReasonForgotten));
    turn.world.live_mut().pending_reasons_mut().set(class, why);
}

fn preempt_victims(turn: &mut Turn<'_>, mut victims: Vec<(WorkloadId, WorkloadId, PreemptionReason)>) {
    if victims.len() > 1 && turn.world.config().planted.has(Bug::VictimSpared) {
        victims.pop();
    }
    for (victim, preemptor, reason) in victims {
        if let (Some(victim), Some(preemptor)) =
            (turn.world.mirror().uid(victim), turn.world.mirror().uid(preemptor))
        {
            stops::preempt(turn, victim, Preempted { by: preemptor, reason });
        }
    }
}

impl World {
    /// Whether the last turn was cut short, so that the next one is due at once.
    pub fn undecided(&self) -> bool {
        self.live().pass().is_cut_short()
    }
}

enum Head {
    Evaluated(Box<CycleEntry>),
    /// Skipped, because its shortage is unchanged.
    Skipped(SkippedHead),
}

/// Remaining budget of one turn. A turn is cut short so that its commands are sent before the next turn
/// decides the rest.
///
/// The number of evaluations without admission doubles with every consecutive turn that was cut short.
/// Otherwise the last heads would never be evaluated if something requeued all heads between turns.
struct TurnBudget {
    admissions: usize,
    fruitless_evaluations: usize,
}

impl TurnBudget {
    fn of(heads_max: usize, cuts: u32) -> Self {
        let doubled = heads_max.saturating_mul(1 << cuts.min(BUDGET_DOUBLINGS_MAX));
        Self { admissions: heads_max, fruitless_evaluations: doubled }
    }

    fn charge(&mut self, report: &CycleReport) {
        let admitted = report.entries.iter().filter(|entry| entry.outcome == EntryOutcome::Admitted).count();
        self.admissions = self.admissions.saturating_sub(admitted);
        self.fruitless_evaluations =
            self.fruitless_evaluations.saturating_sub(report.entries.len() - admitted);
    }

    fn is_used_up(&self) -> bool {
        self.admissions == 0 || self.fruitless_evaluations == 0
    }
}

/// Results of cycles, applied to the world once the queue state is back in it.
#[derive(Default)]
struct CycleResults {
    /// Cycles that admitted a workload.
    fruitful: u64,
    /// Cycles that evaluated workloads, but admitted none.
    fruitless: u64,
    /// In the order of evaluation.
    heads: Vec<Head>,
    /// Victim, preemptor and reason, per preemption.
    victims: Vec<(WorkloadId, WorkloadId, PreemptionReason)>,
}

impl CycleResults {
    /// Whether the entry is pending for a reason that the queue state knows, rather than for cluster
    /// capacity.
    fn waits_for_quota(entry: &CycleEntry) -> bool {
        !matches!(entry.outcome, EntryOutcome::Admitted | EntryOutcome::NoCapacity)
    }

    /// Heads for which some flavor had quota, but no cluster had capacity.
    fn heads_without_capacity(&self) -> BTreeSet<WorkloadId> {
        let evaluated = self
            .heads
            .iter()
            .filter_map(|head| if let Head::Evaluated(entry) = head { Some(entry) } else { None });
        evaluated
            .filter(|entry| entry.outcome == EntryOutcome::NoCapacity)
            .map(|entry| entry.workload)
            .collect()
    }

    fn add(&mut self, report: CycleReport) {
        let admitted = report.entries.iter().any(|entry| entry.outcome == EntryOutcome::Admitted);
        self.fruitful += u64::from(admitted);
        self.fruitless += u64::from(!admitted && !report.entries.is_empty());
        self.victims.extend(&report.preempted);
        self.heads.extend(report.skipped.into_iter().map(Head::Skipped));
        self.heads.extend(report.entries.into_iter().map(|entry| Head::Evaluated(Box::new(entry))));
    }
}
