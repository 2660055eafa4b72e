//! GPUs of the machine itself, by the library that comes with NVIDIA's driver. What is loaded here is a stand-in for that library,
//! compiled on the spot; everything else is real, also the way in which the agent finds, loads and asks it.

use super::crew::KUBECONFIG;
use super::door::Door;
use super::stage::{Stage, until};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

const READY_WITHIN: Duration = Duration::from_secs(30);

/// The part of the library that is asked: three GPUs of one kind.
const LIBRARY: &str = r#"
#include <string.h>
static char gpus[3];
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return "a stand-in for NVML"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { if (index >= 3) return 2; *device = &gpus[index]; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) { strncpy(name, "Tesla T4", length); return 0; }
"#;

/// A flavor by the label that the agent gives its node.
const QUEUE: &str = "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: t4}
spec: {nodeLabels: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: t4, resources: [{name: nvidia.com/gpu, nominalQuota: 3}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: gpus, namespace: default}
spec: {clusterQueue: gpus}
";

fn start(stage: &Stage, log: &str, words: &[&str], library: Option<&str>) -> Child {
    let mut command = stage.command();
    if let Some(library) = library {
        command.env("LD_LIBRARY_PATH", library);
    }
    command.args(words).stdout(Stdio::null()).stderr(stage.log(log)).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a manager and an agent, and compiles a library: cargo test -p meridian --test real -- --ignored"]
async fn an_agent_finds_the_gpus_that_the_drivers_library_tells_of() {
    let stage = Stage::begin(KUBECONFIG).await;
    let libraries = stage.path("lib");
    std::fs::create_dir(&libraries).unwrap();
    for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"] {
        let source = stage.write("nvml.c", LIBRARY);
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(libraries.join(name))
            .arg(source)
            .output()
            .await
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut manager = start(
        &stage,
        "manager.log",
        &["manager", "--init", "--listen", &listen, "--data-dir", "manager"],
        None,
    );
    let door = until("the manager is ready", READY_WITHIN, async || {
        let door = Door::open(stage.kubeconfig()).ok_or("no kubeconfig")?;
        match door.get("/readyz").await? {
            (200, _) => Ok(door),
            (status, body) => Err(format!("{status} {body}")),
        }
    })
    .await;
    let printed = stage
        .meridian(&["cluster", "join", "eu", "--region", "europe-west4", "--jurisdiction", "EU"])
        .await
        .ok();
    stage.meridian(&printed.split_whitespace().skip(1).collect::<Vec<_>>()).await.ok();
    // Without a fleet file its nodes are what this machine is.
    let words = ["agent", "run", "--runner", "process", "--data-dir", "meridian-agent-eu"];
    let mut agent = start(&stage, "eu.log", &words, Some(libraries.to_str().unwrap()));
    until("the cluster has three GPUs", READY_WITHIN, async || {
        let clusters = door.list("/apis/meridian.dev/v1alpha1/clusters").await?;
        if clusters[0]["status"]["resources"]["nvidia.com/gpu"]["free"] == 3 {
            Ok(())
        } else {
            Err(format!("{clusters:?}"))
        }
    })
    .await;

    stage.meridian(&["apply", "-f", &stage.write("queue.yaml", QUEUE)]).await.ok();
    let command = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
    let asks = [
        "submit",
        "--queue",
        "gpus",
        "--name",
        "two",
        "--accelerator",
        "nvidia-tesla-t4",
        "--count",
        "2",
        "--wait",
    ];
    stage.meridian(&asks.into_iter().chain(command).collect::<Vec<_>>()).await.ok();
    assert_eq!(stage.meridian(&["logs", "two", "--pod", "0"]).await.ok(), "0,1\n");

    agent.kill().await.unwrap();
    manager.kill().await.unwrap();
    stage.nothing_left().await;
}
