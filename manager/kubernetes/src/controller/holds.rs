//! Holds back new jobs while settings of the cluster that decide about jobs aren't at the manager yet.
//!
//! Jobs wait for most settings only while these are being written. They wait without limit for rules, which
//! say where jobs may run, because a job that is submitted without one of them may run where it is forbidden.

use super::{RULES_EVERY, SETTINGS_WAIT, Shared, lock};
use crate::decide::{self, Memory, Pair};
use crate::events;
use crate::queue::{RULES, STUBBORN};
use crate::resources::Flow;
use crate::sides::{ObjectKey, Side};
use meridian_objects::Kind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time without a watch of the rules after which new jobs are held back.
const UNWATCHED_MOST: Duration = Duration::from_secs(10);
/// How often a job that is held back is checked again.
const HELD_AGAIN: Duration = Duration::from_secs(5);

/// Kinds that determine where jobs may run and what their queues may use. Objects of other kinds, such as
/// local queues, only refer to these or restrict jobs further.
const DECIDING: [Kind; 9] = [
    Kind::ResidencyPolicy,
    Kind::Namespace,
    Kind::Cluster,
    Kind::DispatchPolicy,
    Kind::ClusterQueue,
    Kind::Cohort,
    Kind::ResourceFlavor,
    Kind::AdmissionCheck,
    Kind::MultiKueueConfig,
];

/// Whether jobs wait without limit for objects of this kind.
pub(super) fn is_rule(kind: Kind) -> bool {
    RULES.contains(&kind)
}

/// Kinds of the cluster whose watch fails, with the start and the reason.
#[derive(Debug, Default)]
pub(super) struct Unwatched(BTreeMap<Kind, (Instant, String)>);

impl Unwatched {
    pub(super) fn failed(&mut self, kind: Kind, why: String) {
        let (_, reason) = self.0.entry(kind).or_insert_with(|| (Instant::now(), String::new()));
        *reason = why;
    }

    pub(super) fn works(&mut self, kind: Kind) {
        self.0.remove(&kind);
    }

    /// Why new jobs wait, if rules can't be watched for too long, or other kinds were never listed.
    fn reason(&self, is_listed: impl Fn(Kind) -> bool) -> Option<String> {
        let too_long = |(kind, (since, _)): &(&Kind, &(Instant, String))| {
            since.elapsed() >= UNWATCHED_MOST && (is_rule(**kind) || !is_listed(**kind))
        };
        let (kind, (_, why)) = self.0.iter().find(too_long)?;
        Some(format!(
            "waits: this cluster's {} can't be watched, so it isn't known whether and where the job may run: \
             {why}",
            kind.plural()
        ))
    }
}

/// Why a job waits, if rules aren't at the manager after several attempts.
fn reason_of(job: &ObjectKey, stuck: &[ObjectKey]) -> Option<String> {
    let concerns = |rule: &&ObjectKey| rule.kind != Kind::Namespace || rule.name == job.namespace;
    let rule = stuck.iter().find(concerns)?;
    Some(format!(
        "waits: the manager doesn't have the present version of {rule}, so it isn't known where the job may \
         run: the events of that object say why"
    ))
}

/// Why a submission waits.
pub(super) enum Hold {
    /// Settings are being written to the manager.
    Soon,
    /// Rules are missing, with the reason for users.
    Because(String),
}

impl Shared {
    /// Why a job isn't submitted now; `None` if it may be.
    pub(super) fn hold_of(&self, job: &ObjectKey) -> Option<Hold> {
        // a rule whose status can't be written fails too, but is at the manager
        let stuck: Vec<ObjectKey> =
            self.queue.failing(&RULES, STUBBORN).into_iter().filter(|rule| !self.was_taken(rule)).collect();
        let reason = self.unwatched_reason().or_else(|| reason_of(job, &stuck));
        match reason {
            Some(reason) => Some(Hold::Because(reason)),
            None => self.settings_are_on_their_way().then_some(Hold::Soon),
        }
    }

    fn unwatched_reason(&self) -> Option<String> {
        let sides = lock(&self.sides);
        lock(&self.unwatched).reason(|kind| sides.is_complete(kind))
    }

    /// Whether the manager has a rule in the cluster's version, or the rule is gone in the cluster.
    fn was_taken(&self, rule: &ObjectKey) -> bool {
        let object = lock(&self.sides).get(Side::Cluster, rule);
        let memory = self.memory(rule, Flow::Settings);
        object.is_none_or(|object| decide::was_taken(rule.kind, &object, &memory))
    }

    /// Reports once why a job waits. Returns when to check again.
    pub(super) async fn hold(
        &self,
        key: &ObjectKey,
        hold: Hold,
        pair: Pair<'_>,
        memory: &Memory,
    ) -> Duration {
        let Hold::Because(reason) = hold else { return SETTINGS_WAIT };
        let said = decide::fingerprint(&reason.as_str().into());
        if memory.explained.is_none_or(|(before, _)| before != said) {
            self.write_events(pair, &events::of_hold(&reason)).await;
            let mut memories = lock(&self.memories);
            let kept = memories.entry(key.clone()).or_default();
            kept.memory.explained = Some((said, Duration::ZERO));
            kept.explained_at = Some(Instant::now());
        }
        HELD_AGAIN
    }

    /// Reports in an event about a rule that the manager doesn't have it, and that jobs wait for it.
    pub(super) async fn tell_of_stuck(&self, rule: &ObjectKey, why: &str) {
        let object = lock(&self.sides).get(Side::Cluster, rule);
        if let Some(object) = object.filter(|_| !self.was_taken(rule)) {
            let text = format!("the manager doesn't have this version, and new jobs wait for it: {why}");
            self.performer.event(&object, events::of_hold(&text)).await;
        }
    }

    /// Whether settings must still be written to the manager. Jobs wait for them, so that a policy applies to
    /// the jobs that are created together with it.
    fn settings_are_on_their_way(&self) -> bool {
        let (settings, has_workloads) = {
            let resources = lock(&self.resources);
            let settings = resources.values().filter(|resource| resource.flow == Flow::Settings);
            let kinds: Vec<Kind> = settings.map(|resource| resource.kind).collect();
            (kinds, resources.contains_key(&Kind::Workload))
        };
        let sides = lock(&self.sides);
        settings.iter().any(|kind| !sides.is_complete(*kind))
            || (has_workloads && !sides.knows_stopped())
            || self.queue.has_fresh(&settings)
    }

    /// Confirms rules in doubt once the manager has every deciding object of the cluster. Then its policies
    /// and quotas are the cluster's, even if its journal is old.
    pub(super) async fn vouch_for_rules(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RULES_EVERY).await;
            if !self.settings_are_in_line() || !self.leader.is_fresh() {
                continue;
            }
            match self.performer.confirm_doubted_rules().await {
                Ok(false) => {}
                Ok(true) => tracing::info!("policies and quotas are those of the management cluster"),
                Err(error) => tracing::warn!(error, "rules in doubt could not be confirmed"),
            }
        }
    }

    /// Whether every object that decides where jobs may run is equal at the manager and in the cluster. False
    /// if the cluster doesn't serve the kinds of rules, because then they can't be compared.
    fn settings_are_in_line(&self) -> bool {
        let all_followed = {
            let resources = lock(&self.resources);
            RULES.iter().all(|kind| resources.contains_key(kind))
        };
        let mut failing = self.queue.failing(&DECIDING, 1).into_iter();
        let is_watched = self.unwatched_reason().is_none();
        all_followed
            && is_watched
            && !self.settings_are_on_their_way()
            && failing.all(|rule| self.was_taken(&rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn jobs_wait_for_a_policy_that_failed_and_for_their_own_namespace() {
        let (policy, namespace) =
            (key(Kind::ResidencyPolicy, "", "closed"), key(Kind::Namespace, "", "team"));
        let job = |namespace: &str| key(Kind::Job, namespace, "train");
        assert_eq!(reason_of(&job("team"), &[]), None);
        let reason = reason_of(&job("other"), &[namespace.clone(), policy.clone()]).unwrap();
        assert!(reason.contains("ResidencyPolicy closed"), "{reason}");
        assert_eq!(reason_of(&job("other"), std::slice::from_ref(&namespace)), None);
        assert!(reason_of(&job("team"), &[namespace]).unwrap().contains("Namespace team"));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_wait_while_rules_cannot_be_watched() {
        let mut unwatched = Unwatched::default();
        unwatched.failed(Kind::ResidencyPolicy, "no answer".to_owned());
        let listed = |_| true;
        assert_eq!(unwatched.reason(listed), None, "a short interruption holds nothing back");
        tokio::time::advance(UNWATCHED_MOST).await;
        unwatched.failed(Kind::ResidencyPolicy, "forbidden".to_owned());
        let reason = unwatched.reason(listed).unwrap();
        assert!(
            reason.contains("residencypolicies can't be watched") && reason.ends_with("forbidden"),
            "{reason}"
        );
        unwatched.works(Kind::ResidencyPolicy);
        assert_eq!(unwatched.reason(listed), None);
        unwatched.failed(Kind::Workload, "conversion webhook".to_owned());
        tokio::time::advance(UNWATCHED_MOST).await;
        assert_eq!(unwatched.reason(listed), None, "the last known state counts");
        assert!(unwatched.reason(|_| false).unwrap().contains("workloads can't be watched"));
    }
}
