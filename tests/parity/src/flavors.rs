//! Group 3: which flavors a workload gets.

use crate::case::{
    Case, FlavorUsage, amounts, flavor_usage, free_all, items, named_usage, object, queue, text, use_quota,
};
use crate::quota::mode;
use crate::verdict::{Differences, Verdict};
use anyhow::bail;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::WorkloadObject;
use meridian_planning::load::Loaded;
use meridian_queueing::flavors::{Assignment, Attempt, Mode, Oracle, Possibility, Prospect};
use meridian_queueing::model::{Fungibility, QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::{Amount, Brain};
use meridian_shared::gang::Amounts;
use serde_json::Value;
use std::collections::BTreeMap;

/// Answers what a case says, and that others may be displaced where it says nothing.
struct Told(BTreeMap<(String, String), (Possibility, u32)>);

impl Oracle for Told {
    fn simulate(
        &mut self,
        brain: &mut Brain,
        _: WorkloadId,
        (flavor, resource): (FlavorId, ResourceId),
        _: Amount,
    ) -> (Possibility, u32) {
        let key = (brain.flavor_name(flavor).to_string(), brain.resource_name(resource).to_string());
        self.0.get(&key).copied().unwrap_or((Possibility::Preempt, 0))
    }
}

fn possibility(word: &Value) -> anyhow::Result<Possibility> {
    Ok(match text(word) {
        "NoFit" | "noFit" => Possibility::NoFit,
        "NoCandidates" | "noPreemptionCandidates" => Possibility::NoCandidates,
        "Preempt" | "preempt" => Possibility::Preempt,
        "Reclaim" | "reclaim" => Possibility::Reclaim,
        "Fit" | "fit" => Possibility::Fit,
        other => bail!("`{other}` is no possibility"),
    })
}

fn small(value: &Value) -> anyhow::Result<u32> {
    Ok(u32::try_from(value.as_u64().unwrap_or(0))?)
}

pub(crate) fn preference(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let prospect = |of: &Value| {
        anyhow::Ok(Prospect {
            possibility: possibility(&of["mode"])?,
            borrowing: small(&of["borrowingLevel"])?,
        })
    };
    let written = &act["flavorFungibility"];
    let fungibility = Fungibility {
        next_rather_than_borrow: text(&written["whenCanBorrow"]) == "TryNextFlavor",
        preempt_rather_than_next: text(&written["whenCanPreempt"]) == "MayStopSearch",
        prefers_preemption: text(&written["preference"]) == "PreemptionOverBorrowing",
    };
    let mut differences = Differences::default();
    let preferred = prospect(&act["a"])?.beats(prospect(&act["b"])?, &fungibility);
    differences.decision("preferred", &preferred, &(case.expect()["aPreferred"] == true));
    Ok(differences.verdict())
}

pub(crate) fn assign(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let workload = case.workload(&act["workload"])?;
    let mut oracle = Told(BTreeMap::new());
    for told in items(&act["preemptionOracle"]) {
        let key = (text(&told["flavor"]).to_owned(), text(&told["resource"]).to_owned());
        oracle.0.insert(key, (possibility(&told["possibility"])?, small(&told["borrowingAfter"])?));
    }
    let mut loaded = case.load();
    let id = queue(&loaded.brain, text(&act["clusterQueue"]))?;
    // Who has an admission comes with the flavors that it has.
    let asks = holder(&mut loaded, workload, id).unwrap_or_else(|| loaded.await_in(workload, id));
    // The slice is one of the case's workloads, or the act's own.
    let replaces = match &act["replacesSlice"] {
        Value::Null => None,
        own @ Value::Object(_) => match object(own)? {
            PlanObject::Workload(slice) => holder(&mut loaded, &slice, id),
            other => bail!("{} is no slice", other.title()),
        },
        key => holder(&mut loaded, case.workload(key)?, id),
    };
    free_all(&mut loaded.brain);
    use_quota(&mut loaded.brain, &act["usage"])?;
    let assignment = loaded.brain.assign_flavors(asks, id, &mut oracle, replaces);
    compare(case, &loaded.brain, &assignment)
}

/// A workload that holds what its status says.
fn holder(loaded: &mut Loaded, workload: &WorkloadObject, queue: QueueId) -> Option<WorkloadId> {
    let known = loaded.brain.find(&workload.meta.key());
    let holds = |id: &WorkloadId| loaded.brain.workload(*id).is_some_and(|w| w.holding.is_some());
    known
        .filter(holds)
        .or_else(|| workload.status.admission.is_some().then(|| loaded.hold_in(workload, queue)))
}

/// What one resource was given: flavor, mode, and the place of the last flavor that was looked at, where they are asserted.
type Chosen = (String, Option<Mode>, Option<i64>);

fn compare(case: &Case<'_>, brain: &Brain, assignment: &Assignment) -> anyhow::Result<Verdict> {
    let (expect, mut differences) = (case.expect(), Differences::default());
    differences.decision("mode", &assignment.mode(), &mode(&expect["representativeMode"])?);
    if let Some(borrowing) = expect["borrowing"].as_u64() {
        differences.decision("borrowing", &u64::from(assignment.borrowing), &borrowing);
    }
    // Kueue lists pod sets by group, we as the workload does.
    let mut sets: Vec<&Value> = items(&expect["podSets"]).iter().collect();
    let own = &case.workload(&case.act()["workload"])?.spec.pod_sets;
    sets.sort_by_key(|set| own.iter().position(|own| own.name == text(&set["name"])));
    differences.decision("pod sets", &assignment.pod_sets.len(), &sets.len());
    for (is, expected) in assignment.pod_sets.iter().zip(sets) {
        let name = text(&expected["name"]);
        let mut wanted: BTreeMap<String, Chosen> = BTreeMap::new();
        for (resource, choice) in expected["flavors"].as_object().into_iter().flatten() {
            let asserted = if choice["mode"].is_string() { Some(mode(&choice["mode"])?) } else { None };
            wanted.insert(
                resource.clone(),
                (text(&choice["flavor"]).to_owned(), asserted, choice["triedFlavorIdx"].as_i64()),
            );
        }
        let chosen = is.flavors.iter().map(|(resource, choice)| {
            let resource = brain.resource_name(*resource).to_string();
            let (mode, tried) = wanted
                .get(&resource)
                .map_or((Some(choice.mode), None), |(_, mode, tried)| (mode.map(|_| choice.mode), *tried));
            (
                resource,
                (brain.flavor_name(choice.flavor).to_string(), mode, tried.map(|_| i64::from(choice.tried))),
            )
        });
        differences.decision(&format!("flavors of `{name}`"), &chosen.collect(), &wanted);
        if let Some(count) = expected["count"].as_u64() {
            differences.decision(&format!("pods of `{name}`"), &u64::from(is.count), &count);
        }
        if expected["requests"].is_object() {
            let requests: Amounts = is
                .requests
                .iter()
                .map(|(resource, amount)| (brain.resource_name(*resource).to_string(), *amount))
                .collect();
            differences.decision(
                &format!("requests of `{name}`"),
                &requests,
                &amounts(&expected["requests"])?,
            );
        }
        if expected["attempts"].is_array() {
            compare_attempts(brain, name, &is.attempts, items(&expected["attempts"]), &mut differences)?;
        }
        if expected["requests"].is_object() {
            differences.words(
                &format!("reasons of `{name}`"),
                &is.reasons.len(),
                &items(&expected["reasons"]).len(),
            );
        }
    }
    if expect["usage"].is_object() {
        let usage: FlavorUsage = named_usage(brain, assignment.usage.iter().copied());
        differences.decision("usage", &usage, &flavor_usage(&expect["usage"])?);
    }
    if let Some(reason) = expect["noFitReason"].as_str() {
        differences.record("obstacle", &assignment.obstacle.map_or("", |obstacle| obstacle.word()), &reason);
    }
    Ok(differences.verdict())
}

/// Where one of them fits, every flavor that was looked at is as expected, and one that only lacks another group's resource may
/// fit by itself; otherwise all that are expected were looked at.
fn compare_attempts(
    brain: &Brain,
    name: &str,
    made: &[Attempt],
    expected: &[Value],
    differences: &mut Differences,
) -> anyhow::Result<()> {
    type Tried = (Mode, u32, Option<Possibility>, Option<String>);
    let mut wanted: BTreeMap<String, Tried> = BTreeMap::new();
    for attempt in expected {
        let asked = &attempt["preemptionPossibility"];
        let asked = if asked.is_string() { Some(possibility(asked)?) } else { None };
        let tried = (
            mode(&attempt["mode"])?,
            small(&attempt["borrow"])?,
            asked,
            attempt["noFitReason"].as_str().map(str::to_owned),
        );
        wanted.insert(text(&attempt["flavor"]).to_owned(), tried);
    }
    let made: BTreeMap<String, Tried> = made
        .iter()
        .map(|a| {
            let obstacle = a.obstacle.filter(|_| a.mode == Mode::NoFit).map(|o| o.word().to_owned());
            (brain.flavor_name(a.flavor).to_string(), (a.mode, a.borrowing, a.possibility, obstacle))
        })
        .collect();
    if made.values().any(|(mode, ..)| *mode == Mode::Fit) {
        wanted.retain(|flavor, _| made.contains_key(flavor));
        let lacking = |tried: &Tried| tried.0 == Mode::NoFit && tried.3.is_none();
        for (flavor, tried) in wanted.iter_mut().filter(|(_, tried)| lacking(tried)) {
            if let Some(fits) = made.get(flavor).filter(|made| made.0 == Mode::Fit) {
                tried.clone_from(fits);
            }
        }
    }
    differences.record(&format!("attempts of `{name}`"), &made, &wanted);
    Ok(())
}
