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

#[tokio::test]
async fn only_a_followed_log_is_resumed_where_it_broke() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let away = FakeAnswer::Json(503, json!({"message": "no agent", "reason": "ServiceUnavailable"}));
    let fake = Fake::new([
        (asked, log("1-1-1", vec!["[0] a\n[1] x\n", "[0] b\n[1] hal"], true)),
        (asked, away),
        (asked, log("1-1-1", vec!["[1] x\n[1] half\n[0] a\n[0] b\n"], true)),
        (asked, log("1-1-2", vec!["[0] a\n"], false)),
    ]);
    let ran = run(&fake, &["logs", "train", "-f"], "").await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(ran.answers, "[0] a\n[1] x\n[0] b\n[1] half\n[0] a\n");
    assert_eq!(ran.notes, "the job was restarted: the output of its new attempt follows\n");
    assert_eq!(fake.requests().len(), 4);

    let fake = Fake::new([("GET ", log("1-1-1", vec!["[0] a\n"], true))]);
    let ran = run(&fake, &["logs", "train"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "[0] a\n"));
    assert!(ran.error().contains("the log is incomplete"), "{}", ran.error());

    let asked = "GET /meridian/v1/logs/default/train?follow=true&tail=1";
    let fake = Fake::new([
        (asked, log("1-1-1", vec!["[0] a\n"], true)),
        (asked, log("1-1-1", vec!["[0] a\n"], false)),
    ]);
    let ran = run(&fake, &["logs", "train", "-f", "--tail", "1"], "").await;
    assert_eq!(ran.answers, "[0] a\n[0] a\n");
    assert!(ran.notes.contains("its last 1 lines follow"), "{}", ran.notes);
}

#[tokio::test]
async fn a_log_can_be_read_as_documents() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let script = || {
        [
            (asked, log("1-1-1", vec!["[0] a\n[1] hal", "f"], true)),
            (asked, log("1-1-2", vec!["[1] half\n[0] \u{1b}[1m"], false)),
        ]
    };
    let ran = run(&Fake::new(script()), &["logs", "train", "-f", "-o", "json"], "").await;
    let note = r#"{"note":"the job was restarted: the output of its new attempt follows"}"#;
    let lines = [
        r#"{"pod":0,"text":"a"}"#,
        note,
        r#"{"pod":1,"text":"half"}"#,
        r#"{"pod":0,"text":"\u001b[1m","partial":true}"#,
    ];
    assert_eq!(ran.answers.lines().collect::<Vec<_>>(), lines);
    assert_eq!(ran.notes, "the job was restarted: the output of its new attempt follows\n");
    // An unfinished line is printed even if the log breaks.
    let broken = [("GET ", log("1-1-1", vec!["abc"], true))];
    let ran = run(&Fake::new(broken), &["logs", "train", "--pod", "0", "-o", "json"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "{\"pod\":0,\"text\":\"abc\",\"partial\":true}\n"));
    let ran = run(&Fake::new(script()), &["logs", "train", "-f", "-o", "yaml"], "").await;
    assert!(
        ran.answers.starts_with("---\npod: 0\ntext: a\n---\nnote: ")
            && ran.answers.contains("\n---\npod: 1\ntext: half\n"),
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
