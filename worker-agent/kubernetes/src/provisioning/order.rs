//! The nodes of one offer, from the request to their return. Pure.

use super::manifest;
use crate::facts::{Condition, RequestFacts};
use crate::objects::Answer;
use meridian_agent_core::runtime::{NodeRequest, NodeSpec, ProviderEvent};
use meridian_objects::spec::RetryStrategy;
use meridian_shared::counted::counted_with;
use meridian_shared::ids::OfferId;
use meridian_shared::packing;
use meridian_shared::packing::Block;
use meridian_shared::time::{Millis, Mono, Now};

/// Time from the provisioning of nodes until the autoscaler removes those that have no pods.
const BOOKED_FOR: Millis = Millis::mins(10);
/// The part of [`BOOKED_FOR`] in which a grant may still start a gang. Its pods need the rest to start.
pub(super) const USABLE_FOR: Millis = Millis::mins(8);
/// Longest wait before a failed request to the API server is repeated.
const REPEAT_MOST: Millis = Millis::secs(10);
/// Reasons of failures that a retry wouldn't avoid.
const HOPELESS: [&str; 8] = [
    "InvalidMachineType",
    "InvalidGPUType",
    "InvalidArgument",
    "ZoneNotSupported",
    "PermissionDenied",
    "VMExternalIPAccessPolicyConstraint",
    "UnsupportedOperation",
    "ConditionNotMet",
];

/// What to do at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Create the pod templates and the request of this attempt.
    Create { attempt: u32 },
    /// Delete the templates and the request of this attempt.
    Delete { attempt: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Creating,
    /// The request exists; its conditions are followed.
    Following,
    /// The nodes are the offer's, or a run's.
    Ready,
    Deleting(Afterwards),
    /// Waits until the next attempt.
    Pausing(Mono),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Afterwards {
    End,
    TryAgain(Mono),
}

/// The nodes of one offer.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) request: NodeRequest,
    retry: RetryStrategy,
    /// Counts requests, from 1.
    attempt: u32,
    /// The name of the request, if an earlier agent made it.
    adopted: Option<String>,
    phase: Phase,
    /// Whether a watch has shown the request of this attempt.
    seen: bool,
    is_acting: bool,
    /// No action is taken before this moment.
    not_before: Mono,
    repeats: u32,
    /// The last reported reason.
    reported: String,
}

impl Order {
    pub(super) fn new(request: NodeRequest, retry: RetryStrategy) -> Self {
        Self {
            request,
            retry,
            attempt: 1,
            adopted: None,
            phase: Phase::Creating,
            seen: false,
            is_acting: false,
            not_before: Mono(0),
            repeats: 0,
            reported: String::new(),
        }
    }

    pub(super) fn offer(&self) -> OfferId {
        self.request.offer
    }

    /// An order that continues with the request of this name, which an earlier agent made for the same gang.
    pub(super) fn adopting(request: NodeRequest, retry: RetryStrategy, name: String) -> Self {
        let attempt = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1);
        Self {
            attempt,
            adopted: Some(name),
            phase: Phase::Following,
            seen: true,
            ..Self::new(request, retry)
        }
    }

    /// The name of the request of the current attempt.
    pub(super) fn name(&self) -> String {
        self.adopted.clone().unwrap_or_else(|| manifest::name(self.offer(), self.attempt))
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the request counts against the limit on open requests: the autoscaler works on it, or its
    /// deletion isn't confirmed yet. A request that got its nodes doesn't count.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Creating | Phase::Following | Phase::Deleting(_))
    }

    /// The offer has ended, or the run on its nodes has.
    pub(super) fn cancel(&mut self) {
        self.phase = match self.phase {
            // Nothing exists.
            Phase::Creating if !self.is_acting && self.repeats == 0 => Phase::Over,
            Phase::Pausing(_) | Phase::Over => Phase::Over,
            _ => Phase::Deleting(Afterwards::End),
        };
        self.not_before = Mono(0);
    }

    /// The action that is due now. Call `answered` with the result.
    pub(super) fn next(&mut self, now: Mono) -> Option<Action> {
        if let Phase::Pausing(until) = self.phase {
            if now < until {
                return None;
            }
            self.attempt += 1;
            self.adopted = None;
            (self.phase, self.seen) = (Phase::Creating, false);
        }
        if self.is_acting || now < self.not_before {
            return None;
        }
        let action = match self.phase {
            Phase::Creating => Action::Create { attempt: self.attempt },
            Phase::Deleting(_) => Action::Delete { attempt: self.attempt },
            Phase::Following | Phase::Ready | Phase::Pausing(_) | Phase::Over => return None,
        };
        self.is_acting = true;
        Some(action)
    }

    pub(super) fn answered(&mut self, now: Mono, action: Action, answer: Answer) -> Option<ProviderEvent> {
        self.is_acting = false;
        match (action, answer) {
            (_, Answer::Unknown(why)) => {
                self.repeats += 1;
                let pause = Millis(500 << self.repeats.min(5));
                self.not_before = now + pause.min(REPEAT_MOST);
                self.report(why, None)
            }
            (Action::Create { .. }, Answer::Done) => {
                self.repeats = 0;
                if self.phase == Phase::Creating {
                    self.phase = Phase::Following;
                }
                None
            }
            // Some objects of the order may exist, such as a pod template.
            (Action::Create { .. }, Answer::Refused(why)) => {
                self.repeats = 0;
                let is_wanted = self.phase == Phase::Creating;
                self.phase = Phase::Deleting(Afterwards::End);
                is_wanted.then(|| self.failed(why))
            }
            (Action::Delete { .. }, Answer::Done | Answer::Refused(_)) => {
                self.repeats = 0;
                self.phase = match self.phase {
                    Phase::Deleting(Afterwards::TryAgain(at)) => Phase::Pausing(at),
                    _ => Phase::Over,
                };
                None
            }
        }
    }

    /// Takes in the watched state of the request, and the nodes that may have been made for it.
    pub(super) fn observe(
        &mut self,
        now: Now,
        request: Option<&RequestFacts>,
        nodes: &[NodeSpec],
    ) -> Option<ProviderEvent> {
        if self.phase != Phase::Following {
            return None;
        }
        let Some(request) = request else {
            // A watch can be behind the answer to a create.
            return self
                .seen
                .then(|| self.attempt_failed(now, "another client deleted the request", false))?;
        };
        self.seen = true;
        if let Some(failed) = request.holds("Failed") {
            let is_hopeless = HOPELESS.contains(&failed.reason.as_str());
            return self.attempt_failed(now, &failed.words(), is_hopeless);
        }
        for (kind, what) in [
            ("CapacityRevoked", "the nodes were taken back"),
            ("BookingExpired", "the nodes were not used within their booking"),
        ] {
            if request.holds(kind).is_some() {
                return self.attempt_failed(now, &format!("{kind}: {what}"), false);
            }
        }
        if let Some(provisioned) = request.holds("Provisioned") {
            let age = provisioned.since.map_or(Millis(0), |since| now.wall.since(since));
            return self.provisioned(now, age, nodes);
        }
        let not_yet = request.conditions.get("Provisioned").map(Condition::words);
        let reason = match (request.holds("Accepted"), not_yet.filter(|text| !text.is_empty())) {
            (Some(_), Some(why)) => why,
            (Some(accepted), None) => accepted.words(),
            (None, _) => "NotAccepted: the autoscaler has not accepted the request yet".to_owned(),
        };
        self.report(reason, None)
    }

    fn provisioned(&mut self, now: Now, age: Millis, nodes: &[NodeSpec]) -> Option<ProviderEvent> {
        if age >= USABLE_FOR {
            let what = format!("BookingExpired: the nodes did not join within {USABLE_FOR} of {BOOKED_FOR}");
            return self.attempt_failed(now, &what, false);
        }
        let blocks: Vec<Block> = nodes.iter().filter(|node| !node.unschedulable).map(block).collect();
        match packing::fits(&blocks, &self.request.gang) {
            Ok(()) => {
                self.phase = Phase::Ready;
                Some(ProviderEvent::Ready {
                    offer: self.offer(),
                    nodes: nodes.to_vec(),
                    keeps: Some(USABLE_FOR.saturating_sub(age)),
                })
            }
            Err(misfit) => {
                let ready = counted_with(blocks.len(), "node", "has", "have");
                self.report(format!("Provisioned: {ready} joined, and {misfit}"), None)
            }
        }
    }

    /// Gives this attempt up. Another one follows unless the attempts are used up.
    fn attempt_failed(&mut self, now: Now, what: &str, is_hopeless: bool) -> Option<ProviderEvent> {
        if is_hopeless || self.attempt > self.retry.limit {
            self.phase = Phase::Deleting(Afterwards::End);
            let attempts = match self.attempt {
                1 => String::new(),
                attempts => format!(" (attempt {attempts})"),
            };
            return Some(self.failed(format!("{what}{attempts}")));
        }
        let doubled = self.retry.base.0.saturating_mul(1 << (self.attempt - 1).min(32));
        let pause = Millis(doubled).min(self.retry.max);
        self.phase = Phase::Deleting(Afterwards::TryAgain(now.mono + pause));
        let next = self.attempt + 1;
        self.report(format!("{what}; attempt {next} follows in {pause}"), None)
    }

    fn failed(&self, reason: String) -> ProviderEvent {
        ProviderEvent::Failed { offer: self.offer(), reason }
    }

    /// Reports why the offer waits, if the reason has changed.
    fn report(&mut self, reason: String, estimate: Option<Millis>) -> Option<ProviderEvent> {
        if self.reported == reason || matches!(self.phase, Phase::Deleting(Afterwards::End) | Phase::Over) {
            return None;
        }
        self.reported.clone_from(&reason);
        Some(ProviderEvent::Waiting { offer: self.offer(), reason, estimate })
    }
}

/// A node as the packing sees it.
pub(super) fn block(node: &NodeSpec) -> Block {
    let mut free = node.capacity.clone();
    for (resource, free) in &mut free {
        *free -= node.foreign_use.get(resource).copied().unwrap_or(0);
    }
    Block {
        nodes: 1,
        free,
        capacity: node.capacity.clone(),
        labels: node.labels.clone(),
        taints: node.taints.clone(),
    }
}
