//! Starts that fail because another writer changes the job first.

use super::*;

/// Carries out the next request, if one is due.
fn next(run: &mut Run, cluster: &mut Cluster, now: Mono) -> Option<Request> {
    let request = run.next(now)?;
    let answer = cluster.perform(&request);
    run.answered(now, Wall(0), &request, answer, &|_| true);
    Some(request)
}

#[test]
fn a_job_that_its_controller_has_just_changed_is_started_without_a_pause() {
    let granted = start(4);
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 10, made: 0, nodes_answer: true };
    let now = Mono(1_000);
    assert!(matches!(next(&mut run, &mut cluster, now), Some(Request::Create(_))));
    cluster.touch();
    assert!(matches!(next(&mut run, &mut cluster, now), Some(Request::Start { .. })));
    assert!(cluster.job.as_ref().unwrap().suspended, "the start named an old version");
    assert!(matches!(next(&mut run, &mut cluster, now), Some(Request::Read)));
    assert!(matches!(next(&mut run, &mut cluster, now), Some(Request::Start { .. })));
    assert!(!cluster.job.as_ref().unwrap().suspended);
}

#[test]
fn a_job_that_changes_all_the_time_is_tried_with_pauses() {
    let granted = start(4);
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 10, made: 0, nodes_answer: true };
    let now = Mono(1_000);
    let mut requests = 0;
    while next(&mut run, &mut cluster, now).is_some() {
        requests += 1;
        cluster.touch();
        assert!(requests < 20, "no pause");
    }
    assert!(cluster.job.unwrap().suspended && requests > 5);
}
