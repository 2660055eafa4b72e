//! Hands orders to the runner, and logs orders and events.

use meridian_agent_core::Effect;
use meridian_agent_core::runtime::{Runner, RunnerEvent, placement_summary};
use meridian_shared::time::Now;

/// Hands one order to the runner. Effects that are not for the runner are ignored.
pub(super) fn order(runner: &mut dyn Runner, decided: Now, effect: Effect) {
    match effect {
        Effect::Start(start) => {
            let (pods, nodes) = (start.placement.len(), placement_summary(&start.placement));
            tracing::info!(
                uid = %start.uid, fence = %start.fence, attempt = start.attempt, pods, nodes,
                "starting a gang"
            );
            runner.start(*start, decided);
        }
        Effect::Move { uid, fence, number, placement } => {
            let nodes = placement_summary(&placement);
            tracing::warn!(%uid, %fence, number, nodes, "a gang lost a node: the pods on it are moved");
            runner.move_pods(uid, fence, number, placement);
        }
        Effect::ScaleDown { uid, fence, size } => {
            tracing::info!(%uid, %fence, pods = size.parallelism, "scaling a gang down");
            runner.scale_down(uid, fence, size);
        }
        Effect::ScaleUp { uid, fence, number, placement, size } => {
            let nodes = placement_summary(&placement);
            tracing::info!(%uid, %fence, number, pods = size.parallelism, nodes, "scaling a gang up");
            runner.scale_up(uid, fence, number, placement, size);
        }
        Effect::Stop { uid, fence } => {
            tracing::info!(%uid, %fence, "stopping an attempt");
            runner.stop(uid, fence);
        }
        Effect::Settle { uid, fence } => runner.settle(uid, fence),
        Effect::Forget { uid, fence } => runner.forget(uid, fence),
        Effect::Renew { uid, fence, deadline } => runner.renew(uid, fence, deadline, decided),
        Effect::Check(_)
        | Effect::Secure(_)
        | Effect::Provision(_)
        | Effect::Deprovision { .. }
        | Effect::SendNews
        | Effect::Superseded => {}
    }
}

pub(super) fn log_event(event: &RunnerEvent) {
    match event {
        RunnerEvent::Running { .. } => {}
        RunnerEvent::Moved { uid, fence, number } => {
            tracing::info!(%uid, %fence, number, "the moved or added pods are on their nodes");
        }
        RunnerEvent::PodsFailed { uid, fence, failures } => {
            tracing::info!(%uid, %fence, failures, "a pod failed");
        }
        RunnerEvent::Reclaimable { uid, fence, places } => {
            tracing::info!(%uid, %fence, pods = places.len(), "pods are reclaimable while their gang runs \
                                                               on");
        }
        RunnerEvent::Completed { uid, fence, indexes } => {
            tracing::info!(%uid, %fence, %indexes, "indexes have completed");
        }
        RunnerEvent::Ended { uid, fence, result, .. } => {
            tracing::info!(%uid, %fence, %result, "an attempt ended");
        }
    }
}
