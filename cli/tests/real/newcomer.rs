//! What a newcomer does in the first minutes, with the real program.

use super::processes;
use super::sandbox::{Sandbox, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Child;

/// The demo promises 75 seconds; a slow machine gets 45 seconds more.
const DEMO_WITHIN: Duration = Duration::from_secs(120);
const UP_WITHIN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn the_demo_keeps_every_promise() {
    let sandbox = Sandbox::create("none").await;
    let report = sandbox.path("report.html");
    let words = ["demo", "--speed", "20", "-o", "json", "--report", report.to_str().unwrap()];
    let output = sandbox.meridian_within(&words, DEMO_WITHIN).await;
    let events: Vec<Value> = output.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let verdict = events.last().unwrap_or_else(|| panic!("it output nothing: {}", output.err));
    assert_eq!(verdict["event"], "verdict", "{verdict}\n{}", output.err);
    assert!(
        verdict["verdicts"].as_array().is_some_and(|v| v.len() >= 12 && v.iter().all(|v| v["kept"] == true)),
        "{verdict:#}"
    );
    let count = |event: &str| events.iter().filter(|one| one["event"] == event).count();
    assert!(count("race") >= 9 && count("shrunk") >= 3 && count("timeline") == 1, "{events:#?}");
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("Every promise was kept") && page.contains("ResourcePoolExhausted"), "{page}");
    assert_eq!(verdict["kept"], true);
    assert_eq!(output.code, Some(0), "{}", output.err);
    sandbox.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn interrupted_commands_leave_no_process_behind() {
    const ITSELF_A_MANAGER_AND_THREE_AGENTS: usize = 5;
    for words in [&["demo"] as &[&str], &["bench", "dispatches", "--runs", "1"]] {
        for signal in [Signal::TERM, Signal::INT] {
            let sandbox = Sandbox::create("none").await;
            let mut child = sandbox
                .command()
                .args(words)
                .stdout(Stdio::null())
                .stderr(sandbox.log("interrupted.log"))
                .spawn()
                .unwrap();
            wait_until("the fleet runs", UP_WITHIN, async || match sandbox.processes().len() {
                ITSELF_A_MANAGER_AND_THREE_AGENTS.. => Ok(()),
                few => Err(format!("{few} processes")),
            })
            .await;
            processes::send(child.id().unwrap().cast_signed(), signal);
            let status = tokio::time::timeout(Duration::from_secs(30), child.wait())
                .await
                .expect("it ends after the signal")
                .unwrap();
            assert_eq!(status.code(), Some(130), "{words:?}");
            sandbox.assert_nothing_left().await;
        }
    }
}

/// A running `meridian up`.
struct Up {
    child: Child,
}

impl Up {
    async fn start(sandbox: &Sandbox) -> Self {
        Self::start_with(sandbox, "process").await
    }

    /// As `start`, with another runner.
    async fn start_with(sandbox: &Sandbox, runner: &str) -> Self {
        let out = sandbox.path("up.json");
        let file = std::fs::File::create(&out).unwrap();
        let mut command = sandbox.command();
        command.args(["up", "--runner", runner, "-o", "json", "--data-dir"]).arg(sandbox.path("fleet"));
        let mut child = command.stdout(Stdio::from(file)).stderr(sandbox.log("up.log")).spawn().unwrap();
        wait_until("the fleet is up", UP_WITHIN, async || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "`up` ended: {}",
                std::fs::read_to_string(sandbox.path("up.log")).unwrap()
            );
            let output = std::fs::read_to_string(&out).unwrap();
            serde_json::from_str::<Value>(&output).map_err(|e| format!("{e}: {output}"))
        })
        .await;
        Self { child }
    }

    async fn stop(mut self, sandbox: &Sandbox) {
        processes::send(self.child.id().unwrap().cast_signed(), Signal::TERM);
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait())
            .await
            .expect("`up` ends when it is asked to")
            .unwrap();
        assert!(status.success(), "{status}");
        sandbox.assert_nothing_left().await;
    }
}

fn example(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../manifests/examples");
    root.join(name).to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_fleet_runs_commands_and_continues_after_a_restart() {
    let sandbox = Sandbox::create("fleet/kubeconfig").await;
    let up = Up::start(&sandbox).await;
    let applied = sandbox.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    assert!(applied.contains("dws-cluster-queue"), "{applied}");
    hello(&sandbox, "first").await;
    nonsense(&sandbox).await;
    sandbox.meridian(&["audit", "verify"]).await.ok();
    let before = uid(&sandbox, "first").await;
    up.stop(&sandbox).await;

    let up = Up::start(&sandbox).await;
    assert_eq!(uid(&sandbox, "first").await, before, "what was there is there");
    let again = sandbox.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    assert!(again.lines().all(|line| line.contains("unchanged")), "{again}");
    let logs = sandbox.meridian(&["logs", "first"]).await.ok();
    assert!(logs.contains("hello"), "{logs}");
    hello(&sandbox, "second").await;
    sandbox.meridian(&["audit", "verify"]).await.ok();
    up.stop(&sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_fleet_restarts_its_killed_processes() {
    const LOST: &str = "multikueue-dws-worker-asia";
    let sandbox = Sandbox::create("fleet/kubeconfig").await;
    let up = Up::start(&sandbox).await;
    let directory = sandbox.path("fleet");
    let output = sandbox.meridian(&["up", "--data-dir", directory.to_str().unwrap()]).await;
    assert!(output.code == Some(1) && output.err.contains("a fleet runs in"), "{output:?}");
    sandbox.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    for part in ["agent run", "manager --listen"] {
        let pid = || {
            sandbox
                .processes()
                .into_iter()
                .find(|process| process.line.contains(part))
                .map(|process| process.pid)
        };
        let before = pid().expect("it runs");
        processes::send(before, Signal::KILL);
        wait_until("it is started again", UP_WITHIN, async || {
            pid().filter(|pid| *pid != before).map(|_| ()).ok_or(part.to_owned())
        })
        .await;
        all_connected(&sandbox, &[]).await;
    }
    hello(&sandbox, "after").await;
    // The agent of a lost cluster ends at each start; the others continue.
    sandbox.meridian(&["cluster", "declare-lost", LOST, "--confirm", LOST]).await.ok();
    let log = sandbox.path("up.log");
    wait_until("it is left alone", UP_WITHIN, async || {
        let output = std::fs::read_to_string(&log).unwrap();
        if output.contains("5 times in a row") { Ok(()) } else { Err(output) }
    })
    .await;
    all_connected(&sandbox, &[LOST]).await;
    hello(&sandbox, "without-it").await;
    up.stop(&sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_deployment_is_measured_and_left_without_jobs() {
    let sandbox = Sandbox::create("fleet/kubeconfig").await;
    let up = Up::start_with(&sandbox, "simulated").await;
    sandbox.meridian(&["apply", "-f", &example("tutorial/manager.yaml")]).await.ok();
    let bench = ["bench", "kubernetes", "--queue", "dws-local-queue", "-o", "json"];
    let measured = sandbox.meridian(&[&bench[..], &["--jobs", "3"]].concat()).await.json();
    assert_eq!(measured["target"]["kind"], "manager");
    let [rate, latency] = measured["modes"].as_array().unwrap().as_slice() else { panic!("{measured:#}") };
    assert!(rate["perSecond"].as_f64().is_some_and(|rate| rate > 0.0), "{rate:#}");
    let states: Vec<&Value> = latency["times"].as_array().unwrap().iter().map(|of| &of["state"]).collect();
    assert_eq!(states, ["admitted", "running"]);
    assert_eq!(jobs(&sandbox).await, 0);

    let unknown = sandbox.meridian(&["bench", "kubernetes", "--queue", "nowhere"]).await;
    assert!(unknown.code == Some(1) && unknown.err.contains("which has dws-local-queue"), "{unknown:?}");

    // More than there is room for: they wait until the bench is interrupted.
    let mut waiting = sandbox.command();
    waiting.args(bench).args(["--mode", "rate", "--jobs", "9", "--request", "nvidia.com/gpu=4"]);
    let mut child = waiting.stdout(Stdio::null()).stderr(sandbox.log("bench.log")).spawn().unwrap();
    wait_until("the jobs are created", UP_WITHIN, async || match jobs(&sandbox).await {
        9 => Ok(()),
        few => Err(format!("{few} jobs")),
    })
    .await;
    processes::send(child.id().unwrap().cast_signed(), Signal::INT);
    let status = tokio::time::timeout(Duration::from_secs(60), child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(jobs(&sandbox).await, 0);
    up.stop(&sandbox).await;
}

async fn jobs(sandbox: &Sandbox) -> usize {
    let list = sandbox.meridian(&["get", "jobs", "-o", "json"]).await.json();
    list["items"].as_array().unwrap().len()
}

async fn all_connected(sandbox: &Sandbox, but: &[&str]) {
    wait_until("all clusters are connected", UP_WITHIN, async || {
        let output = sandbox.meridian(&["get", "clusters", "-o", "json"]).await;
        let list: Value = serde_json::from_str(&output.out).map_err(|_| output.err)?;
        let lost = |cluster: &&Value| {
            cluster["status"]["state"] != "Connected"
                && !but.contains(&cluster["metadata"]["name"].as_str().unwrap())
        };
        let lost = list["items"].as_array().unwrap().iter().find(lost);
        lost.map_or(Ok(()), |cluster| Err(cluster.to_string()))
    })
    .await;
}

/// A command runs on some cluster; its output and exit code come back.
async fn hello(sandbox: &Sandbox, name: &str) {
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
    let ended = sandbox.meridian(&words).await.json();
    assert_eq!(ended["status"]["conditions"][0]["type"], "Complete", "{ended}");
    let region = ended["status"]["meridian"]["region"].as_str();
    let logs = sandbox.meridian(&["logs", name]).await.ok();
    assert!(logs.contains("hello from ") && region.is_none_or(|region| logs.contains(region)), "{logs}");

    let failing = format!("{name}-fails");
    let output = sandbox
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
    assert_eq!(output.code, Some(1), "{output:?}");
}

async fn uid(sandbox: &Sandbox, job: &str) -> String {
    sandbox.meridian(&["get", "job", job, "-o", "json"]).await.json()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// One valid object among invalid ones: all are refused with their places, and nothing is applied.
async fn nonsense(sandbox: &Sandbox) {
    let file = sandbox.write(
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
    let output = sandbox.meridian(&["apply", "-f", &file]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.err.contains("hostile.yaml:11") && output.err.contains("plenty") && output.err.contains("v9"),
        "{}",
        output.err
    );
    let flavor = sandbox.meridian(&["get", "resourceflavor", "innocent"]).await;
    assert_eq!(flavor.code, Some(1), "nothing of a refused file is applied: {flavor:?}");

    // A missing queue is found by the manager, not by the reader of the file.
    let words = ["submit", "--queue", "nowhere", "--name", "lost", "--", "true"];
    let output = sandbox.meridian(&words).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("nowhere"), "{}", output.err);
    assert_eq!(sandbox.meridian(&["get", "job", "lost"]).await.code, Some(1));
}
