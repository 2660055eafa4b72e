//! A group of pods. No controller counts them or reports how they ended, so the run does.

use crate::facts::{JobEnd, PodFacts};
use meridian_objects::spec::PodPhase;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a run knows of its group. The default value is for jobs with a controller, which have no group.
#[derive(Debug, Default)]
pub(super) struct Group {
    name: Option<String>,
    /// The pods except the first one, as they are created.
    others: Arc<Vec<Value>>,
    /// The watches have shown all pods, or an earlier agent made them. From then on a missing pod is gone.
    is_complete: bool,
    /// Name of each pod that was shown, by uid.
    shown: BTreeMap<String, String>,
    /// Uids of the pods that succeeded.
    succeeded: BTreeSet<String>,
    end: Option<JobEnd>,
}

impl Group {
    /// A group whose pods are to be made.
    pub(super) fn granted(name: &str, others: Vec<Value>) -> Self {
        Self { name: Some(name.to_owned()), others: Arc::new(others), ..Self::default() }
    }

    /// A group that an earlier agent started.
    pub(super) fn adopted(name: &str) -> Self {
        Self { name: Some(name.to_owned()), is_complete: true, ..Self::default() }
    }

    pub(super) fn others(&self) -> Arc<Vec<Value>> {
        Arc::clone(&self.others)
    }

    /// Name of the group; `None` for a job with a controller.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// How the group ended, once it did.
    pub(super) fn end(&self) -> Option<&JobEnd> {
        self.end.as_ref()
    }

    /// Observes the pods of a started group of this size. Returns why the group can't continue, if it can't.
    pub(super) fn observe(&mut self, pods: &[PodFacts], size: usize) -> Option<String> {
        for pod in pods {
            self.shown.insert(pod.uid.clone(), pod.name.clone());
            if pod.phase == PodPhase::Succeeded {
                self.succeeded.insert(pod.uid.clone());
            }
        }
        self.is_complete |= self.shown.len() >= size;
        let is_leaving = |pod: &&PodFacts| pod.deleting || pod.written_off;
        // If somebody deletes a pod, its exit code doesn't show whether its work was done.
        let failed = pods.iter().find(|pod| pod.phase == PodPhase::Failed && !is_leaving(pod));
        if let Some(pod) = failed {
            let message = format!("pod `{}` of the group failed", pod.name);
            self.end = Some(JobEnd { succeeded: false, reason: "PodFailed".to_owned(), message, at: None });
            return None;
        }
        if self.succeeded.len() >= size {
            let (reason, message) = ("Succeeded".to_owned(), "all pods of the group succeeded".to_owned());
            self.end = Some(JobEnd { succeeded: true, reason, message, at: None });
            return None;
        }
        let is_lost = |uid: &String| {
            let pod = pods.iter().find(|pod| pod.uid == *uid);
            !self.succeeded.contains(uid) && pod.as_ref().is_none_or(is_leaving)
        };
        let lost =
            self.shown.iter().find(|(uid, _)| is_lost(uid)).map(|(_, name)| format!("its pod `{name}`"));
        let unseen = || (self.shown.len() < size).then(|| "one of its pods".to_owned());
        let pod = lost.or_else(unseen).filter(|_| self.is_complete)?;
        Some(format!("{pod} was deleted in the cluster, and a pod of a group isn't made again"))
    }
}
