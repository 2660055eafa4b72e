//! Which objects are read for offers, what the findings mean, and when the manager is asked for copies.

use super::*;

const NOW: Mono = Mono(1_000);

fn offer(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 1, counter }
}

fn check(counter: u64, references: &[(ReferenceKind, &str)]) -> ReferenceCheck {
    let reference = |(kind, name): &(ReferenceKind, &str)| Reference { kind: *kind, name: (*name).into() };
    ReferenceCheck {
        offer: offer(counter),
        uid: Uid(u128::from(counter)),
        namespace: "team-a".into(),
        references: references.iter().map(reference).collect(),
    }
}

/// Answers every due read, and returns the verdicts and the names that were read.
fn answer(lookups: &mut Lookups, now: Mono, find: impl Fn(&Need) -> Finding) -> (Vec<Verdict>, Vec<String>) {
    let (mut verdicts, mut read) = (Vec::new(), Vec::new());
    while let Some(need) = lookups.next(now) {
        read.push(need.words());
        verdicts.extend(lookups.answered(now, &need, find(&need)).into_iter().map(|step| match step {
            Step::Over(verdict) => verdict,
            Step::Ask(request) => panic!("asked for copies: {request:?}"),
        }));
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
    // If the namespace is missing, its objects aren't named too.
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
    let text = "cannot read whether the cluster has namespace `team-a`: no answer within 15 s";
    assert_eq!(verdicts, [(offer(1), Err(text.to_owned()))]);
    // A late answer counts too.
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
    assert!(
        said.starts_with(
            "the agent may not `get` `secrets`, so a hold doesn't check whether the Secrets that"
        ),
        "{said}"
    );
    assert_eq!(lookups.says(&need, &forbidden(&need)), None);
    // A forbidden resource isn't read again for a while.
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

/// The findings of a cluster that has its namespace, and nothing else.
fn bare(need: &Need) -> Finding {
    match need {
        Need::Namespace(_) => Finding::Present,
        Need::Object { .. } => Finding::Missing,
    }
}

/// Lookups that ask for copies of both kinds, and the request that follows when these are missing.
fn asking(references: &[(ReferenceKind, &str)]) -> (Lookups, CopyRequest) {
    let mut lookups = Lookups::new(BTreeSet::from([ReferenceKind::ConfigMap, ReferenceKind::Secret]));
    assert_eq!(lookups.check(NOW, check(1, references)), None);
    let mut steps = Vec::new();
    while let Some(need) = lookups.next(NOW) {
        steps.extend(lookups.answered(NOW, &need, bare(&need)));
    }
    match steps.as_slice() {
        [Step::Ask(request)] => (lookups, request.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_missing_counts_as_present_if_the_manager_may_copy_it() {
    let (mut lookups, request) = asking(&[TOKEN, SETTINGS]);
    assert_eq!((request.offer, request.uid, request.fence), (offer(1), Uid(1), None));
    let names: Vec<&str> = request.references.iter().map(|reference| &*reference.name).collect();
    assert_eq!(names, ["settings", "hf-token"]);
    let objects = vec![CopyOutcome::Permitted; 2];
    assert_eq!(lookups.asked(&request, Ok(CopyAnswer { objects })), Some((offer(1), Ok(()))));
    // The permission isn't remembered: for another workload the manager is asked again.
    assert_eq!(lookups.check(NOW, check(2, &[TOKEN])), None);
}

#[test]
fn what_is_not_copied_is_named_with_the_reason_of_the_manager() {
    let (mut lookups, request) = asking(&[TOKEN, SETTINGS, URGENT]);
    let objects = vec![CopyOutcome::Permitted, CopyOutcome::Refused("it has no label".into())];
    let text = "the cluster has no PriorityClass `urgent`, and namespace `team-a` has no Secret `hf-token` \
                (not copied: it has no label)";
    let verdict = lookups.asked(&request, Ok(CopyAnswer { objects }));
    assert_eq!(verdict, Some((offer(1), Err(text.to_owned()))));
    let (mut lookups, request) = asking(&[TOKEN]);
    let text = "namespace `team-a` has no Secret `hf-token` (not copied: no answer within 15 s)";
    let verdict = lookups.asked(&request, Err("no answer within 15 s".to_owned()));
    assert_eq!(verdict, Some((offer(1), Err(text.to_owned()))));
    let (mut lookups, request) = asking(&[TOKEN]);
    let verdict = lookups.asked(&request, Ok(CopyAnswer { objects: Vec::new() })).unwrap().1.unwrap_err();
    assert!(verdict.ends_with("(not copied: the manager gave no answer about it)"), "{verdict}");
}

#[test]
fn the_manager_is_asked_only_for_kinds_that_are_copied_and_for_offers_that_are_open() {
    let mut lookups = Lookups::new(BTreeSet::from([ReferenceKind::Secret]));
    lookups.check(NOW, check(1, &[SETTINGS]));
    let text = "namespace `team-a` has no ConfigMap `settings`";
    assert_eq!(answer(&mut lookups, NOW, bare).0, [(offer(1), Err(text.to_owned()))]);
    let (mut lookups, request) = asking(&[TOKEN]);
    lookups.forget(offer(1));
    assert_eq!(lookups.asked(&request, Err(String::new())), None);
}
