"""Submits jobs and measures what follows. Called by `measure`.

usage: measure.py WHAT JOBS KUBECTL KUBECONFIG MANAGER_KUBECONFIG REGIONS MANAGEMENT <parts

WHAT is one of management, management-alone, worker, worker-alone, worker-running. The standard input has a line `PART=PID` for
each process whose processor time counts.
"""

import collections
import json
import os
import re
import statistics
import sys
import threading
import time

from client import Api, at_once

WHAT, JOBS, KUBECTL, KUBECONFIG, ADMIN = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]
REGIONS, MANAGEMENT = sys.argv[6].split(","), sys.argv[7]
PARTS = [line.strip().rsplit("=", 1) for line in sys.stdin if line.strip()]
AT_MANAGEMENT, ALONE = WHAT.startswith("management"), WHAT not in ("management", "worker")
RUNNING = WHAT == "worker-running"
JOBS_PATH = "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS_PATH = "/apis/kueue.x-k8s.io/v1beta2/workloads"
# Pause between jobs that are submitted one at a time, as where the rival was measured.
PAUSE = 2
# Time in which nothing is submitted, for the requests that are made anyway.
IDLE_SECONDS = 20
READS = {"GET", "LIST", "WATCH"}
# Most writes in two seconds in which nothing happens.
LEASE_WRITES = 8
# The load ends this long after the last job, if one is lost.
PATIENCE = 120


def job(name):
    """What people submit, with a name of its own and some environment: about 1 kB."""
    environment = [{"name": f"SETTING_{number}", "value": f"{name}-{number}"} for number in range(8)]
    container = {
        "name": "main", "image": "registry.example/none", "command": ["train", "--epochs", "3"], "env": environment,
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
    }
    template = {
        "metadata": {"annotations": {"test.meridian.dev/job": "true", "test.meridian.dev/seconds": "1"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]},
    }
    spec = {
        "parallelism": 1, "completions": 1, "completionMode": "Indexed", "suspend": True, "template": template,
        **({"managedBy": "kueue.x-k8s.io/multikueue"} if AT_MANAGEMENT else {}),
    }
    metadata = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


class Seen:
    """When each job was first seen in each state."""

    def __init__(self):
        self.times = collections.defaultdict(dict)
        self.changed = threading.Condition()

    def note(self, name, state):
        now = time.monotonic()
        with self.changed:
            if state not in self.times[name]:
                self.times[name][state] = now
                self.changed.notify_all()

    def wait(self, names, states):
        """Whether all jobs were seen in all states in time."""
        def done():
            return all(state in self.times[name] for name in names for state in states)
        with self.changed:
            return self.changed.wait_for(done, PATIENCE)


def is_true(found, kind):
    conditions = found.get("status", {}).get("conditions", [])
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def follow_workers(seen, api):
    for _, found in api.watch(JOBS_PATH):
        if not found["spec"].get("suspend"):
            seen.note(found["metadata"]["name"], "resumed")


def follow_management(seen, api):
    for _, found in api.watch(WORKLOADS_PATH):
        if is_true(found, "Admitted") and found["status"].get("clusterName"):
            seen.note(found["metadata"]["ownerReferences"][0]["name"], "shown")


def follow_manager(seen, api):
    for _, found in api.watch(JOBS_PATH):
        state = found.get("status", {}).get("meridian", {}).get("state")
        if state in ("Granted", "Running", "Finished"):
            seen.note(found["metadata"]["name"], "shown")
        if state in ("Running", "Finished"):
            seen.note(found["metadata"]["name"], "running")


def requests(api):
    """Requests by verb and resource that an API server has answered."""
    counts = collections.Counter()
    for line in api.text("GET", "/metrics").splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if labels["resource"]:
            subresource = f"/{labels['subresource']}" if labels["subresource"] else ""
            counts[labels["verb"], labels["resource"] + subresource] += float(line.rsplit(" ", 1)[1])
    return counts


def snapshot(servers):
    """Counts of requests by kind of server, processor seconds by part, and the time."""
    counts = {"management": requests(servers[MANAGEMENT]), "workers": collections.Counter()}
    for region in REGIONS:
        counts["workers"] += requests(servers[region])
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = collections.Counter()
    for part, pid in PARTS:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        seconds[part] += (int(fields[11]) + int(fields[12])) / ticks
    return counts, seconds, time.monotonic()


def resident(field):
    pid = next(pid for part, pid in PARTS if part == "manager")
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(rf"{field}:\s+(\d+)", file.read()).group(1)) // 1024


def writes(state):
    return sum(number for counts in state[0].values() for (verb, _), number in counts.items() if verb not in READS)


def settled(servers):
    """Waits until nothing is written any more, and returns the last counts."""
    before = snapshot(servers)
    while True:
        time.sleep(2)
        after = snapshot(servers)
        # Leases are renewed all the time.
        if writes(after) - writes(before) <= LEASE_WRITES:
            return after
        before = after


def percentile(values, share):
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else values[0]


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def submit(api, names, seen):
    """Creates the jobs, and returns when each was sent."""
    sent = {}

    def one(name):
        sent[name] = time.monotonic()
        api.text("POST", JOBS_PATH, job(name))

    if ALONE:
        for name in names:
            one(name)
            seen.wait([name], ["running"] if RUNNING else ["shown", "resumed"])
            time.sleep(PAUSE)
    else:
        at_once(one, names)
    return sent


def report_times(names, sent, seen, states):
    since = {state: [(seen.times[name][state] - sent[name]) * 1000 for name in names] for state in states}
    last = max(max(seen.times[name][state] for name in names for state in states), max(sent.values()))
    rows = [[WORDS[state], *(f"{percentile(since[state], share):.0f} ms" for share in (50, 99))] for state in states]
    if not ALONE:
        rows.append([f"{JOBS} jobs, until the last", f"{JOBS / (last - min(sent.values())):.1f}/s", ""])
    table([WHAT, "P50", "P99"], rows)


WORDS = {"shown": "created → admission shown", "resumed": "created → resumed at a worker", "running": "created → running shown"}


def report_costs(idle, before, after):
    """Requests and processor time for each job, without what is used anyway."""
    lines = collections.defaultdict(dict)
    share = (after[2] - before[2]) / (idle[1][2] - idle[0][2])
    totals = {}
    for kind in ("management", "workers"):
        for key in after[0][kind]:
            rest = (idle[1][0][kind][key] - idle[0][0][kind][key]) * share
            each = (after[0][kind][key] - before[0][kind][key] - rest) / JOBS
            if each >= 0.01:
                lines[key][kind] = each
        totals[kind] = sum(line.get(kind, 0) for line in lines.values())
    rows = [
        [f"{verb} {resource}", *(f"{line[kind]:.2f}" if kind in line else "" for kind in ("management", "workers"))]
        for (verb, resource), line in sorted(lines.items(), key=lambda item: -sum(item[1].values()))
    ]
    rows.append(["all", *(f"{totals[kind]:.2f}" for kind in ("management", "workers"))])
    table(["requests per job", "management cluster", "worker clusters"], rows)
    anyway = {part: (idle[1][1][part] - idle[0][1][part]) * share for part, _ in PARTS}
    seconds = {part: (after[1][part] - before[1][part] - anyway[part]) / JOBS * 1000 for part, _ in PARTS}
    rows = [[part, f"{value:.1f} ms"] for part, value in seconds.items()]
    table(["processor time per job", ""], [*rows, ["all", f"{sum(seconds.values()):.1f} ms"]])
    print(f"\nmanager: {resident('VmRSS')} MiB resident, {resident('VmHWM')} MiB at most")


def main():
    servers = {context: Api(KUBECTL, KUBECONFIG, context) for context in [*REGIONS, MANAGEMENT]}
    context = json.loads(os.popen(f"{KUBECTL} --kubeconfig {ADMIN} config view -o json").read())["current-context"]
    manager = Api(KUBECTL, ADMIN, context)
    seen = Seen()
    followed = [(follow_workers, servers[region]) for region in REGIONS]
    followed.append((follow_management, servers[MANAGEMENT]) if AT_MANAGEMENT else (follow_manager, manager))
    for follow, api in followed:
        threading.Thread(target=follow, args=(seen, api), daemon=True).start()
    names = [f"{WHAT}-{number}" for number in range(JOBS)]
    # Connections, caches and watches exist before the first job.
    idle = [settled(servers)]
    if not ALONE:
        time.sleep(IDLE_SECONDS)
        idle.append(snapshot(servers))
    before = snapshot(servers)
    sent = submit(servers[MANAGEMENT] if AT_MANAGEMENT else manager, names, seen)
    states = ["shown", "resumed", *(["running"] if RUNNING else [])]
    if not seen.wait(names, states):
        lost = [name for name in names if any(state not in seen.times[name] for state in states)]
        sys.exit(f"{len(lost)} of {JOBS} jobs did not get there within {PATIENCE} s, such as {lost[0]}: {dict(seen.times[lost[0]])}")
    after = settled(servers)
    report_times(names, sent, seen, states)
    if not ALONE:
        report_costs(idle, before, after)


main()
