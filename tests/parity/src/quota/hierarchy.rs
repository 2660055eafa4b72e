//! The forest of cohorts and cluster queues while objects come and go.

use crate::case::Case;
use crate::json::{fields, items, text, texts};
use crate::verdict::{Differences, Verdict};
use anyhow::bail;
use meridian_queueing::quota::{CohortSetup, Forest, Leaf, Quotas, WEIGHT_ONE};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) fn replay(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut declared = Declared::default();
    for operation in items(&case.act()["ops"]) {
        declared.apply(operation)?;
    }
    let forest = declared.forest();
    let (expect, mut differences) = (case.expect(), Differences::default());
    for (name, in_cycle) in fields(&expect["inCycle"]) {
        let is = forest.in_cycles().contains(name.as_str());
        differences.decision(&format!("`{name}` in a cycle"), &is, &(in_cycle == true));
    }
    if expect["cohorts"].is_array() {
        differences.decision("cohorts", &names(&forest, true), &texts(&expect["cohorts"]));
        differences.decision("queues", &names(&forest, false), &texts(&expect["clusterQueues"]));
        let edges_of = |value: &Value| -> BTreeSet<Vec<String>> { items(value).iter().map(texts).collect() };
        let queue_edges = edges_of(&expect["clusterQueueCohort"]);
        differences.decision("cohorts of queues", &edges(&forest, false), &queue_edges);
        differences.decision("parents of cohorts", &edges(&forest, true), &edges_of(&expect["cohortParent"]));
    }
    Ok(differences.verdict())
}

/// Names of all cohorts, or of all queues.
fn names(forest: &Forest, cohorts: bool) -> BTreeSet<String> {
    let nodes = forest.nodes().filter(|(_, node)| node.cohort == cohorts);
    nodes.map(|(_, node)| node.name.to_string()).collect()
}

/// Names of all cohorts, or of all queues, each with its parent.
fn edges(forest: &Forest, cohorts: bool) -> BTreeSet<Vec<String>> {
    let nodes = forest.nodes().filter(|(_, node)| node.cohort == cohorts);
    let edge = |node: &meridian_queueing::quota::Node| {
        Some(vec![node.name.to_string(), forest.node(node.parent?).name.to_string()])
    };
    nodes.filter_map(|(_, node)| edge(node)).collect()
}

/// Objects that exist, with the parents that they name.
#[derive(Default)]
struct Declared {
    cohorts: BTreeSet<Arc<str>>,
    cohort_parents: BTreeMap<Arc<str>, Option<Arc<str>>>,
    queues: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

impl Declared {
    /// Fails for an unknown operation.
    fn apply(&mut self, operation: &Value) -> anyhow::Result<()> {
        let argument = |index: usize| text(&operation[index]);
        let name: Arc<str> = Arc::from(argument(1));
        let parent = Some(argument(2)).filter(|parent| !parent.is_empty()).map(Arc::from);
        match argument(0) {
            "add-cohort" => {
                self.cohorts.insert(name);
            }
            "set-cohort-parent" => {
                self.cohort_parents.insert(name, parent);
            }
            "delete-cohort" => {
                self.cohorts.remove(&name);
                self.cohort_parents.remove(&name);
            }
            "add-cluster-queue" => {
                self.queues.entry(name).or_default();
            }
            "set-cluster-queue-cohort" => {
                self.queues.insert(name, parent);
            }
            "delete-cluster-queue" => {
                self.queues.remove(&name);
            }
            other => bail!("`{other}` is not an operation"),
        }
        Ok(())
    }

    /// A cohort without an object exists while a queue or cohort names it.
    fn forest(&self) -> Forest {
        let mut cohorts: BTreeMap<Arc<str>, CohortSetup> = BTreeMap::new();
        let mut open: Vec<Arc<str>> =
            self.cohorts.iter().chain(self.queues.values().flatten()).cloned().collect();
        while let Some(name) = open.pop() {
            let parent = self.cohort_parents.get(&name).cloned().flatten();
            let setup = CohortSetup { parent: parent.clone(), ..CohortSetup::default() };
            if cohorts.insert(name, setup).is_none() {
                open.extend(parent);
            }
        }
        let leaf = |(name, cohort): (&Arc<str>, &Option<Arc<str>>)| Leaf {
            name: name.clone(),
            cohort: cohort.clone(),
            quotas: Quotas::new(),
            weight: WEIGHT_ONE,
        };
        let leaves: Vec<Leaf> = self.queues.iter().map(leaf).collect();
        Forest::build(&cohorts, &leaves).0
    }
}
