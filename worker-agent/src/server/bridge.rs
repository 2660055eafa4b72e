//! Between the core's words and the runner's. Nothing is decided here.

use crate::runner;
use meridian_agent_core as core;
use meridian_shared::lease;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::Mono;

/// A run without a lease never lapses.
const NEVER: Mono = Mono(u64::MAX);

/// A grant, for the runner.
pub(super) fn start(start: core::Start) -> runner::Start {
    let core::Start {
        uid,
        fence,
        attempt: _,
        namespace,
        name,
        spec,
        placement,
        deadline,
        stop_budget,
        run_left,
        pod_failures,
    } = start;
    runner::Start {
        uid,
        fence,
        namespace: namespace.as_ref().to_owned(),
        name: name.as_ref().to_owned(),
        spec,
        placement: placement.into_iter().map(place).collect(),
        deadline: deadline.unwrap_or(NEVER),
        // Without a lease the budget is only the grace of a stop that somebody asked for.
        stop_budget: if deadline.is_some() { stop_budget } else { lease::stop_budget(lease::TERM_MAX) },
        run_left,
        failures: pod_failures,
    }
}

/// A pod has accelerators of one resource; where a job asks for two kinds, the numbers of both are listed.
pub(super) fn place(pod: core::ledger::PodPlacement) -> runner::PodPlacement {
    let core::ledger::PodPlacement { pod_set, index, node, accelerators } = pod;
    runner::PodPlacement {
        pod_set,
        index,
        node,
        accelerators: accelerators.into_values().flatten().collect(),
    }
}

/// What a runner tells, for the core.
pub(super) fn event(event: runner::RunnerEvent) -> Option<core::RunnerEvent> {
    match event {
        runner::RunnerEvent::Running { uid, fence } => Some(core::RunnerEvent::Running { uid, fence }),
        runner::RunnerEvent::Moved { uid, fence, number } => {
            tracing::info!(%uid, %fence, number, "the pods of lost nodes are in their new places");
            Some(core::RunnerEvent::Moved { uid, fence, number })
        }
        runner::RunnerEvent::PodFailed { uid, fence, failures } => {
            tracing::info!(%uid, %fence, failures, "a pod failed");
            Some(core::RunnerEvent::PodsFailed { uid, fence, failures })
        }
        runner::RunnerEvent::Spare { uid, fence, places } => {
            tracing::info!(%uid, %fence, pods = places.len(), "pods have succeeded while the rest of their gang runs on");
            Some(core::RunnerEvent::Spare { uid, fence, places })
        }
        runner::RunnerEvent::Ended { uid, fence, end } => {
            let runner::End { result, pods: _, failures, ran } = end;
            tracing::info!(%uid, %fence, ?result, "an attempt ended");
            Some(core::RunnerEvent::Ended {
                uid,
                fence,
                result: self::result(result),
                pod_failures: failures,
                ran,
            })
        }
    }
}

/// A run that is there after a restart.
pub(super) fn found(found: runner::Found) -> core::Found {
    let runner::Found { uid, fence, nodes, state } = found;
    let state = match state {
        runner::FoundState::Running { failures: _ } => core::FoundState::Live { running: true },
        // Its end follows as an event.
        runner::FoundState::Ending => core::FoundState::Live { running: false },
        runner::FoundState::Ended(runner::End { result, pods: _, failures, ran }) => {
            core::FoundState::Ended { result: self::result(result), pod_failures: failures, ran }
        }
    };
    core::Found { uid, fence, nodes, state }
}

fn result(result: runner::RunResult) -> EndResult {
    match result {
        runner::RunResult::Succeeded => EndResult::Succeeded,
        runner::RunResult::Failed { reason, message } => EndResult::Failed { reason, message },
        runner::RunResult::LeaseLapsed => EndResult::LeaseLapsed,
        runner::RunResult::NodeLost { message } => EndResult::NodeLost { message },
        runner::RunResult::Stopped => EndResult::Stopped,
    }
}
