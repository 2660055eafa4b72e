"""Plays the operator of JobSets in one cluster: makes the Jobs of a JobSet that isn't suspended, and says how it ended.

usage: operator.py KUBECTL KUBECONFIG CONTEXT
"""

import json
import subprocess
import sys
import time

KUBECTL, KUBECONFIG, CONTEXT = sys.argv[1:4]
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"


def kubectl(*arguments, body=None):
    command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--context", CONTEXT, *arguments]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def items(resource, *arguments):
    answer = kubectl("get", resource, "-A", "-o", "json", *arguments)
    return [] if answer is None else json.loads(answer)["items"]


def jobs_of(jobset):
    meta = jobset["metadata"]
    owner = {
        "apiVersion": jobset["apiVersion"], "kind": "JobSet", "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }
    for replicated in jobset["spec"]["replicatedJobs"]:
        for index in range(replicated.get("replicas", 1)):
            spec = json.loads(json.dumps(replicated["template"]["spec"]))
            spec["template"].setdefault("metadata", {}).setdefault("labels", {})[NAME_LABEL] = meta["name"]
            name = f"{meta['name']}-{replicated['name']}-{index}"
            labels = {NAME_LABEL: meta["name"]}
            of_job = {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner]}
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": of_job, "spec": spec}


def ended(job):
    return {c["type"] for c in job.get("status", {}).get("conditions", []) if c["status"] == "True"}


def set_condition(jobset, kind, reason):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition = {"type": kind, "status": "True", "reason": reason, "message": f"jobset {kind.lower()}", "lastTransitionTime": now}
    meta = jobset["metadata"]
    patch = json.dumps({"status": {"conditions": [condition]}})
    kubectl("-n", meta["namespace"], "patch", "jobset", meta["name"], "--subresource=status", "--type=merge", "-p", patch)


def reconcile(jobset):
    meta = jobset["metadata"]
    if "deletionTimestamp" in meta or ended(jobset) & {"Completed", "Failed"}:
        return
    made = [job for job in items("jobs", "-l", f"{NAME_LABEL}={meta['name']}") if job["metadata"]["namespace"] == meta["namespace"]]
    if jobset["spec"].get("suspend"):
        for job in made:
            kubectl("-n", meta["namespace"], "delete", "job", job["metadata"]["name"], "--wait=false")
        return
    known = {job["metadata"]["name"] for job in made}
    wanted = list(jobs_of(jobset))
    for job in wanted:
        if job["metadata"]["name"] not in known:
            kubectl("create", "-f", "-", body=json.dumps(job))
    if any("Failed" in ended(job) for job in made):
        set_condition(jobset, "Failed", "FailedJobs")
    elif len(made) == len(wanted) and all("Complete" in ended(job) for job in made):
        set_condition(jobset, "Completed", "AllJobsCompleted")


while True:
    for found in items("jobsets.jobset.x-k8s.io"):
        reconcile(found)
    time.sleep(1)
