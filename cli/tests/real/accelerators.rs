//! GPUs of this machine, found through NVIDIA's library (NVML). The library is a stand-in, compiled by the
//! test; how the agent finds, loads and calls it is real.

use super::fleet::KUBECONFIG;
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

const READY_WITHIN: Duration = Duration::from_secs(30);

/// The functions that the agent calls, with three GPUs of one model.
const LIBRARY: &str = r#"
#include <string.h>
static char gpus[3];
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct utilization { unsigned gpu, memory; };
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return "a stand-in for NVML"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= 3) return 2;
    *device = &gpus[index];
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, "Tesla T4", length);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    strncpy(uuid, "GPU-0", length);
    uuid[4] += (char *)device - gpus;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) { rates->gpu = 35; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) { memory->used = 3u << 20; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 27500; return 0; }
"#;

/// The flavor selects nodes by the label that the agent sets.
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

fn start(sandbox: &Sandbox, log: &str, words: &[&str], library: Option<&str>) -> Child {
    let mut command = sandbox.command();
    if let Some(library) = library {
        command.env("LD_LIBRARY_PATH", library);
    }
    command.args(words).stdout(Stdio::null()).stderr(sandbox.log(log)).spawn().unwrap()
}

/// Builds the library that stands in for NVIDIA's. Returns its directory.
async fn stand_in(sandbox: &Sandbox) -> PathBuf {
    let libraries = sandbox.path("lib");
    std::fs::create_dir(&libraries).unwrap();
    for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"] {
        let source = sandbox.write("nvml.c", LIBRARY);
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(libraries.join(name))
            .arg(source)
            .output()
            .await
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    libraries
}

/// Waits until the agent's metrics show how busy its three GPUs are.
async fn await_use_of_gpus(rest: &RestClient, metrics: &str) {
    wait_until("the agent reports how busy they are", READY_WITHIN, async || {
        let text = rest.text_at(&format!("http://{metrics}/metrics")).await?;
        let shows = |name: &str, value: &str| {
            text.lines().filter(|line| line.starts_with(name) && line.ends_with(value)).count() == 3
        };
        let all = [
            shows("DCGM_FI_DEV_GPU_UTIL{", "} 35"),
            shows("DCGM_FI_DEV_FB_USED{", "} 3"),
            shows("DCGM_FI_DEV_POWER_USAGE{", "} 27.5"),
            text.contains(r#"UUID="GPU-2""#),
        ];
        if all == [true; 4] { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn an_agent_finds_gpus_through_nvml() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let libraries = stand_in(&sandbox).await;
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut manager = start(
        &sandbox,
        "manager.log",
        &["manager", "--init", "--listen", &listen, "--data-dir", "manager"],
        None,
    );
    let rest = wait_until("the manager is ready", READY_WITHIN, async || {
        let rest = RestClient::open(sandbox.kubeconfig()).ok_or("no kubeconfig")?;
        match rest.get("/readyz").await? {
            (200, _) => Ok(rest),
            (status, body) => Err(format!("{status} {body}")),
        }
    })
    .await;
    let printed = sandbox
        .meridian(&["cluster", "join", "eu", "--region", "europe-west4", "--jurisdiction", "EU"])
        .await
        .ok();
    sandbox.join(&printed, None).await.ok();
    // Without a fleet file, the agent's node is this machine.
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let words = [
        "agent",
        "run",
        "--runner",
        "process",
        "--data-dir",
        "meridian-agent-eu",
        "--metrics-listen",
        &metrics,
    ];
    let mut agent = start(&sandbox, "eu.log", &words, Some(libraries.to_str().unwrap()));
    wait_until("the cluster has three GPUs", READY_WITHIN, async || {
        let clusters = rest.list("/apis/meridian.dev/v1alpha1/clusters").await?;
        if clusters[0]["status"]["resources"]["nvidia.com/gpu"]["free"] == 3 {
            Ok(())
        } else {
            Err(format!("{clusters:?}"))
        }
    })
    .await;

    await_use_of_gpus(&rest, &metrics).await;

    sandbox.meridian(&["apply", "-f", &sandbox.write("queue.yaml", QUEUE)]).await.ok();
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
    sandbox.meridian(&asks.into_iter().chain(command).collect::<Vec<_>>()).await.ok();
    assert_eq!(sandbox.meridian(&["logs", "two", "--pod", "0"]).await.ok(), "0,1\n");

    agent.kill().await.unwrap();
    manager.kill().await.unwrap();
    sandbox.assert_nothing_left().await;
}
