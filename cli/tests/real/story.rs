//! A newcomer's first quarter of an hour, with the real program.

use super::processes;
use super::stage::{Stage, until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Child;

/// The demo promises a minute; a slow machine gets half of one more.
const DEMO_WITHIN: Duration = Duration::from_secs(90);
const UP_WITHIN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy for minutes: cargo test -p meridian --test real -- --ignored"]
async fn the_demo_keeps_every_promise() {
    let stage = Stage::begin("none").await;
    let said = stage.meridian_within(&["demo", "--speed", "20", "-o", "json"], DEMO_WITHIN).await;
    let events: Vec<Value> = said.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let verdict = events.last().unwrap_or_else(|| panic!("it said nothing: {}", said.err));
    assert_eq!(verdict["event"], "verdict", "{verdict}\n{}", said.err);
    assert!(
        verdict["verdicts"].as_array().is_some_and(|v| v.len() >= 6 && v.iter().all(|v| v["kept"] == true)),
        "{verdict:#}"
    );
    assert_eq!(verdict["kept"], true);
    assert_eq!(said.code, Some(0), "{}", said.err);
    stage.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy for minutes: cargo test -p meridian --test real -- --ignored"]
async fn who_is_told_to_end_leaves_nobody_behind() {
    const ITSELF_A_MANAGER_AND_THREE_AGENTS: usize = 5;
    for words in [&["demo"] as &[&str], &["bench", "dispatches", "--runs", "1"]] {
        for signal in [Signal::TERM, Signal::INT] {
            let stage = Stage::begin("none").await;
            let mut child = stage
                .command()
                .args(words)
                .stdout(Stdio::null())
                .stderr(stage.log("told.log"))
                .spawn()
                .unwrap();
            until("the fleet runs", UP_WITHIN, async || match stage.processes().len() {
                ITSELF_A_MANAGER_AND_THREE_AGENTS.. => Ok(()),
                few => Err(format!("{few} processes")),
            })
            .await;
            processes::send(child.id().unwrap().cast_signed(), signal);
            let status = tokio::time::timeout(Duration::from_secs(30), child.wait())
                .await
                .expect("it ends when it is told to")
                .unwrap();
            assert_eq!(status.code(), Some(1), "{words:?}");
            stage.nothing_left().await;
        }
    }
}

/// `meridian up`, running.
struct Up {
    child: Child,
}

impl Up {
    async fn start(stage: &Stage) -> Self {
        let out = stage.path("up.json");
        let file = std::fs::File::create(&out).unwrap();
        let mut command = stage.command();
        command.args(["up", "--runner", "process", "-o", "json", "--data-dir"]).arg(stage.path("fleet"));
        let mut child = command.stdout(Stdio::from(file)).stderr(stage.log("up.log")).spawn().unwrap();
        until("the fleet is up", UP_WITHIN, async || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "`up` ended: {}",
                std::fs::read_to_string(stage.path("up.log")).unwrap()
            );
            let said = std::fs::read_to_string(&out).unwrap();
            serde_json::from_str::<Value>(&said).map_err(|e| format!("{e}: {said}"))
        })
        .await;
        Self { child }
    }

    async fn stop(mut self, stage: &Stage) {
        processes::send(self.child.id().unwrap().cast_signed(), Signal::TERM);
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait())
            .await
            .expect("`up` ends when it is asked to")
            .unwrap();
        assert!(status.success(), "{status}");
        stage.nothing_left().await;
    }
}

fn example(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../manifests/examples");
    root.join(name).to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_fleet_runs_commands_refuses_nonsense_and_goes_on_after_a_restart() {
    let stage = Stage::begin("fleet/kubeconfig").await;
    let up = Up::start(&stage).await;
    let applied = stage.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    assert!(applied.contains("dws-cluster-queue"), "{applied}");
    hello(&stage, "first").await;
    nonsense(&stage).await;
    stage.meridian(&["audit", "verify"]).await.ok();
    let before = uid(&stage, "first").await;
    up.stop(&stage).await;

    let up = Up::start(&stage).await;
    assert_eq!(uid(&stage, "first").await, before, "what was there is there");
    let again = stage.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    assert!(again.lines().all(|line| line.contains("unchanged")), "{again}");
    let logs = stage.meridian(&["logs", "first"]).await.ok();
    assert!(logs.contains("hello"), "{logs}");
    hello(&stage, "second").await;
    stage.meridian(&["audit", "verify"]).await.ok();
    up.stop(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_fleet_stays_up_whichever_of_its_processes_is_killed() {
    const LOST: &str = "multikueue-dws-worker-asia";
    let stage = Stage::begin("fleet/kubeconfig").await;
    let up = Up::start(&stage).await;
    let place = stage.path("fleet");
    let said = stage.meridian(&["up", "--data-dir", place.to_str().unwrap()]).await;
    assert!(said.code == Some(1) && said.err.contains("a fleet runs in"), "{said:?}");
    stage.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    for part in ["agent run", "manager --listen"] {
        let pid = || {
            stage
                .processes()
                .into_iter()
                .find(|process| process.line.contains(part))
                .map(|process| process.pid)
        };
        let before = pid().expect("it runs");
        processes::send(before, Signal::KILL);
        until("it is started again", UP_WITHIN, async || {
            pid().filter(|pid| *pid != before).map(|_| ()).ok_or(part.to_owned())
        })
        .await;
        all_connected(&stage, &[]).await;
    }
    hello(&stage, "after").await;
    // Whose store nobody follows any more can't be kept up, and the others go on.
    stage.meridian(&["cluster", "declare-lost", LOST, "--confirm", LOST]).await.ok();
    let log = stage.path("up.log");
    until("it is left alone", UP_WITHIN, async || {
        let said = std::fs::read_to_string(&log).unwrap();
        if said.contains("5 times in a row") { Ok(()) } else { Err(said) }
    })
    .await;
    all_connected(&stage, &[LOST]).await;
    hello(&stage, "without-it").await;
    up.stop(&stage).await;
}

async fn all_connected(stage: &Stage, but: &[&str]) {
    until("all clusters are connected", UP_WITHIN, async || {
        let said = stage.meridian(&["get", "clusters", "-o", "json"]).await;
        let list: Value = serde_json::from_str(&said.out).map_err(|_| said.err)?;
        let lost = |cluster: &&Value| {
            cluster["status"]["state"] != "Connected"
                && !but.contains(&cluster["metadata"]["name"].as_str().unwrap())
        };
        let lost = list["items"].as_array().unwrap().iter().find(lost);
        lost.map_or(Ok(()), |cluster| Err(cluster.to_string()))
    })
    .await;
}

/// A command runs somewhere, its exit code counts, and its words come back.
async fn hello(stage: &Stage, name: &str) {
    let words = [
        "submit",
        "--queue",
        "dws-local-queue",
        "--name",
        name,
        "--wait",
        "-o",
        "json",
        "--",
        "sh",
        "-c",
        "echo hello from $MERIDIAN_REGION",
    ];
    let ended = stage.meridian(&words).await.json();
    assert_eq!(ended["status"]["conditions"][0]["type"], "Complete", "{ended}");
    let region = ended["status"]["meridian"]["region"].as_str();
    let logs = stage.meridian(&["logs", name]).await.ok();
    assert!(logs.contains("hello from ") && region.is_none_or(|region| logs.contains(region)), "{logs}");

    let failing = format!("{name}-fails");
    let said = stage
        .meridian(&[
            "submit",
            "--queue",
            "dws-local-queue",
            "--name",
            &failing,
            "--wait",
            "--",
            "sh",
            "-c",
            "exit 7",
        ])
        .await;
    assert_eq!(said.code, Some(1), "{said:?}");
}

async fn uid(stage: &Stage, job: &str) -> String {
    stage.meridian(&["get", "job", job, "-o", "json"]).await.json()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// One good object among bad ones: all are refused, each with its place, and nothing is applied.
async fn nonsense(stage: &Stage) {
    let file = stage.write(
        "hostile.yaml",
        "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: innocent}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: hostile}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: innocent, resources: [{name: cpu, nominalQuota: plenty}]}]
---
apiVersion: kueue.x-k8s.io/v9
kind: LocalQueue
metadata: {name: hostile, namespace: default}
spec: {clusterQueue: hostile}
",
    );
    let said = stage.meridian(&["apply", "-f", &file]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("hostile.yaml:11") && said.err.contains("plenty") && said.err.contains("v9"),
        "{}",
        said.err
    );
    let flavor = stage.meridian(&["get", "resourceflavor", "innocent"]).await;
    assert_eq!(flavor.code, Some(1), "nothing of a refused file is applied: {flavor:?}");

    // A queue that isn't there, found by the manager and not by the reader.
    let words = ["submit", "--queue", "nowhere", "--name", "lost", "--", "true"];
    let said = stage.meridian(&words).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("nowhere"), "{}", said.err);
    assert_eq!(stage.meridian(&["get", "job", "lost"]).await.code, Some(1));
}
