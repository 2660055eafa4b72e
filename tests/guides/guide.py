"""Runs the marked blocks of guides.

A guide marks its blocks by the words after the fence's language:

    ```yaml file=train.yaml      the block is written into this file
    ```sh run                    the commands must succeed
    ```sh run exit=1             they must end with this exit code
    ```sh run until              they are repeated until they do, and print the words
    ```sh run background         they run until the guide ends; the words must appear

The words are named between the commands and the shown output, separated by commas:

    <!-- words: Running, asia-southeast1 -->

Other blocks aren't run. All blocks of a guide share a new directory, which is also the home directory. The port 7443 stands
for a free one.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Most seconds of a block, and of the wait for words that must appear in the end.
BLOCK_SECONDS = 40
UNTIL_SECONDS = 30
UNTIL_EVERY_SECONDS = 0.3
# Seconds between the request to end and the kill.
END_SECONDS = 10
PORT = "7443"
FENCE = re.compile(r"```(\w*)(.*)")
WORDS = re.compile(r"<!-- words: (.*) -->")


class Failed(Exception):
    """A block didn't do what its guide says."""


class Block:
    def __init__(self, place, language, marks, text):
        self.place = place
        self.language = language
        self.marks = marks
        self.text = text
        self.words = []

    def mark(self, name):
        found = [mark.partition("=")[2] for mark in self.marks if mark.partition("=")[0] == name]
        return found[0] if found else None

    @property
    def runs(self):
        return self.language == "sh" and self.mark("run") is not None

    def first_line(self):
        return self.text.splitlines()[0] if self.text else ""


def blocks_of(path):
    """All fenced blocks, with the words that their output must have."""
    blocks, inside = [], None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            fence = FENCE.match(line)
            words = WORDS.match(line)
            if inside is not None and line.startswith("```"):
                blocks.append(inside)
                inside = None
            elif inside is not None:
                inside.text += line
            elif fence:
                inside = Block(f"{path}:{number}", fence[1], fence[2].split(), "")
            elif words:
                last = next((block for block in reversed(blocks) if block.runs), None)
                if last is None:
                    raise Failed(f"{path}:{number}: words without a block that runs")
                last.words += [word.strip() for word in words[1].split(",")]
    if inside is not None:
        raise Failed(f"{inside.place}: the block has no end")
    return blocks


class Shell:
    """A directory in which blocks run, and every process that they started."""

    def __init__(self, program):
        self.directory = tempfile.mkdtemp(prefix="meridian-guide-")
        self.port = str(free_port())
        programs = os.path.join(self.directory, ".bin")
        os.mkdir(programs)
        os.symlink(program, os.path.join(programs, "meridian"))
        keep = {name: os.environ[name] for name in ("TMPDIR", "LANG") if name in os.environ}
        self.environment = {
            **keep,
            "HOME": self.directory,
            "PATH": f"{programs}:{os.environ['PATH']}",
            # Width and colour don't depend on the caller.
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        self.started = []

    def localize(self, text):
        return text.replace(PORT, self.port)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.localize(text))

    def start(self, text):
        """A process group of its own, so that what it leaves behind can be ended. Output goes to a file, because a pipe
        would wait for processes in the background."""
        output = open(os.path.join(self.directory, f".output-{len(self.started)}"), "w+", encoding="utf-8")
        process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", self.localize(text)],
            cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )
        self.started.append(process)
        return process, output

    def left(self):
        """Processes that use the directory. Their group doesn't tell: agents, guards and pods have groups of their own."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(pid) != os.getpid() and self.is_own(f"/proc/{pid}"):
                    found.append(int(pid))
            except OSError:
                continue
        return found

    def is_own(self, process):
        with open(f"{process}/stat", encoding="utf-8") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return False
        if os.readlink(f"{process}/cwd").startswith(self.directory):
            return True
        with open(f"{process}/environ", "rb") as file:
            return f"HOME={self.directory}\0".encode() in file.read()

    def close(self):
        """Ends all processes. Returns those that should have ended before."""
        for process in reversed(self.started):
            signal_group(process.pid, signal.SIGTERM)
        until = time.monotonic() + END_SECONDS
        while self.left() and time.monotonic() < until:
            for process in self.started:
                process.poll()
            time.sleep(0.1)
        stubborn = self.left()
        commands = [command_of(pid) for pid in stubborn]
        for pid in stubborn:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.started:
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        return commands


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return str(pid)


def signal_group(group, number):
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read(output):
    output.flush()
    output.seek(0)
    return output.read()


def run_once(shell, block):
    """Exit code and output."""
    process, output = shell.start(block.text)
    try:
        code = process.wait(BLOCK_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{block.place}: not ended after {BLOCK_SECONDS} s:\n{read(output)}") from None
    return code, read(output)


def complaint(block, code, text):
    """What is wrong with the exit code or the output, or None."""
    expected = int(block.mark("exit") or 0)
    if code != expected:
        return f"exit code {code} instead of {expected}"
    return missing(block, text)


def missing(block, text):
    # A table may wrap a sentence.
    flat = " ".join(text.split())
    absent = [word for word in block.words if word not in flat]
    return f"the output lacks {', '.join(f'`{word}`' for word in absent)}" if absent else None


def run(shell, block):
    """Runs a block as its marks say. Returns the output, and raises `Failed` if it does something else."""
    until = time.monotonic() + UNTIL_SECONDS
    if block.mark("background") is not None:
        process, output = shell.start(block.text)
        while True:
            wrong = missing(block, read(output))
            if wrong is None:
                return read(output)
            if process.poll() is not None:
                wrong = f"it has ended with exit code {process.returncode}"
                break
            if time.monotonic() > until:
                break
            time.sleep(UNTIL_EVERY_SECONDS)
        raise Failed(f"{block.place}: {wrong}:\n{read(output)}")
    while True:
        code, text = run_once(shell, block)
        wrong = complaint(block, code, text)
        if wrong is None:
            return text
        if block.mark("until") is None or time.monotonic() > until:
            raise Failed(f"{block.place}: {wrong}:\n{block.text}\n{text}")
        time.sleep(UNTIL_EVERY_SECONDS)


def check(program, path, show):
    """Runs a guide to its end or its first failure. Returns how many blocks passed."""
    shell, passed = Shell(program), 0
    began = time.monotonic()
    try:
        for block in blocks_of(path):
            if block.mark("file"):
                shell.write(block.mark("file"), block.text)
            elif block.runs:
                text = run(shell, block)
                passed += 1
                print(f"ok: {block.place}: {block.first_line()}")
                if show:
                    print(text.replace(shell.directory, "."))
    finally:
        left = shell.close()
    if passed == 0:
        raise Failed(f"{path}: no block that runs")
    if left:
        raise Failed(f"{path}: processes that didn't end:\n" + "\n".join(left))
    print(f"{path}: {passed} blocks, {time.monotonic() - began:.0f} s\n")
    return passed


def main():
    arguments = sys.argv[1:]
    show = arguments[0] == "--show"
    program, *paths = arguments[show:]
    # An interrupted run ends its processes, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    passed, failed = 0, 0
    for path in paths:
        try:
            passed += check(program, path, show)
        except Failed as error:
            print(error, file=sys.stderr)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
