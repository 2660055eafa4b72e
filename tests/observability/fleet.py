"""A fleet of real processes with a real Prometheus, in which every event happens that a panel shows."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

SPEED = 20
TERM_SECONDS = 8
WAIT_SECONDS = 60
CLUSTERS = ["multikueue-dws-worker-eu", "multikueue-dws-worker-us", "multikueue-dws-worker-asia"]
# A cluster with a pool of one node: of two gangs that need it, one is refused.
POOL = "pool-of-one"
# A cluster of this machine only. A fake of NVIDIA's library reports its GPU.
GPUS = "machine-with-gpu"
LIBRARY = """
#include <string.h>
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct utilization { unsigned gpu, memory; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) { strncpy(name, "Tesla T4", length); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) { strncpy(uuid, "GPU-1", length); return 0; }
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) { rates->gpu = 35; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) { memory->used = 3u << 20; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 27500; return 0; }
"""
KUEUE = "kueue.x-k8s.io/v1beta1"
# The starvation guard's time is short, so that a head starves while the test runs.
SETTINGS = {
    "term": f"{TERM_SECONDS}s",
    "term-min": f"{TERM_SECONDS}s",
    "starvation-guard": "3s",
    "fair-sharing": ["on"],
    "admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1s"},
}


class Refused(Exception):
    """An answer other than the expected one."""


class Prometheus:
    def __init__(self, url):
        self.url = url

    def get(self, path, **parameters):
        address = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Refused(json.load(error).get("error", str(error))) from None
        except urllib.error.URLError as error:
            raise Refused(f"Prometheus doesn't answer: {error}") from None

    def query(self, query):
        return self.get("/api/v1/query", query=query)["result"]


def kueue(kind, name, spec, **metadata):
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def cluster_queue(name, check, gpus, flavor="t4", **spec):
    quotas = [
        {"name": "cpu", "nominalQuota": 100},
        {"name": "memory", "nominalQuota": "100Gi"},
        {"name": "nvidia.com/gpu", "nominalQuota": gpus, "borrowingLimit": 0},
    ]
    group = {"coveredResources": [quota["name"] for quota in quotas], "flavors": [{"name": flavor, "resources": quotas}]}
    return kueue("ClusterQueue", name, {
        "cohort": "all", "namespaceSelector": {}, "admissionChecks": [check], "resourceGroups": [group], **spec,
    })


def workers(name, clusters):
    check = {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name},
    }
    return [kueue("MultiKueueConfig", name, {"clusters": clusters}), kueue("AdmissionCheck", name, check)]


def queues():
    flavor = kueue("ResourceFlavor", "t4", {"nodeLabels": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}})
    urgent = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 100}
    race = {
        "apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": "default"},
        "spec": {"applies": {"queues": ["*"]}, "mode": "Race", "onClusterLoss": {"mode": "Fence"}},
    }
    preempting = {
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    }
    research = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}}
    return [
        flavor, kueue("ResourceFlavor", "any", {}), urgent, race, research,
        *workers("all-regions", CLUSTERS), *workers("pool", [POOL]), *workers("gpus", [GPUS]),
        cluster_queue("dws", "all-regions", 4, **preempting),
        cluster_queue("other", "all-regions", 8),
        cluster_queue("pool", "pool", 0, flavor="any"),
        cluster_queue("gpus", "gpus", 1, cohort="gpus"),
        kueue("LocalQueue", "dws", {"clusterQueue": "dws"}, namespace="default"),
        kueue("LocalQueue", "other", {"clusterQueue": "other"}, namespace="default"),
        kueue("LocalQueue", "pool", {"clusterQueue": "pool"}, namespace="default"),
        kueue("LocalQueue", "gpus", {"clusterQueue": "gpus"}, namespace="default"),
        kueue("LocalQueue", "other", {"clusterQueue": "other"}, namespace="research"),
    ]


def job(name, queue, seconds, gpus=0, priority=None, namespace="default", region=None, command=None, cpus=2, tolerates=()):
    """A job of one pod. Without GPUs it asks for a whole node of a pool. The command is for real processes."""
    labels = {"kueue.x-k8s.io/queue-name": queue}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    requests = {"cpu": "1", "nvidia.com/gpu": gpus} if gpus else {"cpu": str(cpus)}
    container = {
        "name": "main", "image": "none", "args": [f"{seconds * SPEED}s"],
        "resources": {"requests": requests, "limits": requests},
        **({"command": command, "args": []} if command else {}),
    }
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels,
            "annotations": {"meridian.dev/region": region} if region else {},
        },
        "spec": {"suspend": True, "template": {"spec": {
            "restartPolicy": "Never", "containers": [container], "tolerations": [{"key": key, "operator": "Exists"} for key in tolerates],
        }}},
    }


class Fleet:
    region = "europe-west4"

    def __init__(self, binary, work, path):
        self.binary, self.work, self.data = binary, work, work / "data"
        self.environment = {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        for name in ["KUBECONFIG", "MERIDIAN_KUBECONFIG"]:
            self.environment.pop(name, None)
        self.agents, self.up, self.prometheus, self.idle = [], None, None, None

    def __enter__(self):
        settings = self.work / "manager.yaml"
        settings.write_text(json.dumps(SETTINGS))
        environment = {**self.environment, "MERIDIAN_MANAGER_CONFIG": str(settings)}
        arguments = ["up", "--observe", "--speed", str(SPEED), "--data-dir", self.data, "-o", "json"]
        self.output = (self.work / "up.log").open("w+")
        self.up = subprocess.Popen(
            [self.binary, *map(str, arguments)], stdout=self.output, stderr=self.output, env=environment,
        )
        try:
            url = self.wait_for("meridian up", self.announced)
        except BaseException:
            self.__exit__()
            raise
        self.prometheus = Prometheus(url)
        self.environment["KUBECONFIG"] = str(self.data / "kubeconfig")
        return self

    def announced(self):
        text = (self.work / "up.log").read_text()
        if self.up.poll() is not None:
            raise Refused(f"meridian up ended:\n{text}")
        found = re.search(r'"prometheus": "(http://[^"]+)"', text)
        return found.group(1) if found else None

    def __exit__(self, *_):
        for process in [*self.agents, self.up]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(30)
        self.output.close()

    def wait_for(self, what, happened):
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            result = happened()
            if result:
                return result
            time.sleep(0.3)
        raise Refused(f"{what} did not happen within {WAIT_SECONDS} s")

    def meridian(self, *arguments, **options):
        done = subprocess.run(
            [self.binary, *map(str, arguments)], text=True, capture_output=True, env=self.environment, check=False,
            **options,
        )
        if done.returncode != 0:
            raise Refused(f"meridian {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return done.stdout

    def apply(self, *objects):
        self.meridian("apply", "-f", "-", input="\n---\n".join(map(json.dumps, objects)))

    def counted(self, query):
        """Waits until a query is above 0."""

        def above():
            try:
                return any(float(found["value"][1]) > 0 for found in self.prometheus.query(query))
            except Refused:
                # Prometheus has only just been started.
                return False

        self.wait_for(query, above)

    def traced(self, metric):
        """Waits until Prometheus has an exemplar of a metric with the trace of a job."""

        def stored():
            now = time.time()
            found = self.prometheus.get("/api/v1/query_exemplars", query=metric, start=now - 3600, end=now)
            return {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}

        traces = self.wait_for(f"an exemplar of {metric}", stored)
        jobs = json.loads(self.meridian("get", "jobs", "-A", "-o", "json"))["items"]
        uids = {job["metadata"]["uid"].replace("-", "") for job in jobs}
        if not traces & uids:
            raise Refused(f"the traces of {metric} are of no job: {traces}")

    def make_every_event(self):
        # A connection that says nothing is closed after five seconds, and counted.
        port = int((self.data / "listen").read_text().rsplit(":", 1)[1])
        self.idle = socket.create_connection(("127.0.0.1", port))
        self.counted("meridian_agents_connected")
        self.start_agent_of_pool()
        self.start_agent_with_gpu()
        self.apply(*queues())
        # A job that uses a third of its GPU.
        self.apply(job("idle", "gpus", 0, gpus=1, command=["sleep", "600"]))
        # A race, and a preemption by a more urgent job in the same queue.
        self.apply(job("long", "dws", 600, gpus=4, region=self.region))
        self.counted('meridian_workloads{state="Running"}')
        self.apply(job("urgent", "dws", 3, gpus=4, priority="urgent"))
        self.counted("kueue_preempted_workloads_total")
        self.wait_for("the end of the urgent job", lambda: self.status("urgent").get("succeeded"))
        # A denial: the only region that the policy allows is full. Two jobs want one node, so the agent refuses one of them.
        policy = {"applies": {"namespaces": ["research"]}, "allow": {"jurisdictions": ["EU"]}}
        self.apply({
            "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "eu-only"},
            "spec": policy,
        })
        self.apply(
            job("personal", "other", 600, gpus=1, namespace="research"), job("one", "pool", 5), job("two", "pool", 5),
        )
        self.counted("meridian_residency_denials_total")
        self.counted("meridian_agent_offers_refused_total")
        # A provider that is out of stock for ever.
        self.apply(job("stocked-out", "pool", 5, cpus=8, tolerates=["size"]))
        self.counted('meridian_offers_waiting{reason="ResourcePoolExhausted"}')
        # A lapse: the agent is stopped for longer than a term.
        self.lose_agent_of("long")
        # A head starves behind a long job. Before, the long job itself may have starved until it ran again.
        starved = 'meridian_starved_heads{cluster_queue="dws"}'
        self.wait_for("no starved head", lambda: self.prometheus.query(f"{starved} == 0"))
        self.apply(job("waits", "dws", 5, gpus=4))
        self.counted(starved)
        self.counted("meridian_connections_refused_total")
        self.counted('meridian_cluster_capacity{cluster="%s",state="granted"}' % GPUS)
        for runner in ["process", "simulated"]:
            self.counted('DCGM_FI_DEV_GPU_UTIL{runner="%s"}' % runner)
        self.traced("kueue_admission_wait_time_seconds_bucket")
        self.traced("meridian_race_seconds_bucket")

    def status(self, name):
        return json.loads(self.meridian("get", "job", name, "-o", "json")).get("status", {})

    def start_agent_of_pool(self):
        """Starts a cluster that `up` doesn't know. Its only large node comes from a provider."""
        nodes = self.work / "pool.yaml"
        nodes.write_text(json.dumps({
            "cluster": POOL, "region": self.region, "jurisdiction": "EU",
            "nodes": [{"name": "small", "cpu": 1, "memory": "4Gi"}],
            "provisionable": [
                {"name": "flex", "capacityClass": "flex-start", "perNode": {"cpu": 2, "memory": "8Gi"}, "maxNodes": 1},
                {
                    "name": "large", "capacityClass": "flex-start", "perNode": {"cpu": 8, "memory": "32Gi"}, "maxNodes": 1,
                    "taints": [{"key": "size", "value": "large", "effect": "NoSchedule"}],
                    "simulated": {"stockOuts": [{"from": "0s"}]},
                },
            ],
        }))
        self.start_agent(POOL, ["--runner", "simulated", "--fleet", nodes, "--speed", SPEED])

    def start_agent_with_gpu(self):
        """A cluster of this machine, in which real processes run."""
        libraries = self.work / "libraries"
        libraries.mkdir()
        source = libraries / "nvml.c"
        source.write_text(LIBRARY)
        for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"]:
            subprocess.run(["cc", "-shared", "-fPIC", "-o", libraries / name, source], check=True)
        self.start_agent(GPUS, ["--runner", "process"], LD_LIBRARY_PATH=str(libraries))

    def start_agent(self, cluster, arguments, **variables):
        """Joins a cluster, starts its agent, and lets Prometheus scrape it."""
        answer = json.loads(self.meridian(
            "cluster", "join", cluster, "--region", self.region, "--jurisdiction", "EU", "-o", "json",
        ))
        directory, token = self.work / cluster, self.work / f"{cluster}.token"
        token.write_text(answer["token"])
        token.chmod(0o600)
        words = answer["command"].split(" | ")[-1].split()[1:]
        for flag, value in [("--data-dir", directory), ("--token-file", token)]:
            if flag in words:
                words[words.index(flag) + 1] = str(value)
            else:
                words += [flag, str(value)]
        self.meridian(*words)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words = ["agent", "run", "--data-dir", directory, "--metrics-listen", address, *arguments]
        self.agents.append(subprocess.Popen(
            [self.binary, *map(str, words)],
            stdout=subprocess.DEVNULL, stderr=self.output, env={**self.environment, **variables},
        ))
        file = self.data / "prometheus/prometheus.yml"
        config = json.loads(file.read_text())
        config["scrape_configs"][1]["static_configs"][0]["targets"].append(address)
        file.write_text(json.dumps(config))
        os.kill(self.process("prometheus"), signal.SIGHUP)
        self.counted(f'meridian_agents_connected{{cluster="{cluster}"}}')

    def process(self, *words):
        """The process below `meridian up` with these words in its command line."""
        children = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.up.pid)], text=True, capture_output=True, check=True,
        ).stdout
        for line in children.splitlines():
            pid, _, arguments = line.strip().partition(" ")
            if all(word in arguments for word in words):
                return int(pid)
        raise Refused(f"no process with {words}:\n{children}")

    def lose_agent_of(self, name):
        cluster = self.wait_for(f"the run of {name}", lambda: self.cluster_of(name))
        stopped = self.process("agent run", cluster)
        os.kill(stopped, signal.SIGSTOP)
        try:
            self.counted(f'meridian_lapses_total{{cluster="{cluster}"}}')
        finally:
            os.kill(stopped, signal.SIGCONT)
        self.counted(f'meridian_agent_lapse_stops_total{{cluster="{cluster}"}}')
        self.wait_for(f"the next run of {name}", lambda: self.cluster_of(name))

    def cluster_of(self, name):
        """The cluster in which a job runs, if it does."""
        status = self.status(name).get("meridian", {})
        return status.get("cluster") if status.get("state") == "Running" else None
