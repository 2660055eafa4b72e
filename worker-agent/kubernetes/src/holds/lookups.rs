//! Checks whether the objects exist that the pods of offers name. Pure.
//!
//! Each object is read once for all offers that wait for it. An object that was found counts as present for a
//! while. A missing object isn't remembered, so that it is found as soon as it was created.
//!
//! A missing object of a kind that is copied doesn't refuse the offer: the manager is asked whether the
//! workload may have a copy. A copy for another workload counts as missing, because it is deleted with that
//! workload.

use meridian_agent_core::runtime::ReferenceCheck;
use meridian_shared::copies::{CopyAnswer, CopyOutcome, CopyRequest};
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::protocol::{Reference, ReferenceKind};
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long an object that was found counts as present.
const PRESENT_FOR: Millis = Millis::secs(30);
/// How long nothing is read after the API server forbade it.
const FORBIDDEN_FOR: Millis = Millis::mins(5);
/// Most objects that are remembered as present.
const PRESENT_MAX: usize = 10_000;
/// Number of reads that are in progress at the same time.
const READS_MAX: usize = 32;
/// Pauses before a read without an answer is repeated; the offer fails after the last one.
const REPEAT_AFTER: [Millis; 3] = [Millis(500), Millis::secs(2), Millis::secs(5)];

/// One object that must be there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    Namespace(Arc<str>),
    Object { namespace: Arc<str>, reference: Reference },
}

impl Need {
    /// API group, kind and plural.
    pub(super) fn resource(&self) -> (&'static str, &'static str, &'static str) {
        let Self::Object { reference, .. } = self else { return ("", "Namespace", "namespaces") };
        let plural = match reference.kind {
            ReferenceKind::ServiceAccount => "serviceaccounts",
            ReferenceKind::ConfigMap => "configmaps",
            ReferenceKind::Secret => "secrets",
            ReferenceKind::PersistentVolumeClaim => "persistentvolumeclaims",
            ReferenceKind::PriorityClass => "priorityclasses",
        };
        let group = if reference.kind == ReferenceKind::PriorityClass { "scheduling.k8s.io" } else { "" };
        (group, reference.kind.name(), plural)
    }

    /// `None` for an object of the whole cluster.
    pub(super) fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Object { namespace, reference } => {
                (reference.kind != ReferenceKind::PriorityClass).then_some(namespace)
            }
            Self::Namespace(_) => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Namespace(name) => name,
            Self::Object { reference, .. } => &reference.name,
        }
    }

    /// Where the object must be, for messages.
    fn place(&self) -> String {
        self.namespace().map_or("the cluster".to_owned(), |namespace| format!("namespace `{namespace}`"))
    }

    fn words(&self) -> String {
        match self {
            Self::Namespace(name) => format!("namespace `{name}`"),
            Self::Object { reference, .. } => format!("{} `{}`", reference.kind.name(), reference.name),
        }
    }

    /// The plural and namespace that a right to read it covers.
    fn right(&self) -> (&'static str, Option<Arc<str>>) {
        (self.resource().2, self.namespace().cloned())
    }
}

/// What a read says about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Present,
    Missing,
    /// The agent may not read it, with the server's message.
    Forbidden(String),
    /// Whether the object exists is unknown, with the reason.
    Unknown(String),
}

/// A check that is over: `Err` says what is missing or can't be read.
pub(super) type Verdict = (OfferId, Result<(), String>);

/// The next step of a check whose reads are all done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Over(Verdict),
    /// The manager must be asked. Call [`Lookups::asked`] with its answer.
    Ask(CopyRequest),
}

/// What is known for one offer.
#[derive(Clone, Debug)]
struct Check {
    uid: Uid,
    findings: BTreeMap<Need, Option<Finding>>,
    /// Why a missing object isn't copied.
    not_copied: BTreeMap<Need, Arc<str>>,
    /// Whether the manager was asked.
    is_asked: bool,
}

/// A read that is asked for.
#[derive(Clone, Copy, Debug)]
struct Read {
    not_before: Mono,
    under_way: bool,
    repeats: usize,
}

#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// Until when an object counts as present.
    present: BTreeMap<Need, Mono>,
    /// Until when a resource isn't read in a namespace, because the API server forbade it.
    forbidden: BTreeMap<(&'static str, Option<Arc<str>>), Mono>,
    /// Resources that aren't checked; each is logged once.
    said: BTreeSet<&'static str>,
    reads: BTreeMap<Need, Read>,
    /// What each offer waits for.
    checks: BTreeMap<OfferId, Check>,
    /// Kinds of which the manager may have copies.
    copied: BTreeSet<ReferenceKind>,
}

impl Lookups {
    pub(super) fn new(copied: BTreeSet<ReferenceKind>) -> Self {
        Self { copied, ..Self::default() }
    }

    /// Begins a check. Returns its verdict if nothing has to be read.
    pub(super) fn check(&mut self, now: Mono, check: ReferenceCheck) -> Option<Verdict> {
        let ReferenceCheck { offer, uid, namespace, references } = check;
        let object = |reference| Need::Object { namespace: namespace.clone(), reference };
        let needs: Vec<Need> = std::iter::once(Need::Namespace(namespace.clone()))
            .chain(references.into_iter().map(object))
            .filter(|need| !self.is_settled(now, need))
            .collect();
        if needs.is_empty() {
            return Some((offer, Ok(())));
        }
        for need in &needs {
            let read = Read { not_before: now, under_way: false, repeats: 0 };
            self.reads.entry(need.clone()).or_insert(read);
        }
        let findings = needs.into_iter().map(|need| (need, None)).collect();
        self.checks.insert(offer, Check { uid, findings, not_copied: BTreeMap::new(), is_asked: false });
        None
    }

    fn is_settled(&self, now: Mono, need: &Need) -> bool {
        self.present.get(need).or_else(|| self.forbidden.get(&need.right())).is_some_and(|until| now < *until)
    }

    /// The offer is over: its check has no verdict any more.
    pub(super) fn forget(&mut self, offer: OfferId) {
        self.checks.remove(&offer);
    }

    /// The next object to read. [`Lookups::answered`] must be called with the result.
    pub(super) fn next(&mut self, now: Mono) -> Option<Need> {
        if self.reads.values().filter(|read| read.under_way).count() >= READS_MAX {
            return None;
        }
        let due = |read: &Read| !read.under_way && now >= read.not_before;
        let (need, read) = self.reads.iter_mut().find(|(_, read)| due(read))?;
        read.under_way = true;
        Some(need.clone())
    }

    /// Takes in a finding. Returns the verdicts of the checks that it completes.
    pub(super) fn answered(&mut self, now: Mono, need: &Need, finding: Finding) -> Vec<Step> {
        let repeats = self.reads.get(need).map_or(0, |read| read.repeats);
        if let (Finding::Unknown(_), Some(pause)) = (&finding, REPEAT_AFTER.get(repeats)) {
            let again = Read { not_before: now + *pause, under_way: false, repeats: repeats + 1 };
            self.reads.insert(need.clone(), again);
            return Vec::new();
        }
        self.reads.remove(need);
        match &finding {
            Finding::Present => {
                if self.present.len() >= PRESENT_MAX {
                    self.present.clear();
                }
                self.present.insert(need.clone(), now + PRESENT_FOR);
            }
            Finding::Forbidden(_) => {
                self.forbidden.insert(need.right(), now + FORBIDDEN_FOR);
            }
            Finding::Missing => {
                self.present.remove(need);
            }
            Finding::Unknown(_) => {}
        }
        let mut steps = Vec::new();
        let waiting = self.checks.iter_mut().filter(|(_, check)| !check.is_asked);
        for (offer, check) in waiting {
            let Some(known) = check.findings.get_mut(need) else { continue };
            *known = Some(finding.clone());
            if check.findings.values().all(Option::is_some) {
                steps.push(check.step(*offer, &self.copied));
            }
        }
        for step in &steps {
            if let Step::Over((offer, _)) = step {
                self.checks.remove(offer);
            }
        }
        steps
    }

    /// Takes the manager's answer about copies, or why it can't be asked. `None` for an offer that is over.
    pub(super) fn asked(
        &mut self,
        request: &CopyRequest,
        answer: Result<CopyAnswer, String>,
    ) -> Option<Verdict> {
        let mut check = self.checks.remove(&request.offer)?;
        let outcomes = answer.map(|answer| answer.objects);
        for (at, reference) in request.references.iter().enumerate() {
            let is_it = |need: &&Need| matches!(need, Need::Object { reference: of, .. } if of == reference);
            let Some(need) = check.findings.keys().find(is_it).cloned() else { continue };
            let why = match outcomes.as_ref().map(|outcomes| outcomes.get(at)) {
                Ok(Some(CopyOutcome::Permitted | CopyOutcome::Content(_))) => {
                    check.findings.insert(need, Some(Finding::Present));
                    continue;
                }
                Ok(Some(CopyOutcome::Refused(why))) => why.clone(),
                Ok(None) => "the manager gave no answer about it".into(),
                Err(why) => why.as_str().into(),
            };
            check.not_copied.insert(need, why);
        }
        Some((request.offer, check.verdict()))
    }

    /// A message that a resource isn't checked, the first time that reading it is forbidden.
    pub(super) fn says(&mut self, need: &Need, finding: &Finding) -> Option<String> {
        let Finding::Forbidden(why) = finding else { return None };
        let (group, kind, plural) = need.resource();
        self.said.insert(plural).then(|| {
            let dot = if group.is_empty() { "" } else { "." };
            format!(
                "the agent may not `get` `{plural}{dot}{group}`, so a hold doesn't check whether the {kind}s \
                 that jobs name exist: {why}"
            )
        })
    }
}

impl Check {
    /// The verdict, unless copies may replace what is missing.
    fn step(&mut self, offer: OfferId, copied: &BTreeSet<ReferenceKind>) -> Step {
        let references: Vec<Reference> = self
            .missing()
            .filter_map(|need| match need {
                Need::Object { reference, .. } if copied.contains(&reference.kind) => Some(reference.clone()),
                _ => None,
            })
            .collect();
        let has_namespace = self.missing().all(|need| !matches!(need, Need::Namespace(_)));
        if references.is_empty() || !has_namespace {
            return Step::Over((offer, self.verdict()));
        }
        self.is_asked = true;
        Step::Ask(CopyRequest { uid: self.uid, offer, fence: None, references })
    }

    fn missing(&self) -> impl Iterator<Item = &Need> {
        let missing = |(_, finding): &(&Need, &Option<Finding>)| **finding == Some(Finding::Missing);
        self.findings.iter().filter(missing).map(|(need, _)| need)
    }

    /// What the findings mean for the offer. An object that the agent may not read counts as present.
    fn verdict(&self) -> Result<(), String> {
        // If the namespace is missing, all its objects are.
        if let Some(namespace) = self.missing().find(|need| matches!(need, Need::Namespace(_))) {
            return Err(format!("{} has no {}", namespace.place(), namespace.words()));
        }
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for need in self.missing() {
            let lack = match self.not_copied.get(need) {
                Some(why) => format!("no {} (not copied: {why})", need.words()),
                None => format!("no {}", need.words()),
            };
            places.entry(need.place()).or_default().push(lack);
        }
        if !places.is_empty() {
            let sentences =
                places.iter().rev().map(|(place, lacks)| format!("{place} has {}", lacks.join(" and ")));
            return Err(sentences.collect::<Vec<_>>().join(", and "));
        }
        let unknown = self.findings.iter().find_map(|(need, finding)| match finding {
            Some(Finding::Unknown(why)) => Some((need, why)),
            _ => None,
        });
        match unknown {
            Some((need, why)) => {
                Err(format!("cannot read whether {} has {}: {why}", need.place(), need.words()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
