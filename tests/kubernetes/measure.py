"""Runs `meridian bench kubernetes` beside the processes of a fleet, and prints Markdown tables. Called by `measure`.

usage: measure.py TITLE MANAGEMENT COMMAND… <parts

COMMAND is the bench with its arguments. Requests are those of the server MANAGEMENT, and of all others together. The standard
input has a line `PART=PID` for each process whose processor time counts.
"""

import bisect
import collections
import json
import os
import re
import subprocess
import sys
import threading
import time

TITLE, MANAGEMENT, COMMAND = sys.argv[1], sys.argv[2], sys.argv[3:]
PARTS = [line.strip().rsplit("=", 1) for line in sys.stdin if line.strip()]
SAMPLE_SECONDS = 0.2
STATES = {
    "admitted": "created → admission shown",
    "resumed": "created → resumed at a worker",
    "running": "created → running shown",
}


class Processors:
    """Processor seconds of each part over time, by samples."""

    def __init__(self):
        self.times, self.seconds = [], []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)

    def sample(self):
        ticks, seconds = os.sysconf("SC_CLK_TCK"), collections.Counter()
        for part, pid in PARTS:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            seconds[part] += (int(fields[11]) + int(fields[12])) / ticks
        self.times.append(time.time())
        self.seconds.append(seconds)

    def follow(self):
        self.sample()
        while not self.end.wait(SAMPLE_SECONDS):
            self.sample()

    def used(self, interval):
        """Seconds of each part in an interval of the document."""
        first, last = (
            self.seconds[min(bisect.bisect_left(self.times, interval[edge]), len(self.times) - 1)] for edge in ("began", "ended")
        )
        return {part: last[part] - first[part] for part in last}


def resident(field):
    pid = next(pid for part, pid in PARTS if part == "manager")
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(rf"{field}:\s+(\d+)", file.read()).group(1)) // 1024


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def report_times(mode):
    rows = [[STATES[times["state"]], f"{times['p50Ms']:.0f} ms", f"{times['p99Ms']:.0f} ms"] for times in mode["times"]]
    if mode["perSecond"] is not None:
        rows.append([f"{mode['jobs']} jobs, until the last", f"{mode['perSecond']:.1f}/s", ""])
    table([TITLE, "P50", "P99"], rows)


def report_requests(mode):
    lines = collections.defaultdict(collections.Counter)
    for one in mode["requests"]:
        kind = "management" if one["server"] == MANAGEMENT else "workers"
        lines[f"{one['verb']} {one['resource']}"][kind] += one["perJob"]
    rows = sorted(lines.items(), key=lambda line: -sum(line[1].values()))
    rows.append(("all", sum(lines.values(), collections.Counter())))
    cells = [[title, *(f"{line[kind]:.2f}" if line[kind] else "" for kind in ("management", "workers"))] for title, line in rows]
    table(["requests per job", "management cluster", "worker clusters"], cells)


def report_processors(mode, idle, processors):
    """Processor time for each job, without what the idle fleet uses."""
    used, anyway = processors.used(mode), processors.used(idle)
    share = (mode["ended"] - mode["began"]) / (idle["ended"] - idle["began"])
    each = {part: (used[part] - anyway[part] * share) / mode["jobs"] * 1000 for part in used}
    rows = [[part, f"{value:.1f} ms"] for part, value in each.items()]
    table(["processor time per job", ""], [*rows, ["all", f"{sum(each.values()):.1f} ms"]])


def main():
    processors = Processors()
    processors.thread.start()
    done = subprocess.run([*COMMAND, "-o", "json"], stdout=subprocess.PIPE, check=False)
    processors.end.set()
    processors.thread.join()
    if done.returncode != 0:
        sys.exit(done.returncode)
    document = json.loads(done.stdout)
    for mode in document["modes"]:
        report_times(mode)
        if mode["mode"] == "rate":
            report_requests(mode)
            report_processors(mode, document["idle"], processors)
            print(f"\nmanager: {resident('VmRSS')} MiB resident, {resident('VmHWM')} MiB at most")


main()
