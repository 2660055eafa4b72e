use super::*;

fn log(attempt: &'static str, chunks: Vec<&'static str>, breaks: bool) -> FakeAnswer {
    FakeAnswer::Log { attempt, chunks, breaks }
}

#[tokio::test]
async fn logs_and_explanations_are_printed() {
    let fake = Fake::new([
        (
            "GET /meridian/v1/logs/default/train?follow=true&pod=1&tail=5",
            FakeAnswer::Stream(vec!["epoch 1\n", "\u{1b}[1mepoch 2\n"]),
        ),
        (
            "GET /meridian/v1/why/default/train",
            FakeAnswer::Json(200, json!({"name": "train", "state": "Pending", "summary": "waits"})),
        ),
    ]);
    // Not a terminal, so bytes are unchanged.
    assert_eq!(
        run(&fake, &["logs", "train", "-f", "--pod", "1", "--tail", "5"], "").await.answers,
        "epoch 1\n\u{1b}[1mepoch 2\n"
    );
    assert_eq!(run(&fake, &["why", "train"], "").await.answers, "train  Pending  waits\n");
    assert_eq!(fake.requests().len(), 2);
}

/// The manager's explanation of `train` with these attempts: cluster, fence, end.
fn why(state: &str, attempts: &[(&str, &str, Option<&str>)]) -> (&'static str, FakeAnswer) {
    let history: Vec<Value> = attempts
        .iter()
        .map(|(cluster, fence, end)| json!({"cluster": cluster, "fence": fence, "end": end}))
        .collect();
    let answer = json!({"state": state, "attempts": attempts.len(), "history": history});
    ("GET /meridian/v1/why/default/train", FakeAnswer::Json(200, answer))
}

#[tokio::test]
async fn a_followed_log_goes_on_with_the_next_attempt() {
    let (eu, us) = (("eu", "1-1-1", Some("the lease expired")), ("us", "1-1-2", Some("succeeded")));
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let fake = Fake::new([
        (asked, log("1 1-1-1", vec!["[0] a\n"], false)),
        why("Running", &[("eu", "1-1-1", None)]),
        why("Pending", &[eu]),
        why("Running", &[eu, ("us", "1-1-2", None)]),
        ("GET /meridian/v1/logs/default/train?follow=true&attempt=2", log("2 1-1-2", vec!["[0] b\n"], false)),
        why("Finished", &[eu, us]),
    ]);
    let ran = run(&fake, &["logs", "train", "-f"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (0, "[0] a\n[0] b\n"), "{:?}", ran.result);
    assert_eq!(
        ran.notes,
        "attempt 1 in cluster `eu` ended: the lease expired; waiting for the next attempt\n\
         attempt 1 in cluster `eu` ended: the lease expired; attempt 2 in cluster `us` follows\n"
    );
    fake.requests();
    // One attempt is followed to its end only.
    for (flags, query) in [(vec!["--attempt", "1"], "attempt=1"), (vec!["-p"], "previous=true")] {
        let fake = Fake::new([("GET /meridian/v1/logs", log("1 1-1-1", vec!["[0] a\n"], false))]);
        let ran = run(&fake, &[&["logs", "train", "-f"], flags.as_slice()].concat(), "").await;
        assert_eq!((ran.code(), ran.notes.as_str()), (0, ""), "{:?}", ran.result);
        assert!(fake.requests()[0].line.ends_with(query), "{:?}", fake.requests());
    }
}

#[tokio::test]
async fn a_log_that_breaks_off_is_followed_by_that_of_the_next_attempt() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let first = "GET /meridian/v1/logs/default/train?follow=true&attempt=1";
    let away = || FakeAnswer::Json(503, json!({"message": "no agent", "reason": "ServiceUnavailable"}));
    let fake = Fake::new([
        (asked, log("1 1-1-1", vec!["[0] a\n"], true)),
        (first, away()),
        (first, away()),
        (first, away()),
        why("Running", &[("eu", "1-1-1", Some("the lease expired")), ("us", "1-1-2", None)]),
        ("GET /meridian/v1/logs/default/train?follow=true&attempt=2", log("2 1-1-2", vec!["[0] b\n"], false)),
        why("Finished", &[("eu", "1-1-1", Some("the lease expired")), ("us", "1-1-2", Some("succeeded"))]),
    ]);
    let ran = run(&fake, &["logs", "train", "-f"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (0, "[0] a\n[0] b\n"), "{:?}", ran.result);
    assert!(ran.notes.ends_with("`us` follows; the rest of its output can't be read\n"), "{}", ran.notes);
    fake.requests();
}

#[tokio::test]
async fn a_job_that_never_ran_has_no_log() {
    let message = "job `default/train` has not run yet, so there are no logs: pending: no cluster has room";
    let never = || FakeAnswer::Json(409, json!({"message": message, "reason": "Conflict"}));
    for line in [vec!["logs", "train"], vec!["logs", "train", "-f"]] {
        let ran = run(&Fake::new([("GET ", never())]), &line, "").await;
        assert_eq!((ran.code(), ran.error()), (1, format!("{message} (409 Conflict)")));
    }
}

#[tokio::test]
async fn only_a_followed_log_is_resumed_where_it_broke() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let first = "GET /meridian/v1/logs/default/train?follow=true&attempt=1";
    let away = FakeAnswer::Json(503, json!({"message": "no agent", "reason": "ServiceUnavailable"}));
    let fake = Fake::new([
        (asked, log("1 1-1-1", vec!["[0] a\n[1] x\n", "[0] b\n[1] hal"], true)),
        (first, away),
        (first, log("1 1-1-1", vec!["[1] x\n[1] half\n[0] a\n[0] b\n"], true)),
        (first, log("1 1-1-9", vec!["[0] a\n"], false)),
        why("Finished", &[("eu", "1-1-9", Some("succeeded"))]),
    ]);
    let ran = run(&fake, &["logs", "train", "-f"], "").await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(ran.answers, "[0] a\n[1] x\n[0] b\n[1] half\n[0] a\n");
    assert_eq!(ran.notes, "another job has this name now: its output follows\n");
    assert_eq!(fake.requests().len(), 5);

    let fake = Fake::new([("GET ", log("1 1-1-1", vec!["[0] a\n"], true))]);
    let ran = run(&fake, &["logs", "train"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "[0] a\n"));
    assert!(ran.error().contains("the log is incomplete"), "{}", ran.error());

    let asked = "GET /meridian/v1/logs/default/train?follow=true&tail=1";
    let fake = Fake::new([
        (asked, log("1 1-1-1", vec!["[0] a\n"], true)),
        (asked, log("1 1-1-1", vec!["[0] a\n"], false)),
        why("Finished", &[("eu", "1-1-1", Some("succeeded"))]),
    ]);
    let ran = run(&fake, &["logs", "train", "-f", "--tail", "1"], "").await;
    assert_eq!(ran.answers, "[0] a\n[0] a\n");
    assert!(ran.notes.contains("its last 1 line follows"), "{}", ran.notes);
}

#[tokio::test]
async fn a_log_can_be_read_as_documents() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let script = || {
        [
            (asked, log("1 1-1-1", vec!["[0] a\n[1] hal", "f"], false)),
            why("Running", &[("eu", "1-1-1", Some("stopped")), ("us", "1-1-2", None)]),
            (asked, log("2 1-1-2", vec!["[1] half\n[0] \u{1b}[1m"], false)),
            why("Finished", &[("eu", "1-1-1", None), ("us", "1-1-2", None)]),
        ]
    };
    let ran = run(&Fake::new(script()), &["logs", "train", "-f", "-o", "json"], "").await;
    let note = "attempt 1 in cluster `eu` ended: stopped; attempt 2 in cluster `us` follows";
    let documents = [
        json!({"pod": 0, "text": "a"}),
        json!({"pod": 1, "text": "half", "partial": true}),
        json!({"note": note}),
        json!({"pod": 1, "text": "half"}),
        json!({"pod": 0, "text": "\u{1b}[1m", "partial": true}),
    ];
    let read: Vec<Value> = ran.answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, documents);
    assert_eq!(ran.notes, format!("{note}\n"));
    // An unfinished line is printed even if the log breaks.
    let broken = [("GET ", log("1 1-1-1", vec!["abc"], true))];
    let ran = run(&Fake::new(broken), &["logs", "train", "--pod", "0", "-o", "json"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "{\"pod\":0,\"text\":\"abc\",\"partial\":true}\n"));
    let ran = run(&Fake::new(script()), &["logs", "train", "-f", "-o", "yaml"], "").await;
    assert!(
        ran.answers.starts_with("---\npod: 0\ntext: a\n---\npod: 1\n")
            && ran.answers.contains("\n---\nnote: "),
        "{}",
        ran.answers
    );
}

#[tokio::test]
async fn a_pod_that_does_not_exist_is_an_error() {
    let job = json!({"metadata": {"name": "train"}, "spec": {"parallelism": 1, "completions": 1}});
    let script = || {
        [
            ("GET /meridian/v1/logs/default/train", FakeAnswer::Stream(vec![])),
            ("GET /apis/batch/v1/namespaces/default/jobs/train", FakeAnswer::Json(200, job.clone())),
        ]
    };
    let none = run(&Fake::new(script()), &["logs", "job/train", "--pod", "5"], "").await;
    assert_eq!((none.code(), none.error().as_str()), (1, "job `train` has no pod 5: its only pod is 0"));
    assert_eq!(run(&Fake::new(script()), &["logs", "train", "--pod", "0"], "").await.code(), 0);
}
