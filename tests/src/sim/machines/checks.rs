//! What must hold on machines at every instant.

use crate::sim::clusters::NODE_GPUS;
use crate::sim::fleet::topology::{LEVELS, NodeLabels, TopologyRequest, domain};
use crate::sim::hosts::machine::Machine;
use crate::sim::hosts::runner::AttemptKey;
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::world::Simulation;
use meridian_shared::ids::{Fence, Uid};
use std::collections::{BTreeMap, BTreeSet};

impl Simulation {
    /// P2: no two attempts of one workload are alive at any instant, wherever.
    pub(crate) fn check_runs_once(&mut self, uid: Uid) {
        let now = self.cx.now;
        let machines = self.machines.iter().enumerate().filter(|(_, m)| m.honest && !m.clock.is_frozen());
        let fences = |m: &Machine| {
            let alive = m.runner.alive_within_lease(m.clock.now(now)).filter(|(other, _)| *other == uid);
            alive.map(|(_, fence)| fence).collect::<Vec<_>>()
        };
        let alive: Vec<(usize, Fence)> =
            machines.flat_map(|(i, m)| fences(m).into_iter().map(move |fence| (i, fence))).collect();
        if alive.len() > 1 {
            let on = |(machine, fence): &(usize, Fence)| {
                let clusters: Vec<&str> = self
                    .agents
                    .iter()
                    .filter(|host| host.machine == *machine)
                    .map(|host| host.name.as_str())
                    .collect();
                format!("machine {machine} of {} (fence {fence})", clusters.join(", "))
            };
            let places: Vec<String> = alive.iter().map(on).collect();
            let details = format!("workload {uid} runs on {}", places.join(" and on "));
            self.cx.record_verdict(violation("P2", details));
        }
    }

    /// Where pods of an honest machine were placed: within its nodes, and as their topology requests say.
    pub(crate) fn check_placement(&mut self, machine: usize) {
        if self.machines[machine].honest {
            self.check_nodes(machine);
            let verdict = self.topology_verdict(machine);
            self.cx.record_verdict(verdict);
        }
    }

    /// P4: no node runs more than it has. Skipped where no agent knows all that runs.
    fn check_nodes(&mut self, machine: usize) {
        let host = &self.machines[machine];
        let mut used: BTreeMap<&str, i64> = BTreeMap::new();
        for ((uid, _), gang) in host.runner.gangs().filter(|(_, gang)| gang.is_alive()) {
            let gpus = self.invariants.jobs.get(uid).map_or(0, |job| job.gpus);
            gang.occupied().iter().for_each(|pod| *used.entry(&pod.node).or_insert(0) += gpus);
        }
        let over = used.iter().find(|(_, gpus)| **gpus > NODE_GPUS);
        if let Some((node, gpus)) = over.filter(|_| !host.has_unknown_gangs) {
            let details =
                format!("node `{node}` of machine {machine} has {NODE_GPUS} accelerators and runs {gpus}");
            self.cx.record_verdict(violation("P4", details));
        }
    }

    /// A gang that requires one domain has all its pods in one.
    fn topology_verdict(&self, machine: usize) -> Verdict {
        let host = &self.machines[machine];
        for ((uid, fence), gang) in host.runner.gangs().filter(|(_, gang)| gang.is_alive()) {
            let Some(request) = self.invariants.jobs.get(uid).and_then(|job| job.topology) else { continue };
            if host.labels != NodeLabels::Topology {
                let details = format!(
                    "workload {uid} (fence {fence}) requests {request:?}, and runs on machine {machine}, \
                     which has no topology"
                );
                return violation("topology", details);
            }
            let TopologyRequest::Required(level) = request else { continue };
            let domains: BTreeSet<String> =
                gang.occupied().iter().map(|pod| domain(&pod.node, level)).collect();
            if domains.len() > 1 {
                let details = format!(
                    "workload {uid} (fence {fence}) requires one {}, and runs in {domains:?}",
                    LEVELS[level]
                );
                return violation("topology", details);
            }
        }
        Ok(())
    }

    /// The agent's lease ends, in true time, before its manager may call it lapsed.
    pub(crate) fn check_lease(&mut self, machine: usize, key: AttemptKey) {
        let (uid, fence) = key;
        let host = &self.machines[machine];
        let lapse = host.runner.lapse(key, host.clock.now(self.cx.now)).filter(|_| host.honest);
        let Some((lapse, allowed)) = lapse.zip(self.invariants.leases.manager_lapse(fence)) else { return };
        let ends = host.clock.when(lapse);
        if ends > allowed {
            let details = format!(
                "workload {uid} (fence {fence}) may run on machine {machine} until {ends} ms, \
                 and its manager may call the lease lapsed at {allowed} ms"
            );
            self.cx.record_verdict(violation("lease", details));
        }
    }
}
