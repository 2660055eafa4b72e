//! What the pods of offers name, and whether it is there. Pure.
//!
//! Each object is read once for all offers that wait for it. One that was found counts as present for a
//! while; nothing is remembered about a missing one, so that it is found as soon as it was created.

use meridian_agent_core::runtime::ReferenceCheck;
use meridian_shared::ids::OfferId;
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
/// Reads that are under way at the same time.
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

    /// Where it must be, for messages.
    fn place(&self) -> String {
        self.namespace().map_or("the cluster".to_owned(), |namespace| format!("namespace `{namespace}`"))
    }

    fn words(&self) -> String {
        match self {
            Self::Namespace(name) => format!("namespace `{name}`"),
            Self::Object { reference, .. } => format!("{} `{}`", reference.kind.name(), reference.name),
        }
    }

    /// What a right to read it covers.
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
    /// Whether it is there is not known, with the reason.
    Unknown(String),
}

/// A check that is over: `Err` says what is missing or can't be read.
pub(super) type Verdict = (OfferId, Result<(), String>);

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
    /// Until when nothing of a resource is read in a namespace.
    forbidden: BTreeMap<(&'static str, Option<Arc<str>>), Mono>,
    /// Resources of which it was said that they aren't checked.
    said: BTreeSet<&'static str>,
    reads: BTreeMap<Need, Read>,
    /// What each offer waits for.
    checks: BTreeMap<OfferId, BTreeMap<Need, Option<Finding>>>,
}

impl Lookups {
    /// Begins a check. Returns its verdict if nothing has to be read.
    pub(super) fn check(&mut self, now: Mono, check: ReferenceCheck) -> Option<Verdict> {
        let ReferenceCheck { offer, namespace, references } = check;
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
        self.checks.insert(offer, needs.into_iter().map(|need| (need, None)).collect());
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

    /// Takes in a finding. Returns the checks that are over with it.
    pub(super) fn answered(&mut self, now: Mono, need: &Need, finding: Finding) -> Vec<Verdict> {
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
        for findings in self.checks.values_mut() {
            if let Some(known) = findings.get_mut(need) {
                *known = Some(finding.clone());
            }
        }
        let is_over = |_: &OfferId, findings: &mut BTreeMap<Need, Option<Finding>>| {
            findings.values().all(Option::is_some)
        };
        let over = self.checks.extract_if(.., is_over);
        over.map(|(offer, findings)| (offer, verdict(&findings))).collect()
    }

    /// That a resource isn't checked, the first time that it is forbidden.
    pub(super) fn says(&mut self, need: &Need, finding: &Finding) -> Option<String> {
        let Finding::Forbidden(why) = finding else { return None };
        let (group, kind, plural) = need.resource();
        self.said.insert(plural).then(|| {
            let dot = if group.is_empty() { "" } else { "." };
            format!(
                "the agent may not `get` `{plural}{dot}{group}`, so whether the {kind}s that jobs name are \
                 there isn't checked before a hold: {why}"
            )
        })
    }
}

/// What the findings mean for an offer. What may not be read counts as present.
fn verdict(findings: &BTreeMap<Need, Option<Finding>>) -> Result<(), String> {
    let missing = |need: &&Need| findings.get(*need) == Some(&Some(Finding::Missing));
    // Without its namespace nothing of it is there.
    if let Some(namespace) = findings.keys().filter(missing).find(|need| matches!(need, Need::Namespace(_))) {
        return Err(format!("{} has no {}", namespace.place(), namespace.words()));
    }
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for need in findings.keys().filter(missing) {
        places.entry(need.place()).or_default().push(format!("no {}", need.words()));
    }
    if !places.is_empty() {
        let sentences =
            places.iter().rev().map(|(place, lacks)| format!("{place} has {}", lacks.join(" and ")));
        return Err(sentences.collect::<Vec<_>>().join(", and "));
    }
    let unknown = findings.iter().find_map(|(need, finding)| match finding {
        Some(Finding::Unknown(why)) => Some((need, why)),
        _ => None,
    });
    match unknown {
        Some((need, why)) => {
            Err(format!("whether {} has {} can't be read: {why}", need.place(), need.words()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono(1_000);

    fn offer(counter: u64) -> OfferId {
        OfferId { epoch: 1, leadership: 1, counter }
    }

    fn check(counter: u64, references: &[(ReferenceKind, &str)]) -> ReferenceCheck {
        let reference =
            |(kind, name): &(ReferenceKind, &str)| Reference { kind: *kind, name: (*name).into() };
        ReferenceCheck {
            offer: offer(counter),
            namespace: "team-a".into(),
            references: references.iter().map(reference).collect(),
        }
    }

    /// Answers every due read, and returns the verdicts and the names that were read.
    fn answer(
        lookups: &mut Lookups,
        now: Mono,
        find: impl Fn(&Need) -> Finding,
    ) -> (Vec<Verdict>, Vec<String>) {
        let (mut verdicts, mut read) = (Vec::new(), Vec::new());
        while let Some(need) = lookups.next(now) {
            read.push(need.words());
            verdicts.extend(lookups.answered(now, &need, find(&need)));
        }
        (verdicts, read)
    }

    const TOKEN: (ReferenceKind, &str) = (ReferenceKind::Secret, "hf-token");
    const SETTINGS: (ReferenceKind, &str) = (ReferenceKind::ConfigMap, "settings");
    const URGENT: (ReferenceKind, &str) = (ReferenceKind::PriorityClass, "urgent");

    #[test]
    fn everything_that_is_missing_is_named_with_its_kind_and_place() {
        let mut lookups = Lookups::default();
        assert_eq!(lookups.check(NOW, check(1, &[TOKEN, SETTINGS, URGENT])), None);
        let (verdicts, _) = answer(&mut lookups, NOW, |need| match need {
            Need::Namespace(_) => Finding::Present,
            Need::Object { .. } => Finding::Missing,
        });
        let text = "the cluster has no PriorityClass `urgent`, and namespace `team-a` has no ConfigMap \
                    `settings` and no Secret `hf-token`";
        assert_eq!(verdicts, [(offer(1), Err(text.to_owned()))]);
        // Of a namespace that is missing nothing else is said.
        assert_eq!(lookups.check(NOW + PRESENT_FOR, check(2, &[TOKEN])), None);
        let (verdicts, _) = answer(&mut lookups, NOW + PRESENT_FOR, |_| Finding::Missing);
        assert_eq!(verdicts, [(offer(2), Err("the cluster has no namespace `team-a`".to_owned()))]);
    }

    #[test]
    fn one_read_serves_all_offers_and_counts_for_a_while() {
        let mut lookups = Lookups::default();
        for counter in 1..=3 {
            assert_eq!(lookups.check(NOW, check(counter, &[TOKEN])), None);
        }
        let (verdicts, read) = answer(&mut lookups, NOW, |_| Finding::Present);
        assert_eq!(verdicts, [1, 2, 3].map(|counter| (offer(counter), Ok(()))));
        assert_eq!(read, ["namespace `team-a`", "Secret `hf-token`"]);
        assert_eq!(lookups.check(NOW + Millis(1), check(4, &[TOKEN])), Some((offer(4), Ok(()))));
        assert_eq!(lookups.check(NOW + PRESENT_FOR, check(5, &[TOKEN])), None, "it may be gone by now");
    }

    #[test]
    fn a_missing_object_is_looked_up_again_by_the_next_offer() {
        let mut lookups = Lookups::default();
        let is_there = |secret: Finding| {
            move |need: &Need| match need {
                Need::Namespace(_) => Finding::Present,
                Need::Object { .. } => secret.clone(),
            }
        };
        lookups.check(NOW, check(1, &[TOKEN]));
        assert!(answer(&mut lookups, NOW, is_there(Finding::Missing)).0[0].1.is_err());
        assert_eq!(lookups.check(NOW, check(2, &[TOKEN])), None);
        assert_eq!(answer(&mut lookups, NOW, is_there(Finding::Present)).0, [(offer(2), Ok(()))]);
    }

    #[test]
    fn a_read_without_an_answer_is_repeated_and_never_means_missing() {
        let mut lookups = Lookups::default();
        lookups.check(NOW, check(1, &[TOKEN]));
        let timeout = |_: &Need| Finding::Unknown("no answer within 15 s".to_owned());
        let mut now = NOW;
        for pause in REPEAT_AFTER {
            assert_eq!(answer(&mut lookups, now, timeout).0, []);
            assert!(lookups.next(now).is_none(), "not before the pause is over");
            now = now + pause;
        }
        let (verdicts, _) = answer(&mut lookups, now, timeout);
        let text = "whether the cluster has namespace `team-a` can't be read: no answer within 15 s";
        assert_eq!(verdicts, [(offer(1), Err(text.to_owned()))]);
        // An answer that comes at last counts.
        lookups.check(now, check(2, &[TOKEN]));
        assert_eq!(answer(&mut lookups, now, timeout).0, []);
        let later = now + REPEAT_AFTER[0];
        assert_eq!(answer(&mut lookups, later, |_| Finding::Present).0, [(offer(2), Ok(()))]);
    }

    #[test]
    fn what_may_not_be_read_is_said_once_and_counts_as_present() {
        let mut lookups = Lookups::default();
        lookups.check(NOW, check(1, &[TOKEN]));
        let forbidden = |need: &Need| match need {
            Need::Namespace(_) => Finding::Present,
            Need::Object { .. } => Finding::Forbidden("secrets is forbidden".to_owned()),
        };
        assert_eq!(answer(&mut lookups, NOW, forbidden).0, [(offer(1), Ok(()))]);
        let need = Need::Object {
            namespace: "team-a".into(),
            reference: Reference { kind: ReferenceKind::Secret, name: "hf-token".into() },
        };
        let said = lookups.says(&need, &forbidden(&need)).unwrap();
        assert!(said.starts_with("the agent may not `get` `secrets`, so whether the Secrets that"), "{said}");
        assert_eq!(lookups.says(&need, &forbidden(&need)), None);
        // Not even asked for, until the right may have been given.
        let other = check(2, &[(ReferenceKind::Secret, "other")]);
        assert_eq!(lookups.check(NOW, other.clone()), Some((offer(2), Ok(()))));
        assert_eq!(lookups.check(NOW + FORBIDDEN_FOR, other), None);
    }

    #[test]
    fn an_offer_that_is_over_gets_no_verdict() {
        let mut lookups = Lookups::default();
        lookups.check(NOW, check(1, &[TOKEN]));
        lookups.forget(offer(1));
        assert_eq!(answer(&mut lookups, NOW, |_| Finding::Missing).0, []);
    }
}
