"""`meridian up --observe` as a user starts it, and its processes."""

import os
import re
import signal
import subprocess
import tempfile
import time

from fleet import CLUSTERS, Prometheus, Refused

WAIT_SECONDS = 60


class Up:
    def __init__(self, binary, work, path):
        self.binary, self.environment = binary, {**os.environ, "PATH": path}
        for name in ["KUBECONFIG", "MERIDIAN_KUBECONFIG"]:
            self.environment.pop(name, None)
        self.directory = tempfile.mkdtemp(dir=work)
        self.output = open(os.path.join(self.directory, "up.log"), "w", encoding="utf-8")
        self.process, self.prometheus = None, None

    def __enter__(self):
        self.process = subprocess.Popen(
            [self.binary, "up", "--observe"], cwd=self.directory, env=self.environment,
            stdout=self.output, stderr=self.output,
        )
        try:
            self.wait_for("the start of the fleet", lambda: "Ctrl-C stops the fleet" in self.text())
        except BaseException:
            self.__exit__()
            raise
        found = re.search(r"^prometheus +(http://\S+)", self.text(), re.MULTILINE)
        self.prometheus = Prometheus(found.group(1)) if found else None
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        self.output.close()

    def text(self):
        with open(self.output.name, encoding="utf-8") as output:
            return output.read()

    def wait_for(self, what, happened):
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise Refused(f"meridian up ended:\n{self.text()}")
            if happened():
                return
            time.sleep(0.3)
        raise Refused(f"{what} did not happen within {WAIT_SECONDS} s:\n{self.text()}")

    def every_target_is_up(self):
        targets = self.prometheus.get("/api/v1/targets")["activeTargets"]
        jobs = sorted(target["labels"]["job"] for target in targets)
        expected = ["meridian-agent"] * len(CLUSTERS) + ["meridian-manager"]
        if len(jobs) >= len(expected) and jobs != expected:
            raise Refused(f"the targets are {jobs}")
        # Prometheus finds no targets before its first discovery.
        return jobs == expected and all(target["health"] == "up" for target in targets)

    def every_agent_has_a_sample(self):
        found = self.prometheus.query('meridian_agent_runs{state="running"}')
        return sorted(series["metric"]["cluster"] for series in found) == sorted(CLUSTERS)

    def rules(self):
        """The rules, after each was evaluated."""

        def groups():
            return self.prometheus.get("/api/v1/rules")["groups"]

        self.wait_for(
            "an evaluation of every rule",
            lambda: all(rule["health"] != "unknown" for group in groups() for rule in group["rules"]),
        )
        return [rule for group in groups() for rule in group["rules"]]

    def children(self):
        """The numbers of the processes that it started."""
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], text=True, capture_output=True, check=True,
        ).stdout
        return [int(pid) for pid in found.split()]

    def interrupt(self):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(30)
        if status != 0:
            raise Refused(f"meridian up ended with {status}:\n{self.text()}")
