"""Acts as the Kueue of one cluster: gives every Workload the conditions that a file asks for.

usage: kueue.py KUBECTL KUBECONFIG CONTEXT FILE

FILE has one word: `wait` for no quota, `admit` for quota and admission, `evict` for the eviction of what was admitted.
"""

import json
import subprocess
import sys
import time

from client import FAILURES, Api

KUBECTL, KUBECONFIG, CONTEXT, FILE = sys.argv[1:5]
API = Api(KUBECTL, KUBECONFIG, CONTEXT)
NO_QUOTA = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor t4, 3 more needed"


def kubectl(*arguments):
    command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--context", CONTEXT, *arguments]
    subprocess.run(command, capture_output=True, check=False)


def workloads():
    try:
        return API.items("workloads.kueue.x-k8s.io")
    except FAILURES:
        return []


def condition(kind, status, reason, message):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


def wanted(word, admitted):
    if word == "wait" and not admitted:
        return [condition("QuotaReserved", "False", "Pending", NO_QUOTA)]
    if word == "admit" and not admitted:
        return [
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gangs"),
            condition("Admitted", "True", "Admitted", "The workload is admitted"),
        ]
    if word == "evict" and admitted:
        return [
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gangs"),
            condition("Admitted", "True", "Admitted", "The workload is admitted"),
            condition("Evicted", "True", "Preempted", "Preempted to accommodate a workload of higher priority"),
        ]
    return None


while True:
    with open(FILE, encoding="utf-8") as file:
        word = file.read().strip()
    for workload in workloads():
        meta, known = workload["metadata"], workload.get("status", {}).get("conditions", [])
        holds = {c["type"] for c in known if c["status"] == "True"}
        conditions = wanted(word, "Admitted" in holds)
        if conditions is None or {(c["type"], c["status"]) for c in conditions} == {(c["type"], c["status"]) for c in known}:
            continue
        patch = json.dumps({"status": {"conditions": conditions}})
        kubectl("-n", meta["namespace"], "patch", "workload", meta["name"], "--subresource=status", "--type=merge", "-p", patch)
    time.sleep(0.5)
