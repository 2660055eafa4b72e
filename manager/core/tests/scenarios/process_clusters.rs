//! Jobs that need containers, where clusters run processes.

use super::*;

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
}
