//! Habits from kubectl that work here too.

use super::*;
use crate::args::Command;
use crate::commands::objects::edit;

fn jobs(names: &[(&str, u64)]) -> FakeAnswer {
    let items: Vec<Value> = names
        .iter()
        .map(|(name, priority)| json!({"metadata": {"name": name}, "spec": {"priority": priority}}))
        .collect();
    FakeAnswer::Json(200, json!({"metadata": {"resourceVersion": "4"}, "items": items}))
}

const JOBS: &str = "GET /apis/batch/v1/namespaces/default/jobs?limit";
const QUEUES: &str = "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues?limit";

#[tokio::test]
async fn objects_are_shown_by_templates_and_sorted() {
    let script = || [(JOBS, jobs(&[("b", 10), ("a", 9)]))];
    let get = async |flags: &[&str]| {
        let ran = run(&Fake::new(script()), &[&["get", "jobs"], flags].concat(), "").await;
        assert_eq!(ran.code(), 0, "{:?}", ran.result);
        ran.answers
    };
    assert_eq!(get(&["-o", "jsonpath={.items[*].metadata.name}"]).await, "b a");
    let lines = r#"jsonpath={range .items[*]}{.metadata.name}{"\t"}{.spec.priority}{"\n"}{end}"#;
    assert_eq!(get(&["-o", lines, "--sort-by", ".spec.priority"]).await, "a\t9\nb\t10\n");
    let columns = "custom-columns=NAME:.metadata.name,P:{.spec.priority},Q:.spec.none";
    assert_eq!(get(&["-o", columns]).await, "NAME   P    Q\nb      10   <none>\na      9    <none>\n");
    let text = get(&["--sort-by=.metadata.name"]).await;
    assert!(text.find("\na ") < text.find("\nb "), "{text}");
}

#[tokio::test]
async fn several_kinds_are_listed_at_once() {
    let script = || [(JOBS, jobs(&[("train", 1)])), (QUEUES, jobs(&[("dws", 1)]))];
    let ran = run(&Fake::new(script()), &["get", "jobs,cq"], "").await;
    let names: Vec<&str> = ran.answers.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(
        names,
        ["NAME", "job.batch/train", "NAME", "clusterqueue.kueue.x-k8s.io/dws"],
        "{}",
        ran.answers
    );
    let ran = run(&Fake::new(script()), &["get", "jobs,cq", "-o", "name"], "").await;
    assert_eq!(ran.answers, "job.batch/train\nclusterqueue.kueue.x-k8s.io/dws\n");
    let ran = run(&Fake::new(script()), &["get", "jobs,cq", "-o", "json"], "").await;
    let list: Value = serde_json::from_str(&ran.answers).unwrap();
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][1]["kind"]),
        (&json!("Job"), &json!("ClusterQueue"))
    );
    // the other kinds of jobs follow Jobs
    let path =
        |kind: meridian_objects::Kind| if kind.group().is_empty() { "GET /api/v1/" } else { "GET /apis/" };
    let others = meridian_objects::job::JobKind::all().skip(1).map(|job| (path(job.kind()), jobs(&[])));
    let none = [
        ("GET /apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads?limit", jobs(&[])),
        ("GET /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues?limit", jobs(&[])),
        (QUEUES, jobs(&[])),
    ];
    let script = [(JOBS, jobs(&[]))].into_iter().chain(others).chain(none);
    let ran = run(&Fake::new(script), &["get", "all"], "").await;
    assert!(ran.notes.starts_with("no jobs, jobsets, pytorchjobs, "), "{}", ran.notes);
    assert!(
        ran.notes.ends_with("workloads, localqueues, clusterqueues found in namespace default\n"),
        "{}",
        ran.notes
    );
}

#[tokio::test]
async fn all_objects_of_a_kind_are_deleted_by_one_command() {
    let gone = || FakeAnswer::Json(200, json!({"kind": "Status", "status": "Success"}));
    let fake = Fake::new([
        (JOBS, jobs(&[("a", 1), ("b", 1)])),
        ("DELETE /apis/batch/v1/namespaces/default/jobs/a", gone()),
        ("DELETE /apis/batch/v1/namespaces/default/jobs/b", gone()),
    ]);
    let ran = run(&fake, &["delete", "jobs", "--all"], "").await;
    assert_eq!(ran.answers, "job.batch/a deleted\njob.batch/b deleted\n");
    fake.requests();
    let fake = Fake::new([
        ("GET /apis/batch/v1/namespaces/default/jobs?labelSelector=team%3Dvision&limit", jobs(&[("a", 1)])),
        ("DELETE /apis/batch/v1/namespaces/default/jobs/a?dryRun=All", gone()),
    ]);
    let ran = run(&fake, &["delete", "jobs", "-l", "team=vision", "--dry-run=server"], "").await;
    assert_eq!(ran.answers, "job.batch/a deleted (server dry run)\n");
    let refused = async |line: &[&str], expect: &str| {
        let ran = run(&Fake::new([]), line, "").await;
        assert!(ran.code() == 2 && ran.error().contains(expect), "{}", ran.error());
    };
    refused(&["delete", "jobs"], "`meridian delete jobs --all`").await;
    refused(&["delete", "all", "--all"], "`all` is for `get` only").await;
    refused(&["delete", "jobs", "x", "--all"], "can't be combined with a name").await;
    refused(&["delete", "jobs", "-l", ""], "`--all` deletes everything").await;
}

#[tokio::test]
async fn a_dry_run_is_checked_by_the_manager_or_sends_nothing() {
    let created = FakeAnswer::Json(201, json!({"metadata": {"name": "gpus"}}));
    let queues = "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues?dryRun=All";
    let fake = Fake::new([(queues, created)]);
    let ran = run(&fake, &["create", "-f", "-", "--dry-run=server"], LOCAL_QUEUE).await;
    assert_eq!(ran.answers, "localqueue.kueue.x-k8s.io/gpus created (server dry run)\n");
    let applied = json!({"results": [{"kind": "LocalQueue", "name": "gpus", "result": "created"}]});
    for flag in ["--dry-run", "--dry-run=server"] {
        let fake = Fake::new([("POST /meridian/v1/apply", FakeAnswer::Json(200, applied.clone()))]);
        let ran = run(&fake, &["apply", flag, "-f", "-"], LOCAL_QUEUE).await;
        assert_eq!(ran.answers, "localqueue.kueue.x-k8s.io/gpus created (server dry run)\n");
        assert_eq!(request_body(&fake, 0)["dryRun"], true);
    }
    let nothing = Fake::new([]);
    let files = format!("{LOCAL_QUEUE}{JOB}");
    let ran = run(&nothing, &["create", "-f", "-", "--dry-run=client"], &files).await;
    let lines =
        "localqueue.kueue.x-k8s.io/gpus created (dry run)\njob.batch/dws-job-<generated> created (dry run)\n";
    assert_eq!(ran.answers, lines);
    let ran = run(&nothing, &["apply", "-f", "-", "--dry-run=client", "-o", "yaml"], LOCAL_QUEUE).await;
    assert!(ran.answers.contains("kind: LocalQueue"), "{}", ran.answers);
    assert!(nothing.requests().is_empty());
}

#[tokio::test]
async fn a_job_is_stopped_by_its_name_alone() {
    let workload = json!({"metadata": {"name": "job-train-0"}});
    let patch = (
        "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/job-train-0",
        FakeAnswer::Json(200, workload),
    );
    for kind in ["batch", "jobset", "rayclusters", "pods"] {
        let fake = Fake::new(jobs_named(&[kind]).into_iter().chain([patch.clone()]));
        let ran = run(&fake, &["stop", "train"], "").await;
        assert_eq!(ran.answers, "workload.kueue.x-k8s.io/job-train-0 stopped\n", "{:?}", ran.result);
        assert_eq!(fake.requests().len(), 11);
    }
    // A kind that the user may not read doesn't count.
    let mut script = jobs_named(&["trainer"]);
    script[1].1 = FakeAnswer::Json(403, json!({"message": "not yours", "reason": "Forbidden"}));
    let fake = Fake::new(script.into_iter().chain([patch]));
    assert_eq!(run(&fake, &["resume", "train"], "").await.code(), 0);
    fake.requests();
}

#[tokio::test]
async fn a_name_of_several_jobs_needs_its_kind() {
    let fake = Fake::new(jobs_named(&["batch", "kubeflow.org/v1/", "pods"]));
    let ran = run(&fake, &["stop", "train"], "").await;
    let expect =
        "error: train: several jobs have this name: write `job/train` or `pytorchjob/train` or `pod/train`";
    assert_eq!((ran.code(), ran.notes.trim()), (1, expect));
    assert_eq!(fake.requests().len(), 10, "nothing is stopped");
    let fake = Fake::new(jobs_named(&[]));
    let ran = run(&fake, &["stop", "train"], "").await;
    assert!(ran.code() == 1 && ran.notes.contains("\"train\" not found"), "{}", ran.notes);
    // The manager says which kinds there are.
    let answer = json!({"name": "train", "state": "Pending", "summary": "waits"});
    let fake = Fake::new([
        ("GET /meridian/v1/why/default/train?kind=jobset", FakeAnswer::Json(200, answer)),
        ("GET /meridian/v1/logs/default/train?tail=1&kind=pod", FakeAnswer::Stream(vec!["done\n"])),
    ]);
    assert_eq!(run(&fake, &["why", "jobset/train"], "").await.answers, "train  Pending  waits\n");
    assert_eq!(run(&fake, &["logs", "pod/train", "--tail", "1"], "").await.answers, "done\n");
    fake.requests();
}

/// Runs `edit lq gpus` with an editor: a command of `sh` that gets the file as its argument.
async fn edit(fake: &Fake, editor: &str) -> CommandRun {
    let cli = Cli::try_parse_from(["meridian", "edit", "lq", "gpus"]).unwrap();
    let (mut session, answers, notes) = Session::for_test(fake.start().await, cli.globals.clone(), "");
    let Command::Edit(args) = cli.command else { panic!("not an edit") };
    let result = edit::edit_with(&mut session, args, editor).await;
    CommandRun { result, answers: answers.text(), notes: notes.text() }
}

fn queue(version: &str, stop_policy: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": "gpus", "namespace": "default", "resourceVersion": version},
        "spec": {"clusterQueue": "dws", "stopPolicy": stop_policy}, "status": {"pendingWorkloads": 1},
    })
}

const QUEUE: &str = "GET /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/gpus";
const PUT: &str = "PUT /apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/gpus";

#[tokio::test]
async fn an_object_is_edited_until_the_manager_takes_it() {
    let there = |version: &str, policy: &str| FakeAnswer::Json(200, queue(version, policy));
    let nothing = Fake::new([(QUEUE, there("1", "None"))]);
    let ran = edit(&nothing, "true").await;
    assert_eq!((ran.code(), ran.notes.as_str()), (0, "edit cancelled: nothing was changed\n"));
    nothing.requests();

    // The first edit is refused, the second conflicts, and the third is accepted.
    let root = tempfile::tempdir().unwrap();
    let seen = root.path().join("seen").display().to_string();
    let editor = format!(
        r#"e() {{ cat "$1" >>{seen}; case "$(grep -c '^# Edit' {seen})" in
           1) sed -i 's/stopPolicy: None/stopPolicy: Halt/' "$1";;
           2) sed -i 's/stopPolicy: Halt/stopPolicy: Hold/' "$1";; esac; }}; e"#
    );
    let invalid = json!({"message": "spec.stopPolicy: `Halt` is unknown", "reason": "Invalid"});
    let conflict = || FakeAnswer::Json(409, json!({"message": "was modified", "reason": "Conflict"}));
    let mut theirs = queue("2", "None");
    theirs["spec"]["clusterQueue"] = json!("other");
    let fake = Fake::new([
        (QUEUE, there("1", "None")),
        (PUT, FakeAnswer::Json(422, invalid)),
        (PUT, conflict()),
        (QUEUE, FakeAnswer::Json(200, theirs)),
        (PUT, there("3", "Hold")),
    ]);
    let ran = edit(&fake, &editor).await;
    assert_eq!(ran.answers, "localqueue.kueue.x-k8s.io/gpus edited\n", "{:?}", ran.result);
    let sent = request_body(&fake, 4);
    assert_eq!(sent["spec"], json!({"clusterQueue": "other", "stopPolicy": "Hold"}));
    assert_eq!((&sent["metadata"]["resourceVersion"], sent.get("status")), (&json!("2"), None));
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("# It was not accepted:\n#   spec.stopPolicy: `Halt` is unknown"), "{seen}");
    assert!(seen.contains("# Somebody else has changed the object"), "{seen}");

    // Giving up keeps the text.
    let fake = Fake::new([(QUEUE, there("1", "None"))]);
    let ran = edit(&fake, "sed -i 's/name: gpus/name: tpus/'").await;
    let error = ran.error();
    assert!(ran.code() == 1 && error.contains("still not valid") && error.contains("your changes are in `"));
    std::fs::remove_file(error.rsplit('`').nth(1).unwrap()).unwrap();
    let ran = edit(&Fake::new([(QUEUE, there("1", "None"))]), "false").await;
    assert!(ran.error().contains("the editor `false` ended with"), "{}", ran.error());
}

#[tokio::test]
async fn examples_are_in_the_program() {
    let none = Fake::new([]);
    let list = run(&none, &["example"], "").await.answers;
    assert!(list.starts_with("NAME ") && list.contains("\ntutorial "), "{list}");
    let tutorial = run(&none, &["example", "tutorial"], "").await.answers;
    assert_eq!(tutorial, include_str!("../../../../manifests/examples/tutorial/manager.yaml"));
    let unknown = run(&none, &["example", "tutoriel"], "").await;
    assert!(unknown.code() == 2 && unknown.error().contains("there are tutorial, "), "{}", unknown.error());
}
