//! Groups 1 and 5: whole cycles, and what they leave behind.

mod records;

use crate::case::{Case, amounts, items, text};
use crate::verdict::{Differences, Verdict};
use crate::victims::{compare_told, preempted};
use anyhow::Context;
use meridian_planning::load::Loaded;
use meridian_queueing::Brain;
use meridian_queueing::cycle::{Eviction, Outcome, Recomputed, Report};
use meridian_queueing::model::{Delayed, Given, QueueId, WorkloadId};
use meridian_queueing::pending::{Pending, Place};
use meridian_queueing::places::Anywhere;
use meridian_topology::{Assignment, DomainCount};
use records::Records;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// One case while it runs.
struct Run<'a> {
    case: &'a Case<'a>,
    loaded: Loaded,
    records: Records,
    /// Who was given quota, or given it anew.
    admitted: BTreeSet<String>,
    preempted: Vec<Value>,
    evicted: BTreeSet<(String, String)>,
    skipped: BTreeMap<String, u64>,
    recomputed: BTreeMap<(String, String), u64>,
    /// Slices that others replaced in the last cycle: like victims they count as holders until it is over.
    replaced: BTreeMap<String, String>,
}

pub(crate) fn replay(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let (act, expect) = (case.act(), case.expect());
    let mut run = Run {
        case,
        loaded: case.load(),
        records: Records::new(case),
        admitted: BTreeSet::new(),
        preempted: Vec::new(),
        evicted: BTreeSet::new(),
        skipped: BTreeMap::new(),
        recomputed: BTreeMap::new(),
        replaced: BTreeMap::new(),
    };
    let mut differences = Differences::default();
    for cycle in 1..=act["cycles"].as_u64().unwrap_or(1) {
        if cycle > 1 {
            run.between(&act["betweenCycles"]);
        }
        run.cycle(cycle == 1 && !act["secondPass"].is_null());
        run.compare(&expect[format!("afterCycle{cycle}")], &mut differences)?;
    }
    run.compare(expect, &mut differences)?;
    Ok(differences.verdict())
}

impl Run<'_> {
    fn key(&self, id: WorkloadId) -> String {
        self.loaded.brain.workload(id).map(|workload| workload.key.to_string()).unwrap_or_default()
    }

    fn queue_name(&self, id: QueueId) -> String {
        self.loaded.brain.queue(id).setup.name.to_string()
    }

    /// What others do between two cycles.
    fn between(&mut self, changes: &Value) {
        let brain = &mut self.loaded.brain;
        for key in items(&changes["deleteWorkloads"]) {
            if let Some(id) = brain.find(text(key)) {
                brain.remove(id);
            }
        }
        // Whatever else there is is a change of quota to and fro: what counts about it is that room may have come back.
        let known = ["deleteWorkloads", "requeueInadmissible"];
        if changes.as_object().is_some_and(|all| all.keys().any(|change| !known.contains(&change.as_str()))) {
            self.loaded.redeclare(&self.case.objects);
        }
        let brain = &mut self.loaded.brain;
        if changes["requeueInadmissible"] == true {
            brain.wake_all();
        }
    }

    fn cycle(&mut self, second_pass: bool) {
        let fails = self.case.act()["statusPatchError"].as_str();
        let before = self.loaded.brain.clone();
        let report = self.loaded.brain.cycle(&mut Anywhere, second_pass);
        if let Some(error) = fails {
            self.undo(&report, error, &before);
            return;
        }
        self.count(&report);
        for (victim, by, right) in &report.preempted {
            let (by_key, queue) = (self.key(*by), self.loaded.brain.workload(*by).map(|w| w.queue));
            if let Some(queue) = queue {
                self.preempted.push(preempted(
                    self.case,
                    &self.loaded.brain,
                    *victim,
                    &by_key,
                    queue,
                    *right,
                ));
            }
            self.records.preempted(&self.key(*victim), &by_key, *right);
        }
        for (who, why) in &report.evicted {
            let reason = match why {
                Eviction::NodeFailures => "NodeFailures",
                Eviction::FlavorMigration => "FlavorMigration",
            };
            self.evicted.insert((self.key(*who), reason.to_owned()));
            self.records.evicted(&self.key(*who), reason);
        }
        for entry in &report.entries {
            let key = self.key(entry.workload);
            match entry.outcome {
                Outcome::Admitted => {
                    let (brain, id) = (&self.loaded.brain, entry.workload);
                    let holding = brain.workload(id).and_then(|w| w.holding.as_ref());
                    let admitted = holding.is_some_and(|h| h.admitted);
                    let to_come = holding.is_some_and(|h| {
                        h.given.iter().any(|g| g.placement.is_none() && g.delayed == Some(Delayed::Pending))
                    });
                    let checks: Vec<String> = brain.checks_of(id).map(ToString::to_string).collect();
                    self.records.admitted(&key, admitted, to_come, &checks);
                    self.admitted.insert(key);
                }
                Outcome::Evicted => {}
                _ => self.records.waits(&key, entry),
            }
        }
        self.replaced.clear();
        for (old, _) in &report.replaced {
            let key = before.workload(*old).map(|workload| workload.key.to_string()).unwrap_or_default();
            self.records.replaced(&key);
            self.replaced.insert(key, assignment_of(&before, *old));
        }
    }

    fn count(&mut self, report: &Report) {
        for (queue, times) in &report.skipped_preemptions {
            *self.skipped.entry(self.queue_name(*queue)).or_default() += u64::from(*times);
        }
        for ((queue, what), times) in &report.recomputed {
            let what = match what {
                Recomputed::DeferredFit => "deferred_fit",
                Recomputed::NewTargets => "new_targets",
                Recomputed::Skipped => "skipped",
            };
            *self.recomputed.entry((self.queue_name(*queue), what.to_owned())).or_default() +=
                u64::from(*times);
        }
    }

    /// Nothing could be written: what was decided didn't happen. Who isn't there any more isn't put back.
    fn undo(&mut self, report: &Report, error: &str, before: &Brain) {
        let gone = error.contains("not found");
        for (victim, ..) in &report.preempted {
            self.loaded.brain.spare(*victim);
        }
        for (holder, _) in &report.evicted {
            self.loaded.brain.spare(*holder);
        }
        for entry in &report.entries {
            match entry.outcome {
                Outcome::Admitted => {
                    let Some(workload) = before.workload(entry.workload) else { continue };
                    self.loaded.brain.take_back_penalty(entry.workload);
                    if gone {
                        self.loaded.brain.remove(entry.workload);
                    } else {
                        self.loaded.brain.requeue(entry.workload, workload.since);
                    }
                }
                Outcome::Evicted if gone => {}
                Outcome::Evicted => {
                    self.records.event(&self.key(entry.workload), "Warning", "SecondPassFailed")
                }
                _ => self.records.only_event(&self.key(entry.workload), entry),
            }
        }
    }

    fn compare(&self, expect: &Value, differences: &mut Differences) -> anyhow::Result<()> {
        let holders = || self.loaded.brain.workloads().filter(|(_, workload)| workload.holding.is_some());
        if expect["assignments"].is_object() {
            let few = text(&expect["assignmentsScope"]) == "not-admitted-before";
            let scope = holders().filter(|(_, workload)| !few || !self.records.was_admitted(&workload.key));
            let over = self
                .replaced
                .iter()
                .filter(|(key, _)| !few || !self.records.was_admitted(key))
                .map(|(key, of)| (key.clone(), of.clone()));
            let is = scope
                .map(|(id, workload)| (workload.key.to_string(), assignment_of(&self.loaded.brain, id)))
                .chain(over)
                .collect();
            differences.decision::<BTreeMap<_, _>>("assignments", &is, &assignments(&expect["assignments"])?);
        }
        if expect["admitted"].is_object() {
            let scope = holders().filter(|(_, workload)| self.admitted.contains(&*workload.key));
            let is = scope
                .map(|(id, workload)| (workload.key.to_string(), assignment_of(&self.loaded.brain, id)))
                .collect();
            differences.decision::<BTreeMap<_, _>>("admitted", &is, &assignments(&expect["admitted"])?);
        }
        let queues = |value: &Value| -> BTreeMap<String, BTreeSet<String>> {
            let keys =
                |all: &Value| items(all).iter().map(|key| text(key).to_owned()).collect::<BTreeSet<_>>();
            value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(queue, all)| (queue.clone(), keys(all)))
                .filter(|(_, all)| !all.is_empty())
                .collect()
        };
        if expect["left"].is_object() {
            differences.decision(
                "left",
                &self.waiting(|pending| pending.awake().collect()),
                &queues(&expect["left"]),
            );
        }
        if expect["inadmissible"].is_object() {
            differences.decision(
                "inadmissible",
                &self.waiting(|pending| pending.asleep().collect()),
                &queues(&expect["inadmissible"]),
            );
        }
        if expect["preempted"].is_array() {
            compare_told(self.preempted.iter().cloned(), items(&expect["preempted"]), differences);
        }
        if expect["evicted"].is_array() {
            let wanted = items(&expect["evicted"])
                .iter()
                .map(|e| (text(&e["workload"]).to_owned(), text(&e["reason"]).to_owned()))
                .collect();
            differences.decision("evicted", &self.evicted, &wanted);
        }
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        if let Some(skipped) = expect["skippedPreemptions"].as_object() {
            let wanted = skipped
                .iter()
                .map(|(queue, times)| (queue.clone(), number(times)))
                .filter(|(_, times)| *times > 0)
                .collect();
            differences.decision("skipped preemptions", &self.skipped, &wanted);
        }
        if let Some(recomputed) = expect["preemptionTargetRecomputations"].as_object() {
            let each = recomputed.iter().flat_map(|(queue, of)| {
                of.as_object()
                    .into_iter()
                    .flatten()
                    .map(move |(what, times)| ((queue.clone(), what.clone()), number(times)))
            });
            differences.decision(
                "recomputations",
                &self.recomputed,
                &each.filter(|(_, times)| *times > 0).collect(),
            );
        }
        if let Some(flavors) = expect["finalFlavors"].as_object() {
            let is = flavors.keys().map(|key| (key.clone(), self.flavor_of(key))).collect();
            let wanted = flavors
                .iter()
                .map(|(key, flavor)| (key.clone(), flavor.as_str().map(str::to_owned)))
                .collect();
            differences.decision::<BTreeMap<_, _>>("flavors", &is, &wanted);
        }
        self.records.compare(expect, differences);
        Ok(())
    }

    fn waiting(&self, who: impl Fn(&Pending) -> Vec<&Place>) -> BTreeMap<String, BTreeSet<String>> {
        let brain = &self.loaded.brain;
        let of = |(name, id): (&std::sync::Arc<str>, QueueId)| {
            let keys: BTreeSet<String> =
                who(brain.pending(id)).iter().map(|place| self.key(place.workload)).collect();
            (name.to_string(), keys)
        };
        brain.queue_list().map(of).filter(|(_, keys)| !keys.is_empty()).collect()
    }

    fn flavor_of(&self, key: &str) -> Option<String> {
        let brain = &self.loaded.brain;
        let holding = brain.workload(brain.find(key)?)?.holding.as_ref()?;
        holding
            .given
            .iter()
            .find_map(|given| given.flavors.values().next())
            .map(|flavor| brain.flavor_name(*flavor).to_string())
    }
}

/// What a holder has, in a form that compares.
fn assignment_of(brain: &Brain, id: WorkloadId) -> String {
    let Some(workload) = brain.workload(id) else { return String::new() };
    let shape = brain.shape_of(workload.shape);
    let given = workload.holding.as_ref().map(|holding| holding.given.as_slice()).unwrap_or_default();
    let sets = shape.pod_sets.iter().zip(given).map(|(set, given)| {
        let flavors = given.flavors.iter().map(|(resource, flavor)| {
            (brain.resource_name(*resource).to_string(), brain.flavor_name(*flavor).to_string())
        });
        let usage = given
            .usage
            .iter()
            .map(|(resource, amount)| (brain.resource_name(*resource).to_string(), *amount));
        shown(&set.name, given, flavors.collect(), usage.collect())
    });
    format!("{}: {}", brain.queue(workload.queue).setup.name, sets.collect::<Vec<_>>().join("; "))
}

/// One pod set's part of an assignment. What is asked for with nothing needs no flavor and isn't shown.
fn shown(
    name: &str,
    given: &Given,
    flavors: BTreeMap<String, String>,
    mut usage: BTreeMap<String, i64>,
) -> String {
    usage.retain(|_, amount| *amount != 0);
    let place = given.placement.as_ref().map(|p| json!(p).to_string()).unwrap_or_default();
    let delayed = given.delayed.map(|delayed| format!("{delayed:?}")).unwrap_or_default();
    format!("{name} x{} {flavors:?} {usage:?} {place} {delayed}", given.count)
}

/// The same of what is expected.
fn assignments(expected: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for (key, of) in expected.as_object().into_iter().flatten() {
        let mut sets = Vec::new();
        for set in items(&of["podSets"]) {
            let topology = &set["topologyAssignment"];
            let domains = items(&topology["domains"]).iter().map(|domain| {
                let values = items(&domain["values"]).iter().map(|value| text(value).to_owned()).collect();
                anyhow::Ok(DomainCount {
                    values,
                    count: u32::try_from(domain["count"].as_u64().unwrap_or(0))?,
                })
            });
            let placement = Assignment {
                levels: items(&topology["levels"]).iter().map(|level| text(level).to_owned()).collect(),
                domains: domains.collect::<anyhow::Result<_>>()?,
            };
            let given = Given {
                count: u32::try_from(set["count"].as_u64().context("count")?)?,
                placement: topology.is_object().then_some(placement),
                delayed: match text(&set["delayedTopologyRequest"]) {
                    "Pending" => Some(Delayed::Pending),
                    "Ready" => Some(Delayed::Ready),
                    _ => None,
                },
                ..Given::default()
            };
            let flavors = set["flavors"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(r, f)| (r.clone(), text(f).to_owned()))
                .collect();
            sets.push(shown(text(&set["name"]), &given, flavors, amounts(&set["resourceUsage"])?));
        }
        all.insert(key.clone(), format!("{}: {}", text(&of["clusterQueue"]), sets.join("; ")));
    }
    Ok(all)
}
