//! Stops of a job that the API server doesn't carry out.

use super::*;

/// Two pods that run, of a job that is ordered to stop.
fn stopping() -> (Run, Cluster) {
    let granted = start(2);
    let mut run = Run::granted(&granted, manifest::build(&granted, "worker", None).unwrap());
    let mut cluster = Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true };
    let mut dice = Dice(5);
    let mut now = Mono(0);
    while cluster.alive().len() < 2 || cluster.alive().iter().any(|pod| !pod.has_started()) {
        now = now + Millis(500);
        if let Some(request) = run.next(now) {
            let answer = cluster.perform(&request);
            run.answered(now, Wall(0), &request, answer, &|_| true);
        }
        cluster.work(&mut dice, false);
        run.observe(cluster.job.as_ref(), &cluster.pods, &|_| true);
    }
    run.stop(Cause::Ordered);
    (run, cluster)
}

fn denied() -> Answer {
    Answer::Unknown("failed calling webhook: connection refused".to_owned())
}

#[test]
fn pods_are_ended_while_their_job_cannot_be_suspended() {
    let (mut run, mut cluster) = stopping();
    let (mut ended, mut events) = (0, Vec::new());
    for tick in 0..200 {
        let now = Mono(100_000 + tick * 250);
        if let Some(request) = run.next(now) {
            let answer = match &request {
                Request::Suspend { .. } => denied(),
                Request::EndPods(pods) => {
                    ended += pods.len();
                    cluster.pods.retain(|pod| pods.iter().all(|(_, uid)| *uid != pod.uid));
                    let job = cluster.job.as_mut().unwrap();
                    job.failed += u32::try_from(pods.len()).unwrap();
                    cluster.pods.push(pod(9));
                    cluster.touch();
                    Answer::Done
                }
                Request::Read => cluster.answer(),
                other => panic!("{other:?}"),
            };
            events.extend(run.answered(now, Wall(0), &request, answer, &|_| true));
        }
        events.extend(run.observe(cluster.job.as_ref(), &cluster.pods, &|_| true));
    }
    assert_eq!(
        (ended, cluster.alive().len()),
        (2, 0),
        "the pods that ran, once, and not the one at its gate"
    );
    assert_eq!(events, [], "ends only when nothing can start any more, and without failed pods");
    // The job's controller gave up because of its ended pods.
    cluster.job.as_mut().unwrap().end = Some(JobEnd {
        succeeded: false,
        reason: "BackoffLimitExceeded".into(),
        message: String::new(),
        at: None,
    });
    cluster.touch();
    cluster.pods.clear();
    for tick in 0..100 {
        let now = Mono(200_000 + tick * 250);
        events.extend(run.observe(cluster.job.as_ref(), &cluster.pods, &|_| true));
        let Some(request) = run.next(now) else { continue };
        let answer = cluster.perform(&request);
        events.extend(run.answered(now, Wall(0), &request, answer, &|_| true));
    }
    let [RunnerEvent::Ended { result: EndResult::Stopped, pod_failures: 1, .. }] = &events[..] else {
        panic!("{events:?}")
    };
}

#[test]
fn a_refused_request_is_repeated_with_pauses() {
    let (mut run, _) = stopping();
    let requests = (0..2_400).filter(|tick| {
        let now = Mono(100_000 + tick * 25);
        let Some(request) = run.next(now) else { return false };
        let answer = Answer::Refused("the service account may not patch jobs".to_owned());
        run.answered(now, Wall(0), &request, answer, &|_| true);
        true
    });
    let requests = requests.count();
    assert!((5..20).contains(&requests), "{requests} requests in a minute");
}
