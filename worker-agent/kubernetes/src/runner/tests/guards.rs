//! Gangs whose pods have guards.

use super::*;
use crate::runner::guard;
use meridian_pod_guard::lease::Lease;
use meridian_shared::time::Now;

/// A gang of two pods with commands; its lease ends at this moment of the agent's clock.
fn guarded(deadline: Option<Mono>) -> Start {
    let mut job: Value = serde_json::from_str(&start(2).spec).unwrap();
    let container = job.pointer_mut("/spec/template/spec/containers/0").unwrap();
    container["command"] = json!(["train", "$(RANK)"]);
    container["args"] = json!(["-v"]);
    container["volumeMounts"] = json!([{"name": "d"}]);
    Start { spec: job.to_string().into(), deadline, run_left: None, ..start(2) }
}

fn granted(start: &Start) -> Run {
    let mut built = manifest::build(start, "worker", None).unwrap();
    assert_eq!(guard::add(&mut built, start, "registry.example/agent:1"), Ok(true));
    let mut run = Run::granted(start, built);
    run.count_leases_on("boot-1");
    run.put_under_guards();
    run
}

fn at(seconds: u64) -> Now {
    let millis = seconds * 1_000;
    Now { mono: Mono(millis), wall: Wall(1_000_000 + i64::try_from(millis).unwrap()) }
}

/// Performs requests at this time until none is due, and returns the leases that were written, by pod.
fn run_on(run: &mut Run, cluster: &mut Cluster, now: Now) -> Vec<(String, Lease)> {
    let mut written = Vec::new();
    run.observe_time(now);
    while let Some(request) = run.next(now.mono) {
        if let Request::Place(pods) | Request::RenewLeases(pods) = &request {
            for Placing { pod, patch, .. } in pods {
                let text = patch["metadata"]["annotations"]["meridian.dev/lease"].as_str().unwrap();
                written.push((pod.clone(), Lease::parse(text).unwrap()));
            }
        }
        let answer = cluster.perform(&request);
        run.answered(now.mono, now.wall, &request, answer, &|_| true);
        run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    }
    written
}

fn cluster() -> Cluster {
    Cluster { job: None, pods: Vec::new(), version: 3, made: 0, nodes_answer: true }
}

#[test]
fn a_guard_is_put_before_the_command_of_each_container() {
    let granted = guarded(Some(Mono(900_000)));
    let mut built = manifest::build(&granted, "worker", None).unwrap();
    assert_eq!(guard::add(&mut built, &granted, "registry.example/agent:1"), Ok(true));
    let pod = built.manifest.pointer("/spec/template/spec").unwrap();
    let container = &pod["containers"][0];
    let command = json!(["/meridian-guard/meridian-pod-guard", "run", "--", "train", "$(RANK)"]);
    assert_eq!((&container["command"], &container["args"]), (&command, &json!(["-v"])));
    let mounts: Vec<_> =
        container["volumeMounts"].as_array().unwrap().iter().map(|mount| &mount["name"]).collect();
    assert_eq!(mounts, ["d", "meridian-guard", "meridian-lease"]);
    let copies = &pod["initContainers"][0];
    assert_eq!(copies["image"], "registry.example/agent:1");
    assert_eq!(copies["command"], json!(["meridian-pod-guard", "install", "/meridian-guard"]));
    let path = pod.pointer("/volumes/1/downwardAPI/items/0/fieldRef/fieldPath").unwrap();
    assert_eq!(path, "metadata.annotations['meridian.dev/lease']");
    let facts: kube::api::DynamicObject = serde_json::from_value(built.manifest.clone()).unwrap();
    let notes = JobFacts::read(meridian_objects::job::JobKind::usual(), &facts).notes.unwrap();
    assert!(notes.contains(r#""guard":true"#), "{notes}");
}

#[test]
fn what_cannot_be_guarded_is_named() {
    let bare = start(2);
    let mut built = manifest::build(&bare, "worker", None).unwrap();
    let why = guard::add(&mut built, &bare, "i").unwrap_err();
    assert!(why.contains("container `c` has no `command`"), "{why}");
    let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "t"}, "spec": {
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}}}});
    let ray = Start { spec: ray.to_string().into(), ..start(1) };
    let mut built = manifest::build(&ray, "worker", None).unwrap();
    let before = built.manifest.clone();
    assert_eq!((guard::add(&mut built, &ray, "i"), built.manifest), (Ok(false), before));
}

#[test]
fn pods_get_the_lease_with_their_node_and_again_after_a_quarter_of_it() {
    let mut run = granted(&guarded(Some(Mono(1_000_000))));
    let mut cluster = cluster();
    run_on(&mut run, &mut cluster, at(100));
    cluster.pods = vec![pod(1), pod(2)];
    run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    let first = run_on(&mut run, &mut cluster, at(100));
    let lease = "v1 clock=boot-1 sent=100000 left=900000 stop=5000 ends=2000000";
    assert_eq!(first.len(), 2);
    assert!(first.iter().all(|(_, written)| written.to_string() == lease), "{first:?}");
    assert_eq!(run_on(&mut run, &mut cluster, at(120)), []);
    run.renew(Mono(1_015_000));
    assert_eq!(run_on(&mut run, &mut cluster, at(130)), [], "the first quarter is not over");
    run.renew(Mono(1_215_000));
    let second = run_on(&mut run, &mut cluster, at(325));
    assert_eq!(second.len(), 2);
    assert!(second.iter().all(|(_, written)| written.end.unwrap().left == 890_000), "{second:?}");
    assert_eq!(run_on(&mut run, &mut cluster, at(326)), []);
    run.stop(Cause::Ordered);
    run.renew(Mono(9_000_000));
    assert_eq!(run_on(&mut run, &mut cluster, at(800)), [], "a run that stops gives no leases");
}

#[test]
fn a_new_agent_gives_no_lease_before_it_knows_one() {
    let mut run = granted(&guarded(Some(Mono(1_000_000))));
    let mut cluster = cluster();
    run_on(&mut run, &mut cluster, at(100));
    cluster.pods = vec![pod(1), pod(2)];
    run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    run_on(&mut run, &mut cluster, at(100));
    let mut adopted = Run::adopted(KEY, cluster.job.clone().unwrap());
    adopted.count_leases_on("boot-1");
    adopted.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    assert_eq!(run_on(&mut adopted, &mut cluster, at(110)), []);
    adopted.renew(Mono(1_010_000));
    let written = run_on(&mut adopted, &mut cluster, at(111));
    assert_eq!(written.len(), 2, "what an earlier agent wrote is not known");
    assert!(written.iter().all(|(_, lease)| lease.end.unwrap().left == 899_000), "{written:?}");
}

#[test]
fn a_gang_that_waits_for_its_manager_has_a_lease_without_an_end() {
    let mut run = granted(&guarded(None));
    let mut cluster = cluster();
    run_on(&mut run, &mut cluster, at(100));
    cluster.pods = vec![pod(1), pod(2)];
    run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    let first = run_on(&mut run, &mut cluster, at(100));
    assert!(first.len() == 2 && first.iter().all(|(_, lease)| lease.end.is_none()), "{first:?}");
    assert_eq!(run_on(&mut run, &mut cluster, at(10_000)), []);
}

#[test]
fn a_lease_that_was_not_written_is_written_again() {
    let mut run = granted(&guarded(Some(Mono(1_000_000))));
    let mut cluster = cluster();
    run_on(&mut run, &mut cluster, at(100));
    cluster.pods = vec![pod(1), pod(2)];
    run.observe(cluster.job.as_ref(), &cluster.pods.clone(), &|_| true);
    run_on(&mut run, &mut cluster, at(100));
    run.renew(Mono(1_400_000));
    run.observe_time(at(400));
    let request = run.next(Mono(400_000)).unwrap();
    assert!(matches!(&request, Request::RenewLeases(pods) if pods.len() == 2), "{request:?}");
    run.answered(Mono(400_000), at(400).wall, &request, Answer::Unknown("lost".into()), &|_| true);
    assert_eq!(run_on(&mut run, &mut cluster, at(402)).len(), 2);
}
