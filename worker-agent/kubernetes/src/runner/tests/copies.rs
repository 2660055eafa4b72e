//! Copies of the objects that a gang names: made before its job starts, given back with its end.

use super::*;
use crate::copies::{Copies, CopyAsker, NotCopied};
use futures::future::BoxFuture;
use meridian_shared::copies::{CopyAnswer, CopyRequest};
use meridian_shared::protocol::{Reference, ReferenceKind};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug)]
struct Silent;

impl CopyAsker for Silent {
    fn ask(&self, _: CopyRequest) -> BoxFuture<'static, Result<CopyAnswer, NotCopied>> {
        Box::pin(async { Err(NotCopied::NoAnswer("nobody is asked here".to_owned())) })
    }
}

/// The objects that are copied for a created job, from its annotation.
pub(super) fn named(manifest: &Value) -> Vec<Reference> {
    let text = manifest["metadata"]["annotations"]["meridian.dev/copies"].as_str();
    text.map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default()
}

fn secret() -> Reference {
    Reference { kind: ReferenceKind::Secret, name: "token".into() }
}

/// A run whose pods name a Secret and a ConfigMap. Only Secrets are copied.
fn reader() -> (Run, Cluster) {
    let mut granted = start(2);
    let container = r#"{"image":"i","name":"c""#;
    assert!(granted.spec.contains(container), "{}", granted.spec);
    let from = concat!(
        r#"{"envFrom":[{"secretRef":{"name":"token"}},{"configMapRef":{"name":"settings"}}],"#,
        r#""image":"i","name":"c""#
    );
    granted.spec = granted.spec.replace(container, from).into();
    let mut built = manifest::build(&granted, "worker", None).unwrap();
    let copies = Copies::of(BTreeSet::from([ReferenceKind::Secret]), Arc::new(Silent));
    copies.mark(built.kind, &mut built.manifest);
    assert_eq!(named(&built.manifest), [secret()]);
    let cluster = Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true };
    (Run::granted(&granted, built), cluster)
}

/// The next request, which is answered as given, or else carried out.
fn step(
    run: &mut Run,
    cluster: &mut Cluster,
    now: Mono,
    answer: Option<Answer>,
) -> (Request, Vec<RunnerEvent>) {
    let request = run.next(now).unwrap();
    let answer = answer.unwrap_or_else(|| cluster.perform(&request));
    let events = run.answered(now, Wall(0), &request, answer, &|_| true);
    (request, events)
}

fn is_copy(request: &Request, cluster: &Cluster) -> bool {
    let object_uid = cluster.job.as_ref().unwrap().uid.clone();
    *request == Request::Copy { object_uid, references: vec![secret()] }
}

#[test]
fn copies_are_made_before_the_start_and_given_back_once_with_the_end() {
    let (mut run, mut cluster) = reader();
    assert!(matches!(step(&mut run, &mut cluster, Mono(0), None).0, Request::Create(_)));
    let unknown = Some(Answer::Unknown("the manager is away".into()));
    assert!(is_copy(&step(&mut run, &mut cluster, Mono(0), unknown).0, &cluster));
    assert_eq!(run.next(Mono(1)), None, "not before a pause");
    assert!(is_copy(&step(&mut run, &mut cluster, Mono(60_000), None).0, &cluster));
    assert!(matches!(step(&mut run, &mut cluster, Mono(60_000), None).0, Request::Start { .. }));
    let job = cluster.job.as_mut().unwrap();
    job.end = Some(JobEnd { succeeded: true, reason: String::new(), message: String::new(), at: None });
    cluster.touch();
    run.observe(cluster.job.as_ref(), &[], &|_| true);
    let (request, events) = step(&mut run, &mut cluster, Mono(70_000), None);
    assert_eq!(request, Request::ListPods);
    assert!(matches!(&events[..], [RunnerEvent::Ended { result: EndResult::Succeeded, .. }]), "{events:?}");
    let object_uid = cluster.job.as_ref().unwrap().uid.clone();
    let back = Request::GiveCopiesBack { object_uid, references: vec![secret()] };
    let unknown = Some(Answer::Unknown("the API server is away".into()));
    assert_eq!(step(&mut run, &mut cluster, Mono(70_000), unknown).0, back);
    assert_eq!(step(&mut run, &mut cluster, Mono(90_000), None).0, back);
    assert_eq!(run.next(Mono(91_000)), None, "the job's object is kept for its logs");
}

#[test]
fn a_run_without_its_copies_never_starts_and_says_why() {
    let (mut run, mut cluster) = reader();
    step(&mut run, &mut cluster, Mono(0), None);
    let refused = Some(Answer::Refused("Secret `token` is not copied: it has no label".into()));
    assert!(is_copy(&step(&mut run, &mut cluster, Mono(0), refused).0, &cluster));
    let (request, events) = step(&mut run, &mut cluster, Mono(0), None);
    assert_eq!(request, Request::ListPods);
    let [RunnerEvent::Ended { result: EndResult::NodeLost { message }, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(message, "Secret `token` is not copied: it has no label");
    let (request, _) = step(&mut run, &mut cluster, Mono(0), None);
    assert!(matches!(request, Request::GiveCopiesBack { .. }), "some may have been made");
}

#[test]
fn an_agent_that_was_started_again_gives_the_copies_of_its_predecessor_back() {
    let (mut first, mut cluster) = reader();
    for _ in 0..3 {
        step(&mut first, &mut cluster, Mono(0), None);
    }
    let mut run = Run::adopted(KEY, cluster.job.clone().unwrap());
    run.stop(Cause::Ordered);
    let mut requests = Vec::new();
    for tick in 0..20 {
        if let Some(request) = run.next(Mono(tick * 5_000)) {
            let answer = cluster.perform(&request);
            run.answered(Mono(tick * 5_000), Wall(0), &request, answer, &|_| true);
            requests.push(request);
        }
    }
    assert!(!requests.iter().any(|request| matches!(request, Request::Copy { .. })));
    let back = |request: &&Request| matches!(request, Request::GiveCopiesBack { .. });
    assert_eq!(requests.iter().filter(back).count(), 1, "{requests:?}");
}
