//! Kueue's scheduler benchmark, in real time through the real manager, its API and three agents.
//!
//! Kueue's own runner creates workloads at an API server, starts a run's clock when it sees the admission,
//! and finishes the run; pods and nodes don't exist. Here jobs arrive through the bulk API at the same times,
//! are dispatched to three clusters with more capacity than quota, and run at the simulated runner. A
//! preempted workload starts over in both.
//!
//! A workload counts as admitted with its grant in the audit log; its wait begins when it was due. A run ends
//! when every workload has ended. Usage is the CPU time from grants to ends, divided by the nominal quota and
//! the duration of the run.

mod ideal;
mod report;
mod run;
mod scenario;

pub(super) use self::scenario::{BASELINE, LARGE_SCALE, Scenario};

use super::figures::Figure;
use super::measures::{Bench, Effort};
use crate::error::Error;

/// Kueue's benchmark has no nodes. A few large nodes replace them here: each cluster could hold all quota at
/// once.
const FLEET: &str = "\
clusters:
- cluster: eu
  region: europe-west4
  jurisdiction: EU
  nodes: [&a {namePrefix: n, count: 8, cpu: 10000, memory: 1024Gi}]
- {cluster: us, region: us-east4, jurisdiction: US, nodes: [*a]}
- {cluster: asia, region: asia-southeast1, jurisdiction: SG, nodes: [*a]}
";

/// Plays a benchmark once. Fails if the fleet does, or if it takes longer than Kueue did.
pub(super) async fn measure(scenario: &Scenario, effort: &Effort) -> Result<Vec<Figure>, Error> {
    let bench = Bench::start(effort, scenario.name, Some(FLEET), &scenario.objects()).await?;
    let played = run::play(&bench, scenario).await;
    Ok(report::figures(scenario, &bench.end(played).await?))
}

#[cfg(test)]
mod tests;
