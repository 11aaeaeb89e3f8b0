#!/usr/bin/env python3
"""Starts, disturbs and ends many jobs under Sluice, and then looks for anything left behind.

    soak.py --build DIR (--seconds S | --count N) [--parallel 4] [--seed 1] [--calm]

Jobs are example_latency, example_throughput and programs that use no CUDA, at random priorities and shares, on the
emulator. Some are disturbed: the command, its `sluice run` or the daemon is killed (SIGKILL), or the command is stopped
for a moment. --calm disturbs nothing.

Must hold: no job hangs; a job that was not disturbed returns the command's own exit code; in the end there is no job in
`sluice ps`, the daemon goes by itself, and no process and no file of ours remains. Exit code 1 and a sentence for
each fault otherwise.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HANG_SECONDS = 180  # far beyond what any of these jobs takes on a slow machine


def children(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def ended(pid):
    """Gone, or a zombie that whoever inherited it has not collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def kill(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def wait_until(condition, seconds):
    """Whether `condition` came true within a limit that only a hang reaches."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Job:
    def __init__(self, soak, words, expected):
        self.words, self.expected, self.disturbed = words, expected, None
        self.uses_cuda = "sh" not in words
        self.begun = time.monotonic()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([soak.bin / "sluice", "run", "--quiet", *words], env=soak.environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        self.command = 0  # pid of the command, once it was needed
        self.disturb_at = None

    def find_command(self, bin_directory):
        """The command's pid, or 0: `run` may have a short-lived child of its own before it starts the command."""
        for pid in children(self.process.pid):
            try:
                if not os.path.samefile(os.readlink(f"/proc/{pid}/exe"), bin_directory / "sluice"):
                    self.command = pid
            except OSError:
                pass
        return self.command

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.bin = Path(options.build).resolve() / "bin"
        self.runtime = Path(tempfile.mkdtemp(prefix="sluice-soak-", dir="/dev/shm"))
        self.environment = {**os.environ, "SLUICE_RUNTIME_DIR": str(self.runtime), "SLUICE_LOG": "error"}
        for name in ("SLUICE_DISABLE", "SLUICE_LATENCY_FILE", "SLUICE_EMU_SCALE"):
            self.environment.pop(name, None)
        self.running, self.faults, self.counts = [], [], collections.Counter()
        self.slowest = (0.0, "")

    def words(self):
        """Options and command of a random job, and the exit code it must have."""
        pick = self.random
        options = ["--priority", pick.choice(["low", "low", "normal", "high", "17"]), "--share", str(pick.randint(1, 4))]
        kind = pick.choice(self.options.kinds)
        if kind == "latency":
            command, code = [self.bin / "example_latency", "--requests", str(pick.randint(5, 120)), "--rate", "100"], 0
        elif kind == "throughput":
            command, code = [self.bin / "example_throughput", "--iterations", str(pick.randint(2, 400))], 0
        else:
            code = pick.choice([0, 0, 1, 7, 255])
            command = ["sh", "-c", f"exit {code}"]
        self.counts[kind] += 1
        return [*options, "--", *map(str, command)], code

    def start_one(self):
        job = Job(self, *self.words())
        if not self.options.calm and job.uses_cuda and self.random.random() < 0.5:
            job.disturb_at = self.random.uniform(0.0, 0.5)  # after its command has appeared
        self.running.append(job)
        self.counts["jobs"] += 1

    def disturb(self, job):
        job.disturb_at = None
        if job.process.poll() is not None:
            return
        how = self.random.choice(["command", "run", "daemon", "stop"])
        if how == "daemon":
            pid = self.daemon()
            if pid and kill(pid, signal.SIGKILL):
                self.counts["daemon killed"] += 1
            return
        if how == "command" and kill(job.command, signal.SIGKILL):
            job.disturbed = "command killed"
        elif how == "run" and kill(job.process.pid, signal.SIGKILL):
            job.disturbed = "run killed"
        elif how == "stop" and kill(job.command, signal.SIGSTOP):
            time.sleep(self.random.uniform(0.05, 0.4))
            kill(job.command, signal.SIGCONT)
            job.disturbed = "stopped for a moment"
        if job.disturbed:
            self.counts[job.disturbed] += 1

    def daemon(self):
        """Pid of this soak's daemon, or 0."""
        for pid in self.ours():
            try:
                if os.path.samefile(os.readlink(f"/proc/{pid}/exe"), self.bin / "sluiced"):
                    return pid
            except OSError:
                pass
        return 0

    def ours(self):
        """Processes that have our runtime directory in their environment."""
        mark = f"SLUICE_RUNTIME_DIR={self.runtime}\0".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes() + b"\0":
                    found.append(int(entry))
            except OSError:
                pass
        return found

    def finish(self, job):
        code = job.process.returncode
        self.slowest = max(self.slowest, (time.monotonic() - job.begun, f"{job.words} ({job.disturbed or 'not disturbed'})"))
        if job.disturbed == "run killed":
            if not wait_until(lambda: ended(job.command), HANG_SECONDS):
                self.faults.append(f"the command of a killed run never ended: {job.words}")
        elif job.disturbed == "command killed":
            if code not in (128 + signal.SIGKILL, job.expected):  # it may have ended just before
                self.faults.append(f"{job.words}: exit code {code} after its command was killed: {job.said()}")
        elif code != job.expected:
            self.faults.append(f"{job.words}: exit code {code}, not {job.expected}: {job.said()}")
        job.errors.close()

    def step(self):
        now = time.monotonic()
        for job in list(self.running):
            if job.disturb_at is not None:
                if job.command == 0 and job.find_command(self.bin):
                    job.disturb_at += now
                elif job.command != 0 and now >= job.disturb_at:
                    self.disturb(job)
            if job.process.poll() is not None:
                self.running.remove(job)
                self.finish(job)
            elif now - job.begun > HANG_SECONDS:
                self.faults.append(f"{job.words}: hung ({job.disturbed or 'not disturbed'}): {job.said()}")
                if job.find_command(self.bin):
                    kill(job.command, signal.SIGKILL)
                job.process.kill()
                job.process.wait()
                self.running.remove(job)
        time.sleep(0.005)

    def jobs_listed(self):
        listed = subprocess.run([self.bin / "sluice", "ps", "--json"], env=self.environment, capture_output=True, text=True)
        if listed.returncode != 0:
            return [f"ps failed: {listed.stderr.strip()}"]
        return json.loads(listed.stdout)["jobs"]

    def look_for_remains(self):
        if self.counts["daemon killed"]:  # what a killed daemon left is cleared away by the next one
            Job(self, ["--", "true"], 0).process.wait()
        if not wait_until(lambda: not self.jobs_listed(), 30):
            self.faults.append(f"jobs still listed: {self.jobs_listed()}")
        if not wait_until(lambda: not self.ours(), 60):
            names = []
            for pid in self.ours():
                names.append(f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
            self.faults.append(f"processes left: {names}")
        left = sorted(path.name for path in self.runtime.iterdir() if path.name.endswith((".board", ".sock")))
        if left:
            self.faults.append(f"files left: {left}")

    def run(self):
        end = time.monotonic() + self.options.seconds if self.options.seconds else None
        try:
            while not self.faults:
                more = time.monotonic() < end if end else self.counts["jobs"] < self.options.count
                if not more and not self.running:
                    break
                while more and len(self.running) < self.options.parallel:
                    self.start_one()
                    more = not self.options.count or self.counts["jobs"] < self.options.count
                self.step()
            if not self.faults:
                self.look_for_remains()
        finally:
            for pid in self.ours():
                kill(pid, signal.SIGKILL)
            shutil.rmtree(self.runtime, ignore_errors=True)
        for fault in self.faults:
            print(f"soak: {fault}")
        print(f"soak: slowest job: {self.slowest[0]:.1f} s, {self.slowest[1]}")
        print("soak: " + ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())) +
              (f" - FAILED (seed {self.options.seed})" if self.faults else " - ok"))
        return 1 if self.faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build directory")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=float)
    length.add_argument("--count", type=int)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=["latency", "throughput", "plain"], choices=["latency", "throughput", "plain"])
    return Soak(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
