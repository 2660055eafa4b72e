"""A fake autoscaler of one cluster: answers ProvisioningRequests as GKE does, with nodes of kwok.

usage: autoscaler.py KUBECTL KUBECONFIG CONTEXT STOCK_FILE

The stock file has `none`, or a failure as `fail REASON`, or how many nodes can be made in all.
"""

import json
import subprocess
import sys
import time

from client import FAILURES, Api

KUBECTL, KUBECONFIG, CONTEXT, STOCK = sys.argv[1:5]
API = Api(KUBECTL, KUBECONFIG, CONTEXT)
LABEL = "autoscaling.gke.io/provisioning-request"
GPUS_PER_NODE = 4


def kubectl(*arguments, body=None):
    command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--context", CONTEXT, *arguments]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def node(name, request):
    size = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/region": CONTEXT,
        "cloud.google.com/gke-nodepool": "dws",
        "cloud.google.com/gke-flex-start": "true",
        "cloud.google.com/gke-accelerator": "nvidia-l4",
        LABEL: request,
    }
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints}, "status": {"capacity": size, "allocatable": size},
    }


def set_status(request, conditions, details=None):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    written = [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        for kind, (status, reason, message) in conditions.items()
    ]
    patch = {"status": {"conditions": written, **({"provisioningClassDetails": details} if details else {})}}
    meta = request["metadata"]
    kubectl(
        "-n", meta["namespace"], "patch", "provisioningrequest", meta["name"], "--subresource=status", "--type=merge",
        "-p", json.dumps(patch),
    )


def nodes_needed(request):
    """From the pod templates, as the real one does: whole nodes for whole pods."""
    needed = 0
    for pod_set in request["spec"]["podSets"]:
        name = pod_set["podTemplateRef"]["name"]
        text = kubectl("-n", request["metadata"]["namespace"], "get", "podtemplate", name, "-o", "json")
        if text is None:
            return None
        container = json.loads(text)["template"]["spec"]["containers"][0]
        gpus = int(container["resources"]["requests"].get("nvidia.com/gpu", "0"))
        per_node = GPUS_PER_NODE // max(gpus, 1)
        needed += -(-pod_set["count"] // per_node)
    return needed


def turn():
    try:
        requests, nodes = API.items("provisioningrequests.autoscaling.x-k8s.io"), API.items("nodes")
    except FAILURES:
        return
    made = [n for n in nodes if LABEL in n["metadata"]["labels"]]
    live = {r["metadata"]["name"] for r in requests}
    # Deletes the nodes of deleted requests.
    for gone in [n for n in made if n["metadata"]["labels"][LABEL] not in live]:
        kubectl("delete", "node", gone["metadata"]["name"], "--wait=false")
        made.remove(gone)
    with open(STOCK, encoding="utf-8") as file:
        stock = file.read().split()
    accepted = ("True", "SuccessfullyQueued", "the request is in the queue")
    for request in requests:
        held = {c["type"] for c in request.get("status", {}).get("conditions", []) if c["status"] == "True"}
        if held & {"Provisioned", "Failed"}:
            continue
        name = request["metadata"]["name"]
        if stock[0] == "fail":
            set_status(request, {"Failed": ("True", stock[1], "the test says so")})
            continue
        needed = nodes_needed(request)
        if needed is None:
            continue
        if stock[0] == "none" or len(made) + needed > int(stock[0]):
            wait = ("False", "ResourcePoolExhausted", f"no L4 is left in {CONTEXT}; the expected time is indefinite")
            set_status(request, {"Accepted": accepted, "Provisioned": wait})
            continue
        for number in range(needed):
            fresh = node(f"{name}-node-{number}", name)
            kubectl("apply", "-f", "-", body=json.dumps(fresh))
            made.append(fresh)
        done = ("True", "Provisioned", "the nodes exist")
        set_status(request, {"Accepted": accepted, "Provisioned": done}, {"ResizeRequestName": name})


while True:
    turn()
    time.sleep(0.5)
