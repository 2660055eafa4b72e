//! The gangs that really run on a cluster. The promises are checked against them, and they outlive the agent.

use meridian_agent_core::{Effect, Found, FoundState};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;

/// One attempt as the runner and its guard know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gang {
    /// When the guard kills the gang, by the cluster's clock.
    pub deadline: Option<Mono>,
    /// All pods have started.
    pub running: bool,
    /// A stop was ordered.
    pub stopping: bool,
    /// How the attempt ended.
    pub ended: Option<EndResult>,
}

/// The runner of a cluster, with its guards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Runner {
    gangs: BTreeMap<(Uid, Fence), Gang>,
}

/// The result of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerOutcome {
    /// A gang was started.
    Started(Uid, Fence),
    /// A stop found nothing alive; the name of the attempt is used up.
    NothingToStop(Uid, Fence),
}

impl Runner {
    /// Does an effect of the agent.
    pub fn perform(&mut self, now: Mono, effect: &Effect) -> Option<RunnerOutcome> {
        match effect {
            Effect::Start(start) => {
                let key = (start.uid, start.fence);
                if self.gangs.contains_key(&key) || start.deadline.is_some_and(|d| d <= now) {
                    return None;
                }
                self.gangs.insert(
                    key,
                    Gang { deadline: start.deadline, running: false, stopping: false, ended: None },
                );
                Some(RunnerOutcome::Started(start.uid, start.fence))
            }
            Effect::Renew { uid, fence, deadline } => {
                if let Some(gang) = self.gangs.get_mut(&(*uid, *fence)) {
                    gang.deadline = Some(*deadline);
                }
                None
            }
            Effect::Stop { uid, fence } => {
                let occupied =
                    Gang { deadline: None, running: false, stopping: true, ended: Some(EndResult::Stopped) };
                let gang = self.gangs.entry((*uid, *fence)).or_insert(occupied);
                gang.stopping = true;
                gang.ended.is_some().then_some(RunnerOutcome::NothingToStop(*uid, *fence))
            }
            Effect::Forget { uid, fence } => {
                self.gangs.remove(&(*uid, *fence));
                None
            }
            // No node is ever lost in this model.
            Effect::Move { .. }
            | Effect::ScaleUp { .. }
            | Effect::ScaleDown { .. }
            | Effect::Check(_)
            | Effect::Secure(_)
            | Effect::Provision(_)
            | Effect::Deprovision { .. }
            | Effect::Settle { .. }
            | Effect::SendNews
            | Effect::Superseded => None,
        }
    }

    /// Attempts that are alive.
    pub fn live(&self) -> impl Iterator<Item = (Uid, Fence, &Gang)> {
        self.gangs.iter().filter(|(_, g)| g.ended.is_none()).map(|((u, f), g)| (*u, *f, g))
    }

    /// All pods of an attempt have started.
    pub fn runs(&mut self, uid: Uid, fence: Fence) {
        if let Some(gang) = self.gangs.get_mut(&(uid, fence)) {
            gang.running = true;
        }
    }

    /// An attempt ends.
    pub fn end(&mut self, uid: Uid, fence: Fence, how: EndResult) {
        if let Some(gang) = self.gangs.get_mut(&(uid, fence)) {
            gang.ended = Some(how);
        }
    }

    /// The guards end attempts that have reached their deadline.
    pub fn guard(&mut self, now: Mono) -> Vec<(Uid, Fence)> {
        let over: Vec<(Uid, Fence)> = self
            .live()
            .filter(|(_, _, g)| g.deadline.is_some_and(|d| d <= now))
            .map(|(u, f, _)| (u, f))
            .collect();
        for (uid, fence) in &over {
            self.end(*uid, *fence, EndResult::Stopped);
        }
        over
    }

    /// The runs that a restarted agent finds.
    pub fn found(&self) -> Vec<Found> {
        let state = |gang: &Gang| match &gang.ended {
            None => FoundState::Live { running: gang.running },
            Some(result) => FoundState::Ended { result: result.clone(), pod_failures: 0, ran: Millis(0) },
        };
        self.gangs
            .iter()
            .map(|((uid, fence), gang)| Found {
                uid: *uid,
                fence: *fence,
                nodes: Vec::new(),
                completed: meridian_shared::indexes::Indexes::default(),
                state: state(gang),
            })
            .collect()
    }
}
