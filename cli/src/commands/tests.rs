//! Whole commands against a scripted manager: what is asked of it, what is shown, how it ends.

use super::dispatch;
use crate::args::Cli;
use crate::client::fake::{Answer, Fake};
use crate::error::Error;
use crate::session::Session;
use clap::Parser;
use serde_json::{Value, json};

const CLUSTER_QUEUE: &str = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: dws}\nspec: {namespaceSelector: {}, resourceGroups: \
    [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 10}]}]}]}\n";
const LOCAL_QUEUE: &str = "---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: gpus}\nspec: {clusterQueue: dws}\n";
const JOB: &str = "---\napiVersion: batch/v1\nkind: Job\nmetadata: {generateName: dws-job-, labels: {kueue.x-k8s.io/queue-name: gpus}}\n\
    spec: {parallelism: 3, completions: 3, suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, args: ['120s']}]}}}\n";

/// What a command did.
pub(super) struct Ran {
    pub(super) result: Result<(), Error>,
    pub(super) answers: String,
    pub(super) notes: String,
}

impl Ran {
    pub(super) fn code(&self) -> u8 {
        self.result.as_ref().map_or_else(Error::exit_code, |()| 0)
    }

    pub(super) fn error(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }
}

pub(super) async fn run(fake: &Fake, line: &[&str], stdin: &str) -> Ran {
    let cli = Cli::try_parse_from(std::iter::once("meridian").chain(line.iter().copied())).unwrap();
    let (mut session, answers, notes) = Session::for_test(fake.start().await, cli.globals.clone(), stdin);
    let result = dispatch(&mut session, cli.command).await;
    Ran { result, answers: answers.text(), notes: notes.text() }
}

fn asked_body(fake: &Fake, index: usize) -> Value {
    serde_json::from_str(&fake.asked()[index].body).unwrap()
}

#[tokio::test]
async fn apply_sends_everything_at_once_and_tells_each_result() {
    let fake = Fake::new([(
        "POST /meridian/v1/apply",
        Answer::Json(
            200,
            json!({"results": [
                {"kind": "ClusterQueue", "namespace": null, "name": "dws", "result": "unchanged"},
                {"kind": "LocalQueue", "namespace": "default", "name": "gpus", "result": "created"},
            ], "warnings": ["the cluster `eu` is not joined yet"]}),
        ),
    )]);
    let ran =
        run(&fake, &["apply", "-f", "-", "--cluster", "eu"], &format!("{CLUSTER_QUEUE}{LOCAL_QUEUE}")).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(
        ran.answers,
        "clusterqueue.kueue.x-k8s.io/dws unchanged\nlocalqueue.kueue.x-k8s.io/gpus created\n"
    );
    assert_eq!(ran.notes, "warning: the cluster `eu` is not joined yet\n");
    let body = asked_body(&fake, 0);
    assert_eq!((&body["cluster"], &body["dryRun"]), (&json!("eu"), &json!(false)));
    assert_eq!(body["objects"][1]["metadata"]["namespace"], "default");
}

#[tokio::test]
async fn apply_places_the_managers_problems_in_the_files() {
    let causes = json!([
        {"field": "objects[1].spec.clusterQueue", "message": "there is no cluster queue `dws`"},
        {"field": "objects[0]", "message": "doesn't fit"},
    ]);
    let refusal = || {
        Answer::Json(
            422,
            json!({"message": "2 of 2 objects are invalid", "reason": "Invalid", "details": {"causes": causes}}),
        )
    };
    let fake = Fake::new([("POST /meridian/v1/apply", refusal())]);
    let ran = run(&fake, &["apply", "-f", "-"], &format!("{CLUSTER_QUEUE}{LOCAL_QUEUE}")).await;
    assert_eq!(ran.code(), 1);
    assert_eq!(
        ran.error(),
        "the manager refused (422 Invalid)\n\
         <stdin>:9:22: `localqueue/default/gpus`: spec.clusterQueue: there is no cluster queue `dws`\n\
         <stdin>:1:1: `clusterqueue/dws`: doesn't fit\n\
         2 problems found; nothing was applied"
    );
}

#[tokio::test]
async fn wrong_files_ask_nothing_of_the_manager() {
    let fake = Fake::new([]);
    let broken = run(&fake, &["apply", "-f", "-"], &format!("{LOCAL_QUEUE}---\nkind: Cluster\n")).await;
    assert_eq!(broken.code(), 1);
    assert!(
        broken.error().contains("<stdin>:") && broken.error().ends_with("nothing was applied"),
        "{}",
        broken.error()
    );
    let generated = run(&fake, &["apply", "-f", "-"], JOB).await;
    assert!(generated.error().contains("use `create -f`"), "{}", generated.error());
    let elsewhere = run(
        &fake,
        &["apply", "-f", "-", "-n", "b"],
        &LOCAL_QUEUE.replace("{name: gpus}", "{name: gpus, namespace: a}"),
    )
    .await;
    assert!(elsewhere.error().contains("is of namespace `a`, not `b`"), "{}", elsewhere.error());
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn create_tells_the_name_that_the_manager_made_and_goes_on_after_a_failure() {
    let fake = Fake::new([
        (
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/research/localqueues",
            Answer::Json(
                409,
                json!({"message": "localqueues \"gpus\" already exists", "reason": "AlreadyExists"}),
            ),
        ),
        (
            "POST /apis/batch/v1/namespaces/research/jobs",
            Answer::Json(201, json!({"metadata": {"name": "dws-job-x7k2p", "namespace": "research"}})),
        ),
    ]);
    let ran = run(&fake, &["create", "-f", "-", "-n", "research"], &format!("{LOCAL_QUEUE}{JOB}")).await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "job.batch/dws-job-x7k2p created\n"));
    assert!(ran.notes.contains("already exists (409 AlreadyExists)"), "{}", ran.notes);
    assert_eq!(asked_body(&fake, 1)["metadata"]["generateName"], "dws-job-");
}

#[tokio::test]
async fn what_the_manager_remarks_is_shown_with_its_place_by_create_and_by_apply() {
    let made = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name}});
    let fake = Fake::new([
        (
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues",
            Answer::Warned(
                made("LocalQueue", "gpus"),
                "299 - \"spec.clusterQueue: \\\"dws\\\" is not there yet\"",
            ),
        ),
        (
            "POST /apis/batch/v1/namespaces/default/jobs",
            Answer::Warned(made("Job", "dws-job-x7k2p"), "299 - \"no cluster can run it\""),
        ),
    ]);
    let ran = run(&fake, &["create", "-f", "-", "-o", "json"], &format!("{LOCAL_QUEUE}{JOB}")).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    let place = "<stdin>:5:22: `localqueue/default/gpus`";
    let expect = format!(
        "warning: {place}: spec.clusterQueue: \"dws\" is not there yet\nwarning: <stdin>:7:1: `job/default/dws-job-*`: no cluster can run it\n"
    );
    assert_eq!(ran.notes, expect);
    let list: Value = serde_json::from_str(&ran.answers).unwrap();
    assert_eq!(
        (&list["kind"], &list["items"][1]["metadata"]["name"]),
        (&json!("List"), &json!("dws-job-x7k2p"))
    );

    let warnings =
        ["localqueue/default/gpus: spec.clusterQueue: is not there yet", "clusterqueue/elsewhere: is odd"];
    let fake = Fake::new([(
        "POST /meridian/v1/apply",
        Answer::Json(200, json!({"results": [], "warnings": warnings})),
    )]);
    let ran = run(&fake, &["apply", "-f", "-"], LOCAL_QUEUE).await;
    assert_eq!(
        ran.notes,
        format!(
            "warning: {place}: spec.clusterQueue: is not there yet\nwarning: clusterqueue/elsewhere: is odd\n"
        )
    );

    let fake = Fake::new([("POST ", Answer::Warned(made("Job", "x"), "299 - \"no cluster can run it\""))]);
    let ran = run(&fake, &["submit", "--queue", "q", "--name", "x", "--", "true"], "").await;
    assert_eq!(ran.notes, "warning: `job/default/x`: no cluster can run it\n");
}

#[tokio::test]
async fn several_descriptions_are_one_document_for_machines() {
    let object = |name: &str| Answer::Json(200, json!({"metadata": {"name": name}}));
    let (a, b) = (
        "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a",
        "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/b",
    );
    let fake = Fake::new([
        (a, object("a")),
        (b, object("b")),
        (a, object("a")),
        (b, Answer::Json(404, json!({"message": "not found"}))),
    ]);
    let list: Value =
        serde_json::from_str(&run(&fake, &["describe", "cq", "a", "b", "-o", "json"], "").await.answers)
            .unwrap();
    assert_eq!((&list["kind"], &list["items"][1]["metadata"]["name"]), (&json!("List"), &json!("b")));
    let missing = run(&fake, &["describe", "cq", "a", "b", "-o", "json"], "").await;
    let one: Value = serde_json::from_str(&missing.answers).unwrap();
    assert_eq!((missing.code(), &one["metadata"]["name"]), (1, &json!("a")));
}

#[tokio::test]
async fn delete_waits_until_the_gang_has_stopped() {
    let job =
        json!({"metadata": {"name": "train", "namespace": "default", "uid": "u1", "resourceVersion": "4"}});
    let event = format!("{}\n", json!({"type": "DELETED", "object": job}));
    let fake = Fake::new([
        ("DELETE /apis/batch/v1/namespaces/default/jobs/train", Answer::Json(200, job.clone())),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?fieldSelector=metadata.name%3Dtrain&limit",
            Answer::Json(200, json!({"metadata": {"resourceVersion": "4"}, "items": [job]})),
        ),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?fieldSelector=metadata.name%3Dtrain&watch=true",
            Answer::OpenStream(vec![event]),
        ),
    ]);
    let ran = run(&fake, &["delete", "job/train", "--wait"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (0, "job.batch/train deleted\n"), "{:?}", ran.result);
    assert_eq!(ran.notes, "waiting until job.batch/train is gone\n");
    let missing = || Answer::Json(404, json!({"message": "clusters \"eu\" not found", "reason": "NotFound"}));
    let fake =
        Fake::new([("DELETE /apis/meridian.dev/v1alpha1/clusters/eu", missing()), ("DELETE ", missing())]);
    assert_eq!(run(&fake, &["delete", "cluster", "eu"], "").await.code(), 1);
    assert_eq!(run(&fake, &["delete", "cluster", "eu", "--ignore-not-found"], "").await.code(), 0);
}

#[tokio::test]
async fn get_shows_tables_documents_and_names() {
    let list = || {
        Answer::Json(
            200,
            json!({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "dws"}, "spec": {"queueingStrategy": "StrictFIFO"}, "status": {"pendingWorkloads": 2}}]}),
        )
    };
    let path = "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues?limit=500";
    let fake = Fake::new([
        (path, list()),
        (path, list()),
        (path, list()),
        (path, Answer::Json(200, json!({"items": []}))),
    ]);
    let table = run(&fake, &["get", "cq"], "").await.answers;
    assert_eq!(
        table,
        "NAME   COHORT   STRATEGY     PENDING   ADMITTED\ndws    -        StrictFIFO   2         -\n"
    );
    assert_eq!(
        run(&fake, &["get", "cq", "-o", "name"], "").await.answers,
        "clusterqueue.kueue.x-k8s.io/dws\n"
    );
    let document: Value =
        serde_json::from_str(&run(&fake, &["get", "clusterqueues", "-o", "json"], "").await.answers).unwrap();
    assert_eq!(
        (&document["kind"], &document["items"][0]["kind"], &document["metadata"]["resourceVersion"]),
        (&json!("List"), &json!("ClusterQueue"), &json!("9"))
    );
    let empty = run(&fake, &["get", "cq"], "").await;
    assert_eq!(
        (empty.code(), empty.answers.as_str(), empty.notes.as_str()),
        (0, "", "no clusterqueues found\n")
    );
    assert_eq!(run(&fake, &["get", "cq", "-l", "a b"], "").await.code(), 2);
    assert_eq!(run(&fake, &["get", "cq", "dws", "-A"], "").await.code(), 2);
}

#[tokio::test]
async fn submit_makes_a_gang_and_takes_a_lost_answer_for_done() {
    let queues = Answer::Json(200, json!({"metadata": {}, "items": [{"metadata": {"name": "gpus"}}]}));
    let fake = Fake::new([
        ("GET /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues", queues),
        (
            "POST /apis/batch/v1/namespaces/default/jobs",
            Answer::Json(200, json!({"metadata": {"name": "made"}})),
        ),
    ]);
    let line = [
        "submit",
        "--accelerator",
        "nvidia-tesla-t4",
        "--count",
        "2",
        "--nodes",
        "4",
        "--max-run",
        "2h",
        "--region",
        "europe-west4",
        "--",
        "bin/Train.py",
        "-x",
    ];
    let ran = run(&fake, &line, "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (0, "job.batch/made created\n"), "{:?}", ran.result);
    let job = asked_body(&fake, 1);
    assert!(job["metadata"]["name"].as_str().unwrap().starts_with("train-py-"), "{job}");
    assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "gpus");
    assert_eq!(job["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"], "7200");
    assert_eq!(job["metadata"]["annotations"]["meridian.dev/region"], "europe-west4");
    let spec = &job["spec"];
    assert_eq!(
        (&spec["parallelism"], &spec["completions"], &spec["backoffLimit"], &spec["suspend"]),
        (&json!(4), &json!(4), &json!(0), &json!(true))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["cloud.google.com/gke-accelerator"], "nvidia-tesla-t4");
    assert_eq!(pod["containers"][0]["command"], json!(["bin/Train.py", "-x"]));
    assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"nvidia.com/gpu": "2"}));

    let taken = || Answer::Json(409, json!({"reason": "AlreadyExists", "message": "already exists"}));
    let other = Answer::Json(
        200,
        json!({"metadata": {"name": "x", "annotations": {"meridian.dev/submission": "another"}}}),
    );
    let fake = Fake::new([
        ("POST ", Answer::Break),
        ("POST ", taken()),
        ("GET /apis/batch/v1/namespaces/default/jobs/x", other),
    ]);
    let ran = run(&fake, &["submit", "--queue", "q", "--name", "x", "--", "true"], "").await;
    assert_eq!((ran.code(), ran.error().as_str()), (1, "already exists (409 AlreadyExists)"));
    let [first, second] = [asked_body(&fake, 0), asked_body(&fake, 1)];
    assert_eq!(first, second, "a repeated submission is the same one");
}

#[tokio::test]
async fn submit_waits_for_the_end() {
    let job = |version: &str, status: Value| json!({"metadata": {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": version}, "spec": {}, "status": status});
    let failed = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "pod 0 exited with 3"}]});
    let event = format!(
        "{}\n{}\n",
        json!({"type": "MODIFIED", "object": job("2", json!({"active": 1}))}),
        json!({"type": "MODIFIED", "object": job("3", failed)})
    );
    let fake = Fake::new([
        ("POST ", Answer::Json(201, job("1", json!({})))),
        (
            "GET ",
            Answer::Json(200, json!({"metadata": {"resourceVersion": "1"}, "items": [job("1", json!({}))]})),
        ),
        ("GET ", Answer::OpenStream(vec![event])),
    ]);
    let ran = run(&fake, &["submit", "--queue", "q", "--name", "x", "--wait", "--", "false"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "job.batch/x failed\n"));
    assert_eq!(
        ran.error(),
        "the job failed: BackoffLimitExceeded: pod 0 exited with 3; its output: `meridian logs x`"
    );
    assert_eq!(ran.notes, "job.batch/x is Pending\njob.batch/x is Running\n");
}

#[tokio::test]
async fn operators_actions_need_a_persons_word() {
    let fake = Fake::new([
        ("POST /meridian/v1/clusters/eu/admit", Answer::Json(200, json!({}))),
        ("POST /meridian/v1/clusters/eu/cordon", Answer::Json(200, json!({}))),
        ("POST /meridian/v1/clusters/eu/declare-lost", Answer::Json(200, json!({}))),
        (
            "POST /meridian/v1/clusters/eu/join-token",
            Answer::Json(
                200,
                json!({"command": "meridian agent join x", "token": "t", "expires": "2026-11-21T11:00:00Z"}),
            ),
        ),
        ("GET /meridian/v1/recovery", Answer::Json(200, json!({"open": true, "rulesDoubted": "7"}))),
        ("POST /meridian/v1/recovery/confirm", Answer::Json(200, json!({"open": false}))),
        ("POST /meridian/v1/rules/confirm", Answer::Json(200, json!({"message": "confirmed"}))),
        ("GET /meridian/v1/recovery", Answer::Json(200, json!({"open": false}))),
    ]);
    assert_eq!(
        run(&fake, &["cluster", "admit", "eu"], "").await.answers,
        "cluster.meridian.dev/eu admitted\n"
    );
    assert_eq!(
        run(&fake, &["cluster", "cordon", "eu"], "").await.answers,
        "cluster.meridian.dev/eu cordoned\n"
    );
    for line in [
        ["cluster", "declare-lost", "eu"].as_slice(),
        &["cluster", "declare-lost", "eu", "--confirm", "us"],
        &["journal", "confirm"],
    ] {
        let ran = run(&fake, line, "").await;
        assert_eq!(ran.code(), 1);
        assert!(ran.error().starts_with("nothing was done: "), "{}", ran.error());
    }
    assert_eq!(
        run(&fake, &["cluster", "declare-lost", "eu", "--confirm", "eu", "--ledger", "l1"], "").await.answers,
        "cluster.meridian.dev/eu declared lost\n"
    );
    let join = run(
        &fake,
        &["cluster", "join", "eu", "--region", "europe-west4", "--jurisdiction", "EU", "--ttl", "1h"],
        "",
    )
    .await;
    assert_eq!(join.answers, "meridian agent join x\n");
    // The person's word is for both: no other copy writes, and the rules are today's.
    assert_eq!(run(&fake, &["journal", "confirm", "--yes"], "").await.answers, "open: false\n");
    assert_eq!(asked_body(&fake, 2), json!({"confirm": "eu", "ledger": "l1"}));
    assert_eq!(
        asked_body(&fake, 3),
        json!({"region": "europe-west4", "jurisdiction": "EU", "ttl": "3600s", "replace": false})
    );
}

#[tokio::test]
async fn orphans_are_shown_stopped_and_given_their_jobs_back() {
    const UID: &str = "00000000-0000-0000-0000-000000000001";
    let (older, newer) = (
        json!({"uid": UID, "fence": "1-2-9", "cluster": "eu"}),
        json!({"uid": UID, "fence": "1-2-10", "cluster": "us"}),
    );
    let state = || ("GET /meridian/v1/recovery", Answer::Json(200, json!({"orphans": [older, newer]})));
    let fake = Fake::new([
        state(),
        (
            "POST /meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-9/stop",
            Answer::Json(200, json!({"message": "it is being stopped"})),
        ),
        state(),
        (
            "POST /meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-10/adopt",
            Answer::Json(200, json!({"message": "it is a job again"})),
        ),
        state(),
    ]);
    let listed = run(&fake, &["orphan", "list"], "").await.answers;
    assert_eq!(listed.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(), [UID, "1-2-9", "eu"]);
    assert_eq!(
        run(&fake, &["orphan", "stop", UID, "--fence", "1-2-9"], "").await.answers,
        "it is being stopped\n"
    );
    let spec = "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}";
    let job = &format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: train, labels: {{kueue.x-k8s.io/queue-name: q}}}}\n{spec}\n"
    );
    // The newest attempt is meant where none is named.
    assert_eq!(run(&fake, &["orphan", "adopt", UID, "-f", "-"], job).await.answers, "it is a job again\n");
    let two = run(
        &fake,
        &["orphan", "adopt", UID, "-f", "-"],
        &format!("{job}---\n{}", job.replace("train", "other")),
    )
    .await;
    assert!(two.error().contains("one job"), "{}", two.error());
    assert!(
        run(&fake, &["orphan", "stop", "nobody"], "").await.error().contains("there is no orphan `nobody`")
    );
}

#[tokio::test]
async fn workloads_are_stopped_and_resumed_by_their_own_name_or_their_jobs() {
    let shown = |active: bool| json!({"metadata": {"name": "job-train-01234", "namespace": "research"}, "spec": {"active": active}});
    let missing = || {
        Answer::Json(
            404,
            json!({"message": "workloads.kueue.x-k8s.io \"train\" not found", "reason": "NotFound"}),
        )
    };
    let job = || {
        Answer::Json(
            200,
            json!({"metadata": {"name": "train"}, "status": {"meridian": {"workload": "job-train-01234"}}}),
        )
    };
    let own = "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads/job-train-01234";
    let jobs = "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads/train";
    let get = "GET /apis/batch/v1/namespaces/research/jobs/train";
    let fake = Fake::new([(own, Answer::Json(200, shown(false)))]);
    let ran = run(&fake, &["stop", "workload", "job-train-01234", "-n", "research"], "").await;
    assert_eq!(
        (ran.code(), ran.answers.as_str()),
        (0, "workload.kueue.x-k8s.io/job-train-01234 stopped\n"),
        "{:?}",
        ran.result
    );
    assert_eq!(asked_body(&fake, 0), json!({"spec": {"active": false}}));
    let fake = Fake::new([(jobs, missing()), (get, job()), (own, Answer::Json(200, shown(true)))]);
    let ran = run(&fake, &["resume", "workload", "train", "-n", "research", "-o", "json"], "").await;
    let document: Value = serde_json::from_str(&ran.answers).unwrap();
    assert_eq!(
        (ran.code(), &document["spec"]["active"], document["kind"].as_str()),
        (0, &json!(true), Some("Workload")),
        "{:?}",
        ran.result
    );
    assert_eq!(asked_body(&fake, 2), json!({"spec": {"active": true}}));
    let fake = Fake::new([(get, job()), (own, Answer::Json(200, shown(true)))]);
    assert_eq!(
        run(&fake, &["resume", "job/train", "-n", "research"], "").await.answers,
        "workload.kueue.x-k8s.io/job-train-01234 resumed\n"
    );
    let fake = Fake::new([(jobs, missing()), (get, missing())]);
    let nobody = run(&fake, &["stop", "workload", "train", "-n", "research"], "").await;
    assert_eq!(
        (nobody.code(), nobody.notes.contains("workloads.kueue.x-k8s.io \"train\" not found")),
        (1, true),
        "{}",
        nobody.notes
    );
    let fake = Fake::new([]);
    let queue = run(&fake, &["stop", "cq", "train"], "").await;
    assert!(queue.code() == 2 && queue.error().contains("stopPolicy"), "{}", queue.error());
}

#[tokio::test]
async fn logs_and_explanations_come_through() {
    let fake = Fake::new([
        (
            "GET /meridian/v1/logs/default/train?follow=true&pod=1&tail=5",
            Answer::Stream(vec!["epoch 1\n", "\u{1b}[1mepoch 2\n"]),
        ),
        (
            "GET /meridian/v1/why/default/train",
            Answer::Json(200, json!({"name": "train", "state": "Pending", "summary": "waits"})),
        ),
    ]);
    // not a terminal: bytes as they are
    assert_eq!(
        run(&fake, &["logs", "train", "-f", "--pod", "1", "--tail", "5"], "").await.answers,
        "epoch 1\n\u{1b}[1mepoch 2\n"
    );
    assert_eq!(run(&fake, &["why", "train"], "").await.answers, "train is Pending: waits\n");
    assert_eq!(fake.asked().len(), 2);
}

#[tokio::test]
async fn a_followed_log_goes_on_where_it_broke_off_and_another_one_says_that_it_did() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let away = Answer::Json(503, json!({"message": "no agent", "reason": "ServiceUnavailable"}));
    let fake = Fake::new([
        (asked, Answer::Log("1-1-1", vec!["[0] a\n[1] x\n", "[0] b\n[1] hal"], false)),
        (asked, away),
        (asked, Answer::Log("1-1-1", vec!["[1] x\n[1] half\n[0] a\n[0] b\n"], false)),
        (asked, Answer::Log("1-1-2", vec!["[0] a\n"], true)),
    ]);
    let ran = run(&fake, &["logs", "train", "-f"], "").await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(ran.answers, "[0] a\n[1] x\n[0] b\n[1] half\n[0] a\n");
    assert_eq!(ran.notes, "the job was started again: what follows is its new output\n");
    assert_eq!(fake.asked().len(), 4);

    let fake = Fake::new([("GET ", Answer::Log("1-1-1", vec!["[0] a\n"], false))]);
    let ran = run(&fake, &["logs", "train"], "").await;
    assert_eq!((ran.code(), ran.answers.as_str()), (1, "[0] a\n"));
    assert!(ran.error().contains("broke off before its end"), "{}", ran.error());

    let asked = "GET /meridian/v1/logs/default/train?follow=true&tail=1";
    let fake = Fake::new([
        (asked, Answer::Log("1-1-1", vec!["[0] a\n"], false)),
        (asked, Answer::Log("1-1-1", vec!["[0] a\n"], true)),
    ]);
    let ran = run(&fake, &["logs", "train", "-f", "--tail", "1"], "").await;
    assert_eq!(ran.answers, "[0] a\n[0] a\n");
    assert!(ran.notes.contains("its last 1 lines follow"), "{}", ran.notes);
}

#[tokio::test]
async fn a_program_reads_a_log_line_by_line() {
    let asked = "GET /meridian/v1/logs/default/train?follow=true";
    let script = || {
        [
            (asked, Answer::Log("1-1-1", vec!["[0] a\n[1] hal", "f"], false)),
            (asked, Answer::Log("1-1-2", vec!["[1] half\n[0] \u{1b}[1m"], true)),
        ]
    };
    let ran = run(&Fake::new(script()), &["logs", "train", "-f", "-o", "json"], "").await;
    let note = r#"{"note":"the job was started again: what follows is its new output"}"#;
    let lines = [
        r#"{"pod":0,"text":"a"}"#,
        note,
        r#"{"pod":1,"text":"half"}"#,
        r#"{"pod":0,"text":"\u001b[1m","partial":true}"#,
    ];
    assert_eq!(ran.answers.lines().collect::<Vec<_>>(), lines);
    assert_eq!(ran.notes, "the job was started again: what follows is its new output\n");
    // What was begun is told also where the log breaks off.
    let broken = [("GET ", Answer::Log("1-1-1", vec!["abc"], false))];
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
async fn a_pod_that_is_none_is_told_from_one_that_printed_nothing() {
    let job = json!({"metadata": {"name": "train"}, "spec": {"parallelism": 1, "completions": 1}});
    let script = || {
        [
            ("GET /meridian/v1/logs/default/train", Answer::Stream(vec![])),
            ("GET /apis/batch/v1/namespaces/default/jobs/train", Answer::Json(200, job.clone())),
        ]
    };
    let none = run(&Fake::new(script()), &["logs", "job/train", "--pod", "5"], "").await;
    assert_eq!((none.code(), none.error().as_str()), (1, "job `train` has no pod 5: its only pod is 0"));
    assert_eq!(run(&Fake::new(script()), &["logs", "train", "--pod", "0"], "").await.code(), 0);
}

#[tokio::test]
async fn descriptions_show_everything_and_obey_nothing() {
    let job = json!({
        "metadata": {"name": "t", "namespace": "default", "uid": "u1", "resourceVersion": "8", "labels": {"kueue.x-k8s.io/queue-name": "q", "team": "vision"}},
        "spec": {"parallelism": 1, "template": {"note": "\u{1b}[2J"}},
        "status": {"active": 1, "conditions": [{"type": "Suspended", "status": "False", "reason": "Admitted", "message": "in \u{7}eu"}]},
    });
    let why = json!({"name": "t", "state": "Running", "clusters": [{"cluster": "eu", "region": "europe-west4", "verdict": "running", "reason": "all pods run"}]});
    let fake = Fake::new([
        ("GET /apis/batch", Answer::Json(200, job)),
        ("GET /meridian/v1/why/default/t", Answer::Json(200, why)),
    ]);
    let ran = run(&fake, &["describe", "job", "t"], "").await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(!ran.answers.contains(['\u{1b}', '\u{7}']), "{}", ran.answers);
    let expect = [
        "Kind:             Job",
        "Name:             t",
        "Namespace:        default",
        "UID:              u1",
        "Created:          -",
        "Version:          8",
        "Labels:           kueue.x-k8s.io/queue-name=q",
        "                  team=vision",
        "Queue:            q",
        "State:            Running",
        "Cluster:          -",
        "Pods:             1/1",
        "Priority-Class:   -",
        "Reason:           -",
        "",
        "Spec:",
        "  parallelism: 1",
        "  template:",
        "    note: \"\\e[2J\"",
        "",
        "Status:",
        "  active: 1",
        "",
        "Conditions:",
        "TYPE        STATUS   SINCE   REASON     MESSAGE",
        "Suspended   False    -       Admitted   in \\x07eu",
        "",
        "Why:",
        "t is Running",
        "",
        "CLUSTER   REGION         VERDICT   REASON",
        "eu        europe-west4   running   all pods run",
    ];
    assert_eq!(ran.answers.lines().collect::<Vec<_>>(), expect);
}

#[tokio::test]
async fn an_audit_log_that_does_not_hold_is_a_failure() {
    let asked = "GET /meridian/v1/audit?from=1";
    let fake = Fake::new([
        (asked, Answer::Stream(vec![])),
        (asked, Answer::Stream(vec!["{}\n"])),
        (asked, Answer::Stream(vec!["{\"number\":1"])),
    ]);
    assert_eq!(run(&fake, &["audit", "verify"], "").await.answers, "the audit log is empty\n");
    let broken = run(&fake, &["audit", "verify"], "").await;
    assert_eq!(broken.code(), 1);
    assert!(
        broken.error().starts_with("line 1 of the input is not a line of an audit log"),
        "{}",
        broken.error()
    );
    let cut = run(&fake, &["audit", "verify"], "").await;
    assert!(cut.code() == 1 && cut.error().ends_with("it ends in the middle of a line"), "{}", cut.error());
    assert_eq!(run(&fake, &["audit", "verify", "-", "--expect-head", "x"], "").await.code(), 2);
    assert_eq!(run(&fake, &["audit", "verify", "-"], "not json\n").await.code(), 1);
}

#[tokio::test]
async fn completions_name_the_commands() {
    let fake = Fake::new([]);
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&fake, &["completion", shell], "").await.answers.contains("submit"), "{shell}");
    }
    assert_eq!(
        run(&fake, &["version"], "").await.answers,
        format!("meridian {}\n", env!("CARGO_PKG_VERSION"))
    );
}
