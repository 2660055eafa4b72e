//! Switches and cluster-wide settings, with Kueue's defaults.

use meridian_objects::{duration, suggest};
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Where a gate is kept.
type Switch = fn(&mut Gates) -> &mut bool;

/// Kueue's feature gates that change a decision. The defaults are those of Kueue 0.20.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches")]
pub struct Gates {
    /// Entries of one cycle order by priority.
    pub priority_sorting_within_cohort: bool,
    /// Flavors are tried by `flavorFungibility`; otherwise the first that fits is taken.
    pub flavor_fungibility: bool,
    /// A flavor scan goes on where the cycle before stopped.
    pub preserve_flavor_scan_progress: bool,
    /// Pod sets with `minCount` may be admitted smaller.
    pub partial_admission: bool,
    /// A queue within nominal quota displaces borrowers whatever their share.
    pub fair_preempt_within_nominal: bool,
    /// The tournament prefers who doesn't borrow.
    pub fair_prioritize_non_borrowing: bool,
    /// Victims that another entry took first are looked for again.
    pub recompute_on_target_overlap: bool,
    /// Who already preempts goes first.
    pub prioritize_preemptors: bool,
    /// What is alike to a misfit is skipped with it.
    pub scheduling_equivalence: bool,
    /// Variants of one workload over several flavors.
    pub concurrent_admission: bool,
    /// A workload may replace an older slice of itself.
    pub elastic_slices: bool,
    /// The same with topologies.
    pub elastic_slices_with_topology: bool,
    /// Topologies.
    pub topology: bool,
    /// A topology assignment is looked for again when another entry took its place.
    pub topology_recompute: bool,
    /// A workload whose lost node has no replacement is evicted at once.
    pub failed_node_fail_fast: bool,
    /// One host may belong to several flavors.
    pub topology_overlapping_flavors: bool,
    /// Placement by the mixed profile.
    pub topology_mixed_profile: bool,
    /// Balanced placement.
    pub topology_balanced: bool,
    /// Lost nodes are replaced.
    pub failed_node_replacement: bool,
    /// Preferred node affinity is respected.
    pub topology_preferred_affinity: bool,
    /// A closed gate of the workload's holds its preemptions back.
    pub orchestrated_preemption: bool,
    /// Quota may leave undeclared resources alone.
    pub quota_check_strategy: bool,
    /// Fair sharing between local queues by their history.
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
    /// Kueue's names of the gates, and where each is kept.
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

    /// Turns a gate on or off by Kueue's name; false where no decision depends on it.
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

/// By which rule a share lets a queue displace another's workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FairStrategy {
    /// The preemptor's share with the workload is at most the target's without its victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with the workload is less than the target's before.
    LessThanInitialShare,
}

/// Fair sharing between cluster queues and cohorts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FairSharing {
    /// The rules, in the order in which they are tried.
    pub strategies: Vec<FairStrategy>,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            strategies: vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare],
        }
    }
}

/// Fair sharing between the local queues of one cluster queue, by what they used before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdmissionFairSharing {
    /// Time after which past use counts half, in milliseconds; zero forgets at once.
    pub half_life_ms: i64,
    /// How often use is sampled, in milliseconds.
    pub sampling_ms: i64,
    /// Weight of a resource in billionths; one where it isn't named.
    pub resource_weights: Vec<(String, i64)>,
}

impl AdmissionFairSharing {
    /// How often use is sampled where it isn't said, in milliseconds: five minutes, as in Kueue.
    pub const SAMPLING_USUAL_MS: i64 = 300_000;
    /// A half-life or an interval is a year at most; more is a slip.
    const TIME_MAX: Millis = Millis::mins(366 * 24 * 60);
    /// A larger weight is a slip, and products of it must not overflow anything.
    const WEIGHT_MAX: f64 = 1e9;

    /// A time as people write it: `key` says what for.
    pub fn time(key: &str, text: &str) -> Result<i64, String> {
        let time = duration::parse(text)
            .filter(|time| *time <= Self::TIME_MAX)
            .and_then(|time| i64::try_from(time.0).ok());
        time.ok_or_else(|| {
            format!("`{text}` of `{key}` is not a time of up to a year; write it as `5m` or `168h`")
        })
    }

    /// A time that passes: `key` says what for.
    pub fn interval(key: &str, text: &str) -> Result<i64, String> {
        let time = Self::time(key, text)?;
        if time == 0 { Err(format!("`{text}` of `{key}` never passes; write it as `5m`")) } else { Ok(time) }
    }

    /// The weight of a resource: `key` says of which.
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

/// As flags have it: `half-life=168h,sampling=5m,weight.RESOURCE=2`.
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
                        None => format!("`{key}` is not a key; the known ones are {}", known.join(", ")),
                    });
                }
            }
        }
        let half_life_ms =
            half_life.ok_or_else(|| "`half-life` is missing; write `half-life=168h`".to_owned())?;
        Ok(Self { half_life_ms, sampling_ms, resource_weights })
    }
}

/// Cluster-wide settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Gates.
    pub gates: Gates,
    /// Fair sharing, where it is on.
    pub fair_sharing: Option<FairSharing>,
    /// Fair sharing of admissions, where it is on.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Whether resources that a queue doesn't declare are left alone instead of blocking.
    pub ignore_undeclared: bool,
    /// Victims are looked for only where it changes the decision; otherwise for every flavor that was looked at, so that each
    /// can be explained.
    pub brief: bool,
    /// Others place pods: of topologies only which levels they have matters.
    pub placed_by_others: bool,
    /// Who was passed over at one flavor and found nothing in those after it is looked at from the first once more before it is
    /// parked: whoever came first may have left the room. Kueue parks it.
    pub look_again: bool,
    /// Of victims that were given quota in one moment the one that came to its queue last is considered first. Kueue goes by their uids, so
    /// that of many that start at once the oldest may be stopped and then displace the others in turn.
    pub ties_by_age: bool,
}

impl Settings {
    /// Whether resources that a queue doesn't declare are left alone.
    pub fn ignores_undeclared(&self) -> bool {
        self.ignore_undeclared && self.gates.quota_check_strategy
    }
}
