//! Assignments: which flavors a workload would get, and why not.

use crate::model::{Delayed, FlavorScan, Obstacle, PodSetAdmission, Reason, Requests, Usage, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use meridian_topology::Assignment as TopologyAssignment;
use serde::{Deserialize, Serialize};

/// Whether a flavor can be assigned, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    NoFit,
    /// The request fits after preemption.
    Preempt,
    /// The request fits after the victims of other entries are gone.
    DeferredFit,
    /// The request fits now.
    Fit,
}

/// Result of a simulated preemption, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PreemptionPossibility {
    /// The request never fits.
    NoFit,
    /// There are no candidates.
    NoCandidates,
    /// Some victims are in its own queue.
    Preempt,
    /// All victims are in other queues.
    Reclaim,
    /// No preemption is needed.
    Fit,
}

impl PreemptionPossibility {
    /// The mode of a flavor with this result.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }
}

/// The flavor assigned to one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlavorAssignment {
    pub flavor: FlavorId,
    pub mode: Mode,
    /// Index of the last flavor evaluated; -1 after the last one.
    pub tried: i32,
    /// Height of the subtree that provides the quota.
    pub borrowing: u32,
}

/// An evaluated flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlavorAttempt {
    pub flavor: FlavorId,
    /// The worst mode over the resources.
    pub mode: Mode,
    /// Height of the subtree that would provide the quota.
    pub borrowing: u32,
    /// Result of the simulated preemption, if any.
    pub possibility: Option<PreemptionPossibility>,
    /// Why it doesn't fit now, or never will.
    pub reasons: Vec<Reason>,
    /// Set if it doesn't fit.
    pub obstacle: Option<Obstacle>,
}

/// The assignment of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Flavor of each resource, in the order of the resources' names.
    pub flavors: Vec<(ResourceId, FlavorAssignment)>,
    /// Why it doesn't fit now, or never will.
    pub reasons: Vec<Reason>,
    /// Quota request of all pods.
    pub requests: Requests,
    pub count: u32,
    /// The topology assignment.
    pub placement: Option<TopologyAssignment>,
    /// Set if the topology assignment is or was delayed.
    pub delayed: Option<Delayed>,
    /// The request is invalid or no flavor fits it.
    pub infeasible: bool,
    /// The flavors evaluated.
    pub attempts: Vec<FlavorAttempt>,
}

impl PodSetAssignment {
    /// The worst mode of its resources.
    pub fn mode(&self) -> Mode {
        if self.infeasible {
            Mode::NoFit
        } else if self.reasons.is_empty() {
            Mode::Fit
        } else {
            self.flavors.iter().map(|(_, c)| c.mode).min().unwrap_or(Mode::NoFit)
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        self.flavors.iter_mut().for_each(|(_, choice)| choice.mode = mode);
    }

    pub fn flavor(&self, resource: ResourceId) -> Option<&FlavorAssignment> {
        self.flavors.iter().find(|(r, _)| *r == resource).map(|(_, c)| c)
    }

    /// The admission that the pod set would get by this assignment.
    pub fn given(&self) -> PodSetAdmission {
        PodSetAdmission {
            flavors: self.flavors.iter().map(|(resource, choice)| (*resource, choice.flavor)).collect(),
            usage: self.requests.iter().filter(|(r, _)| self.flavor(*r).is_some()).copied().collect(),
            count: self.count,
            placement: self.placement.clone(),
            delayed: self.delayed,
        }
    }
}

/// The assignment of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Pod sets up to the first that doesn't fit.
    pub pod_sets: Vec<PodSetAssignment>,
    /// Maximum height of the subtrees that provide the quota.
    pub borrowing: u32,
    /// Quota usage, less that of the replaced slice.
    pub usage: Usage,
    /// Where the flavor search continues.
    pub scan: FlavorScan,
    /// The reported obstacle if nothing fits. As in Kueue, it concerns the flavors that were tried.
    pub obstacle: Option<Obstacle>,
    /// The obstacle that must change before the workload can start. It may differ from `obstacle`, because
    /// Kueue considers only the flavors that were tried.
    pub barrier: Option<Obstacle>,
    /// The slice to replace.
    pub replaces: Option<WorkloadId>,
    fixed: Option<Mode>,
}

impl Assignment {
    /// An assignment without pod sets.
    pub(crate) fn new(scan: FlavorScan, replaces: Option<WorkloadId>) -> Self {
        Self { scan, replaces, ..Self::default() }
    }

    /// The worst mode of its pod sets.
    pub fn mode(&self) -> Mode {
        if self.pod_sets.is_empty() {
            return Mode::NoFit;
        }
        self.fixed
            .unwrap_or_else(|| self.pod_sets.iter().map(PodSetAssignment::mode).min().unwrap_or(Mode::NoFit))
    }

    /// Number of pods of each pod set.
    pub fn counts(&self) -> Vec<u32> {
        self.pod_sets.iter().map(|set| set.count).collect()
    }

    /// Sets the mode of all pod sets.
    pub fn set_mode(&mut self, mode: Mode) {
        self.fixed = Some(mode);
        self.pod_sets.iter_mut().for_each(|set| set.set_mode(mode));
    }

    /// Sets the mode of a pod set. A group has common flavors, so the mode of a resource applies to all
    /// members.
    pub(crate) fn set_mode_in_group(&mut self, at: usize, group: &[usize], mode: Mode) {
        let resources: Vec<ResourceId> =
            self.pod_sets[at].flavors.iter().map(|(resource, _)| *resource).collect();
        for member in group {
            let flavors = self.pod_sets[*member].flavors.iter_mut();
            flavors
                .filter(|(resource, _)| resources.contains(resource))
                .for_each(|(_, choice)| choice.mode = mode);
        }
        self.fixed = Some(mode);
    }

    pub(crate) fn mark_infeasible(&mut self, at: usize, why: Reason) {
        self.pod_sets[at].infeasible = true;
        self.pod_sets[at].reasons.push(why);
        self.fixed = None;
    }

    /// Flavors and resources that need preemption.
    pub fn contested(&self) -> Vec<(FlavorId, ResourceId)> {
        let mut found: Vec<_> = self
            .pod_sets
            .iter()
            .flat_map(|set| {
                set.flavors
                    .iter()
                    .filter(|(_, c)| c.mode == Mode::Preempt)
                    .map(|(resource, c)| (c.flavor, *resource))
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// All reasons, by pod set.
    pub fn reasons(&self) -> impl Iterator<Item = (usize, &Reason)> {
        self.pod_sets.iter().enumerate().flat_map(|(at, set)| set.reasons.iter().map(move |r| (at, r)))
    }
}
