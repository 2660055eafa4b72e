//! Jobs that need containers, where clusters run processes; and jobs without an image, where they run
//! containers.

use super::*;
use meridian_manager_core::facts::outcome::RejectionReason;

fn with_command(name: &str) -> Value {
    let mut job = job("default", name, 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["true"]);
    job
}

/// One cluster per runner, named `c0`, `c1` and so on.
fn clusters_of(runners: &[RunnerKind]) -> Fleet {
    let places = [("c0", "europe-west4", "EU"), ("c1", "us-east4", "US")];
    let mut f = Fleet::without_agents(&places[..runners.len()]);
    for ((place, runner), ledger) in places.iter().zip(runners).zip(1_000..) {
        f.runner = *runner;
        f.add_agent(place.0, ledger);
    }
    f.settle();
    f
}

fn written(f: &mut Fleet, job: Value) -> (Uid, Vec<String>) {
    match f.apply(vec![job]) {
        Reply::Written(written) => (written[0].uid, written[0].warnings.clone()),
        other => panic!("refused: {other:?}"),
    }
}

#[test]
fn each_thing_that_processes_cant_do_is_said_and_refused_alike() {
    let mut f = clusters_of(&[RunnerKind::Process]);
    let edit = |name: &str, edit: &dyn Fn(&mut Value)| {
        let mut job = with_command(name);
        edit(&mut job["spec"]);
        job
    };
    let volumes = json!([{"name": "data", "emptyDir": {}}]);
    let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": disrupted}]});
    let jobs = [
        (
            "spec.template.spec: uses `volumes`",
            edit("v", &|spec| spec["template"]["spec"]["volumes"] = volumes.clone()),
        ),
        (
            "spec.template.spec: uses `the entry point of its image`",
            edit("e", &|spec| spec["template"]["spec"]["containers"][0]["command"] = json!([])),
        ),
        ("spec: uses `podFailurePolicy`", edit("p", &|spec| spec["podFailurePolicy"] = policy.clone())),
        (
            "spec.template.spec: uses `securityContext.runAsNonRoot`",
            edit("u", &|spec| spec["template"]["spec"]["securityContext"] = json!({"runAsNonRoot": true})),
        ),
    ];
    for (said, job) in jobs {
        let (uid, warnings) = written(&mut f, job);
        assert!(warnings.iter().any(|warning| warning.contains(said)), "{said}: {warnings:?}");
        f.settle();
        assert_eq!((f.phase(uid), f.used()), (Some(Phase::Pending), 0), "{said}");
        let why = f.why(uid).to_string();
        let needs = said.split_once("uses ").unwrap().1;
        assert!(why.contains(&format!("this cluster runs processes, and the job uses {needs}")), "{why}");
    }
    let (plain, warnings) = written(&mut f, with_command("plain"));
    f.settle();
    assert_eq!((f.phase(plain), warnings), (Some(Phase::Running), Vec::new()), "{:#}", f.why(plain));
}

#[test]
fn a_missing_image_is_refused_where_only_containers_run_and_warned_of_where_some_do() {
    let without_image = |name: &str| {
        let mut job = with_command(name);
        job["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("image");
        job
    };
    let mut f = clusters_of(&[RunnerKind::Kubernetes, RunnerKind::Kubernetes]);
    let rejection = f.refused(without_image("no-image"));
    assert_eq!(
        (rejection.reason, rejection.field.as_deref()),
        (RejectionReason::Invalid, Some("spec.template.spec.containers"))
    );
    let message =
        "container `c` has no `image`, and every cluster that the job may use runs containers: name one";
    assert_eq!(rejection.message, message);

    // In a mixed fleet it runs where no image is needed.
    let mut f = clusters_of(&[RunnerKind::Kubernetes, RunnerKind::Process]);
    let (uid, warnings) = written(&mut f, without_image("no-image"));
    let said = "container `c` has no `image`: clusters that run containers can't start it (`c0`)";
    assert!(warnings.iter().any(|warning| warning.contains(said)), "{warnings:?}");
    f.settle();
    f.settle();
    assert_eq!(f.cluster_of(uid).as_deref(), Some("c1"), "{:#}", f.why(uid));
    // The cluster with containers refuses it before it holds anything.
    f.disconnected.push(ClusterName::new("c1"));
    f.end(uid, EndResult::Succeeded);
    f.advance(Millis::secs(30));
    let (second, _) = written(&mut f, without_image("second"));
    f.settle();
    assert_eq!((f.phase(second), f.free_in("c0")), (Some(Phase::Pending), 4));
    let why = f.why(second).to_string();
    assert!(
        why.contains("this cluster runs containers, and container `c` of the job has no `image`"),
        "{why}"
    );

    for runner in [RunnerKind::Process, RunnerKind::Simulated] {
        let mut f = clusters_of(&[runner]);
        let (uid, warnings) = written(&mut f, without_image("no-image"));
        f.settle();
        assert_eq!((f.phase(uid), warnings), (Some(Phase::Running), Vec::new()), "{:#}", f.why(uid));
    }
}

fn with_env_from(name: &str) -> Value {
    let mut job = job("default", name, 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "db"}}]);
    job
}

#[test]
fn what_processes_cant_do_is_said_at_submission_and_refused_before_quota_is_held() {
    let mut f = Fleet::without_agents(EU);
    f.runner = RunnerKind::Process;
    f.add_agent("eu", 1_000);
    f.settle();
    let Reply::Written(written) = f.apply(vec![with_env_from("secret")]) else { panic!("refused") };
    assert!(
        written[0].warnings.iter().any(|warning| warning.contains("uses `envFrom`")),
        "{:?}",
        written[0].warnings
    );
    f.settle();
    let uid = written[0].uid;
    assert_eq!((f.phase(uid), f.used()), (Some(Phase::Pending), 0));
    assert!(f.starts.is_empty());
    let why = f.why(uid).to_string();
    assert!(why.contains("this cluster runs processes, and the job uses `envFrom`"), "{why}");
}

#[test]
fn a_cluster_with_containers_takes_what_processes_cant_do() {
    let mut f = Fleet::without_agents(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    f.add_agent("us", 1_001);
    f.runner = RunnerKind::Process;
    f.add_agent("eu", 1_000);
    f.settle();
    let Reply::Written(written) = f.apply(vec![with_env_from("secret")]) else { panic!("refused") };
    assert!(written[0].warnings.is_empty(), "{:?}", written[0].warnings);
    f.settle();
    f.settle();
    assert_eq!(f.cluster_of(written[0].uid).as_deref(), Some("us"));

    let mut with_user = with_command("user");
    with_user["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 1000});
    let Reply::Written(written) = f.apply(vec![with_user]) else { panic!("refused") };
    f.settle();
    f.settle();
    assert_eq!(f.cluster_of(written[0].uid).as_deref(), Some("us"));
}
