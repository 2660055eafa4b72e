//! Feature gates and cluster-wide settings, with Kueue's defaults.

use meridian_objects::{duration, suggest};
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Accessor of a gate.
type Switch = fn(&mut Gates) -> &mut bool;

/// Kueue's feature gates that change a decision. The defaults are those of Kueue 0.20.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches")]
pub struct Gates {
    /// Whether a cycle orders its entries by priority.
    pub priority_sorting_within_cohort: bool,
    /// Use `flavorFungibility`; otherwise take the first flavor that fits.
    pub flavor_fungibility: bool,
    /// Continue a flavor search where the previous cycle stopped.
    pub preserve_flavor_scan_progress: bool,
    /// Admit pod sets with `minCount` with fewer pods.
    pub partial_admission: bool,
    /// A queue within nominal quota preempts borrowers whatever their share.
    pub fair_preempt_within_nominal: bool,
    /// The fair sharing tournament prefers entries that don't borrow.
    pub fair_prioritize_non_borrowing: bool,
    /// Search victims again if another entry took them first.
    pub recompute_on_target_overlap: bool,
    /// Workloads that already preempt come first.
    pub prioritize_preemptors: bool,
    /// Skip workloads equivalent to an inadmissible one.
    pub scheduling_equivalence: bool,
    /// Variants of one workload on several flavors.
    pub concurrent_admission: bool,
    /// A workload may replace an older slice of itself.
    pub elastic_slices: bool,
    /// A workload with a topology may replace an older slice, too.
    pub elastic_slices_with_topology: bool,
    pub topology: bool,
    /// Search a topology assignment again if another entry took its capacity.
    pub topology_recompute: bool,
    /// Evict a workload at once if its lost node has no replacement.
    pub failed_node_fail_fast: bool,
    /// One host may belong to several flavors.
    pub topology_overlapping_flavors: bool,
    /// Placement by the mixed profile.
    pub topology_mixed_profile: bool,
    pub topology_balanced: bool,
    /// Replace lost nodes.
    pub failed_node_replacement: bool,
    /// Respect preferred node affinity.
    pub topology_preferred_affinity: bool,
    /// A closed gate of a workload blocks its preemptions.
    pub orchestrated_preemption: bool,
    /// Whether [`Settings::ignore_undeclared`] has an effect.
    pub quota_check_strategy: bool,
    /// Fair sharing between local queues by usage history.
    pub admission_fair_sharing: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            priority_sorting_within_cohort: true,
            flavor_fungibility: true,
            preserve_flavor_scan_progress: true,
            partial_admission: true,
            fair_preempt_within_nominal: true,
            fair_prioritize_non_borrowing: true,
            recompute_on_target_overlap: true,
            prioritize_preemptors: false,
            scheduling_equivalence: true,
            concurrent_admission: false,
            elastic_slices: true,
            elastic_slices_with_topology: false,
            topology: true,
            topology_recompute: true,
            failed_node_fail_fast: true,
            topology_overlapping_flavors: true,
            topology_mixed_profile: true,
            topology_balanced: false,
            failed_node_replacement: true,
            topology_preferred_affinity: false,
            orchestrated_preemption: false,
            quota_check_strategy: true,
            admission_fair_sharing: true,
        }
    }
}

impl Gates {
    /// Kueue's names of the gates and their accessors.
    const NAMES: [(&'static str, Switch); 23] = [
        ("PrioritySortingWithinCohort", |g| &mut g.priority_sorting_within_cohort),
        ("FlavorFungibility", |g| &mut g.flavor_fungibility),
        ("FlavorFungibilityPreserveScanProgress", |g| &mut g.preserve_flavor_scan_progress),
        ("PartialAdmission", |g| &mut g.partial_admission),
        ("FairSharingPreemptWithinNominal", |g| &mut g.fair_preempt_within_nominal),
        ("FairSharingPrioritizeNonBorrowing", |g| &mut g.fair_prioritize_non_borrowing),
        ("RecomputeAssignmentUponPreemptionTargetsOverlap", |g| &mut g.recompute_on_target_overlap),
        ("PrioritizePreemptorWorkloads", |g| &mut g.prioritize_preemptors),
        ("SchedulingEquivalenceHashing", |g| &mut g.scheduling_equivalence),
        ("ConcurrentAdmission", |g| &mut g.concurrent_admission),
        ("ElasticJobsViaWorkloadSlices", |g| &mut g.elastic_slices),
        ("ElasticJobsViaWorkloadSlicesWithTAS", |g| &mut g.elastic_slices_with_topology),
        ("TopologyAwareScheduling", |g| &mut g.topology),
        ("TASRecomputeAssignmentWithinSchedulingCycle", |g| &mut g.topology_recompute),
        ("TASFailedNodeReplacementFailFast", |g| &mut g.failed_node_fail_fast),
        ("TASHandleOverlappingFlavors", |g| &mut g.topology_overlapping_flavors),
        ("TASProfileMixed", |g| &mut g.topology_mixed_profile),
        ("TASBalancedPlacement", |g| &mut g.topology_balanced),
        ("TASFailedNodeReplacement", |g| &mut g.failed_node_replacement),
        ("TASRespectNodeAffinityPreferred", |g| &mut g.topology_preferred_affinity),
        ("MultiKueueOrchestratedPreemption", |g| &mut g.orchestrated_preemption),
        ("QuotaCheckStrategy", |g| &mut g.quota_check_strategy),
        ("AdmissionFairSharing", |g| &mut g.admission_fair_sharing),
    ];

    /// Sets a gate by Kueue's name. False if no decision depends on it.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        let Some((_, gate)) = Self::NAMES.iter().find(|(known, _)| *known == name) else { return false };
        *gate(self) = on;
        true
    }

    /// Kueue's names of the gates that can be set.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }
}

/// When a share allows a queue to preempt a workload of another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FairStrategy {
    /// The preemptor's share with its workload is at most the target's share without the victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with its workload is less than the target's share before.
    LessThanInitialShare,
}

/// Fair sharing between cluster queues and cohorts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FairSharing {
    /// In the order in which they are tried.
    pub strategies: Vec<FairStrategy>,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            strategies: vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare],
        }
    }
}

/// Fair sharing between the local queues of one cluster queue, by usage history.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdmissionFairSharing {
    /// Time in milliseconds after which past usage counts half. Zero forgets it at once.
    pub half_life_ms: i64,
    /// Sampling interval in milliseconds.
    pub sampling_ms: i64,
    /// Weights of resources in billionths. A missing resource has weight one.
    pub resource_weights: Vec<(String, i64)>,
}

impl AdmissionFairSharing {
    /// Default sampling interval in milliseconds: five minutes, as in Kueue.
    pub const SAMPLING_USUAL_MS: i64 = 300_000;
    /// Upper bound for a half-life or interval; catches typing errors.
    const TIME_MAX: Millis = Millis::mins(366 * 24 * 60);
    /// Upper bound for a weight; keeps products from overflowing.
    const WEIGHT_MAX: f64 = 1e9;

    /// Parses a time of up to a year. `key` names the setting in the error message.
    pub fn time(key: &str, text: &str) -> Result<i64, String> {
        let time = duration::parse(text)
            .filter(|time| *time <= Self::TIME_MAX)
            .and_then(|time| i64::try_from(time.0).ok());
        time.ok_or_else(|| {
            format!("`{text}` of `{key}` is not a time of up to a year; write it as `5m` or `168h`")
        })
    }

    /// Parses a time that isn't zero. `key` names the setting in the error message.
    pub fn interval(key: &str, text: &str) -> Result<i64, String> {
        let time = Self::time(key, text)?;
        if time == 0 { Err(format!("`{text}` of `{key}` never passes; write it as `5m`")) } else { Ok(time) }
    }

    /// Parses the weight of a resource. `key` names the setting in the error message.
    #[expect(clippy::cast_possible_truncation, reason = "weights are bounded")]
    pub fn weight(key: &str, text: &str) -> Result<i64, String> {
        let weight = text.parse::<f64>().ok().filter(|w| (0.0..=Self::WEIGHT_MAX).contains(w));
        let nano = weight.map(|weight| (weight * 1e9).round() as i64);
        nano.ok_or_else(|| {
            format!(
                "`{text}` of `{key}` is not a weight; write a number of up to a billion, such as `2` or `0.5`"
            )
        })
    }
}

/// The form of flags: `half-life=168h,sampling=5m,weight.RESOURCE=2`.
impl FromStr for AdmissionFairSharing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut half_life, mut sampling_ms, mut resource_weights) =
            (None, Self::SAMPLING_USUAL_MS, Vec::new());
        for pair in text.split(',').map(str::trim) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}` is not KEY=VALUE; write `half-life=168h,sampling=5m`"));
            };
            match (key, key.strip_prefix("weight.")) {
                ("half-life", _) => half_life = Some(Self::time(key, value)?),
                ("sampling", _) => sampling_ms = Self::interval(key, value)?,
                (_, Some(resource)) => {
                    resource_weights.push((resource.to_owned(), Self::weight(key, value)?))
                }
                _ => {
                    let known = ["half-life", "sampling", "weight.RESOURCE"];
                    return Err(match suggest::nearest(key, known) {
                        Some(near) => format!("`{key}` is not a key; did you mean `{near}`?"),
                        None => format!("`{key}` is not a key; known keys: {}", known.join(", ")),
                    });
                }
            }
        }
        let half_life_ms =
            half_life.ok_or_else(|| "`half-life` is missing; write `half-life=168h`".to_owned())?;
        Ok(Self { half_life_ms, sampling_ms, resource_weights })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub gates: Gates,
    /// `None` turns it off.
    pub fair_sharing: Option<FairSharing>,
    /// `None` turns it off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Ignore resources that a queue doesn't declare, instead of blocking the workload.
    pub ignore_undeclared: bool,
    /// Search victims only if that changes the decision. If false, victims are searched for every flavor, to
    /// explain each flavor.
    pub brief: bool,
    /// Another component places pods, so only the levels of topologies are used.
    pub placed_by_others: bool,
    /// Before parking an overtaken workload, search its flavors again from the first, because the workloads
    /// before it may not have used the flavor. Kueue parks it at once.
    pub rescan_overtaken: bool,
    /// Of victims with the same reservation time, consider the last queued first. Kueue compares uids: if
    /// many workloads start together, the oldest may be preempted, and would then preempt the others.
    pub ties_by_age: bool,
}

impl Settings {
    /// Whether resources that a queue doesn't declare are ignored.
    pub fn ignores_undeclared(&self) -> bool {
        self.ignore_undeclared && self.gates.quota_check_strategy
    }
}
