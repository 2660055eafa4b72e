"""Acts as the operators of all kinds of jobs in one cluster: makes the pods of a job that isn't suspended, and says how it ended.

What the operators make in between (StatefulSets, RayClusters of a RayJob, services) is left out: the pods are made directly,
from the job's templates. The Jobs of a JobSet are real, and so is the JobSet of a TrainJob, whose runtime has one job `node`.

usage: operator.py KUBECTL KUBECONFIG CONTEXT
"""

import copy
import json
import subprocess
import sys
import time

from client import FAILURES, Api

KUBECTL, KUBECONFIG, CONTEXT = sys.argv[1:4]
API = Api(KUBECTL, KUBECONFIG, CONTEXT)
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
OWNER_LABEL = "test.meridian.dev/owner"


def kubectl(*arguments, body=None):
    command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--context", CONTEXT, *arguments]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "NotFound" not in done.stderr and "have a resource type" not in done.stderr:
        print(" ".join(arguments), done.stderr.strip(), file=sys.stderr, flush=True)
    return done.stdout if done.returncode == 0 else None


def items(resource, selector=""):
    try:
        return API.items(resource, selector)
    except FAILURES as failure:
        print(resource, failure, file=sys.stderr, flush=True)
        return []


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def owner_of(job):
    meta = job["metadata"]
    return {
        "apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }


def conditions(job):
    return {c["type"] for c in job.get("status", {}).get("conditions", []) if c["status"] == "True"}


def condition(kind, reason):
    return {"type": kind, "status": "True", "reason": reason, "message": reason.lower(), "lastTransitionTime": now()}


def set_status(job, status):
    meta = job["metadata"]
    resource = f"{job['kind'].lower()}s.{job['apiVersion'].split('/')[0]}"
    patch = json.dumps({"status": status})
    kubectl("-n", meta["namespace"], "patch", resource, meta["name"], "--subresource=status", "--type=merge", "-p", patch)


# --- Kinds whose pods are made directly


def pod(job, name, template):
    template = copy.deepcopy(template)
    meta = template.setdefault("metadata", {})
    meta.update(name=f"{job['metadata']['name']}-{name}", namespace=job["metadata"]["namespace"], ownerReferences=[owner_of(job)])
    meta.setdefault("labels", {})[OWNER_LABEL] = job["metadata"]["uid"]
    template["spec"]["restartPolicy"] = "Never"
    return {"apiVersion": "v1", "kind": "Pod", **template}


def roles(job, specs):
    for role, replica in specs.items():
        for index in range(replica.get("replicas", 1)):
            yield pod(job, f"{role.lower()}-{index}", replica["template"])


def ray_pods(job, cluster):
    yield pod(job, "head", cluster["headGroupSpec"]["template"])
    for group in cluster["workerGroupSpecs"]:
        for index in range(group["replicas"] * group.get("numOfHosts", 1)):
            yield pod(job, f"{group['groupName']}-{index}", group["template"])


def ray_job_pods(job):
    yield from ray_pods(job, job["spec"]["rayClusterSpec"])
    yield pod(job, "submitter", job["spec"]["submitterPodTemplate"])


def groups(job):
    of_group = job["spec"]["leaderWorkerTemplate"]
    for group in range(job["spec"]["replicas"]):
        for index in range(of_group["size"]):
            template = of_group.get("leaderTemplate") if index == 0 else None
            yield pod(job, f"{group}-{index}", template or of_group["workerTemplate"])


def by_condition(name):
    def status(phase):
        ended = {"Succeeded": ("Succeeded", f"{name}Succeeded"), "Failed": ("Failed", f"{name}Failed")}
        return {"conditions": [condition(*ended[phase])]} if phase in ended else None

    return status


def ray_status(phase):
    if phase == "Succeeded":
        return {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": now()}
    if phase == "Failed":
        return {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "failed", "endTime": now()}
    return None


# The resource, whether a job is suspended, its pods, the pod that decides about its end, and the status of that end.
KINDS = [
    (
        "pytorchjobs.kubeflow.org", lambda job: job["spec"].get("runPolicy", {}).get("suspend"),
        lambda job: roles(job, job["spec"]["pytorchReplicaSpecs"]), "master-0", by_condition("PyTorchJob"),
    ),
    (
        "mpijobs.kubeflow.org", lambda job: job["spec"].get("runPolicy", {}).get("suspend"),
        lambda job: roles(job, job["spec"]["mpiReplicaSpecs"]), "launcher-0", by_condition("MPIJob"),
    ),
    ("rayjobs.ray.io", lambda job: job["spec"].get("suspend"), ray_job_pods, "submitter", ray_status),
    (
        "rayclusters.ray.io", lambda job: job["spec"].get("suspend"),
        lambda job: ray_pods(job, job["spec"]), None, None,
    ),
    ("leaderworkersets.leaderworkerset.x-k8s.io", lambda job: job["spec"]["replicas"] == 0, groups, None, None),
]


def reconcile_pods(job, is_suspended, pods_of, deciding, status_of):
    meta = job["metadata"]
    status = job.get("status", {})
    if "deletionTimestamp" in meta or conditions(job) & {"Succeeded", "Failed"} or "endTime" in status:
        return
    made = {pod["metadata"]["name"]: pod for pod in items("pods", f"{OWNER_LABEL}={meta['uid']}")}
    if is_suspended(job):
        for name in made:
            kubectl("-n", meta["namespace"], "delete", "pod", name, "--wait=false")
        return
    for wanted in pods_of(job):
        if wanted["metadata"]["name"] not in made:
            kubectl("create", "-f", "-", body=json.dumps(wanted))
    if deciding is not None:
        phase = made.get(f"{meta['name']}-{deciding}", {}).get("status", {}).get("phase")
        status = status_of(phase)
        if status is not None:
            set_status(job, status)


# --- JobSets, whose Jobs are real


def jobs_of(jobset):
    meta = jobset["metadata"]
    for replicated in jobset["spec"]["replicatedJobs"]:
        for index in range(replicated.get("replicas", 1)):
            spec = copy.deepcopy(replicated["template"]["spec"])
            spec["template"].setdefault("metadata", {}).setdefault("labels", {})[NAME_LABEL] = meta["name"]
            name = f"{meta['name']}-{replicated['name']}-{index}"
            labels = {NAME_LABEL: meta["name"]}
            of_job = {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner_of(jobset)]}
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": of_job, "spec": spec}


def reconcile_jobset(jobset):
    meta = jobset["metadata"]
    if "deletionTimestamp" in meta or conditions(jobset) & {"Completed", "Failed"}:
        return
    made = [job for job in items("jobs.batch", f"{NAME_LABEL}={meta['name']}") if job["metadata"]["namespace"] == meta["namespace"]]
    if jobset["spec"].get("suspend"):
        for job in made:
            kubectl("-n", meta["namespace"], "delete", "job", job["metadata"]["name"], "--wait=false")
        return
    known = {job["metadata"]["name"] for job in made}
    wanted = list(jobs_of(jobset))
    for job in wanted:
        if job["metadata"]["name"] not in known:
            kubectl("create", "-f", "-", body=json.dumps(job))
    if any("Failed" in conditions(job) for job in made):
        set_status(jobset, {"conditions": [condition("Failed", "FailedJobs")]})
    elif len(made) == len(wanted) and all("Complete" in conditions(job) for job in made):
        set_status(jobset, {"conditions": [condition("Completed", "AllJobsCompleted")]})


# --- TrainJobs, whose JobSets are above


def jobset_of(train):
    """The JobSet of a runtime with one job `node`, with what the job says of it and its patches."""
    trainer = train["spec"]["trainer"]
    container = {"name": "node", "image": trainer["image"], "resources": trainer["resourcesPerNode"]}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}}
    for patch in train["spec"].get("runtimePatches", []):
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            patched = job["template"]["spec"]["template"]
            for part in ("labels", "annotations"):
                template["metadata"].setdefault(part, {}).update(patched.get("metadata", {}).get(part, {}))
            template["spec"].update(patched.get("spec", {}))
    nodes = trainer["numNodes"]
    job = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "backoffLimit": 0, "template": template}
    meta = {"name": train["metadata"]["name"], "namespace": train["metadata"]["namespace"], "ownerReferences": [owner_of(train)]}
    spec = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}


def reconcile_train_job(train):
    meta = train["metadata"]
    if "deletionTimestamp" in meta or conditions(train) & {"Complete", "Failed"}:
        return
    made = [job for job in items("jobsets.jobset.x-k8s.io") if job["metadata"].get("ownerReferences", [{}])[0].get("uid") == meta["uid"]]
    if train["spec"].get("suspend"):
        for job in made:
            kubectl("-n", meta["namespace"], "patch", "jobset", meta["name"], "--type=merge", "-p", '{"spec": {"suspend": true}}')
        return
    if not made:
        kubectl("create", "-f", "-", body=json.dumps(jobset_of(train)))
    for job in made:
        ended = {"Completed": "Complete", "Failed": "Failed"}
        for kind in conditions(job) & set(ended):
            set_status(train, {"conditions": [condition(ended[kind], "JobsEnded")]})


while True:
    for found in items("jobsets.jobset.x-k8s.io"):
        reconcile_jobset(found)
    for found in items("trainjobs.trainer.kubeflow.org"):
        reconcile_train_job(found)
    for resource, *rest in KINDS:
        for found in items(resource):
            reconcile_pods(found, *rest)
    time.sleep(1)
