//! Where a workload may be known at all.
//!
//! A cluster is allowed when no matching policy denies it and every matching policy that allows anything allows it. Deny
//! beats allow. Policies match by namespace, by the namespace's labels, by queue, and by the workload's own labels; because
//! the first two *bind* whatever the workload says, its own labels and queue can only bring further policies in, never
//! take one out. The submitter's wish narrows. An unknown region or jurisdiction matches no allow list: fail closed.

use crate::audit::Entry;
use crate::catalog::Catalog;
use crate::input::Actor;
use crate::queues::ClassId;
use crate::record::Class;
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{Workload, World};
use meridian_objects::spec::{OnChange, Refusal, ResidencyPolicySpec};
use meridian_shared::ids::{ClusterName, Fence, OfferId, RecordNumber, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::StopReason;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a cluster is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Denied {
    /// A policy's deny list names it.
    Listed {
        /// Policy.
        policy: String,
        /// Its version.
        version: RecordNumber,
    },
    /// A policy allows other places only.
    NotAllowed {
        /// Policy.
        policy: String,
        /// Its version.
        version: RecordNumber,
    },
    /// The submitter asked for other regions.
    NotWished,
    /// Nobody declared the cluster: its place is unknown.
    UnknownPlace,
    /// No policy matches, and the manager requires one.
    NoPolicy,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed { policy, version } => {
                write!(f, "residency policy `{policy}` (version {version}) denies this cluster")
            }
            Self::NotAllowed { policy, version } => {
                write!(f, "residency policy `{policy}` (version {version}) allows other places only")
            }
            Self::NotWished => f.write_str("the job asks for other regions"),
            Self::UnknownPlace => f.write_str("the cluster's region and jurisdiction are unknown"),
            Self::NoPolicy => f.write_str("no residency policy matches, and the manager requires one"),
        }
    }
}

impl Denied {
    /// The rule and its version, for the audit log.
    pub fn rule(&self) -> String {
        match self {
            Self::Listed { policy, version } | Self::NotAllowed { policy, version } => {
                format!("{policy}@{version}")
            }
            Self::NotWished => "wish".into(),
            Self::UnknownPlace => "unknown-place".into(),
            Self::NoPolicy => "required".into(),
        }
    }
}

/// Whether a policy binds this class.
pub fn matches(catalog: &Catalog, policy: &ResidencyPolicySpec, class: &Class) -> bool {
    let cluster_queue = catalog.local_queue(&class.namespace, &class.queue).map(|q| q.cluster_queue.as_str());
    let queues: Vec<&str> = std::iter::once(&*class.queue).chain(cluster_queue).collect();
    policy.applies.matches(
        &class.namespace,
        &catalog.namespace_labels(&class.namespace),
        &queues,
        &class.labels,
    )
}

/// Whether what already runs there must go: some policy that doesn't permit it says `Evict`, or its place is no longer known.
pub fn evicts(catalog: &Catalog, class: &Class, cluster: &ClusterName) -> bool {
    let Some(spec) = catalog.cluster(cluster) else { return true };
    let against = |p: &ResidencyPolicySpec| {
        matches(catalog, p, class) && p.permits(cluster, &spec.region, &spec.jurisdiction).is_err()
    };
    catalog.residency_policies().any(|(_, _, p)| against(p) && p.on_change == OnChange::Evict)
}

/// Judges one cluster for one class.
pub fn judge(catalog: &Catalog, class: &Class, cluster: &ClusterName, required: bool) -> Result<(), Denied> {
    let Some(spec) = catalog.cluster(cluster) else { return Err(Denied::UnknownPlace) };
    if spec.region.as_str().is_empty() || spec.jurisdiction.as_str().is_empty() {
        return Err(Denied::UnknownPlace);
    }
    let mut any = false;
    let mut outside = None;
    for (name, version, policy) in catalog.residency_policies().filter(|(_, _, p)| matches(catalog, p, class))
    {
        any = true;
        match policy.permits(cluster, &spec.region, &spec.jurisdiction) {
            Ok(()) => {}
            Err(Refusal::Denied) => return Err(Denied::Listed { policy: name.into(), version }),
            Err(Refusal::NotAllowed) => {
                outside.get_or_insert(Denied::NotAllowed { policy: name.into(), version });
            }
        }
    }
    match outside {
        Some(denied) => Err(denied),
        None if !any && required => Err(Denied::NoPolicy),
        // What a policy forbids no other wish would help.
        None if !class.regions.is_empty() && !class.regions.contains(&spec.region) => Err(Denied::NotWished),
        None => Ok(()),
    }
}

/// A leg that stands where it may not, or no longer.
struct Misplaced {
    uid: Uid,
    offer: OfferId,
    class: ClassId,
    cluster: ClusterName,
    open: bool,
    fence: Option<Fence>,
    verdict: Result<(), Denied>,
}

impl World {
    /// Whether nothing new of a workload may start in a cluster, wherever it may be known: it is cordoned, its agent finds itself
    /// elsewhere, or the queue that the workload is charged to leaves it out. What was asked before is taken back.
    pub(crate) fn is_closed(&self, uid: Uid, cluster: &ClusterName) -> bool {
        let catalog = &self.state.catalog;
        let listed = self.queues.charged_to(uid).and_then(|queue| catalog.clusters_of(queue));
        let cordoned = catalog.cluster(cluster).is_some_and(|spec| spec.cordoned);
        cordoned
            || listed.is_some_and(|names| !names.contains(cluster))
            || self.located_elsewhere(cluster).is_some()
    }

    /// Where the agent of a cluster finds itself, if that isn't where the cluster was declared.
    pub(crate) fn located_elsewhere(&self, cluster: &ClusterName) -> Option<&str> {
        let located = self.live.clusters.get(cluster)?.located.as_deref()?;
        let declared = &self.state.catalog.cluster(cluster)?.region;
        (declared.as_str() != located).then_some(located)
    }

    /// Why a gang shouldn't run where it does, where it goes on because the policy that came since only flags.
    pub(crate) fn flagged(&self, workload: &Workload) -> Option<Denied> {
        let (_, leg) = World::right(workload).filter(|_| workload.phase != Phase::Stopping)?;
        judge(
            &self.state.catalog,
            self.queues.class(workload.class),
            &leg.cluster,
            self.config.residency_required,
        )
        .err()
    }

    fn misplaced(&self) -> Vec<Misplaced> {
        let workloads = self.state.workloads.iter();
        let legs = workloads
            .flat_map(|(uid, w)| w.legs.iter().map(move |(offer, leg)| (*uid, w.class, *offer, leg)));
        let judged = legs.map(|(uid, class, offer, leg)| {
            let verdict = judge(
                &self.state.catalog,
                self.queues.class(class),
                &leg.cluster,
                self.config.residency_required,
            );
            Misplaced {
                uid,
                offer,
                class,
                cluster: leg.cluster.clone(),
                open: leg.state.open(),
                fence: leg.fence,
                verdict,
            }
        });
        judged.filter(|m| m.verdict.is_err() || m.open && self.is_closed(m.uid, &m.cluster)).collect()
    }
}

impl Turn<'_> {
    /// The verdict on a class, in the audit log once per class, rules and cluster.
    pub(crate) fn note_verdict(
        &mut self,
        class: ClassId,
        cluster: &ClusterName,
        verdict: &Result<(), Denied>,
    ) {
        let rules = self.world.state.rules;
        if self.world.live.audited.entry(class).or_default().insert(cluster.clone(), rules) == Some(rules) {
            return;
        }
        let (word, rule) = match verdict {
            Ok(()) => ("allowed", None),
            Err(denied) => ("denied", Some(denied.rule())),
        };
        self.world.live.counts.denials += u64::from(verdict.is_err());
        let shape = self.world.queues.class(class);
        let entry = Entry {
            action: "verdict".into(),
            subject: format!("class {} of {}/{}", class.0, shape.namespace, shape.queue),
            cluster: Some(cluster.to_string()),
            verdict: Some(word.into()),
            rule,
            detail: Some(format!("rules {rules}")),
        };
        self.audit(Actor::system(), entry);
    }

    /// After a rule changed: judges every open leg, hold and run again. Who only asks or holds has to go where nothing new may
    /// start, too; who runs there runs on.
    pub(crate) fn rejudge(&mut self) {
        if self.world.config.planted.has(Bug::ResidencyJudgedOnce) {
            return;
        }
        for leg in self.world.misplaced() {
            if leg.verdict.is_err() {
                self.note_verdict(leg.class, &leg.cluster, &leg.verdict);
            }
            let evicts =
                || evicts(&self.world.state.catalog, self.world.queues.class(leg.class), &leg.cluster);
            match leg.fence {
                _ if leg.open => {
                    self.withdraw(leg.uid, leg.offer);
                    self.after_leg(leg.uid);
                }
                Some(fence) if evicts() => {
                    self.world.live.counts.residency_stops += 1;
                    self.order_stop(leg.uid, fence, StopReason::Residency, &Actor::system());
                }
                _ => {}
            }
        }
    }
}
