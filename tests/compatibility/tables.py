"""Applies manifest files to a manager and writes a table of the verdicts. tests/compatibility/run starts it.

A file is applied alone, as a server dry run, so nothing stays and no file sees another's objects. Objects without a namespace are in
NAMESPACE. Objects that a file needs and lacks, such as the local queue of a job, are made first, named in the table, and deleted
afterwards. A file with a `generateName` is given to `meridian create`, as `meridian apply` asks for. `create` checks object by object,
so a dry run can't see the queue that the same file makes: such a file is really created, and deleted again. A file with settings of
worker clusters is also applied to one of them, because the manager's warning says to do so.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

NAMESPACE = "files"
EXTENSIONS = (".yaml", ".yml", ".json")
# Rounds for one file. Each round makes the objects that were missing in the last one.
ROUNDS_MAX = 8
COMMAND_SECONDS = 120
# Characters of a message in a table. Longer messages are cut and end with `…`.
QUOTED_MAX = 300

ACCEPTED, WARNED, SKIPPED, REFUSED = "accepted", "warned", "skipped", "refused"
HEADER = "| file | verdict | why |\n|---|---|---|\n"
NO_OBJECTS = "there is no object in the given files"
ONLY_GENERATED = "has only a generateName"
FOR_WORKERS = "apply it to the worker with"
# A cluster of the fleet that `meridian up` starts.
WORKER = "multikueue-dws-worker-eu"

# Messages about a missing object, by its kind.
MISSING = {
    "LocalQueue": re.compile(r"there is no local queue `(?P<name>[^`]+)` in namespace `(?P<namespace>[^`]+)`"),
    "ClusterQueue": re.compile(r"there is no cluster queue `(?P<name>[^`]+)`"),
    "WorkloadPriorityClass": re.compile(r"there is no WorkloadPriorityClass `(?P<name>[^`]+)`"),
    "PriorityClass": re.compile(r"there is no PriorityClass `(?P<name>[^`]+)`"),
}
KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVOR = "prepared"
RESOURCES = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu")
# A name that the manager has generated, in a message of `create`.
GENERATED_NAME = re.compile(r'Job\.batch "(?P<base>[^"]*?-)[a-z0-9]{5}" is invalid')


def cluster_queue(name):
    resources = [{"name": resource, "nominalQuota": "1000000"} for resource in RESOURCES]
    group = {"coveredResources": list(RESOURCES), "flavors": [{"name": FLAVOR, "resources": resources}]}
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}


def prepared(kind, name, namespace):
    """The objects that replace a missing one. Objects come before those that refer to them."""
    if kind == "ClusterQueue":
        return [cluster_queue(name)]
    if kind == "LocalQueue":
        queue = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
        return [cluster_queue(FLAVOR), {**queue, "spec": {"clusterQueue": FLAVOR}}]
    api_version = KUEUE if kind == "WorkloadPriorityClass" else "scheduling.k8s.io/v1"
    return [{"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "value": 100}]


class Manager:
    """Runs the commands of `meridian`."""

    def __init__(self, program, kubeconfig, directory):
        self.program = program
        text = Path(kubeconfig).read_text()
        text, count = re.subn(r'(?m)^( *namespace: ).*$', rf'\g<1>"{NAMESPACE}"', text)
        if count != 1:
            sys.exit(f"{kubeconfig}: {count} lines name a namespace, not one")
        self.kubeconfig = Path(directory) / "kubeconfig"
        self.kubeconfig.write_text(text)

    def run(self, *arguments, directory=".", text=None):
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "NO_COLOR": "1"}
        return subprocess.run([self.program, *arguments], cwd=directory, env=environment, input=text, text=True,
                              capture_output=True, timeout=COMMAND_SECONDS, check=False)

    def must(self, *arguments, text=None):
        done = self.run(*arguments, text=text)
        if done.returncode != 0:
            sys.exit(f"meridian {' '.join(arguments)}: {done.stderr}")

    def make(self, objects):
        """Whether the objects could be made, all or none: a name may be one that no object can have."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self.run("apply", "-f", "-", text=text).returncode == 0

    def delete(self, objects):
        """Deletes objects in the reverse of the order in which they were made."""
        for one in reversed(objects):
            self.must("delete", "--force", "--wait", "--ignore-not-found", "-f", "-", text=json.dumps(one))

    def objects(self, *arguments, directory):
        """The objects that a command prints."""
        done = self.run(*arguments, "-o", "json", directory=directory)
        document = json.loads(done.stdout) if done.stdout else {"kind": "List", "items": []}
        return done, document["items"] if document["kind"] == "List" else [document]


class Answer:
    """What one command said about one file, line by line, without the file's name."""

    def __init__(self, done, name):
        self.returncode = done.returncode
        self.warnings, self.errors = [], []
        kind = self.warnings
        for line in done.stderr.splitlines():
            if line.startswith("warning: "):
                kind, line = self.warnings, line.removeprefix("warning: ")
            elif line.startswith("error: "):
                kind, line = self.errors, line.removeprefix("error: ")
            elif kind is self.warnings:
                # Tables don't have notes such as hints.
                continue
            if re.fullmatch(r"the manager refused \(.*\)|\d+ problems? found; nothing was \w+|not everything was done", line):
                continue
            line = GENERATED_NAME.sub(r'Job.batch "\g<base>*" is invalid', line)
            kind.append(line.replace(f"{name}:", "").strip())

    def missing(self):
        """Kind, name and namespace of what the errors say is missing, sorted; empty if anything else is wrong."""
        found = set()
        for error in self.errors:
            matches = [(kind, at) for kind, pattern in MISSING.items() if (at := pattern.search(error))]
            if not matches:
                return []
            kind, at = matches[0]
            found.add((kind, at["name"], at.groupdict().get("namespace") or ""))
        return sorted(found)


def verdict_of_answer(answer, notes):
    notes = list(notes)
    skipped = [re.sub(r"^[\d:]+ kind: ", "", warning) for warning in answer.warnings if re.search(r"(is|are) skipped$", warning)]
    kinds = sorted({at[1] for text in skipped if (at := re.match(r"(`[^`]+` of `[^`]+`)", text))})
    if answer.returncode == 0:
        others = [warning for warning in answer.warnings if not re.search(r"(is|are) skipped$", warning)]
        if kinds:
            notes.insert(0, f"skips {', '.join(kinds)}")
        return (WARNED if answer.warnings else ACCEPTED), "; ".join(first_of(others) + notes)
    if answer.errors == [NO_OBJECTS] and kinds:
        return SKIPPED, ", ".join(kinds)
    if answer.errors == [NO_OBJECTS]:
        return REFUSED, "; ".join(first_of([*answer.warnings, *answer.errors][:1]))
    return REFUSED, "; ".join(first_of(answer.errors) + notes)


def first_of(messages):
    """The first message, cut to the length for a table, and how many more there are."""
    if not messages:
        return []
    first = messages[0] if len(messages[0]) <= QUOTED_MAX else messages[0][:QUOTED_MAX].rstrip() + " …"
    return [first + (f" (and {len(messages) - 1} more)" if len(messages) > 1 else "")]


def verdict_of(manager, directory, name):
    """Verdict and reason of one file."""
    made, needed, command = [], [], "apply"

    def ask(*arguments):
        return Answer(manager.run(command, *arguments, "-f", name, directory=directory), name)

    answer = ask("--dry-run=server")
    for _ in range(ROUNDS_MAX):
        if any(ONLY_GENERATED in error for error in answer.errors):
            command = "create"
            if makes_what_it_needs(manager, directory, name):
                done, created = manager.objects(command, "-f", name, directory=directory)
                answer = Answer(done, name)
                made += created
                break
        else:
            missing = [one for one in answer.missing() if one not in needed]
            if not missing:
                break
            more = [one for at in missing for one in prepared(*at) if one not in made]
            if not manager.make(more):
                break
            made += more
            needed += missing
        answer = ask("--dry-run=server")
    notes = [f"needs {kind} `{wanted}`" for kind, wanted, _ in needed] + (["use `create`"] if command == "create" else [])
    if command == "apply" and any(FOR_WORKERS in warning for warning in answer.warnings):
        worker = ask("--dry-run=server", "--cluster", WORKER)
        notes.append(f"with `--cluster`: {ACCEPTED if worker.returncode == 0 else REFUSED}")
    manager.delete(made)
    return verdict_of_answer(answer, notes)


def makes_what_it_needs(manager, directory, name):
    """Whether the file has a queue beside objects without a name."""
    _, objects = manager.objects("create", "--dry-run=client", "-f", name, directory=directory)
    return any(one["kind"] in MISSING for one in objects)


def files_of(directory):
    found = []
    for path, folders, names in os.walk(directory):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        found += [os.path.relpath(os.path.join(path, name), directory) for name in names
                  if name.endswith(EXTENSIONS) and not name.startswith(".")]
    return sorted(found)


def table_of(manager, directory):
    rows, counts = [], Counter()
    for name in files_of(directory):
        verdict, why = verdict_of(manager, directory, name)
        counts[verdict] += 1
        why = why.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| {name} | {verdict} | {why} |\n")
    # A manager that has ended would have refused the rest.
    manager.must("get", "clusters")
    total = sum(counts.values())
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (ACCEPTED, WARNED, SKIPPED, REFUSED))
    return HEADER + "".join(rows) + f"\n{total} {'file' if total == 1 else 'files'}: {parts}.\n"


def section(name):
    """The text between the comments of a table."""
    return re.compile(rf"(<!-- table: {re.escape(name)} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def check(text, tables):
    """Compares the tables with those in the text; returns the number of equal and different rows."""
    passed, failed = 0, 0
    for name, table in tables:
        found = section(name).search(text)
        if not found:
            print(f"FAILED {name}: there is no such table")
            failed += 1
            continue
        wanted, got = found[2].splitlines(), table.splitlines()
        for line in got:
            if line in wanted:
                passed += line.startswith("| ") and line not in HEADER
            else:
                failed += 1
                print(f"FAILED {name}, now:     {line}")
        for line in wanted:
            if line not in got:
                failed += 1
                print(f"FAILED {name}, in file: {line}")
    return passed, failed


def write(text, tables):
    for name, table in tables:
        if section(name).search(text):
            text = section(name).sub(lambda at, table=table: at[1] + table + at[3], text)
        else:
            text = f"{text}\n" if text else text
            text += f"<!-- table: {name} -->\n{table}<!-- end -->\n"
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meridian", required=True)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--mode", choices=("print", "check", "write"), required=True)
    parser.add_argument("--file", type=Path)
    parser.add_argument("directories", nargs="+", metavar="[NAME=]DIR")
    arguments = parser.parse_args()

    named = []
    for directory in arguments.directories:
        name, _, path = directory.rpartition("=")
        if not os.path.isdir(path):
            sys.exit(f"there is no directory {path}")
        named.append((name or path.rstrip("/"), path))
    with tempfile.TemporaryDirectory() as directory:
        manager = Manager(arguments.meridian, arguments.kubeconfig, directory)
        tables = [(name, table_of(manager, path)) for name, path in named]

    file = arguments.file
    if arguments.mode == "print":
        print("\n".join(f"## {name}\n\n{table}" for name, table in tables), end="")
    elif arguments.mode == "write":
        file.write_text(write(file.read_text() if file.exists() else "", tables))
        for name, table in tables:
            print(f"{name}: {table.splitlines()[-1]}")
    else:
        for name, table in tables:
            print(f"{name}: {table.splitlines()[-1]}")
        passed, failed = check(file.read_text(), tables)
        print(f"\n{passed} passed, {failed} failed")
        if failed:
            sys.exit(f"{file} differs: if the new verdicts are right, write them with --write")


if __name__ == "__main__":
    main()
