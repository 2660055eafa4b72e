//! Group 3: which flavors a workload gets.

use crate::case::Case;
use crate::json::{amounts, fields, flavor_usage, items, mode, number, object, text};
use crate::state::{add_usage, clear_usage, named_usage, queue};
use crate::verdict::{Differences, Verdict};
use anyhow::bail;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::WorkloadObject;
use meridian_planning::load::Loaded;
use meridian_queueing::flavors::{
    Assignment, FlavorAttempt, GranularMode, Mode, PodSetAssignment, PreemptionOracle, PreemptionPossibility,
    assign_flavors,
};
use meridian_queueing::model::{FlavorFungibility, QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::{Amount, QueueState};
use meridian_shared::gang::Amounts;
use serde_json::Value;
use std::collections::BTreeMap;

/// A preemption oracle with the answers of the case. By default, preemption is possible without borrowing.
struct CaseOracle(BTreeMap<(String, String), (PreemptionPossibility, u32)>);

impl CaseOracle {
    fn read(answers: &[Value]) -> anyhow::Result<Self> {
        let mut oracle = BTreeMap::new();
        for answer in answers {
            let key = (text(&answer["flavor"]).to_owned(), text(&answer["resource"]).to_owned());
            oracle.insert(key, (possibility(&answer["possibility"])?, number(&answer["borrowingAfter"])?));
        }
        Ok(Self(oracle))
    }
}

impl PreemptionOracle for CaseOracle {
    fn simulate(
        &mut self,
        state: &mut QueueState,
        _: WorkloadId,
        key: (FlavorId, ResourceId),
        _: Amount,
    ) -> (PreemptionPossibility, u32) {
        let key = (state.flavor_name(key.0).to_string(), state.resource_name(key.1).to_string());
        self.0.get(&key).copied().unwrap_or((PreemptionPossibility::Preempt, 0))
    }
}

fn possibility(name: &Value) -> anyhow::Result<PreemptionPossibility> {
    Ok(match text(name) {
        "NoFit" | "noFit" => PreemptionPossibility::NoFit,
        "NoCandidates" | "noPreemptionCandidates" => PreemptionPossibility::NoCandidates,
        "Preempt" | "preempt" => PreemptionPossibility::Preempt,
        "Reclaim" | "reclaim" => PreemptionPossibility::Reclaim,
        "Fit" | "fit" => PreemptionPossibility::Fit,
        other => bail!("`{other}` is not a possibility"),
    })
}

pub(crate) fn preference(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let prospect = |option: &Value| {
        anyhow::Ok(GranularMode {
            possibility: possibility(&option["mode"])?,
            borrowing: number(&option["borrowingLevel"])?,
        })
    };
    let policy = &act["flavorFungibility"];
    let fungibility = FlavorFungibility {
        next_rather_than_borrow: text(&policy["whenCanBorrow"]) == "TryNextFlavor",
        preempt_rather_than_next: text(&policy["whenCanPreempt"]) == "MayStopSearch",
        prefers_preemption: text(&policy["preference"]) == "PreemptionOverBorrowing",
    };
    let mut differences = Differences::default();
    let preferred = prospect(&act["a"])?.is_better_than(prospect(&act["b"])?, &fungibility);
    differences.decision("preferred", &preferred, &(case.expect()["aPreferred"] == true));
    Ok(differences.verdict())
}

pub(crate) fn assign(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let workload = case.workload(&act["workload"])?;
    let mut oracle = CaseOracle::read(items(&act["preemptionOracle"]))?;
    let mut loaded = case.load();
    let queue = queue(&loaded.state, text(&act["clusterQueue"]))?;
    let id = holder(&mut loaded, workload, queue).unwrap_or_else(|| loaded.add_pending(workload, queue));
    // The replaced slice is a workload of the case, or is given with the act.
    let replaced = match &act["replacesSlice"] {
        Value::Null => None,
        given @ Value::Object(_) => match object(given)? {
            PlanObject::Workload(slice) => holder(&mut loaded, &slice, queue),
            other => bail!("{} is not a workload", other.title()),
        },
        key => holder(&mut loaded, case.workload(key)?, queue),
    };
    clear_usage(&mut loaded.state);
    add_usage(&mut loaded.state, &act["usage"])?;
    let assignment = assign_flavors(&mut loaded.state, id, queue, &mut oracle, replaced);
    compare(case, &loaded.state, &assignment)
}

/// A workload that holds the quota of its status, if it has any.
fn holder(loaded: &mut Loaded, workload: &WorkloadObject, queue: QueueId) -> Option<WorkloadId> {
    let state = &loaded.state;
    let holds = |id: &WorkloadId| state.workload(*id).is_some_and(|w| w.holding.is_some());
    let known = state.find(&workload.meta.key()).filter(holds);
    known.or_else(|| workload.status.admission.is_some().then(|| loaded.add_holder(workload, queue)))
}

fn compare(case: &Case<'_>, state: &QueueState, assignment: &Assignment) -> anyhow::Result<Verdict> {
    let (expect, mut differences) = (case.expect(), Differences::default());
    differences.decision("mode", &assignment.mode(), &mode(&expect["representativeMode"])?);
    if let Some(borrowing) = expect["borrowing"].as_u64() {
        differences.decision("borrowing", &u64::from(assignment.borrowing), &borrowing);
    }
    // Kueue lists pod sets by group, Meridian in the order of the workload.
    let mut sets: Vec<&Value> = items(&expect["podSets"]).iter().collect();
    let declared = &case.workload(&case.act()["workload"])?.spec.pod_sets;
    sets.sort_by_key(|set| declared.iter().position(|declared| declared.name == text(&set["name"])));
    differences.decision("pod sets", &assignment.pod_sets.len(), &sets.len());
    for (is, expected) in assignment.pod_sets.iter().zip(sets) {
        compare_pod_set(state, is, expected, &mut differences)?;
    }
    if expect["usage"].is_object() {
        let usage = named_usage(state, assignment.usage.iter().copied());
        differences.decision("usage", &usage, &flavor_usage(&expect["usage"])?);
    }
    if let Some(reason) = expect["noFitReason"].as_str() {
        differences.record("obstacle", &assignment.obstacle.map_or("", |obstacle| obstacle.word()), &reason);
    }
    Ok(differences.verdict())
}

fn compare_pod_set(
    state: &QueueState,
    is: &PodSetAssignment,
    expected: &Value,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    let name = text(&expected["name"]);
    compare_choices(state, is, expected, differences)?;
    if let Some(count) = expected["count"].as_u64() {
        differences.decision(&format!("pods of `{name}`"), &u64::from(is.count), &count);
    }
    if expected["requests"].is_object() {
        let requests: Amounts = is
            .requests
            .iter()
            .map(|(resource, amount)| (state.resource_name(*resource).to_string(), *amount))
            .collect();
        differences.decision(&format!("requests of `{name}`"), &requests, &amounts(&expected["requests"])?);
    }
    if expected["attempts"].is_array() {
        compare_attempts(state, name, &is.attempts, items(&expected["attempts"]), differences)?;
    }
    if expected["requests"].is_object() {
        let reasons = items(&expected["reasons"]).len();
        differences.wording(&format!("reasons of `{name}`"), &is.reasons.len(), &reasons);
    }
    Ok(())
}

/// The flavor of one resource. Mode and flavor index are `None` if the case doesn't say them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FlavorChoice {
    flavor: String,
    mode: Option<Mode>,
    /// Index of the last flavor that was tried; -1 if all were.
    tried: Option<i64>,
}

fn compare_choices(
    state: &QueueState,
    is: &PodSetAssignment,
    expected: &Value,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    let mut wanted: BTreeMap<String, FlavorChoice> = BTreeMap::new();
    for (resource, choice) in fields(&expected["flavors"]) {
        let choice = FlavorChoice {
            flavor: text(&choice["flavor"]).to_owned(),
            mode: if choice["mode"].is_string() { Some(mode(&choice["mode"])?) } else { None },
            tried: choice["triedFlavorIdx"].as_i64(),
        };
        wanted.insert(resource.clone(), choice);
    }
    let mut chosen: BTreeMap<String, FlavorChoice> = BTreeMap::new();
    for (resource, choice) in &is.flavors {
        let resource = state.resource_name(*resource).to_string();
        let known = wanted.get(&resource);
        let choice = FlavorChoice {
            flavor: state.flavor_name(choice.flavor).to_string(),
            mode: known.is_none_or(|known| known.mode.is_some()).then_some(choice.mode),
            tried: known.and_then(|known| known.tried).map(|_| i64::from(choice.tried)),
        };
        chosen.insert(resource, choice);
    }
    let name = text(&expected["name"]);
    differences.decision(&format!("flavors of `{name}`"), &chosen, &wanted);
    Ok(())
}

/// One flavor that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trial {
    mode: Mode,
    borrowing: u32,
    possibility: Option<PreemptionPossibility>,
    /// Only if the flavor doesn't fit.
    obstacle: Option<String>,
}

/// If a flavor fits, every trial must be as expected, and a flavor that only lacks the resource of another
/// group may fit by itself. Otherwise all expected trials must occur.
fn compare_attempts(
    state: &QueueState,
    name: &str,
    made: &[FlavorAttempt],
    expected: &[Value],
    differences: &mut Differences,
) -> anyhow::Result<()> {
    let mut wanted: BTreeMap<String, Trial> = BTreeMap::new();
    for attempt in expected {
        let name = &attempt["preemptionPossibility"];
        let trial = Trial {
            mode: mode(&attempt["mode"])?,
            borrowing: number(&attempt["borrow"])?,
            possibility: if name.is_string() { Some(possibility(name)?) } else { None },
            obstacle: attempt["noFitReason"].as_str().map(str::to_owned),
        };
        wanted.insert(text(&attempt["flavor"]).to_owned(), trial);
    }
    let mut trials: BTreeMap<String, Trial> = BTreeMap::new();
    for attempt in made {
        let obstacle = attempt.obstacle.filter(|_| attempt.mode == Mode::NoFit);
        let trial = Trial {
            mode: attempt.mode,
            borrowing: attempt.borrowing,
            possibility: attempt.possibility,
            obstacle: obstacle.map(|obstacle| obstacle.word().to_owned()),
        };
        trials.insert(state.flavor_name(attempt.flavor).to_string(), trial);
    }
    if trials.values().any(|trial| trial.mode == Mode::Fit) {
        wanted.retain(|flavor, _| trials.contains_key(flavor));
        for (flavor, trial) in &mut wanted {
            let lacks_resource = trial.mode == Mode::NoFit && trial.obstacle.is_none();
            if let Some(fits) = trials.get(flavor).filter(|made| lacks_resource && made.mode == Mode::Fit) {
                trial.clone_from(fits);
            }
        }
    }
    differences.record(&format!("attempts of `{name}`"), &trials, &wanted);
    Ok(())
}
