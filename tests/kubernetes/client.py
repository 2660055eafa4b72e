"""A small client of the API servers of a kubeconfig, for what kubectl is too slow for: thousands of objects, watches.

usage: client.py KUBECTL KUBECONFIG CONTEXT crowd COUNT NODE      makes so many pods on a node, which stay pending
       client.py KUBECTL KUBECONFIG CONTEXT crowd COUNT NODE run  the same, and kwok runs them
       client.py KUBECTL KUBECONFIG CONTEXT create COUNT PATH     makes copies of the object in stdin, `NUMBER` replaced
       client.py KUBECTL KUBECONFIG CONTEXT delete COUNT PATH     deletes so many objects, `NUMBER` replaced in the path
       client.py KUBECTL KUBECONFIG CONTEXT watch PATH            prints WATCHING, and one line per change: type, name, uid, phase
       client.py KUBECTL KUBECONFIG CONTEXT evict NAMESPACE POD   asks for the eviction of a pod
"""

import base64
import concurrent.futures
import http.client
import json
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

THREADS = 8


class Refused(RuntimeError):
    """The server refused a request, with this HTTP status."""

    def __init__(self, method, path, status, text):
        super().__init__(f"{method} {path}: {status} {text}")
        self.status = status


# What a request can fail with.
FAILURES = (OSError, http.client.HTTPException, Refused)


class Api:
    """One API server, as the user of a context. Connections are kept, one for each thread."""

    def __init__(self, kubectl, kubeconfig, context):
        view = [kubectl, "--kubeconfig", kubeconfig, "--context", context, "config", "view", "--minify", "--raw", "-o", "json"]
        config = json.loads(subprocess.run(view, capture_output=True, check=True).stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host, self.port = cluster["server"].removeprefix("https://").split(":")
        self.token = user.get("token")
        self.tls = ssl.create_default_context()
        self.tls.check_hostname = False
        if "certificate-authority-data" in cluster:
            self.tls.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        else:
            self.tls.verify_mode = ssl.CERT_NONE
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as pair:
                for field in ("client-certificate-data", "client-key-data"):
                    pair.write(base64.b64decode(user[field]))
                pair.flush()
                self.tls.load_cert_chain(pair.name)
        self.local = threading.local()
        self.roots = {}

    def connect(self):
        return http.client.HTTPSConnection(self.host, int(self.port), context=self.tls, timeout=60)

    def headers(self):
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return {**headers, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}

    def request(self, method, path, body=None):
        """The answer as an object. Fails if the server refuses."""
        text = self.text(method, path, body)
        return json.loads(text) if text else None

    def text(self, method, path, body=None):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self.headers())
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            self.local.connection = None
            raise
        if answer.status >= 300:
            raise Refused(method, path, answer.status, text)
        return text

    def root(self, resource):
        """The path of the version that serves a resource, such as `pods` or `jobs.batch`. None if no version does."""
        name, _, group = resource.partition(".")
        if not group:
            return "/api/v1"
        if resource not in self.roots:
            for version in self.request("GET", f"/apis/{group}")["versions"]:
                root = f"/apis/{group}/{version['version']}"
                if any(served["name"] == name for served in self.request("GET", root)["resources"]):
                    self.roots[resource] = root
                    break
        return self.roots.get(resource)

    def items(self, resource, selector=""):
        """All objects of a resource in all namespaces; empty if there is no such resource."""
        try:
            root = self.root(resource)
            if root is None:
                return []
            path = f"{root}/{resource.partition('.')[0]}"
            listed = self.request("GET", f"{path}?labelSelector={urllib.parse.quote(selector)}")
        except Refused as refused:
            if refused.status == 404:
                return []
            raise
        about = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        return [{**about, **item} for item in listed["items"]]

    def watch(self, path):
        """Yields existing objects, and then every change, for ever: type and object."""
        connection = self.connect()
        connection.timeout = None
        separator = "&" if "?" in path else "?"
        connection.request("GET", f"{path}{separator}watch=true&timeoutSeconds=3600", None, self.headers())
        answer = connection.getresponse()
        print("WATCHING - - -", flush=True)
        for line in answer:
            event = json.loads(line)
            yield event["type"], event["object"]


def at_once(work, items, threads=THREADS):
    """Does the work for all items, by some threads. The first failure ends it."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def bystander(number, node, runs):
    """A pod of others: bound to a node, and left alone by the stages unless it runs."""
    container = {"name": "main", "image": "registry.example/none", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}
    labels = {"app": "crowd"} if runs else {"app": "crowd", "test.meridian.dev/still": "true"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"crowd-{number}", "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
    }


def main():
    api, (command, *rest) = Api(*sys.argv[1:4]), sys.argv[4:]
    if command == "crowd":
        pods = "/api/v1/namespaces/default/pods"
        at_once(lambda number: api.text("POST", pods, bystander(number, rest[1], rest[2:] == ["run"])), range(int(rest[0])))
    elif command == "create":
        template = sys.stdin.read()
        made = [json.loads(template.replace("NUMBER", str(number))) for number in range(int(rest[0]))]
        at_once(lambda one: api.text("POST", rest[1], one), made)
    elif command == "delete":
        at_once(lambda number: api.text("DELETE", rest[1].replace("NUMBER", str(number))), range(int(rest[0])))
    elif command == "watch":
        for kind, found in api.watch(rest[0]):
            meta = found.get("metadata", {})
            print(kind, meta.get("name", "-"), meta.get("uid", "-"), found.get("status", {}).get("phase", "-"), flush=True)
    elif command == "evict":
        namespace, pod = rest
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        deadline = time.monotonic() + 20
        while True:
            try:
                api.text("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)
                break
            except Refused:
                # The pod's status was written at the same time, so the write conflicts and is repeated.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
